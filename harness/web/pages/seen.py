"""All that a task's page is drawn from, read in one snapshot: by key, bounded, whatever the task has been through."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.engine import expect
from harness.engine import why as engine_why
from harness.engine.expect import Foreseen
from harness.engine.why import Why
from harness.policy.lifecycle import TERMINAL, State
from harness.policy.steps import EVENTS as OF_STEPS
from harness.store import approvals, artifacts, children, forecasts, money, queries, runs, steps
from harness.store.approvals import Approval
from harness.store.artifacts import ArtifactView
from harness.store.children import Child
from harness.store.database import Connection
from harness.store.forecasts import Pass
from harness.store.money import Used
from harness.store.queries import EventView, TaskView
from harness.store.steps import StepView
from harness.web.pages import opening
from harness.web.pages.access import Viewer

EVENTS_MOST = 300  # the newest, for the line of states and the trace
STEPS_MOST = 60  # the last ones
QUESTIONS_MOST = 10
FILES_MOST = 50
CHILDREN_SHOWN = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A task as its page shows it. `children`: a letter each (store.runs), and some of them as rows.

    `events`: of its states, in order; `trace`: all kinds of them, the newest first.

    `trace_whole`, `steps_whole`: nothing older was left out.
    """

    tenant: int
    task: TaskView
    above: Sequence[tuple[uuid.UUID, str]]
    now: datetime
    why: Why
    eta: Foreseen | None
    made: Pass | None
    trace: Sequence[EventView]
    trace_whole: bool
    steps: Sequence[StepView]
    steps_before: int
    questions: Sequence[Approval]
    used: Used
    files: Sequence[ArtifactView]
    children: str
    some_children: Sequence[Child]

    @property
    def state(self) -> State:
        """The state."""
        return State(self.task.state)

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.state in TERMINAL

    @property
    def events(self) -> list[EventView]:
        """What led from state to state, in order."""
        return [one for one in reversed(self.trace) if one.event not in OF_STEPS]

    @property
    def seq(self) -> int:
        """The number of its newest event."""
        return self.trace[0].seq if self.trace else 0

    @property
    def question(self) -> Approval | None:
        """What it asks now, or asked last."""
        return self.questions[0] if self.questions else None

    @property
    def undecided(self) -> bool:
        """Whether it waits for somebody to decide."""
        return self.state is State.WAITING_APPROVAL and not self.task.ready and not self.task.released

    @property
    def name(self) -> str:
        """What people call it."""
        return self.task.title or self.task.kind

    def since(self) -> datetime:
        """Return since when it is in this state."""
        for one in reversed(self.events):
            if one.from_state != one.to_state:
                return one.at
        return self.task.created_at

    def last(self, *events: str) -> EventView | None:
        """Return the newest event of some kinds."""
        return next((one for one in self.trace if one.event in events), None)


def look(connection: Connection, viewer: Viewer, task_id: uuid.UUID, *, tenant: int, now: datetime) -> Seen:
    """Read a task's page. The connection is held to the tenant. Raises: NotFound."""
    opened = opening.opened(connection, viewer, task_id)
    task = opened.task
    so_far = steps.so_far(connection, task.id)
    after = max(0, so_far.begun - STEPS_MOST)
    trace = queries.last_trace(connection, task.id, most=EVENTS_MOST)
    letters = runs.states_of_children(connection, task.id)
    return Seen(
        tenant=tenant,
        task=task,
        above=opened.above,
        now=now,
        why=engine_why.why(connection, task, now=now),
        eta=expect.of_tasks(connection, [task]).get(task.id),
        made=forecasts.last_pass(connection),
        trace=trace,
        trace_whole=len(trace) < EVENTS_MOST,
        steps=steps.page(connection, task.id, after=after, most=STEPS_MOST) if so_far.begun else [],
        steps_before=after,
        questions=approvals.of_task(connection, task.id, most=QUESTIONS_MOST),
        used=money.of_task(connection, task.id),
        files=artifacts.of_task(connection, tenant, task.public_id, most=FILES_MOST),
        children=letters,
        some_children=children.shown(connection, task.id, looked=runs.MEMBERS_MOST, most=CHILDREN_SHOWN)
        if letters
        else [],
    )


def said(event: EventView | None, name: str) -> str:
    """Return what an event's data says of something; nothing where it doesn't."""
    data: Any = event.data if event is not None else None
    value = data.get(name) if isinstance(data, dict) else None
    return str(value) if value not in (None, "") else ""
