"""The auditor: looks at all by the rules of engine.audit, twice, writes down what is wrong, repairs what is safe.

A fault is a suspicion until a second look some seconds later sees it again: what is under way at the first is over by
then. Large tables are looked at window by window, from where the last round stopped, as long as the budget lasts. Not
shared between threads. It takes no part in any task's way: without it, nothing but faults would differ.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.engine import audit as rules
from harness.engine.audit import RULES, Level, Rule
from harness.policy.errors import Unavailable
from harness.policy.heads import BUNDLE_MAX
from harness.policy.settings import SYSTEM, Topology
from harness.store import findings as stored
from harness.store.database import Connection
from harness.store.findings import Found
from harness.telemetry import logs

SMALL = (
    "leases",
    "members",
    "caps",
    "charges",
    "queues",
    "observed",
    "usage",
    "transactions",
    "dead_rows",
)  # whole, in each round
LARGE = (
    "tasks",
    "flows",
    "attempts",
    "trace",
    "orphaned_attempts",
    "orphaned_bodies",
    "orphaned_steps",
)  # in windows, by turns
TURNS = {"tasks": 5}  # windows in one turn, where not one: what may be stuck is found first
BY_ID = frozenset(stored.WINDOWS) - {"flows"}
SUSPECTS_MOST = 500  # at once; more say no more than these
OPEN_MOST = 200  # findings looked at again in one round
QUEUE_SLACK = 50  # messages beyond the leases that wait: of leases claimed meanwhile, taken back or cancelled
NEVER_S = float("inf")

Depths = Callable[[Sequence[str]], Mapping[str, int]]
log = logs.get(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Alerts:
    """From when the database's state is worth an alert: age of a transaction in seconds, dead rows of a hot table."""

    transaction_s: float = 300.0
    dead_rows: int = 50_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A confirmed fault. `new`: not seen before; `repaired`: it was, `how` says what was done."""

    rule: str
    level: Level
    subject: str
    facts: Mapping[str, Any]
    new: bool
    repaired: bool
    how: str


@dataclass(slots=True)
class Cost:
    """What a look has cost: statements, their time in all and at most, in milliseconds."""

    statements: int = 0
    ms: float = 0.0
    most_ms: float = 0.0


@dataclass(slots=True)
class _Suspect:
    found: Found
    looked_s: float
    looks: int = 1


@dataclass(slots=True)
class _Memory:
    marks: dict[str, Any] = field(default_factory=dict)
    suspects: dict[tuple[str, str], _Suspect] = field(default_factory=dict)
    held_since_s: dict[tuple[int, str], float] = field(default_factory=dict)  # snapshots of hidden sessions
    added: stored.Added | None = None
    turn: int = 0


class Auditor:
    """One auditor with its memory. `depths`: the lengths of queues (store.broker), where there is a broker.

    `patience_s`: most between two looks, for people who wait. `dry`: nothing is written, let alone repaired.
    """

    def __init__(
        self,
        *,
        topology: Topology,
        alerts: Alerts,
        depths: Depths | None = None,
        repair: bool = False,
        dry: bool = False,
        patience_s: float = NEVER_S,
        rest: Callable[[float], object] = lambda took_s: None,
    ) -> None:
        self._topology = topology
        self._alerts = alerts
        self._depths = depths
        self._repairs = repair and not dry
        self._dry = dry
        self._patience_s = patience_s
        self._rest = rest  # called after each window with the seconds that it took
        self._memory = _Memory()
        self.costs: dict[str, Cost] = {}

    def look(self, connection: Connection, *, now_s: float, budget_s: float = NEVER_S) -> int:
        """Look once at all that is small, and at windows of what is large for `budget_s` of statements' time.

        Returns how many subjects are suspected now. `now_s`: any clock that only rises, the same for all calls.
        """
        memory = self._memory
        for look in SMALL:
            for found in self._whole(connection, look, now_s=now_s):
                self._suspect(found, now_s)
        unfinished = list(LARGE[memory.turn % len(LARGE) :] + LARGE[: memory.turn % len(LARGE)])
        spent_s = 0.0
        while unfinished and spent_s < budget_s:
            look = unfinished.pop(0)
            memory.turn += 1
            for _ in range(TURNS.get(look, 1)):
                before_ms = self._cost(look).ms
                page = self._window(connection, look, memory.marks.get(look))
                took_s = (self._cost(look).ms - before_ms) / 1000
                spent_s += took_s
                for found in page.found:
                    self._suspect(found, now_s)
                memory.marks[look] = page.following
                self._rest(took_s)
                if page.following is None:
                    break
            else:
                unfinished.append(look)
        return len(memory.suspects)

    def due_in_s(self, now_s: float) -> float | None:
        """Return in how many seconds the next suspicion can be confirmed; None: there is none."""
        due = [suspect.looked_s + self._wait_s(suspect) for suspect in self._memory.suspects.values()]
        return max(0.0, min(due) - now_s) if due else None

    def confirm(self, connection: Connection, *, now_s: float) -> list[Finding]:
        """Look again at what was suspected long enough ago; write down and repair what is still so."""
        seen: dict[str, list[Found]] = {}
        findings = []
        for key, suspect in list(self._memory.suspects.items()):
            if now_s - suspect.looked_s < self._wait_s(suspect):
                continue
            rule = RULES[suspect.found.rule]
            before, now = suspect.found, suspect.found
            if rule.looks > 1:
                again = self._again(connection, suspect.found, now_s=now_s, seen=seen)
                if again is None:
                    del self._memory.suspects[key]
                    continue
                now = again
                suspect.looks = suspect.looks + 1 if rule.still(before, now) else 1
                suspect.found, suspect.looked_s = now, now_s
            if suspect.looks >= rule.looks:
                del self._memory.suspects[key]
                findings.append(self._report(connection, rule, rules.level_of(rule, before, now), now))
        return findings

    def close_gone(self, connection: Connection, *, now_s: float) -> int:
        """Close the open findings that are no longer so. Returns how many."""
        if self._dry:
            return 0
        closed = 0
        seen: dict[str, list[Found]] = {}
        for one in stored.open_findings(connection, most=OPEN_MOST):
            if (one.found.rule, one.found.subject) in self._memory.suspects:
                continue
            if one.found.rule not in RULES or self._again(connection, one.found, now_s=now_s, seen=seen) is None:
                stored.close(connection, one.id, how="it was no longer so", repaired=False)
                closed += 1
        return closed

    def _report(self, connection: Connection, rule: Rule, level: Level, found: Found) -> Finding:
        number, new, repaired, how = 0, True, False, ""
        if not self._dry:
            number, new = stored.note(connection, found, level=level)
        if self._repairs and rule.repair is not None:

            def still_so() -> bool:
                return self._again(connection, found, now_s=0.0, seen={}) is not None

            with connection.transaction():
                repaired = rule.repair(connection, found, still_so) and not still_so()
                if repaired:
                    how = rule.does
                    stored.close(connection, number, how=how, repaired=True)
        if new or repaired:
            event = "database_alert" if rule.look in ("transactions", "dead_rows") else "audit_found"
            log.warning(event, rule=rule.name, level=level, subject=found.subject, repaired=repaired, **_told(found))
        return Finding(
            rule=rule.name,
            level=level,
            subject=found.subject,
            facts=dict(found.facts),
            new=new,
            repaired=repaired,
            how=how,
        )

    def _suspect(self, found: Found, now_s: float) -> None:
        key = (found.rule, found.subject)
        if key not in self._memory.suspects and len(self._memory.suspects) < SUSPECTS_MOST:
            self._memory.suspects[key] = _Suspect(found, now_s)

    def _wait_s(self, suspect: _Suspect) -> float:
        rule = RULES[suspect.found.rule]
        return min(rule.confirm_s, self._patience_s) if rule.looks > 1 else 0.0

    def _again(
        self, connection: Connection, found: Found, *, now_s: float, seen: dict[str, list[Found]]
    ) -> Found | None:
        """Look at one subject again. `seen`: what looks over everything have found in this pass."""
        look = RULES[found.rule].look
        if look in BY_ID:
            assert found.id is not None
            same = stored.by_id(connection, look, after=found.id - 1, until=found.id, limit=1).found
        elif look == "flows":
            same = stored.missing_flows(connection, key=found.facts["key"], limit=1).found
        else:
            if look not in seen:
                seen[look] = self._whole(connection, look, now_s=now_s, afresh=True)
            same = seen[look]
        return next((one for one in same if (one.rule, one.subject) == (found.rule, found.subject)), None)

    def _window(self, connection: Connection, look: str, mark: Any) -> stored.Page:
        with _timed(self._cost(look)):
            if look == "flows":
                page = stored.missing_flows(connection, key=mark)
                return stored.Page(page.found, None if page.following == mark else page.following)
            return stored.by_id(connection, look, after=mark or 0)

    def _whole(self, connection: Connection, look: str, *, now_s: float, afresh: bool = False) -> list[Found]:
        found: list[Found] = []
        if look in BY_ID:
            mark: Any = 0
            while mark is not None:
                page = self._window(connection, look, mark)
                found, mark = found + page.found, page.following
            return found
        with _timed(self._cost(look)):
            match look:
                case "caps":
                    return stored.over_caps(connection, self._topology)
                case "charges":
                    return stored.charges(connection, bundle_most=BUNDLE_MAX)
                case "queues":
                    return self._queues(connection)
                case "observed":
                    return stored.unobserved(connection, self._topology)
                case "usage":
                    found, self._memory.added = stored.usage(connection, None if afresh else self._memory.added)
                    return found
                case "transactions":
                    return self._transactions(connection, now_s)
                case _:
                    return stored.dead_rows(connection, least=self._alerts.dead_rows)

    def _queues(self, connection: Connection) -> list[Found]:
        if self._depths is None:
            return []
        pools = {pool.name: pool.queues() for pool in self._topology.pools.values() if pool.name != SYSTEM}
        try:
            depths = self._depths([queue for queues in pools.values() for queue in queues])
        except Unavailable:
            return []  # nothing waits in a broker that is away
        waiting = stored.unclaimed(connection)
        found = []
        for pool, queues in pools.items():
            messages = sum(depths.get(queue, 0) for queue in queues)
            leases, slots = waiting.get(pool, (0, 0))
            if messages > leases + max(QUEUE_SLACK, 2 * slots):
                facts = {"messages": messages, "unclaimed_leases": leases, "slots": slots}
                found.append(Found("queue_too_long", f"pool {pool}", None, None, facts))
        return found

    def _transactions(self, connection: Connection, now_s: float) -> list[Found]:
        found = []
        held: dict[tuple[int, str], float] = {}
        for pid, role, application, state, told_s, xmin in stored.transactions(connection):
            age_s = told_s
            if age_s is None:  # another login's: all that is told is the snapshot that it holds, so we watch that
                if pid is None or xmin is None:
                    continue
                held[pid, xmin] = self._memory.held_since_s.get((pid, xmin), now_s)
                age_s = now_s - held[pid, xmin]
            if age_s >= self._alerts.transaction_s:
                subject = f"prepared transaction {application}" if pid is None else f"session {pid}"
                facts = {"role": role, "application": application, "state": state, "age_s": round(age_s)}
                found.append(Found("old_transaction", subject, pid, None, facts))
        self._memory.held_since_s = held
        return found

    def _cost(self, look: str) -> Cost:
        return self.costs.setdefault(look, Cost())


class _timed:  # noqa: N801  (a context manager, used as a verb)
    __slots__ = ("_began_s", "_cost")

    def __init__(self, cost: Cost) -> None:
        self._cost = cost

    def __enter__(self) -> None:
        self._began_s = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        ms = 1000 * (time.perf_counter() - self._began_s)
        self._cost.statements += 1
        self._cost.ms += ms
        self._cost.most_ms = max(self._cost.most_ms, ms)


def _told(found: Found) -> dict[str, Any]:
    return {f"fact_{name}": value for name, value in found.facts.items()}
