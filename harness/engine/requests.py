"""What is asked for, before it is a task: one request is checked against its kind, without I/O, and made insertable.

Submission and schedules share it. Every fault is told with the path of its field; nothing here decides on admission.
"""

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from django.conf import settings
from pydantic import BaseModel, ValidationError

from harness.engine import payload
from harness.kinds import registry
from harness.kinds.registry import Kind
from harness.policy import terms
from harness.policy.admission import DEFAULT_TTL_S
from harness.policy.errors import Invalid
from harness.policy.flow import needs
from harness.policy.resources import Resource
from harness.policy.settings import PRIORITIES
from harness.store.transitions import NewTask

CLOCKS_AGREE = timedelta(seconds=5)  # more than a submission waits for its connection, and little beside any ttl
FURTHEST = timedelta(days=36525)  # what lies beyond the year 9999 in some zone can be stored but not read


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskRequest:
    """One task as asked for. `input` is a JSON value; `priority` None: the tenant's default; times are aware.

    `ttl_s`: seconds until it must have started, from `not_before` or now; None: `start_by`, or the priority's default.
    `degrade`: a cheaper form of it will do under pressure. As a node of a run: `name`, and `depends_on`, names and
    places of other nodes that must succeed before.
    """

    kind: str
    input: object
    priority: int | None = None
    not_before: datetime | None = None
    start_by: datetime | None = None
    deadline: datetime | None = None
    ttl_s: float | None = None
    title: str = ""
    tags: Sequence[str] = ()
    degrade: bool = True
    name: str = ""
    depends_on: Sequence[str | int] = ()

    def fields(self) -> dict[str, object]:
        """Return the request as named JSON values, for a fingerprint: what isn't given isn't there."""
        value = self.input.model_dump(mode="json") if isinstance(self.input, BaseModel) else self.input
        inputs = (
            {f"input.{name}": part for name, part in value.items()} if isinstance(value, dict) else {"input": value}
        )
        later: dict[str, object] = {"ttl_s": self.ttl_s, "title": self.title or None, "tags": list(self.tags) or None}
        later |= {
            "degrade": None if self.degrade else False,
            "name": self.name or None,
            "depends_on": list(self.depends_on) or None,
        }
        return (
            inputs
            | {
                "kind": self.kind,
                "priority": self.priority,
                "not_before": self.not_before,
                "start_by": self.start_by,
                "deadline": self.deadline,
            }
            | {name: given for name, given in later.items() if given is not None}
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The schedule that brings a task, and the moment it brings it for."""

    schedule: uuid.UUID
    scheduled_for: datetime


@dataclass(kw_only=True, slots=True)
class Desk:
    """Checks the requests of one submission; `errors` collects what is wrong. `ttl_s`: the default of each priority.

    `now` is this machine's time; `counted` are the tasks whose start_by was counted from it (by_the_clock).
    """

    body_max_bytes: int
    ttl_s: Sequence[float | None] = DEFAULT_TTL_S
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    errors: list[dict[str, str]] = field(default_factory=list)
    counted: set[uuid.UUID] = field(default_factory=set)
    _signatures: dict[str, str] = field(default_factory=dict)  # of kinds whose tasks all have the same
    _never: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _start_by: dict[int, datetime | None] = field(default_factory=dict)

    def check(
        self, request: TaskRequest, *, priority: int, public_id: uuid.UUID, at: str = "", origin: Origin | None = None
    ) -> NewTask | None:
        """Return the task to insert; None, or worthless, when `errors` has grown. `at`: the path of the request.

        Raises: TooLarge, Invalid for a payload that can't be stored at all.
        """
        kind = registry.find(request.kind)
        if kind is None:
            self._tell(f"{at}kind", f"there is no kind {request.kind!r}; GET /api/v1/kinds lists them")
            return None
        text = payload.encode(request.input, f"{at}input", max_bytes=self.body_max_bytes)
        checked = self._check_values(kind, request, priority, at)
        signature = self._signature(kind, checked)
        if (kind.name, signature) not in self._never:
            found = beyond_capacity(kind.name, signature, settings.HARNESS_TOPOLOGY.resources)
            self._never[kind.name, signature] = found
        for why in self._never[kind.name, signature]:
            self._tell(f"{at}kind", why)
        start_by = self._begin_by(request, priority)
        if start_by is not None and self._from_now(request, start_by):
            self.counted.add(public_id)
        return NewTask(
            kind=kind.name,
            version=kind.version,
            pool=kind.pool,
            priority=priority,
            signature=signature,
            input=text,
            public_id=public_id,
            not_before=request.not_before,
            start_by=start_by,
            deadline=request.deadline,
            marks=self._marks(request, at, origin) if request.title or request.tags or origin else None,
            degrade=request.degrade,
        )

    def _signature(self, kind: Kind, checked: BaseModel | None) -> str:
        if checked is not None and kind.one_of:
            return kind.signature_of(checked)
        if kind.name not in self._signatures:
            self._signatures[kind.name] = kind.signature
        return self._signatures[kind.name]

    def _check_values(self, kind: Kind, request: TaskRequest, priority: int, at: str) -> BaseModel | None:
        checked = None
        try:
            checked = kind.input.model_validate(request.input)
        except ValidationError as error:
            self.errors += payload.told_by_pydantic(error, f"{at}input")
        if priority not in PRIORITIES:
            self._tell(f"{at}priority", f"must be 0 (most urgent) to 3, not {priority}")
        if request.not_before or request.start_by or request.deadline or request.ttl_s is not None:
            self._check_times(request, at)
        return checked

    def _check_times(self, request: TaskRequest, at: str) -> None:
        times = {name: getattr(request, name) for name in ("not_before", "start_by", "deadline")}
        naive = [name for name, value in times.items() if value and value.utcoffset() is None]
        if naive:
            for name in naive:
                self._tell(f"{at}{name}", "must carry a time zone, as in 2030-01-31T12:00:00Z")
            return
        for name, value in times.items():
            if value and value > self.now + FURTHEST:
                self._tell(f"{at}{name}", "is too far ahead")
        for name in ("start_by", "deadline"):
            if times[name] and times[name] <= self.now:
                self._tell(f"{at}{name}", "is in the past")
            elif times[name] and times["not_before"] and times[name] <= times["not_before"]:
                self._tell(f"{at}{name}", "must be after not_before")
        if request.ttl_s is not None:
            if request.start_by:
                self._tell(f"{at}ttl_s", "says the same as start_by: give one of them")
            why = unfit_ttl(request.ttl_s)
            if why:
                self._tell(f"{at}ttl_s", why)

    def _begin_by(self, request: TaskRequest, priority: int) -> datetime | None:
        if request.start_by or self.errors:
            return request.start_by
        if request.ttl_s is None and request.not_before is None and request.deadline is None:  # as good as all
            if priority not in self._start_by:
                ttl_s = self.ttl_s[priority]
                self._start_by[priority] = None if ttl_s is None else self.now + timedelta(seconds=ttl_s)
            return self._start_by[priority]
        ttl_s = self.ttl_s[priority] if request.ttl_s is None else request.ttl_s
        if ttl_s is None:
            return None
        start_by = max(request.not_before or self.now, self.now) + timedelta(seconds=ttl_s)
        return min(start_by, request.deadline) if request.deadline else start_by

    def _from_now(self, request: TaskRequest, start_by: datetime) -> bool:
        given = start_by in (request.start_by, request.deadline)
        return not given and (request.not_before is None or request.not_before <= self.now)

    def _marks(self, request: TaskRequest, at: str, origin: Origin | None) -> str | None:
        tags: Sequence[str] = ()
        try:
            terms.check_title(request.title, f"{at}title")
            tags = terms.check_tags(request.tags, f"{at}tags")
        except Invalid as error:
            name = error.field or at
            self._tell(name, error.message.removeprefix(f"{name}: "))
            return None
        value = request.input.model_dump(mode="json") if isinstance(request.input, BaseModel) else request.input
        marks: dict[str, object] = {
            "terms": terms.of_task(
                title=request.title,
                tags=tags,
                kind=request.kind,
                value=value,
                schedule=str(origin.schedule) if origin else None,
            )
        }
        if request.title:
            marks["title"] = request.title
        if tags:
            marks["tags"] = tags
        if origin:
            marks |= {"schedule": str(origin.schedule), "scheduled_for": origin.scheduled_for.isoformat()}
        return json.dumps(marks)

    def _tell(self, name: str, message: str) -> None:
        self.errors.append(payload.told(name, message))


def unfit_ttl(ttl_s: float) -> str | None:
    """Return what is wrong with a time to live, if anything is.

    >>> unfit_ttl(0.5), unfit_ttl(0), unfit_ttl(float("nan"))
    (None, 'must be above 0 seconds', 'must be above 0 seconds')
    """
    if not ttl_s > 0:
        return "must be above 0 seconds"
    return f"must be at most {FURTHEST.total_seconds():.0f} seconds" if ttl_s > FURTHEST.total_seconds() else None


def by_the_clock(
    tasks: Sequence[NewTask], counted: Collection[uuid.UUID], *, now: datetime, server_now: datetime
) -> Sequence[NewTask]:
    """Return the tasks with start_by counted from the database's time where it was counted from another.

    What compares with it is the database; a door whose clock is wrong by the ttl would let everything expire at once.
    """
    off = server_now - now
    if not counted or abs(off) <= CLOCKS_AGREE:
        return tasks
    return [
        replace(task, start_by=min(task.start_by + off, task.deadline or task.start_by + off))
        if task.start_by is not None and task.public_id in counted
        else task
        for task in tasks
    ]


def beyond_capacity(kind: str, signature: str, resources: Mapping[str, Resource]) -> tuple[str, ...]:
    """Return why a task of this kind and signature could never start: it needs more of a resource than there is."""
    return tuple(
        f"{kind} needs {n} of {name!r}, and there are {resources[name].capacity} in all: it could never start. "
        f"Raise resources.{name}.capacity in resources.toml"
        if name in resources
        else f"{kind} needs {n} of {name!r}, which resources.toml doesn't have: it could never start"
        for name, n in needs(signature)
        if name not in resources or n > resources[name].capacity
    )


def tied(tasks: Sequence[NewTask], nodes: Sequence[TaskRequest], depends_on: Sequence[Sequence[int]]) -> list[NewTask]:
    """Return the tasks of a graph. One that waits for others has no time to start in unless it was given one."""
    waited_for = {on for ons in depends_on for on in ons}
    return [
        task
        if not ons and at not in waited_for
        else replace(
            task,
            depends=bool(ons),
            linked=at in waited_for,
            start_by=task.start_by if not ons or node.start_by or node.ttl_s is not None else None,
        )
        for at, (task, node, ons) in enumerate(zip(tasks, nodes, depends_on, strict=True))
    ]
