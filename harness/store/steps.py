"""Steps of tasks: what an attempt writes down as it goes, and what of it a later attempt, or people, read.

A row is written by the one attempt that holds its task (fenced by task and release_no), with its trace event in the
same statement; nothing here changes a task's state. A result is JSON as text: what is read is what was written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from harness.policy.steps import Record
from harness.store import sql
from harness.store.database import Connection

PREFETCHED_BYTES = 4 * 1024 * 1024  # of results, read with the names; those beyond are read one by one


@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """A step that begins."""

    task: int
    release_no: int
    ordinal: int
    key: str
    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finishing:
    """A step that has finished. `result`: JSON text."""

    task: int
    release_no: int
    ordinal: int
    result: str


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as people see it. `begun`: how often; `differs`: the code that came to it was another."""

    ordinal: int
    key: str
    name: str
    began_at: datetime
    finished_at: datetime | None
    begun: int
    result_bytes: int | None
    differs: bool


@dataclass(frozen=True, slots=True)
class SoFar:
    """How far a task has come. `current`: a step that has begun and not finished."""

    finished: int
    begun: int
    current: str | None


def recorded(connection: Connection, task: int, release_no: int, *, actor: str) -> tuple[list[Record], dict[int, str]]:
    """Return what earlier attempts have recorded, in order, and the results that came along, by ordinal."""
    parameters = {"task": task, "release_no": release_no, "bytes": PREFETCHED_BYTES, "actor": actor}
    records: list[Record] = []
    results: dict[int, str] = {}
    for ordinal, key, name, finished, result in connection.execute(sql.load("steps/recorded"), parameters):
        records.append(Record(ordinal=ordinal, key=key, name=name, finished=finished))
        if result is not None:
            results[ordinal] = result
    return records, results


def begin(connection: Connection, some: Sequence[Beginning], *, actor: str) -> list[bool]:
    """Begin steps. Returns for each whether it began; False: its task is no longer this release's."""
    parameters = {
        "tasks": [one.task for one in some],
        "releases": [one.release_no for one in some],
        "ordinals": [one.ordinal for one in some],
        "keys": [one.key for one in some],
        "names": [one.name for one in some],
        "actor": actor,
    }
    written = set(connection.execute(sql.load("steps/begin"), parameters).fetchall())
    return [(one.task, one.release_no, one.ordinal) in written for one in some]


def finish(connection: Connection, some: Sequence[Finishing], *, actor: str) -> list[bool]:
    """Record what steps returned. Returns for each whether it is finished; False: its task was taken back."""
    parameters = {
        "tasks": [one.task for one in some],
        "releases": [one.release_no for one in some],
        "ordinals": [one.ordinal for one in some],
        "results": [one.result for one in some],
        "actor": actor,
    }
    written = set(connection.execute(sql.load("steps/finish"), parameters).fetchall())
    return [(one.task, one.release_no, one.ordinal) in written for one in some]


def result(connection: Connection, task: int, ordinal: int) -> str | None:
    """Return what a step returned, as JSON text; None when it hasn't finished, or isn't there."""
    row = connection.execute(
        "SELECT result FROM step WHERE task_id = %s AND ordinal = %s AND finished_at IS NOT NULL", (task, ordinal)
    ).fetchone()
    return row[0] if row else None


def differ(connection: Connection, task: int, release_no: int, ordinal: int) -> None:
    """Note that the code of a running task doesn't match this step: only a worker that starts later may go on."""
    connection.execute(sql.load("steps/differ"), {"task": task, "release_no": release_no, "ordinal": ordinal})


def page(connection: Connection, task: int, *, after: int = 0, most: int) -> list[StepView]:
    """Return a task's steps after an ordinal, in order."""
    cursor = connection.execute(sql.load("steps/page"), {"task": task, "after": after, "most": most})
    return [StepView(*row) for row in cursor]


def so_far(connection: Connection, task: int) -> SoFar:
    """Return how far a task has come."""
    row = connection.execute(sql.load("steps/so_far"), {"task": task}).fetchone()
    assert row is not None
    return SoFar(*row)
