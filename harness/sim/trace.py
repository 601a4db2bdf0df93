"""A recorded trace: what was submitted when, and what each attempt took and ended in. Read and written as JSON lines.

The first line says what there was (pools, resources, kinds, tenants, runs); each further one is a task, oldest first.
No payloads, results or names of tenants. `.gz` at the end of a path compresses. Times are seconds from the first task.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from harness.policy import allowance
from harness.policy.errors import Invalid
from harness.policy.forms import Form

FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedKind:
    """What a plan must know of a kind, as it was when the trace was taken."""

    name: str
    pool: str
    signature: str
    est_s: float
    bundle: bool
    costs: bool
    max_attempts: int

    @property
    def signatures(self) -> frozenset[str]:
        """Every signature that its tasks may have, as far as a trace tells."""
        return frozenset({self.signature})

    @property
    def forms(self) -> tuple[Form, ...]:
        """Cheaper forms: here none."""
        return ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedTenant:
    """A tenant by number. `quotas`: (scope, name, cap)."""

    id: int
    cap: int
    weight: float
    backlog_quota: int
    top_priority: int
    quotas: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TracedAttempt:
    """The event that ended it, when it began, how long it took, and how long after that the task was ready again.

    `gap_s` None: it wasn't, as far as the trace goes.
    """

    event: str
    start_s: float
    slot_s: float
    gap_s: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedTask:
    """A task. `ready_s`: after the submit; `withdrawn_s`: after the submit, if it was cancelled or expired in line."""

    submit_s: float
    tenant: int
    run: int
    kind: str
    pool: str
    priority: int
    signature: str
    ready_s: float
    attempts: tuple[TracedAttempt, ...]
    withdrawn_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A trace. `pools`: slots; `resources`: capacities; `runs`: run -> (tenant, fan-out cap); `estimates`: seconds."""

    pools: dict[str, int]
    resources: dict[str, int]
    kinds: tuple[TracedKind, ...]
    tenants: tuple[TracedTenant, ...]
    runs: dict[int, tuple[int, int | None]]
    tasks: tuple[TracedTask, ...]
    estimates: dict[str, float] = field(default_factory=dict)


def write(trace: Trace, path: Path) -> None:
    """Write a trace."""
    with _open(path, "wt") as file:
        head = {
            "format": FORMAT,
            "pools": trace.pools,
            "resources": trace.resources,
            "estimates": trace.estimates,
            "kinds": [[k.name, k.pool, k.signature, k.est_s, k.bundle, k.costs, k.max_attempts] for k in trace.kinds],
            "tenants": [[t.id, t.cap, t.weight, t.backlog_quota, t.top_priority, t.quotas] for t in trace.tenants],
            "runs": [[run, tenant, cap] for run, (tenant, cap) in trace.runs.items()],
        }
        file.write(json.dumps(head, separators=(",", ":")) + "\n")
        for task in trace.tasks:
            attempts = [
                [one.event, round(one.start_s, 6), round(one.slot_s, 6), one.gap_s and round(one.gap_s, 6)]
                for one in task.attempts
            ]
            row = [
                round(task.submit_s, 6),
                task.tenant,
                task.run,
                task.kind,
                task.pool,
                task.priority,
                task.signature,
                round(task.ready_s, 6),
                attempts,
                task.withdrawn_s,
            ]
            file.write(json.dumps(row, separators=(",", ":")) + "\n")


def read(path: Path) -> Trace:
    """Read a trace. Raises: Invalid naming the line."""
    try:
        with _open(path, "rt") as file:
            return _parse(path, file)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: can't be read as a trace: {error}", field="trace") from error


def _parse(path: Path, file: IO[str]) -> Trace:
    line = 1
    try:
        head = json.loads(file.readline())
        if not isinstance(head, dict) or head.get("format") != FORMAT:
            raise ValueError(f"the first line must say format {FORMAT}")
        tasks = []
        for text in file:
            line += 1
            tasks.append(_task(json.loads(text)))
        line = 1
        return Trace(
            pools={str(name): int(n) for name, n in head["pools"].items()},
            resources={str(name): int(n) for name, n in head["resources"].items()},
            estimates={str(name): float(n) for name, n in head["estimates"].items()},
            kinds=tuple(_kind(row) for row in head["kinds"]),
            tenants=tuple(_tenant(row) for row in head["tenants"]),
            runs={int(run): (int(tenant), None if cap is None else int(cap)) for run, tenant, cap in head["runs"]},
            tasks=tuple(tasks),
        )
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise Invalid(
            f"{path}: line {line} isn't that of a trace ({error}); `manage.py export_trace` writes one"
        ) from error


def _kind(row: Sequence[Any]) -> TracedKind:
    name, pool, signature, est_s, bundle, costs, attempts = row
    return TracedKind(
        name=str(name),
        pool=str(pool),
        signature=str(signature),
        est_s=float(est_s),
        bundle=bool(bundle),
        costs=bool(costs),
        max_attempts=int(attempts),
    )


def _tenant(row: Sequence[Any]) -> TracedTenant:
    number, cap, weight, quota, top, quotas = row
    return TracedTenant(
        id=int(number),
        cap=allowance.count(int(cap), "cap"),
        weight=allowance.weight(weight),
        backlog_quota=int(quota),
        top_priority=int(top),
        quotas=tuple((str(scope), str(name), int(n)) for scope, name, n in quotas),
    )


def _task(row: Sequence[Any]) -> TracedTask:
    submit_s, tenant, run, kind, pool, priority, signature, ready_s, attempts, withdrawn_s = row
    return TracedTask(
        submit_s=float(submit_s),
        tenant=int(tenant),
        run=int(run),
        kind=str(kind),
        pool=str(pool),
        priority=int(priority),
        signature=str(signature),
        ready_s=float(ready_s),
        attempts=tuple(
            TracedAttempt(str(event), float(start_s), float(slot_s), None if gap_s is None else float(gap_s))
            for event, start_s, slot_s, gap_s in attempts
        ),
        withdrawn_s=None if withdrawn_s is None else float(withdrawn_s),
    )


def _open(path: Path, mode: str) -> Any:
    return gzip.open(path, mode, encoding="utf-8") if path.suffix == ".gz" else path.open(mode, encoding="utf-8")


def concurrency(starts_and_ends: Iterator[tuple[float, float]]) -> int:
    """Return how many intervals overlap at most.

    >>> concurrency(iter([(0, 2), (1, 3), (2, 4)]))
    2
    """
    steps = sorted((at, way) for start, end in starts_and_ends for at, way in ((start, 1), (end, -1)))
    most = now = 0
    for _, way in steps:
        now += way
        most = max(most, now)
    return most
