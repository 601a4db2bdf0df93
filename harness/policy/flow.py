"""Flows and their first tasks: what a plan chooses among, and how it asks for what no memory holds. Pure values.

A flow is a (pool, priority, tenant, run, resource signature) that may have ready tasks; its tasks stay where they are
(PostgreSQL, or the simulator) and are asked for when it is nearly the flow's turn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

NOBODY_LOST_SO_MANY = 2**31 - 1

Needs = tuple[tuple[str, int], ...]  # (resource, how many a task holds)


class Head(NamedTuple):
    """A ready task: id, kind, whether it must be alone on its lease, workers it has lost, since when it may run.

    `degrade`: it may be released in a cheaper form. (A tuple by name, since each task makes one: see plan.py.)
    """

    task: int
    kind: str
    single: bool = False
    lost_starts: int = 0
    ready_s: float = 0.0
    degrade: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class FlowFacts:
    """A flow of one pool. `run`: 0 for tasks without a run."""

    id: int
    priority: int
    tenant: int
    run: int
    signature: str

    @property
    def needs(self) -> Needs:
        """What each of its tasks holds."""
        return needs(self.signature)


class Asked(NamedTuple):
    """A look: the first tasks of these flows, at most `heads[i]` of `flows[i]`, oldest first.

    Tasks that have lost `lost_below` workers or more are passed over.
    """

    pool: str
    flows: tuple[int, ...]
    heads: tuple[int, ...]
    lost_below: int = NOBODY_LOST_SO_MANY


# Answers every flow that was asked: without tasks, it is empty.
Look = Callable[[Asked], Mapping[int, Sequence[Head]]]


@lru_cache(maxsize=4096)
def needs(signature: str) -> Needs:
    """Read a resource signature.

    >>> needs("browser=1,llm:default=2"), needs("")
    ((('browser', 1), ('llm:default', 2)), ())
    """
    if not signature:
        return ()
    return tuple((name, int(n)) for name, _, n in (part.rpartition("=") for part in signature.split(",")))


@lru_cache(maxsize=4096)
def is_large(signature: str) -> bool:
    """Return whether a task like this may starve behind small ones: it needs more than one of something, or two things.

    >>> is_large("browser=1"), is_large("browser=2"), is_large("browser=1,licence=1"), is_large("")
    (False, True, True, False)
    """
    found = needs(signature)
    return len(found) > 1 or any(n > 1 for _, n in found)
