"""Tasks as lines of a list: a mark, what each is called, how it stands, and when."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.utils.safestring import SafeString

from harness.policy.holds import CHILDREN
from harness.policy.lifecycle import TERMINAL, State
from harness.store.queries import TaskView
from harness.web.pages import marks, times, words
from harness.web.pages.access import Viewer
from harness.web.pages.branches import called, spent


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One task in a list. `told`: its state and kind, and what went wrong; `time`: how long it took, or since when."""

    id: int
    mark: SafeString
    path: str
    name: str
    told: str
    time: str
    at: SafeString


def lines(tasks: Iterable[TaskView], viewer: Viewer, *, now: datetime) -> list[Line]:
    """Return the lines of tasks, in their order."""
    return [
        Line(
            id=task.id,
            mark=marks.mark(task.state),
            path=viewer.task_path(task.public_id),
            name=called(task.title, task.kind),
            told=_told(task),
            time=spent(task.first_claimed_at, task.finished_at, now),
            at=times.stamp(task.created_at, now),
        )
        for task in tasks
    ]


def _told(task: TaskView) -> str:
    said = words.standing(task.state, parked=task.holds == [CHILDREN])
    if task.title:
        said += f", {task.kind}"
    error = task.error if isinstance(task.error, dict) else {}
    if task.state in (State.FAILED_TERMINAL, State.FAILED_RETRYABLE) and error.get("message"):
        said += f": {str(error['message'])[:200]}"
    elif task.degraded and task.state in TERMINAL:
        said += ", in a lighter form"
    return said
