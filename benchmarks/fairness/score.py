"""Scores: who submits what, when. Pure values that go to the driver as JSON; no dice, so every arm gets the same.

An arrival is one submit. A queue that knows no tenants, pools and priorities takes the same tasks at the same moments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

GOLDEN = 0.6180339887498949  # its multiples fill [0, 1) evenly at every length: irregular, and the same each time


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """`n` tasks of one tag, numbered from `first`, each of `duration_s` seconds, +- the share `jitter` of it."""

    tag: str
    n: int
    duration_s: float
    kind: str
    first: int = 0
    jitter: float = 0.0

    def durations_s(self) -> list[float]:
        """Return the seconds that each task lasts.

        >>> Part(tag="a", n=2, duration_s=1.0, kind="k").durations_s()
        [1.0, 1.0]
        """
        return [
            round(self.duration_s * (1 + self.jitter * (2 * irregular(self.first + k) - 1)), 4) for k in range(self.n)
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrival:
    """One submit, `at_s` seconds after the play begins: of a tenant, in a priority, as a run (with a cap) or singly."""

    at_s: float
    tenant: str
    parts: tuple[Part, ...]
    priority: int = 2
    run: bool = False
    fanout_cap: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantPlan:
    """A tenant as an operator would make it. `quotas`: (scope, name, cap)."""

    weight: float = 1.0
    cap: int = 100_000
    quotas: tuple[tuple[str, str, int], ...] = ()


def irregular(k: int) -> float:
    """Return the k-th of an irregular but even sequence in [0, 1).

    >>> round(irregular(1), 3), round(irregular(2), 3)
    (0.618, 0.236)
    """
    return k * GOLDEN % 1.0


def waiting(pool: str) -> str:
    """Return the kind that waits in a pool."""
    return f"bench.wait.{pool}"


def fan_out(tenant: str, tag: str, n: int, duration_s: float, pool: str) -> Arrival:
    """Return a run of n tasks at the very beginning."""
    part = Part(tag=tag, n=n, duration_s=duration_s, kind=waiting(pool))
    return Arrival(at_s=0.0, tenant=tenant, run=True, parts=(part,))


def now_and_then(
    tenants: Sequence[str], tag: str, pool: str, *, duration_s: float, first_s: float, until_s: float, every_s: float
) -> list[Arrival]:
    """Return single tasks of the tenants in turn, one about every `every_s` seconds from `first_s` to `until_s`."""
    count = int((until_s - first_s) / every_s)
    return [
        Arrival(
            at_s=round(first_s + every_s * (k + 0.8 * irregular(k)), 3),
            tenant=tenants[k % len(tenants)],
            parts=(Part(tag=tag, n=1, first=k, duration_s=duration_s, kind=waiting(pool)),),
        )
        for k in range(count)
    ]


def as_json(arrivals: Iterable[Arrival]) -> list[dict[str, Any]]:
    """Return arrivals as plain values."""
    return [asdict(one) for one in arrivals]


def from_json(rows: Iterable[Mapping[str, Any]]) -> Iterator[Arrival]:
    """Read what `as_json` wrote."""
    for row in rows:
        yield Arrival(**{**row, "parts": tuple(Part(**part) for part in row["parts"])})
