"""What a plan must know of kinds, gathered once for all pools: estimates, what may be bundled, what costs. Values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from harness.policy.forms import Form, others
from harness.policy.room import Pause

ESTIMATE_WEIGHT = 0.1  # of one task in the moving mean of its kind's run time


class KindFacts(Protocol):
    """What a plan must know of a kind. `costs`: it spends money, so a tenant's budget holds it.

    `signatures`: all that its tasks may have as a whole. `forms`: cheaper ones, from mild to cheap.
    """

    @property
    def name(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def signatures(self) -> frozenset[str]: ...
    @property
    def est_s(self) -> float: ...
    @property
    def bundle(self) -> bool: ...
    @property
    def costs(self) -> bool: ...
    @property
    def forms(self) -> tuple[Form, ...]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Kinds:
    """What is known of all kinds, by pool where it matters. `estimates`: seconds by kind.

    `forms`: by kind, of those that have any; `also_in`: see forms.others.
    """

    estimates: Mapping[str, float]
    bundling: frozenset[str]
    costing_in: Mapping[str, frozenset[str]]  # signatures
    forms: Mapping[str, tuple[Form, ...]] = field(default_factory=dict)
    also_in: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """What rarely changes: pauses in force, the kinds, and the tenants whose budget is spent."""

    kinds: Kinds
    pauses: Sequence[Pause] = ()
    beyond: Collection[int] = ()


def know(kinds: Iterable[KindFacts], estimates: Mapping[str, float]) -> Kinds:
    """Gather what is known of the kinds. `estimates`: measured seconds, where there are any."""
    every = list(kinds)
    pools = {kind.pool for kind in every}
    return Kinds(
        estimates={kind.name: estimates.get(kind.name, kind.est_s) for kind in every},
        bundling=frozenset(kind.name for kind in every if kind.bundle),
        costing_in={p: _of_costly(every, p) for p in pools},
        forms={kind.name: kind.forms for kind in every if kind.forms},
        also_in={p: others((kind.signatures, kind.forms) for kind in every if kind.pool == p) for p in pools},
    )


def _of_costly(kinds: Sequence[KindFacts], pool: str) -> frozenset[str]:
    """Return what tasks that cost may need, as a whole or in some form."""
    costly = [kind for kind in kinds if kind.costs and kind.pool == pool]
    of_forms = {form.signature for kind in costly for form in kind.forms if form.signature is not None}
    return frozenset(of_forms).union(*(kind.signatures for kind in costly))
