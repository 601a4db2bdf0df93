"""Free TCP ports on the loopback interface.

A port is free until someone takes it: callers must cope with losing the race (`PortTaken`) and try another.
"""

import socket

from harness.policy.errors import Refused

LOOPBACK = "127.0.0.1"


class PortTaken(Refused):
    """Another program listens on the port."""

    code = "port_taken"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the servers do: a port whose last connections are still winding down counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def free_port(wanted: int | None = None) -> int:
    """Return `wanted` when it is free, else a port that the kernel says is free."""
    if wanted and is_free(wanted):
        return wanted
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def require(port: int, *, option: str) -> int:
    """Return the port. Raises: PortTaken when another program has it; Refused when it is no port."""
    if not 1 <= port <= 65535:
        raise Refused(f"{option} must be between 1 and 65535, not {port}", field=option)
    if not is_free(port):
        raise PortTaken(
            f"{option} {port} is in use by another program; stop that one, name another port, "
            f"or leave {option} out to get a free one",
            field=option,
        )
    return port
