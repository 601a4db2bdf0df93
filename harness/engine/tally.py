"""Count what happens, for the metrics: a thread of the leading dispatcher, every few seconds.

load (the last round, what came since, how things stand) -> add up (policy.tally) -> keep, in one transaction under the
row's lock. Nothing on a task's route counts anything: attempts, tasks, events and refusals are rows already, and worker
processes leave their waits and calls in their sessions. So it doesn't matter how many processes there are, nor which of
them is asked. While nobody counts, the last figures stand and get old, which is a metric of its own; nothing is lost.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from harness.policy import tally as policy
from harness.policy.lifecycle import Event, State
from harness.policy.pressure import Level
from harness.policy.tally import OTHER, PEOPLE_S, TASK_S, Labels, Totals, observed
from harness.store import tally
from harness.store.database import Connection
from harness.store.tally import TABLES, Kept
from harness.telemetry import logs

EVERY_S = 5.0
APART_S = 2.0  # a new leader need not count what the old one has just counted
REST = 50.0  # after the line was counted, so many times as long as that took
REST_MOST_S = 300.0
WINDOW_S = 600.0  # of the cancellation rate
RECONNECT_S = 1.0
SLACK_S = 1.0  # a number that was passed over belongs to nobody who began so long after it was
FROM_S = 60.0  # sessions that ended so long before the last round are still looked at
CALLS = "calls:"  # what a process counted of calls, beside its waits: `calls:<outcome>`
OUTCOMES = {"calls:rate": "429", "calls:timed_out": "timeout"}  # what operators call them

log = logs.get(__name__)


@dataclass(slots=True)
class Adding:
    """What a round adds to."""

    totals: Totals
    label_of: Mapping[int, str] = field(default_factory=dict)

    def count(self, name: str, labels: Labels, n: float) -> None:
        """Add to a counter."""
        policy.add(self.totals, name, labels, [float(n)])

    def observe(self, name: str, labels: Labels, bounds: tuple[float, ...], place: int, n: float, sum_s: float) -> None:
        """Add to a histogram."""
        policy.add(self.totals, name, labels, observed(bounds, place, n, sum_s))

    def tenant(self, number: int) -> str:
        """Return the label of a tenant."""
        return self.label_of.get(number, OTHER)


def run(connect: Callable[[], Connection], *, over: threading.Event) -> None:
    """Count until `over` is set; a connection that breaks is opened anew."""
    wait_s = EVERY_S
    while not over.is_set():
        try:
            with connect() as connection:
                while not over.wait(wait_s):
                    wait_s = 0.0 if count(connection) else EVERY_S
        except psycopg.Error as error:
            log.warning("tally_failed", error=str(error).strip())
            over.wait(RECONNECT_S)


def count(connection: Connection) -> bool:
    """Do one round. Returns whether more is left to count than a round takes. Raises: psycopg.Error."""
    began_s = time.monotonic()
    with connection.transaction():
        # 1. Load
        last = tally.lock(connection)
        now_s, since_s = tally.opened(connection)
        if last is None:
            last = _begin(connection, now_s, since_s)
        elif 0.0 <= now_s - last.seen_s < APART_S and not last.mark["full"]:
            return False
        mark = last.mark
        spans = {name: policy.spans(mark["high"][name], mark["gaps"][name]) for name in TABLES}
        found = tally.grown(connection, spans, from_s=mark["from_s"], known=mark["known"], since_s=since_s)
        stands = dict(tally.stands(connection, from_s=last.seen_s - FROM_S))
        stands["depth"] = _depth(connection, last.stands, now_s)
        # 2. Add up
        used = policy.used(
            {int(tenant): value for tenant, value in mark["used"].items()}, dict(found["used"]), now_s - last.seen_s
        )
        shown = policy.shown(mark["shown"], used)
        names = tally.names(connection, shown)
        shown = [tenant for tenant in shown if tenant in names]
        adding = Adding(totals={name: dict(some) for name, some in last.totals.items()}, label_of=names)
        _add_rows(adding, found)
        told = _add_told(adding, stands.pop("told"), last.told)
        forget_tenants(adding.totals, {*names.values(), OTHER})
        stands |= _of_tenants(adding, stands)
        window = _window(mark["window"], adding.totals, now_s)
        stands["cancellation_rate"] = _rate(window)
        highs, gaps = _marks(
            mark,
            found["seen"],
            seen_s=now_s + time.monotonic() - began_s + SLACK_S,
            # While a round doesn't read all, what it has passed over may have been committed long ago.
            open_since_s=float("-inf") if found["full"] else since_s,
        )
        # 3. Keep
        tally.keep(
            connection,
            Kept(
                seen_s=now_s,
                took_s=time.monotonic() - began_s,
                mark={
                    "high": highs,
                    "gaps": gaps,
                    "from_s": since_s,
                    "known": found["recent"],
                    "shown": shown,
                    "used": used,
                    "window": window,
                    "full": found["full"],
                },
                told=told,
                totals=adding.totals,
                stands=stands,
            ),
        )
    return bool(found["full"])


def forget_tenants(totals: Totals, labels: Iterable[str]) -> None:
    """Drop the totals of tenants that have no label any more."""
    keep = set(labels)
    for name in [name for name in totals if name.startswith("harness_tenant_")]:
        totals[name] = {of: values for of, values in totals[name].items() if of[0] in keep}


def _begin(connection: Connection, now_s: float, since_s: float) -> Kept:
    """Begin at what there is: what was before isn't told."""
    return Kept(
        seen_s=now_s,
        took_s=0.0,
        mark={
            "high": tally.begin(connection),
            "gaps": {name: [] for name in TABLES},
            "from_s": since_s,
            "known": [],
            "shown": [],
            "used": {},
            "window": [],
            "full": False,
        },
        told={},
        totals={},
        stands={},
    )


def _depth(connection: Connection, before: Mapping[str, Any], now_s: float) -> Mapping[str, Any]:
    """Count the line, unless the last count was dear and is fresh."""
    last: Mapping[str, Any] | None = before.get("depth")
    if last is not None and 0.0 <= now_s - last["at_s"] < min(REST_MOST_S, REST * last["took_s"]):
        return last
    began_s = time.monotonic()
    return {**tally.depth(connection), "at_s": now_s, "took_s": time.monotonic() - began_s}


def _add_rows(adding: Adding, found: Mapping[str, Any]) -> None:
    for pool, priority, kind, verdict, error, n in found["attempts"]:
        adding.count("harness_attempts_ended_total", (pool, kind, verdict), n)
        if verdict == Event.FAIL:
            adding.count("harness_retry_count_total", (pool, str(priority), error or "none"), n)
        if verdict == Event.SUCCEED:
            adding.count("harness_tasks_ended_total", (pool, str(priority), State.SUCCEEDED), n)
        if verdict == Event.BURY:
            _dead(adding, pool, priority, error or "none", n)
        if verdict == Event.ABORT:
            _cancelled(adding, pool, priority, n)
    for pool, kind, place, n, sum_s in found["ran"]:
        adding.observe("harness_task_run_time_seconds", (pool, kind), TASK_S, place, n, sum_s)
    for pool, priority, place, n, sum_s in found["waited"]:
        adding.observe("harness_task_wait_time_seconds", (pool, str(priority)), TASK_S, place, n, sum_s)
    for tenant, slot_s in found["used"]:
        adding.count("harness_tenant_slot_seconds_total", (adding.tenant(tenant),), slot_s)
    for pool, priority, tenant, n in found["submitted"]:
        adding.count("harness_tasks_submitted_total", (pool, str(priority)), n)
        adding.count("harness_tenant_tasks_submitted_total", (adding.tenant(tenant),), n)
    for event, to_state, pool, priority, n in found["acts"]:
        if to_state == State.CANCELLED:
            _cancelled(adding, pool, priority, n)
        elif event == Event.EXPIRE:
            _dead(adding, pool, priority, "expired", n)
        elif event == Event.REDRIVE:
            adding.count("harness_redrives_total", (pool,), n)
        if event in (Event.APPROVE, Event.DENY, Event.APPROVAL_TIMEOUT):
            adding.count("harness_approvals_decided_total", (event,), n)
    for place, n, sum_s in found["decided"]:
        adding.observe("harness_approval_wait_time_seconds", (), PEOPLE_S, place, n, sum_s)
    for code, priority, n in found["refused"]:
        adding.count("harness_submissions_held_off_total", (code, str(priority)), n)
    for level, n in found["rose"]:
        adding.count("harness_backpressure_trigger_count_total", (Level(level).word,), n)


def _dead(adding: Adding, pool: str, priority: int, reason: str, n: int) -> None:
    adding.count("harness_dead_letter_count_total", (pool, reason), n)
    adding.count("harness_tasks_ended_total", (pool, str(priority), State.FAILED_TERMINAL), n)


def _cancelled(adding: Adding, pool: str, priority: int, n: int) -> None:
    adding.count("harness_tasks_ended_total", (pool, str(priority), State.CANCELLED), n)


def _add_told(
    adding: Adding, sessions: Iterable[tuple[str, Mapping[str, Any]]], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Add what worker processes counted beyond what they told the last time. Returns what they told now."""
    told: dict[str, Any] = {}
    for session, processes in sessions:
        told[session] = processes
        for pid, totals in processes.items():
            last = before.get(session, {}).get(pid, {})
            for what, of_resources in totals.items():
                for resource, values in policy.grown(of_resources, last.get(what, {})).items():
                    if what.startswith(CALLS):
                        outcome = OUTCOMES.get(what, what.removeprefix(CALLS))
                        adding.count("harness_provider_calls_total", (resource, outcome), values[0])
                    else:
                        policy.add(adding.totals, f"harness_{what}_seconds", (resource,), values)
    return told


def _of_tenants(adding: Adding, stands: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return what tenants have in flight and in line, by label."""
    found: dict[str, dict[str, int]] = {"tenants_in_flight": {}, "tenants_waiting": {}}
    for tenant, n in stands["of_tenants"]:
        label = adding.tenant(tenant)
        found["tenants_in_flight"][label] = found["tenants_in_flight"].get(label, 0) + n
    for _, _, tenant, n in stands["depth"]["ready"]:
        label = adding.tenant(tenant)
        found["tenants_waiting"][label] = found["tenants_waiting"].get(label, 0) + n
    return found


def _window(before: list[list[float]], totals: Totals, now_s: float) -> list[list[float]]:
    """Return (when, cancelled, ended in all) of the last minutes, the newest last."""
    of_states = totals.get("harness_tasks_ended_total", {})
    ended = sum(values[0] for values in of_states.values())
    cancelled = sum(values[0] for labels, values in of_states.items() if labels[2] == State.CANCELLED)
    kept = [one for one in before if 0.0 <= now_s - one[0] <= WINDOW_S]
    return [*kept, [now_s, cancelled, ended]]


def _rate(window: list[list[float]]) -> float:
    (_, cancelled, ended), (_, cancelled_now, ended_now) = window[0], window[-1]
    return (cancelled_now - cancelled) / (ended_now - ended) if ended_now > ended else 0.0


def _marks(
    mark: Mapping[str, Any], seen: Mapping[str, Any], *, seen_s: float, open_since_s: float
) -> tuple[dict[str, int], dict[str, list[policy.Gap]]]:
    highs: dict[str, int] = {}
    gaps: dict[str, list[policy.Gap]] = {}
    for name in TABLES:
        before = [(low, top, at_s) for low, top, at_s in mark["gaps"][name]]
        runs = [(low, top) for low, top in seen.get(name, ())]
        highs[name], gaps[name] = policy.passed_over(
            mark["high"][name], before, runs, now_s=seen_s, open_since_s=open_since_s
        )
    return highs, gaps
