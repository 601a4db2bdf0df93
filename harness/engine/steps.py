"""Steps of one attempt: what is recorded is replayed, the rest is done and recorded (policy.steps decides which).

A step is two statements, begin and finish, each with its trace event, fenced in the database by task and release_no;
those of several threads share one (engine.together). Invariants: `fn` runs only after its begin is committed; a
finished step is never begun again; a result that the kind got is committed. Threads of one attempt may share this.
"""

import json
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import psycopg

from harness.engine import payload
from harness.engine.process import LeaseLost, ProcessState, Running
from harness.kinds import models
from harness.kinds.errors import Asked, Parked, Permanent, StepMismatch
from harness.policy import steps as policy
from harness.policy.errors import Invalid, TooLarge, Unavailable
from harness.policy.steps import Again, Differs, New, Record, Replay
from harness.store import steps as stored
from harness.store.database import Connection, borrowed
from harness.store.steps import Beginning, Finishing
from harness.store.transitions import ClaimedTask
from harness.telemetry import logs, traces

RESULT_MAX_BYTES = 262_144  # as a task's output: what is larger is no row
WRITE_AGAIN_S = 0.25  # between tries while the database is away; the fence ends them

T = TypeVar("T")
log = logs.get(__name__)


@dataclass(eq=False, slots=True)
class Open:
    """A step under way."""

    steps: "Steps"
    name: str
    token: str
    ordinal: int


_inside: ContextVar[Open | None] = ContextVar("harness_step", default=None)


@dataclass(slots=True)
class _Line:
    """The steps of one key. `place`: of the step that was come to last."""

    recorded: list[Record] = field(default_factory=list)
    place: int = 0
    busy: str | None = None  # the name of the step under way
    unfinished: Record | None = None  # what was begun in this attempt and raised


class Steps:
    """The steps of one attempt. `checkpoint` and `check`: the context's own, before a step and after it."""

    def __init__(
        self,
        process: ProcessState,
        running: Running,
        task: ClaimedTask,
        *,
        task_token: str,
        bundle: bool,
        checkpoint: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        self._process = process
        self._running = running
        self._task = task
        self._task_token = task_token
        self._bundle = bundle
        self._checkpoint = checkpoint
        self._check = check
        self._lock = threading.Lock()
        self._lines: dict[str, _Line] | None = None  # read at the first step
        self._results: dict[int, str] = {}
        self._ordinals = 0
        self._under_way = 0
        self._replays = 0
        self._differs: Differs | None = None  # once seen, nothing more is done
        self._left: Parked | Asked | None = None  # how the attempt ends; once asked, nothing more is done

    @property
    def replayed(self) -> int:
        """How many steps of earlier attempts were passed without doing them again."""
        return self._replays

    def token(self) -> str:
        """Return the token of the step that the caller is in, or of the task."""
        inside = _inside.get()
        if inside is not None and inside.steps is self:
            return inside.token
        if self._under_way:
            raise RuntimeError(
                "ctx.token: steps are under way, and this thread is in none of them: ask where the step's fn runs"
            )
        return self._task_token

    def run(self, name: str, fn: Callable[[], Any], key: str) -> Any:
        """Replay a step, or do and record it. Raises: see `kinds.Context.step`."""

        def do(record: Record, place: int) -> Any:
            token = policy.token(self._task_token, key=key, place=place, name=name)
            before = _inside.set(Open(self, name, token, record.ordinal))
            try:
                value = fn()
            except (Parked, Asked) as left:
                self._left = self._left or left
                raise
            finally:
                _inside.reset(before)
            text, plain = _encoded(name, value)
            self._write(self._process.finish_step, self._finishing(record, text), self._check)
            return plain

        return self._take(name, key, do)

    def make(self, name: str, write: Callable[[Connection], Any], key: str) -> Any:
        """The same for a step whose effect is in Harness's own database: `write` and its record are one transaction.

        `write` returns the result, and may be called again when its transaction was undone. Raises: as `run`.
        """

        def do(record: Record, place: int) -> Any:
            while True:
                self._checkpoint()
                if self._running.taken_over:
                    raise LeaseLost("the task was settled from outside while its step was under way")
                try:
                    with borrowed(self._process.db) as connection, connection.transaction():
                        # The answer to a commit may be lost, and what was committed stands.
                        there = stored.result(connection, self._task.id, record.ordinal)
                        if there is not None:
                            return json.loads(there)
                        text, plain = _encoded(name, write(connection))
                        (recorded,) = stored.finish(
                            connection, [self._finishing(record, text)], actor=self._process.actor
                        )
                        if not recorded:
                            raise LeaseLost("the task was taken back while its step was under way")
                        self._check()
                    return plain
                except (Unavailable, psycopg.OperationalError) as away:
                    log.warning("step_not_written", task=self._task.id, error=str(away))
                    time.sleep(WRITE_AGAIN_S)

        return self._take(name, key, do)

    def look(self, read: Callable[[Connection], T]) -> T:
        """Ask Harness's own database something for a step, again while it is away. Raises: Cancelled, LeaseLost."""
        while True:
            self._checkpoint()
            try:
                with borrowed(self._process.db) as connection:
                    return read(connection)
            except (Unavailable, psycopg.OperationalError) as away:
                log.warning("step_not_read", task=self._task.id, error=str(away))
                time.sleep(WRITE_AGAIN_S)

    def _take(self, name: str, key: str, do: Callable[[Record, int], Any]) -> Any:
        # 1. Come to it
        self._refuse(name, key)
        if isinstance(self._left, Asked):
            raise self._left
        self._checkpoint()
        with self._lock:
            if self._lines is None:
                self._lines = self._read()
            line, record = self._come_to(self._lines, name, key)
            line.busy = name
            if record.finished:
                self._replays += 1
            else:
                line.unfinished = record
                self._under_way += 1
        if record.finished:
            try:
                return self._replayed(record)
            finally:
                line.busy = None
        try:
            # 2. Do it, 3. record it
            with traces.span(self._task.public_id, "step", step=name):
                self._write(self._process.begin_step, self._beginning(record), self._checkpoint)
                plain = do(record, line.place)
            with self._lock:
                line.unfinished = None
        finally:
            with self._lock:
                line.busy = None
                self._under_way -= 1
        return plain

    def _finishing(self, record: Record, text: str) -> Finishing:
        return Finishing(task=self._task.id, release_no=self._task.release_no, ordinal=record.ordinal, result=text)

    def check(self) -> None:
        """Raises: what the code came to, whatever it did about it: StepMismatch (another step), Parked, Asked."""
        if self._differs is not None:
            raise StepMismatch(self._differs.message)
        if self._left is not None:
            raise self._left

    def alone(self, name: str) -> int:
        """Return the ordinal of the step that the caller is in. Raises: Permanent while others are under way."""
        inside = _inside.get()
        assert inside is not None and inside.steps is self
        with self._lock:
            if self._under_way > 1:
                raise Permanent(f"{name!r} can't ask while steps are under way: join their threads first")
        return inside.ordinal

    def _refuse(self, name: str, key: str) -> None:
        """Raises: Permanent when the kind may not take this step here."""
        try:
            policy.check("name", name)
            policy.check("key", key)
        except Invalid as error:
            raise Permanent(error.message) from None
        inside = _inside.get()
        if inside is not None and inside.steps is self:
            raise Permanent(f"step {name!r} can't begin inside step {inside.name!r}: let one end before the next")
        if self._bundle:
            raise Permanent(f"step {name!r}: a kind with bundle=True has no steps (it promised to be short)")

    def _read(self) -> dict[str, _Line]:
        """Read what earlier attempts have recorded; the first attempt has none."""
        lines: dict[str, _Line] = {}
        if self._task.release_no == 1:
            return lines
        task, actor = self._task, self._process.actor
        records, self._results = self.look(lambda db: stored.recorded(db, task.id, task.release_no, actor=actor))
        for record in records:
            lines.setdefault(record.key, _Line()).recorded.append(record)
            self._ordinals = record.ordinal
        return lines

    def _come_to(self, lines: dict[str, _Line], name: str, key: str) -> tuple[_Line, Record]:
        """Take the next place of a line; under the lock. Raises: StepMismatch, Permanent."""
        line = lines.setdefault(key, _Line())
        if line.busy is not None:
            raise Permanent(
                f"step {name!r} can't begin while {line.busy!r} is under way: steps at the same time need a key each"
            )
        if line.unfinished is not None:
            if line.unfinished.name != name:
                raise Permanent(
                    f"step {name!r} can't begin after {line.unfinished.name!r}, which raised: an error that the kind "
                    "lives with is caught inside the step's fn, and what it returns then is what a later attempt gets"
                )
            return line, line.unfinished
        missing = next(
            (other.recorded[other.place] for other in lines.values() if other.place < len(other.recorded)), None
        )
        found = self._differs or policy.decide(line.recorded, line.place + 1, key=key, name=name, missing=missing)
        match found:
            case Differs():
                self._differs = found
                self._differ(found)
                raise StepMismatch(found.message)
            case Replay(record) | Again(record):
                pass
            case New():
                if self._ordinals >= policy.STEPS_MOST:
                    raise Permanent(f"step {name!r}: a task has at most {policy.STEPS_MOST:,} steps; let one do more")
                self._ordinals += 1
                record = Record(ordinal=self._ordinals, key=key, name=name, finished=False)
        line.place += 1
        return line, record

    def _differ(self, found: Differs) -> None:
        """Note that this code can't go on with the task."""
        try:
            with borrowed(self._process.db) as connection:
                stored.differ(connection, self._task.id, self._task.release_no, found.record.ordinal)
        except (Unavailable, psycopg.Error) as error:  # then it is tried again too soon, and this is seen once more
            log.warning("step_mismatch_not_noted", task=self._task.id, error=str(error))

    def _replayed(self, record: Record) -> Any:
        text = self._results.pop(record.ordinal, None)
        if text is None:
            text = self.look(lambda db: stored.result(db, self._task.id, record.ordinal))
        if text is None:
            raise LeaseLost(f"step {record.name!r} was recorded, and is gone: the task was sent again")
        return json.loads(text)

    def _beginning(self, record: Record) -> Beginning:
        return Beginning(
            task=self._task.id,
            release_no=self._task.release_no,
            ordinal=record.ordinal,
            key=record.key,
            name=record.name,
        )

    def _write(self, write: Callable[..., bool | None], item: object, check: Callable[[], None]) -> None:
        """Write, again and again while the database is away or the task locked, and `check` doesn't raise.

        Raises: LeaseLost, Cancelled, psycopg.Error.
        """
        alone = False
        while True:
            check()
            if self._running.taken_over:
                raise LeaseLost("the task was settled from outside while its step was under way")
            try:
                written = write(item, alone=alone)
            except (Unavailable, psycopg.OperationalError) as away:
                log.warning("step_not_written", task=self._task.id, error=str(away))
                time.sleep(WRITE_AGAIN_S)
                continue
            if written:
                return
            if written is False:
                raise LeaseLost("the task was taken back while its step was under way")
            log.warning("step_locked", task=self._task.id)
            alone = True
            time.sleep(WRITE_AGAIN_S)


def _encoded(name: str, value: Any) -> tuple[str, Any]:
    """Return a step's result as JSON text, and as what a later attempt will read. Raises: Permanent naming the step."""
    try:
        text = payload.encode(value, "result", max_bytes=RESULT_MAX_BYTES)
    except TooLarge:
        raise Permanent(
            f"step {name!r}: its result is larger than {RESULT_MAX_BYTES:,} bytes as JSON: keep it with "
            "`ctx.artifacts.put` and return the id"
        ) from None
    except Invalid as error:
        raise Permanent(f"step {name!r}: its result can't be stored as JSON: {error.message}") from None
    if (odd := _odd(value, json.loads(text), "result")) is not None:
        raise Permanent(
            f"step {name!r}: its result isn't plain JSON: {odd}; return dicts with text keys, lists, text, numbers, "
            "True, False or None (of a model: `model_dump(mode='json')`)"
        )
    text = models.redact(text)
    return text, json.loads(text)


def _odd(value: Any, read: Any, path: str) -> str | None:
    """Where a value differs from what is read again; None: nowhere."""
    if value == read:
        return None
    if isinstance(value, dict) and isinstance(read, dict):
        for name, inner in value.items():
            if not isinstance(name, str):
                return f"{path} has the key {name!r}"
            if name in read and (odd := _odd(inner, read[name], payload.path_of((name,), path))):
                return odd
    elif isinstance(value, list) and isinstance(read, list):
        for n, (inner, again) in enumerate(zip(value, read, strict=False)):
            if odd := _odd(inner, again, f"{path}[{n}]"):
                return odd
    return f"{path} is of type {type(value).__name__}"
