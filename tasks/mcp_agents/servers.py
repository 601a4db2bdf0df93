"""Which MCP servers there are, for whom, and which of their tools may be called: the environment of the worker says it.

HARNESS_MCP_<NAME> is an address (http or https) or a command line; HARNESS_MCP_TENANTS_<NAME> the ids of tenants, or
`*`; HARNESS_MCP_TOOLS_<NAME> the tools, or `*` (unset: those that call themselves read-only); HARNESS_MCP_TOKEN_<NAME>
a bearer token. A payload names a server, never where it is or how it is started.
"""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from harness.kinds import Permanent

PREFIX: Final = "HARNESS_MCP"
EVERY: Final = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """One server. `url` or `command`; `tools` None: those that call themselves read-only. `repr` has no secret."""

    name: str
    url: str = field(default="", repr=False)
    command: tuple[str, ...] = field(default=(), repr=False)
    tools: frozenset[str] | None = None
    token: str = field(default="", repr=False)

    def admits(self, tool: str, *, read_only: bool) -> bool:
        """Whether a tool of it may be called.

        >>> Server(name="a", tools=frozenset({"find"})).admits("order", read_only=True)
        False
        """
        return read_only if self.tools is None else EVERY in self.tools or tool in self.tools


def find(name: str, tenant: int, environment: Mapping[str, str] | None = None) -> Server:
    """Return a server that a tenant may use. Raises: Permanent naming the variables, never their values."""
    environment = os.environ if environment is None else environment
    upper = name.upper()
    where = environment.get(f"{PREFIX}_{upper}", "").strip()
    tenants = environment.get(f"{PREFIX}_TENANTS_{upper}", "").replace(",", " ").split()
    # One message for both: who may not use a server doesn't learn that there is one.
    if not where or not (EVERY in tenants or str(tenant) in tenants):
        raise Permanent(
            f"servers: {name!r} isn't set up for this tenant: set {PREFIX}_{upper} and {PREFIX}_TENANTS_{upper} (ids "
            "of tenants, or *) where the worker of pool mcp runs"
        )
    tools = environment.get(f"{PREFIX}_TOOLS_{upper}")
    remote = where.startswith(("http://", "https://"))
    try:
        command = () if remote else tuple(shlex.split(where))
    except ValueError as error:
        raise Permanent(f"{PREFIX}_{upper}: is neither an address nor a command line ({error})") from None
    return Server(
        name=name,
        url=where if remote else "",
        command=command,
        tools=None if tools is None else frozenset(tools.replace(",", " ").split()),
        token=environment.get(f"{PREFIX}_TOKEN_{upper}", "").strip(),
    )
