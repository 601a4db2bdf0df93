"""What is kept of each evaluation, for charts: resources as they stood, and who used the slots. Pure.

It says nothing that the level is made of; nobody decides by it.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from harness.policy.errors import ErrorClass
from harness.policy.flow import needs
from harness.policy.pressure.facts import Facts

TENANTS_MOST = 20  # of which each is kept by itself
OTHERS = 0  # the number under which the rest is summed: no tenant has it


@dataclass(frozen=True, slots=True)
class Stood:
    """A resource at one moment. `tried`: attempts that needed it and ended in the last minute; `refused`: by a 429."""

    limit: int
    in_use: int
    tried: int
    refused: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What is kept of an evaluation. `tenants`: slot-seconds a second that ended lately, by tenant, OTHERS in one."""

    resources: Mapping[str, Stood] = field(default_factory=dict)
    tenants: Mapping[int, float] = field(default_factory=dict)


def of(facts: Facts | None) -> Course:
    """Return what is kept of facts; nothing where they couldn't be read."""
    if facts is None:
        return Course()
    tried: dict[str, int] = defaultdict(int)
    refused: dict[str, int] = defaultdict(int)
    used_s: dict[int, float] = defaultdict(float)
    for one in facts.ended:
        used_s[one.tenant] += one.slot_s
        for name, _ in needs(one.signature):
            tried[name] += 1
            refused[name] += one.error == ErrorClass.RATE_LIMIT
    held: dict[str, int] = defaultdict(int)
    for lease in facts.held:
        for name, n in needs(lease.signature):
            held[name] += n * lease.leases
    return Course(
        resources={
            name: Stood(one.limit, one.in_use if one.calls else held[name], tried[name], refused[name])
            for name, one in (facts.limits or {}).items()
        },
        tenants=_most({tenant: s / facts.ended_s for tenant, s in used_s.items() if s > 0}),
    )


def due(used: Mapping[int, float], weights: Mapping[int, float]) -> dict[int, float]:
    """Return the share of the service that each waiting tenant is due: by weight, of what the others leave.

    `used`: by tenant, in any unit; `weights`: of those that wait. The shares of all sum to 1 with what the others use.

    >>> due({1: 3.0, 2: 1.0, 3: 4.0}, {1: 1.0, 2: 1.0})
    {1: 0.25, 2: 0.25}
    >>> due({}, {7: 2.0}), due({1: 1.0}, {})
    ({7: 1.0}, {})
    """
    total = sum(used.values())
    others = sum(n for tenant, n in used.items() if tenant not in weights) / total if total > 0 else 0.0
    weight = sum(weights.values())
    return {tenant: (1.0 - others) * one / weight for tenant, one in weights.items()} if weight > 0 else {}


def _most(used: Mapping[int, float]) -> dict[int, float]:
    """Return those that used most by themselves, and the rest as one."""
    ordered = sorted(used.items(), key=lambda item: (-item[1], item[0]))
    rest = sum(n for _, n in ordered[TENANTS_MOST:])
    return dict(ordered[:TENANTS_MOST]) | ({OTHERS: rest} if rest else {})
