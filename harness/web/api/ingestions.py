"""Folders over HTTP: all the documents of one as a run. Its progress is the run's, its failures are its tasks."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict, Field

from harness.engine import ingest_folder, submit
from harness.engine.submit import NAME_MAX_CHARS
from harness.kinds import folders
from harness.policy.lifecycle import State
from harness.store import queries
from harness.store.database import Connection
from harness.web.api import answers, documents, reading
from harness.web.api.auth import WRITE, caller_of
from harness.web.api.schemas import Priority, Problem
from harness.web.service import service

router = Router(tags=["documents"])

LEFT_OUT_TOLD = 100

Tag = Annotated[str, Field(min_length=1, max_length=60)]


class IngestionIn(BaseModel):
    """A folder to ingest, below one that the operator allows (HARNESS_DOCUMENT_ROOTS)."""

    model_config = ConfigDict(extra="forbid")

    folder: str = Field(min_length=1, max_length=4096, description="absolute, or relative to the first allowed folder")
    name: str = Field(default="", max_length=NAME_MAX_CHARS, description="of the run")
    tags: list[Tag] = Field(default_factory=list, max_length=20, description="of each document, for rag.search")
    priority: Priority | None = Field(default=None, description="without it: 2, ordinary background work")
    fanout_cap: int | None = Field(default=None, strict=True, ge=1, lt=2**31, description="most of them in flight")


class LeftOut(BaseModel):
    """A file that is not ingested, and why."""

    name: str
    reason: str


class IngestionMade(BaseModel):
    """A run was taken, with one task a document. `left_out`: the first 100 files that it doesn't ingest."""

    run_id: uuid.UUID
    size: int
    existing: bool
    admission: Literal["accepted", "deferred"] = Field(description="deferred: taken, and tasks of it get in line later")
    deferred: int = Field(description="how many of its tasks get in line later")
    reason: str | None = Field(description="why they are deferred")
    expected_start: datetime | None = Field(description="of its first task; null: nobody can say")
    left_out: list[LeftOut]
    left_out_count: int
    links: Mapping[str, str]


@router.post(
    "",
    auth=WRITE,
    response={202: IngestionMade, 200: IngestionMade, (400, 401, 403, 409, 413, 422, 429, 503): Problem},
    openapi_extra=documents.body(IngestionIn, idempotent=True),
    summary="Ingest a folder",
)
async def create(request: HttpRequest) -> HttpResponse:
    """Ingest every document below a folder: follow the run, and list what failed by `links.failures`."""
    caller = caller_of(request)
    serving = service()
    key = request.headers.get("Idempotency-Key")

    def work() -> HttpResponse:
        asked = reading.read(reading.body_of(request), IngestionIn)
        planned = ingest_folder.plan(
            folders.roots_of(settings.HARNESS_DOCUMENT_ROOTS, caller.tenant.id),
            asked.folder,
            most=serving.door.run_max_tasks,
            name=asked.name,
            tags=asked.tags,
            priority=asked.priority,
            fanout_cap=asked.fanout_cap,
        )
        checked = submit.check_run(serving.door, caller.tenant, planned.run, idempotency_key=key)

        def take(connection: Connection) -> HttpResponse:
            accepted = submit.commit(serving.door, connection, caller.tenant, checked, actor=caller.actor)
            assert accepted.run_id is not None  # a run was asked for
            size = len(planned.run.nodes)
            if accepted.existing:
                with queries.as_tenant(connection, caller.tenant.id):
                    size = len(queries.tasks_of_run(connection, accepted.run_id))
            made = IngestionMade(
                run_id=accepted.run_id,
                size=size,
                existing=accepted.existing,
                admission="deferred" if accepted.deferred else "accepted",
                deferred=accepted.deferred,
                reason=accepted.reason or None,
                expected_start=answers.utc(accepted.expected_start),
                left_out=[LeftOut(name=name, reason=reason) for name, reason in planned.left_out[:LEFT_OUT_TOLD]],
                left_out_count=len(planned.left_out),
                links=_links(accepted.run_id),
            )
            return answers.answer(made, 200 if accepted.existing else 202)

        return serving.with_connection(take)

    return await serving.on_thread(work)


def _links(run_id: uuid.UUID) -> Mapping[str, str]:
    links = answers.run_links(run_id)
    return {**links, "failures": f"{links['tasks']}&state={State.FAILED_TERMINAL}"}
