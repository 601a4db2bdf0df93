"""Sessions with MCP servers, by the official client: opened when first needed, one a server, for one attempt.

The client is asynchronous and a kind isn't: its loop runs on a thread of its own, and every call waits for it. A server
that ends takes its session along; the next call opens a new one. What goes wrong is told as errors of work.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast

from harness.kinds import TimedOut, Transient
from harness.kinds.egress.outcomes import network_error
from harness.kinds.errors import WorkError, of_status
from tasks.mcp_agents.servers import Server

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp_types import RequestParamsMeta

OPEN_S: Final = 20.0
PAGES_MOST: Final = 20
TEXT_MOST_CHARS: Final = 20_000
TOKEN_META: Final = "harness/idempotency-token"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool that a server offers. `schema`: of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a tool said; `is_error`: that it couldn't."""

    text: str
    is_error: bool


class Sessions:
    """The sessions of one attempt. Use as a context manager: at its end no server that it started runs any more."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._open: dict[str, tuple[Client, contextlib.ExitStack]] = {}

    def __enter__(self) -> Self:
        from anyio.from_thread import start_blocking_portal

        self._portal: BlockingPortal = self._stack.enter_context(start_blocking_portal())
        return self

    def __exit__(self, *raised: object) -> None:
        for name in list(self._open):
            self._forget(name)
        self._stack.close()

    def tools(self, server: Server) -> list[Tool]:
        """List a server's tools. Raises: TimedOut, Transient, Permanent naming the server."""

        async def pages(client: "Client") -> list[Tool]:
            found: list[Tool] = []
            cursor: str | None = None
            for _ in range(PAGES_MOST):
                page = await client.list_tools(cursor=cursor)
                found += [
                    Tool(
                        name=one.name,
                        description=one.description or "",
                        schema=one.input_schema,
                        read_only=bool(one.annotations and one.annotations.read_only_hint),
                    )
                    for one in page.tools
                ]
                cursor = page.next_cursor
                if cursor is None:
                    break
            return found

        found: list[Tool] = self._asked(server, pages)
        return found

    def call(self, server: Server, tool: str, arguments: dict[str, Any], *, timeout_s: float, token: str) -> Answer:
        """Call a tool once. `token` goes along as `_meta`, for those that write. Raises: as `tools`."""

        async def ask(client: "Client") -> Answer:
            meta = cast("RequestParamsMeta", {TOKEN_META: token})  # the protocol lets clients add keys of their own
            result = await client.call_tool(tool, arguments, timeout_s, meta=meta)
            texts = [getattr(one, "text", f"[{one.type}]") for one in result.content]
            return Answer(text="\n".join(texts)[:TEXT_MOST_CHARS], is_error=result.is_error)

        answer: Answer = self._asked(server, ask)
        return answer

    def _asked(self, server: Server, ask: Callable[["Client"], Any]) -> Any:
        with _told(server.name):
            try:
                return self._portal.call(ask, self._client(server))
            except BaseException:
                self._forget(server.name)  # whatever state it is in
                raise

    def _client(self, server: Server) -> "Client":
        if server.name not in self._open:
            stack = contextlib.ExitStack()
            client = stack.enter_context(self._portal.wrap_async_context_manager(_connected(server)))
            self._open[server.name] = client, stack
        return self._open[server.name][0]

    def _forget(self, name: str) -> None:
        found = self._open.pop(name, None)
        if found is not None:
            with contextlib.suppress(Exception):  # how a broken session ends tells nothing new
                found[1].close()


@contextlib.asynccontextmanager
async def _connected(server: Server) -> Any:
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    async with contextlib.AsyncExitStack() as stack:
        transport: Any
        if server.url:
            headers = {"authorization": f"Bearer {server.token}"} if server.token else {}
            timeout = httpx2.Timeout(OPEN_S, read=300)
            client = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=timeout))
            transport = streamable_http_client(server.url, http_client=client)
        else:
            # Not the worker's own stderr: Celery replaces it by one without a file behind it.
            nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))  # noqa: ASYNC230, SIM115  # no disk
            program, *arguments = server.command
            environment = {"HARNESS_MCP_TOKEN": server.token} if server.token else None
            transport = stdio_client(
                StdioServerParameters(command=program, args=arguments, env=environment), errlog=nowhere
            )
        yield await stack.enter_async_context(Client(transport, read_timeout_seconds=OPEN_S))


@contextlib.contextmanager
def _told(name: str) -> Iterator[None]:
    """Raise what goes wrong with a server as an error of work that names it."""
    try:
        yield
    except Exception as error:
        first = _first(error)
        told = _as_work(f"MCP server {name}", first)
        if told is None:
            raise
        raise told from first


def _as_work(where: str, error: BaseException) -> WorkError | None:
    import anyio
    import httpx2
    from mcp import MCPError
    from mcp_types import REQUEST_TIMEOUT

    match error:
        case MCPError() if error.code == REQUEST_TIMEOUT:
            return TimedOut(f"{where}: no answer in time")
        case MCPError():
            return Transient(f"{where}: {error.message[:500]} ({error.code})")
        case httpx2.HTTPStatusError():
            return of_status(error.response.status_code, f"{where}: it answered {error.response.status_code}")
        case TimeoutError() | httpx2.TimeoutException():
            return TimedOut(f"{where}: not reached within {OPEN_S:g} s")
        case OSError() | httpx2.TransportError() | anyio.ClosedResourceError() | anyio.BrokenResourceError():
            return network_error(f"{where}: it isn't there ({type(error).__name__}: {error})"[:500])
    return None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
