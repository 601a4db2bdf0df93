"""What a run of chaos came to, and the figures of it. Pure: an outcome in, JSON values out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.chaos import levels, streams
from benchmarks.chaos.births import FAMILY, QUESTION
from benchmarks.chaos.checker import COLUMNS
from benchmarks.chaos.history import Fault, Finding, History
from benchmarks.chaos.view import View, recoveries, view
from benchmarks.statistics_of_runs import quantile
from harness.policy.heads import LOST_STARTS_QUARANTINE
from harness.policy.lifecycle import Event
from harness.policy.steps import FINISHED, STARTED

FINDINGS_SHOWN = 20
SLOWEST_SHOWN = 10
LEVELS_SHOWN = 40
# Who comes to a statement that is ordered to end its process; whoever else does, is told as `at_a_statement`.
AT = {
    "release": "dispatcher", "unpark": "dispatcher", "ask_timeout": "dispatcher", "answer": "web", "deny": "web",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a run came to. `audit`: faults found by the product's own auditor, or why it didn't get to look.

    `broken`: what of the bench itself ended before the run did: a fault that nobody played, a sample that nobody took.
    """

    history: History
    findings: Sequence[Finding]
    answers: dict[int, int]
    refused: Sequence[str]
    all_answered: bool
    audit: Sequence[str]
    orders: Sequence[str]
    paused: int
    errors: dict[str, int]
    broken: Sequence[str]


def summarise(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a run, keyed as the issue names them, and `failed`."""
    counted = Counter(finding.column for finding in outcome.findings)
    history = outcome.history
    seen = view(history)
    recovered = recoveries(seen)
    recovery_s = [one.claimed_s for one in recovered]
    unpaused_s = [one.claimed_s for one in recovered if not one.paused]
    quarantined_s = [one.claimed_s for one in recovered if one.losses >= LOST_STARTS_QUARANTINE]
    kills = Counter(_process(fault) for fault in history.faults if _kills(fault))
    columns = {column: counted[column] for column in COLUMNS}
    return {
        "tasks": len({one.task for one in history.accepted}),
        **columns,
        "audit_findings": len(outcome.audit),
        "audit_faults": list(outcome.audit)[:FINDINGS_SHOWN],
        "recovery_p95_s": round(quantile(recovery_s, 0.95), 1) if recovery_s else None,
        "recovery_max_s": recovery_s[-1] if recovery_s else None,
        "recovered": len(recovery_s),
        "given_up_p95_s": round(quantile(sorted(one.lost_s for one in recovered), 0.95), 1) if recovered else None,
        "paused_by_pressure": len(recovery_s) - len(unpaused_s),
        "unpaused_p95_s": round(quantile(unpaused_s, 0.95), 1) if unpaused_s else None,
        "quarantine_p95_s": round(quantile(quarantined_s, 0.95), 1) if quarantined_s else None,
        "quarantined": len(quarantined_s),
        "slowest": [asdict(one) for one in recovered[-SLOWEST_SHOWN:]],
        "levels": levels.seconds(history),
        "level_changes": [asdict(one) for one in history.levels[:LEVELS_SHOWN]],
        "retry_ratio": levels.retry_ratio(history),
        "kills": dict(sorted(kills.items())),
        "kills_total": kills.total(),
        "stops": dict(Counter(_process(fault) for fault in history.faults if fault.what == "stop")),
        "servers": dict(Counter(fault.role for fault in history.faults if fault.what == "server")),
        "messages": dict(Counter(fault.role for fault in history.faults if fault.what == "messages")),
        "sabotage": dict(Counter(fault.role for fault in history.faults if fault.what == "sabotage")),
        "paused": outcome.paused,
        "orders": dict(Counter(outcome.orders)),
        "states": dict(Counter(row.state for row in history.tasks)),
        "events": dict(Counter(event.event for event in history.trace)),
        "errors": outcome.errors,
        "executions": len(history.visits),
        "effects": len(history.effects),
        "steps": sum(event.event == FINISHED for event in history.trace),
        "write_steps": len({(effect.token, effect.n) for effect in history.effects if effect.step}),
        "steps_begun_again": sum(event.event == STARTED for event in history.trace)
        - len({(event.id, event.step) for event in history.trace if event.event == STARTED}),
        "effects_again": len(history.effects) - len({(effect.token, effect.n) for effect in history.effects}),
        **_shapes(seen),
        "provider": asdict(history.provider) if history.provider else None,
        "answers": {str(status): n for status, n in sorted(outcome.answers.items())},
        "refused": list(outcome.refused)[:FINDINGS_SHOWN],
        "all_answered": outcome.all_answered,
        "broken": list(outcome.broken),
        "findings": [asdict(finding) for finding in outcome.findings[:FINDINGS_SHOWN]],
        "failed": any(columns.values())
        or bool(outcome.audit or outcome.refused or outcome.broken)
        or not outcome.all_answered,
    }


def broken_off(**errors: BaseException | None) -> list[str]:
    """Say which parts of the bench broke off, and of what."""
    return [f"{name}: {type(error).__name__}: {error}" for name, error in errors.items() if error is not None]


def _shapes(seen: View) -> dict[str, Any]:
    """Count what there was of parents, questions, streams and runs, so that a zero beside it says something."""
    history = seen.history
    decisions = [event for event in history.trace if event.event in (Event.APPROVE, Event.DENY)]
    times = Counter((said.task, said.verb) for said in history.said)
    return {
        "parents": sum(row.kind == FAMILY for row in history.tasks),
        "nested": sum(row.kind == FAMILY and row.parent is not None for row in history.tasks),
        "children": sum(row.parent is not None for row in history.tasks),
        "parked": sum(event.event == Event.PARK for event in history.trace),
        "gathered": sum(one.what == "gathered" for one in history.told),
        "asking": sum(row.kind == QUESTION for row in history.tasks),
        "approvals": len(decisions),
        "approvals_by_choice": dict(Counter(event.detail or "-" for event in decisions)),
        "approvals_timed_out": sum(event.event == Event.APPROVAL_TIMEOUT for event in history.trace),
        "approvals_asked_again": sum(event.event == Event.REASK for event in history.trace),
        "answers_too_late": sum(said.status == 409 for said in history.said),
        "answers_said": times.total(),
        "streams": len(history.followed),
        "stream_events": len(history.frames),
        "stream_connections": streams.connections(seen),
        "output_missing_chars": streams.missing_chars(seen),
        "depending": len({i for i, _ in history.edges}),
        "waiting_max": max((sample.waiting for sample in history.samples), default=0),
    }


def _kills(fault: Fault) -> bool:
    return fault.what == "kill" or (fault.what == "sabotage" and fault.role.endswith(".exit"))


def _process(fault: Fault) -> str:
    """Name the process: one that the schedule hits; of orders to exit it is whoever was the one to obey."""
    if fault.what == "sabotage":
        return AT.get(fault.role.partition(".")[0], "at_a_statement")
    return fault.role
