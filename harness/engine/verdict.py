"""From a decision at the door to what follows from it: tasks that get in line later, or the error that says no."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from harness.engine.doorway import Prediction
from harness.policy.admission import Defer, Forbidden, Overload, OverQuota, Reject
from harness.policy.errors import HarnessError, Invalid
from harness.store.transitions import NewTask


def deferred(tasks: Sequence[NewTask], decision: Defer, prediction: Prediction, *, now: datetime) -> Sequence[NewTask]:
    """Return the tasks as they are inserted: those that are deferred get in line by a moment at the latest."""
    until = {number: now + timedelta(seconds=after_s) for number, after_s in decision.after_s.items()}
    return [
        replace(task, not_before=until[number], deferred=decision.reason) if number in until else task
        for task, number in zip(tasks, prediction.of, strict=True)
    ]


def refusal(decision: Reject, prediction: Prediction, *, of_run: bool, most_urgent_at: int) -> HarnessError:
    """Return the error that a refusal is, naming the field of the first task that it is about."""
    match decision.why:
        case "priority":
            name = f"{_path(prediction, most_urgent_at, of_run=of_run)}priority"
            return Forbidden(f"{name}: {decision.message.removeprefix('priority ')}", field=name)
        case "backlog":
            return OverQuota(decision.message, field="nodes" if of_run else None, retry_after_s=decision.retry_after_s)
        case _:
            at = list(prediction.of).index(decision.at or 0)
            path = _path(prediction, at, of_run=of_run)
    if decision.why == "never":
        return Invalid(f"{path}deadline: {decision.message}", field=f"{path}deadline")
    return Overload(
        f"{path.removesuffix('.')}: {decision.message}" if path else decision.message,
        field=None if decision.why == "pressure" else f"{path}{decision.why}",
        retry_after_s=None if decision.retry_after_s is None else round(decision.retry_after_s, 1),
        level=decision.level.word,
        reason=decision.why,
    )


def _path(prediction: Prediction, at: int, *, of_run: bool) -> str:
    if of_run:
        return f"nodes[{at}]."
    return f"tasks[{at}]." if len(prediction.of) > 1 else ""
