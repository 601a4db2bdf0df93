"""Two buyers ask a shop over MCP, by stdio and by HTTP; one is told to order, which it may not; one meets a crash."""

import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec

from harness.ops.examples.example import Example, Outcome, Player
from harness.ops.local.ports import free_port
from harness.policy.errors import Unavailable

SERVER = "tasks.mcp_agents.example_server"
READY_S = 60.0
STOCK = """How many bolts and nuts are there? Then order ten nuts.
call shop__stock {"item": "bolts"}
call shop__stock {"item": "nuts"}
call shop__order {"item": "nuts", "number": 10}"""
PRICES = """What do bolts cost? Try the tool that crashes, and then what washers cost.
call market__price {"item": "bolts"}
call shop__crash {}
call market__price {"item": "washers"}"""


@contextmanager
def _around() -> Iterator[Mapping[str, str]]:
    """The shop over HTTP as the server `market`; over stdio, as `shop`, an agent starts it by itself."""
    port = free_port()
    command = [sys.executable, "-m", SERVER]
    with subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            until_s = time.monotonic() + READY_S
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                if server.poll() is not None or time.monotonic() > until_s:
                    raise Unavailable(f"the MCP server of the example doesn't start: {shlex.join(command)} {port}")
                time.sleep(0.1)
            yield {
                "HARNESS_MCP_SHOP": shlex.join(command),
                "HARNESS_MCP_MARKET": f"http://127.0.0.1:{port}/mcp",
                "HARNESS_MCP_TENANTS_SHOP": "*",
                "HARNESS_MCP_TENANTS_MARKET": "*",
            }
        finally:
            server.kill()


def _missing() -> str | None:
    return None if find_spec("mcp") else "the MCP client isn't installed: pip install 'harness-queue[mcp]'"


def play(player: Player) -> Outcome:
    """Let both work at the same time, and a model conclude."""
    team = {
        "question": "What is in stock, and what does it cost?",
        "agents": [
            {"name": "stock", "question": STOCK, "servers": ["shop"]},
            {"name": "prices", "question": PRICES, "servers": ["market", "shop"]},
        ],
    }
    task = player.submit("mcp.agents", team, title="ask the shop")
    result = player.result(task)
    lines = [f"conclusion: {result['conclusion']}"]
    for member in result["members"]:
        lines.append(f"{member['name']} ({member['state']}):")
        lines += [f"  {line}" for line in (member["answer"] or member["error"]).splitlines()]
    return Outcome(
        lines=tuple(lines),
        files=(player.keep("agents.json", result),),
        figures={"members": [(one["name"], one["state"]) for one in result["members"]]},
    )


EXAMPLE = Example(
    name="mcp_agents",
    about="agents that use tools over MCP, by stdio and HTTP",
    play=play,
    missing=_missing,
    around=_around,
)
