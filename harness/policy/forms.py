"""Cheaper forms of work: which of them a task is released in under pressure. Pure values.

F1  How far a class is degraded is how many levels up to now degrade it (pressure.ACTIONS): P2 and P3 by one form at
    high and by two at critical, P1 by one at critical, P0 never. A kind has its forms from mild to cheap.
F2  The cheapest of those is taken whose needs have room now; the next milder one else; last the whole, by what the
    task itself needs. So a form with a resource of its own adds room, and none that is full or shut holds work up.
F3  A tenant, or a task, that forbids it is released whole.
F4  What a task holds is what its form needs: resources, quotas, cost and charge go by the form's signature. Which flow
    it stands in, and what is reserved for it, go by its own.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from harness.policy.flow import FlowFacts, Head
from harness.policy.owners import Owners
from harness.policy.pressure import Level, of

CLASSES = 4


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a kind's work. `signature`: what a task in it needs; None: what it needs as a whole."""

    name: str
    signature: str | None = None

    def of(self, flow: FlowFacts) -> str:
        """Return what a task of a flow needs in this form."""
        return flow.signature if self.signature is None else self.signature


WHOLE = Form("")
ONLY_WHOLE = (WHOLE,)


def depth(level: Level, priority: int) -> int:
    """Return how many of its kind's forms a task of a class may be degraded by (F1).

    >>> [[depth(level, priority) for priority in range(4)] for level in (Level.ELEVATED, Level.HIGH, Level.CRITICAL)]
    [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 2]]
    """
    return sum(of(one, priority).degrade for one in Level if one <= level)


def others(kinds: Iterable[tuple[Iterable[str], Iterable[Form]]]) -> dict[str, tuple[str, ...]]:
    """Return what tasks of a signature may need in some form instead, of (signatures, forms) of each kind.

    >>> others([(["llm:a=1"], [Form("brief"), Form("small", "llm:b=1")])])
    {'llm:a=1': ('llm:b=1',)}
    """
    found: dict[str, dict[str, None]] = {}
    for signatures, forms in kinds:
        own = [form.signature for form in forms if form.signature is not None]
        for signature in signatures:
            found.setdefault(signature, {}).update(dict.fromkeys(other for other in own if other != signature))
    return {signature: tuple(more) for signature, more in found.items() if more}


class Forms:
    """The forms that a plan of one pool may release work in, at one level. `also`: see `others`."""

    __slots__ = ("_also", "_depth", "_of", "_owners")

    def __init__(
        self,
        depths: tuple[int, ...],
        of_kinds: Mapping[str, tuple[Form, ...]],
        also: Mapping[str, tuple[str, ...]],
        owners: Owners,
    ) -> None:
        self._depth, self._of, self._also, self._owners = depths, of_kinds, also, owners

    def of(self, flow: FlowFacts, head: Head) -> tuple[Form, ...]:
        """Return the forms that a task may be released in, the first that has room (F2)."""
        forms = self._of.get(head.kind)
        deep = self._depth[flow.priority]
        if forms is None or not deep or not head.degrade or not self._owners.degrades(flow.tenant):
            return ONLY_WHOLE
        return (*reversed(forms[:deep]), WHOLE)

    def choose(self, flow: FlowFacts, head: Head, why_not: Callable[[str], str | None]) -> tuple[Form, str | None]:
        """Return the form that a task goes in (F2); with a reason: what holds it. `why_not`: what lacks a signature."""
        reason = None
        for form in self.of(flow, head):
            reason = why_not(form.of(flow))
            if reason is None:
                return form, None
        return WHOLE, reason

    def also(self, signature: str, priority: int) -> tuple[str, ...]:
        """Return what tasks of a class with this signature may need instead: a first look, before a task is seen."""
        return self._also.get(signature, ()) if self._depth[priority] else ()

    def also_of(self, flow: FlowFacts) -> tuple[str, ...]:
        """The same for a flow: nothing if its tenant forbids it."""
        return self.also(flow.signature, flow.priority) if self._owners.degrades(flow.tenant) else ()


def at(
    level: Level, of_kinds: Mapping[str, tuple[Form, ...]], also: Mapping[str, tuple[str, ...]], owners: Owners
) -> Forms | None:
    """Return the forms at a level; None: all work is released whole."""
    depths = tuple(depth(level, priority) for priority in range(CLASSES)) if of_kinds else ()
    return Forms(depths, of_kinds, also, owners) if any(depths) else None
