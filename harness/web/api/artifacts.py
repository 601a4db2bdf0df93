"""Artifacts over HTTP: an upload's body is the file itself, streamed; downloads are too, and never shown inline."""

import functools
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Annotated, Any, BinaryIO

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header
from ninja import Query, Router
from pydantic import AwareDatetime, BaseModel, Field

from harness.engine import artifacts as engine
from harness.policy.errors import Invalid, NotFound
from harness.store import artifact_files, artifacts, queries
from harness.store.artifacts import ArtifactView
from harness.store.database import Connection
from harness.web import problems, upload
from harness.web.api import answers
from harness.web.api.auth import READ, WRITE, caller_of
from harness.web.api.schemas import Problem
from harness.web.service import service

router = Router(tags=["artifacts"])

PAGE_MAX = 200
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_BODY = {
    "requestBody": {
        "required": True,
        "description": "the file itself, not a form; its Content-Type is kept",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


class ArtifactOut(BaseModel):
    """A file of the tenant. `task_id`: the task that made it, while that is there."""

    artifact_id: uuid.UUID
    name: str
    content_type: str
    bytes: int
    sha256: str
    task_id: uuid.UUID | None
    created_at: AwareDatetime
    expires_at: AwareDatetime
    links: Mapping[str, str]


class ArtifactMade(ArtifactOut):
    """A file was kept. `existing`: the tenant had this content before, under this id, name and type."""

    existing: bool


class ArtifactPage(BaseModel):
    """Artifacts, newest first, and what all of the tenant's may hold and hold."""

    items: list[ArtifactOut]
    next: str | None = Field(description="the cursor of the next page; null: there is none")
    held_bytes: int
    quota_bytes: int


class ArtifactGone(BaseModel):
    """An artifact was deleted."""

    artifact_id: uuid.UUID
    outcome: str = "deleted"


@router.post(
    "",
    auth=WRITE,
    response={201: ArtifactMade, 200: ArtifactMade, (400, 401, 403, 413, 422, 429, 503): Problem},
    openapi_extra=_BODY,
    summary="Upload a file",
)
async def create(
    request: HttpRequest,
    name: Annotated[str, Query(description="the file's name, for people and downloads")],
    keep_s: Annotated[
        float | None, Query(description="seconds until it expires; without it the server's setting")
    ] = None,
    sha256: Annotated[
        str | None, Query(description="refuse the upload if its SHA-256 (hexadecimal) is another")
    ] = None,
) -> HttpResponse:
    """Upload a file as the body itself: `curl -X POST -T FILE`. The same content again returns what is there, with 200.

    An upload that is cut off leaves nothing. The quota is checked when all bytes are there: content that is there
    already costs nothing.
    """
    answers.only(request, "name", "keep_s", "sha256")
    caller = caller_of(request)
    content_type = request.headers.get("Content-Type") or "application/octet-stream"
    if content_type.split(";")[0].strip().lower() in _FORMS:
        raise Invalid(
            "Content-Type: the body must be the file itself, not a form; send it with its own type "
            "(curl -T FILE -X POST -H 'Content-Type: application/pdf')",
            field="Content-Type",
        )
    keep_for_s = engine.check(name, content_type, keep_s)
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise Invalid("sha256: must be 64 hexadecimal digits in lower case", field="sha256")
    serving = service()
    with upload.places.taken(caller.tenant.id):
        spooled = await upload.on_file_thread(engine.spool)
        try:
            async for chunk in upload.body_of(request).chunks():
                await upload.on_file_thread(functools.partial(spooled.write, chunk))
            if not spooled.bytes:
                raise Invalid("body: is empty; send the file itself", field="body")
            if sha256 is not None and spooled.sha256 != sha256:
                raise Invalid(f"sha256: the body's is {spooled.sha256}; it was changed on its way", field="sha256")
            kept = await upload.on_file_thread(
                lambda: engine.keep(
                    serving.with_connection,
                    spooled,
                    tenant=caller.tenant.id,
                    task=None,
                    name=name,
                    content_type=content_type,
                    keep_s=keep_for_s,
                )
            )
        finally:
            await upload.on_file_thread(spooled.discard)
    made = ArtifactMade(**_members(kept.artifact), existing=kept.existing)
    return answers.answer(made, HTTPStatus.OK if kept.existing else HTTPStatus.CREATED)


@router.get("", auth=READ, response={200: ArtifactPage, (401, 403, 422, 503): Problem}, summary="List files")
async def list_artifacts(
    request: HttpRequest,
    task: Annotated[uuid.UUID | None, Query(description="only those that this task made")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    cursor: Annotated[str | None, Query()] = None,
) -> HttpResponse:
    """List artifacts, newest first, with the room that is left."""
    answers.only(request, "task", "limit", "cursor")
    caller = caller_of(request)
    serving = service()
    before = queries.LAST_ID if cursor is None else answers.position(cursor)

    def look(connection: Connection) -> HttpResponse:
        found, room = artifacts.page(connection, caller.tenant.id, task=task, before=before, most=limit)
        return answers.answer(
            ArtifactPage(
                items=[ArtifactOut(**_members(one)) for one in found],
                next=answers.cursor(found[-1].id) if len(found) == limit else None,
                held_bytes=room.held_bytes,
                quota_bytes=room.quota_bytes,
            )
        )

    return await serving.on_thread(lambda: serving.with_connection(look))


@router.get(
    "/{uuid:artifact_id}",
    auth=READ,
    response={200: ArtifactOut, (401, 403, 404, 503): Problem},
    summary="Read what is known of a file",
)
async def read(request: HttpRequest, artifact_id: uuid.UUID) -> HttpResponse:
    """Read an artifact's name, type, size, hash and times."""
    return answers.answer(ArtifactOut(**_members(await _found(request, artifact_id))))


@router.get(
    "/{uuid:artifact_id}/content",
    auth=READ,
    response={(401, 403, 404, 416, 503): Problem},
    openapi_extra={
        "responses": {
            code: {"description": what, "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}
            for code, what in ((200, "the file"), (206, "the part of it that Range asked for"))
        }
        | {304: {"description": "If-None-Match holds its ETag, the SHA-256"}}
    },
    summary="Download a file",
)
async def content(request: HttpRequest, artifact_id: uuid.UUID) -> HttpResponseBase:
    """Download an artifact: always as an attachment. One byte range is understood, and If-None-Match."""
    return await served(request, await _found(request, artifact_id))


async def served(request: HttpRequest, found: ArtifactView, *, inline: bool = False) -> HttpResponseBase:
    """Return an artifact's bytes, or the part that was asked for. `inline`: to be shown in a page; only pictures."""
    etag = f'"{found.sha256}"'
    if etag in (request.headers.get("If-None-Match") or ""):
        return HttpResponse(status=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag})
    first, end = 0, found.bytes
    status = HTTPStatus.OK
    asked = request.headers.get("Range")
    if asked is not None and request.headers.get("If-Range", etag) == etag:
        part = _part(asked, found.bytes)
        if part == (0, 0):
            outside = problems.problem("bad_range", f"Range: the artifact has {found.bytes:,} bytes", field="Range")
            outside["Content-Range"] = f"bytes */{found.bytes}"
            return outside
        if part is not None:
            first, end = part
            status = HTTPStatus.PARTIAL_CONTENT
    file = await upload.on_file_thread(lambda: artifact_files.open_bytes(found.path))
    response = StreamingHttpResponse(_stream(file, first, end), status=status, content_type=found.content_type)
    response["Content-Length"] = str(end - first)
    response["Content-Disposition"] = content_disposition_header(not inline, found.name) or "attachment"
    response["ETag"] = etag
    response["Accept-Ranges"] = "bytes"
    response["Cache-Control"] = "private, no-cache"
    response["Content-Security-Policy"] = "sandbox; default-src 'none'"
    if status == HTTPStatus.PARTIAL_CONTENT:
        response["Content-Range"] = f"bytes {first}-{end - 1}/{found.bytes}"
    return response


@router.delete(
    "/{uuid:artifact_id}",
    auth=WRITE,
    response={200: ArtifactGone, (401, 403, 404, 503): Problem},
    summary="Delete a file",
)
async def delete(request: HttpRequest, artifact_id: uuid.UUID) -> HttpResponse:
    """Delete an artifact. A task that wants to read it later fails, and says so."""
    caller = caller_of(request)
    serving = service()
    gone = await upload.on_file_thread(
        lambda: engine.delete(serving.with_connection, tenant=caller.tenant.id, public_id=artifact_id)
    )
    if not gone:
        raise NotFound(f"there is no artifact {artifact_id}")
    return answers.answer(ArtifactGone(artifact_id=artifact_id))


async def _found(request: HttpRequest, artifact_id: uuid.UUID) -> ArtifactView:
    caller = caller_of(request)
    serving = service()
    return await serving.on_thread(
        lambda: serving.with_connection(lambda connection: artifacts.one(connection, caller.tenant.id, artifact_id))
    )


async def _stream(file: BinaryIO, first: int, end: int) -> AsyncIterator[bytes]:
    try:
        if first:
            await upload.on_file_thread(lambda: file.seek(first))
        left = end - first
        while left > 0:
            chunk = await upload.on_file_thread(
                functools.partial(artifact_files.read, file, min(left, upload.CHUNK_BYTES))
            )
            if not chunk:  # shorter than it was: the connection is cut, so that nobody takes it for whole
                raise NotFound("the artifact's content is not whole")
            left -= len(chunk)
            yield chunk
    finally:
        await upload.on_file_thread(file.close)


def _part(asked: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the end of the one range asked for; (0, 0): outside; None: not understood, send all."""
    shape = _RANGE.fullmatch(asked.strip())
    if shape is None or shape[0] == "bytes=-":
        return None
    if not shape[1]:
        length = min(int(shape[2]), size)
        return (size - length, size) if length else (0, 0)
    first = int(shape[1])
    end = min(int(shape[2]) + 1, size) if shape[2] else size
    if shape[2] and int(shape[2]) < first:
        return None
    return (first, end) if first < size else (0, 0)


def _members(found: ArtifactView) -> dict[str, Any]:
    at = f"{answers.ROOT}/artifacts/{found.public_id}"
    return {
        "artifact_id": found.public_id,
        "name": found.name,
        "content_type": found.content_type,
        "bytes": found.bytes,
        "sha256": found.sha256,
        "task_id": found.task,
        "created_at": answers.utc(found.created_at),
        "expires_at": answers.utc(found.expires_at),
        "links": {"self": at, "content": f"{at}/content"},
    }
