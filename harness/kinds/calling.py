"""What a call under way may tell its downstream: tokens really used, and what the headers of an answer said.

`ctx.call` hands it to an `fn` that takes an argument, and keeps it for what runs inside: HTTP helpers tell the call
under way what they heard without being told of it. Outside a call all of it does nothing.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

CONNECTIONS = 64  # of one process to one downstream: what a client's pool should have; more than a pool's threads


class Calling(Protocol):
    """One call under way."""

    def used(self, tokens: int, resource: str = "") -> None:
        """Say how many tokens it really used: what was reserved beyond that is given back. "": of all its resources.

        A number that can't be (a provider's, below 0) is ignored: what was reserved stays charged.
        """
        ...

    def headers(self, headers: Mapping[str, str]) -> None:
        """Say what an answer's headers were, whatever they hold; the last answer counts."""
        ...


_under_way: ContextVar[Calling | None] = ContextVar("harness_calling", default=None)


def under_way() -> Calling | None:
    """Return the call that the caller runs in, if any."""
    return _under_way.get()


def heard(headers: Mapping[str, str]) -> None:
    """Tell the call under way what an answer's headers said."""
    call = _under_way.get()
    if call is not None:
        call.headers(headers)


def used(tokens: int) -> None:
    """Tell the call under way how many tokens it used."""
    call = _under_way.get()
    if call is not None:
        call.used(tokens)


@contextmanager
def inside(call: Calling) -> Iterator[None]:
    """Run what follows as a part of a call."""
    token = _under_way.set(call)
    try:
        yield
    finally:
        _under_way.reset(token)
