"""Names to addresses, within a time: the system's resolver takes as long as it likes, so each look-up gets a thread."""

import queue
import socket
import threading
from collections.abc import Callable, Sequence
from ipaddress import ip_address

from harness.kinds.egress.addresses import Address
from harness.kinds.egress.deadline import Deadline
from harness.kinds.egress.outcomes import network_error
from harness.kinds.errors import WorkError

Resolver = Callable[[str, int], Sequence[str]]

LOOKUPS = 32  # of one process at once: threads that hang in the resolver can't pile up
ADDRESSES = 8  # of one name, at most

_lookups = threading.BoundedSemaphore(LOOKUPS)


def system_resolver(host: str, port: int) -> list[str]:
    """Return the addresses that the system knows for a name. Raises: OSError."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def resolve(resolver: Resolver, host: str, port: int, deadline: Deadline) -> list[Address]:
    """Ask the resolver once. Raises: TimedOut, Transient (network)."""
    answers: queue.SimpleQueue[Sequence[str] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(resolver(host, port))
        except Exception as error:  # noqa: BLE001  # handed to the thread that waits
            answers.put(error)
        finally:
            _lookups.release()

    while not _lookups.acquire(timeout=deadline.next_s(f"{host}: waiting for the resolver")):
        pass
    threading.Thread(target=ask, name="egress-resolver", daemon=True).start()
    while True:
        try:
            found = answers.get(timeout=deadline.next_s(f"{host}: its name wasn't resolved"))
            break
        except queue.Empty:
            continue
    if isinstance(found, WorkError):
        raise found
    if isinstance(found, OSError | UnicodeError):
        raise network_error(f"{host}: its name can't be resolved ({found})") from found
    if isinstance(found, Exception):
        raise found
    addresses = list(dict.fromkeys(ip_address(text) for text in found))[:ADDRESSES]
    if not addresses:
        raise network_error(f"{host}: its name has no address")
    return addresses
