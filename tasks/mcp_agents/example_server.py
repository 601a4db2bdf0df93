"""`python -m tasks.mcp_agents.example_server [PORT]`: a small MCP server to try agents with: a shop's stock and prices.

Over stdio; with a port over HTTP, at http://127.0.0.1:PORT/mcp. It keeps nothing.
"""

import os
import sys
from typing import Final

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

STOCK: Final = {"bolts": (40, 4), "nuts": (900, 2), "washers": (0, 1)}
READS: Final = ToolAnnotations(read_only_hint=True)

server: Final = MCPServer("shop")


@server.tool(annotations=READS)
def stock(item: str) -> str:
    """Say how many of an item there are."""
    return f"There are {_found(item)[0]} {item} in stock."


@server.tool(annotations=READS)
def price(item: str) -> str:
    """Say what one of an item costs."""
    return f"One of the {item} costs {_found(item)[1]} euros."


@server.tool()
def order(item: str, number: int) -> str:
    """Order so many of an item. It isn't read-only: an operator has to allow it by name."""
    _found(item)
    return f"{number} {item} were ordered."


@server.tool(annotations=READS)
def crash() -> str:
    """End the server at once, as one that dies does."""
    os._exit(1)


def _found(item: str) -> tuple[int, int]:
    if item not in STOCK:
        raise ToolError(f"there is no {item!r}; there are {', '.join(STOCK)}")
    return STOCK[item]


def main(arguments: list[str]) -> int:
    """Serve until stdin ends, or until it is stopped."""
    if arguments:
        server.run("streamable-http", host="127.0.0.1", port=int(arguments[0]))
    else:
        server.run("stdio")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
