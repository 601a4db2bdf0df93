"""Questions that tasks ask people: what an attempt writes down as it asks, and what people read of them.

Nothing here changes a task's state or answers a question (transitions.approvals). Under role `web` the rows are those
of the tenant that the connection is held to.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from harness.policy.approvals import Question
from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """What an attempt asks at a step (`ordinal`, `name`)."""

    task: int
    release_no: int
    ordinal: int
    name: str
    question: Question


@dataclass(frozen=True, slots=True)
class Answer:
    """What was decided: `verdict` approve or deny, and the choice that the kind gets (None: a no that ends it)."""

    verdict: str
    choice: str | None


@dataclass(frozen=True, slots=True)
class Approval:
    """A question as people see it (models.approvals)."""

    id: int
    task: int
    ordinal: int
    name: str
    prompt: str
    choices: list[str]
    timeout_s: float | None
    on_timeout: str
    deny: str
    asked_at: datetime
    deadline: datetime | None
    asks: int
    open: bool
    verdict: str | None
    choice: str | None
    note: str
    decided_by: str | None
    decided_at: datetime | None
    waited_s: float
    notified_at: datetime | None
    notify_error: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with the task that asks it."""

    approval: Approval
    task_id: uuid.UUID
    tenant: int
    kind: str
    priority: int
    state: str
    title: str | None


@dataclass(frozen=True, slots=True)
class Notice:
    """A question that a tenant's hook is to hear of. `tries`: this one included."""

    approval: int
    asks: int
    tenant: int
    url: str
    tries: int
    task_id: uuid.UUID
    kind: str
    title: str | None
    prompt: str
    choices: list[str]
    deny: str
    asked_at: datetime
    deadline: datetime | None


_COLUMNS = len(Approval.__slots__)


def ask(connection: Connection, asking: Asking) -> Answer | Literal[False] | None:
    """Write a question down, open. Returns its answer, if it has one; None: not yet; False: its task was taken back."""
    question = asking.question
    row = connection.execute(
        sql.load("approvals/ask"),
        {
            "task": asking.task,
            "release_no": asking.release_no,
            "ordinal": asking.ordinal,
            "name": asking.name,
            "prompt": question.prompt,
            "choices": list(question.choices),
            "timeout_s": question.timeout_s,
            "on_timeout": question.on_timeout,
            "deny": question.deny,
        },
    ).fetchone()
    if row is None:
        return False
    verdict, choice = row
    return None if verdict is None else Answer(verdict, choice)


def last(connection: Connection, task: int) -> Approval | None:
    """Return a task's last question, if it has asked one. For who decides it: in a statement after the task's lock."""
    return next(iter(of_task(connection, task, most=1)), None)


def of_task(connection: Connection, task: int, *, most: int) -> list[Approval]:
    """Return a task's questions, the newest first."""
    return [Approval(*row) for row in connection.execute(sql.load("approvals/of_task"), {"task": task, "most": most})]


def one(connection: Connection, approval: int) -> Asked | None:
    """Return one question, with its task."""
    row = connection.execute(sql.load("approvals/one"), {"approval": approval}).fetchone()
    return _asked(row) if row else None


def page(connection: Connection, tenant: int | None, *, after: int = 0, most: int) -> list[Asked]:
    """Return the questions of a tenant (None: of all) that wait for an answer, the oldest first."""
    name = "approvals/page_of_all" if tenant is None else "approvals/page"
    return [_asked(row) for row in connection.execute(sql.load(name), {"tenant": tenant, "after": after, "most": most})]


def take_notices(connection: Connection, *, limit: int, again_s: float, again_most_s: float) -> list[Notice]:
    """Take questions that hooks are to hear of; each comes again after `again_s`, twice as long each time."""
    parameters = {"limit": limit, "again_s": again_s, "again_most_s": again_most_s}
    return [Notice(*row) for row in connection.execute(sql.load("approvals/take_notices"), parameters)]


def told_of(connection: Connection, notice: Notice, *, error: str | None, last: bool) -> None:
    """Note what became of a notice. `last`: it isn't tried again."""
    connection.execute(
        sql.load("approvals/told_of"),
        {"approval": notice.approval, "asks": notice.asks, "error": error, "last": last},
    )


def hook(connection: Connection, tenant: int) -> str | None:
    """Return where a tenant hears of questions."""
    row = connection.execute("SELECT url FROM approval_hook WHERE tenant_id = %s", (tenant,)).fetchone()
    return row[0] if row else None


def set_hook(connection: Connection, tenant: int, url: str | None, *, author: str) -> None:
    """Set where a tenant hears of questions that are asked from now on; None: nowhere."""
    if url is None:
        connection.execute("DELETE FROM approval_hook WHERE tenant_id = %s", (tenant,))
        return
    connection.execute(
        "INSERT INTO approval_hook (tenant_id, url, set_by, set_at) VALUES (%s, %s, %s, clock_timestamp()) "
        "ON CONFLICT (tenant_id) DO UPDATE SET url = excluded.url, set_by = excluded.set_by, set_at = excluded.set_at",
        (tenant, url, author),
    )


def _asked(row: tuple[object, ...]) -> Asked:
    return Asked(Approval(*row[:_COLUMNS]), *row[_COLUMNS:])  # type: ignore[arg-type]  # a row of the statement
