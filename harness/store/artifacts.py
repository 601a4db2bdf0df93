"""Rows of artifacts: reserve, publish, find, list, give up. `artifact_files` has the bytes, the engine the order.

A row is `storing` while its bytes are on their way, `stored` when its owner sees it, `removing` when its bytes go; a
crash anywhere leaves a row that says what to remove. Decisions on a tenant's quota and content are made one at a time.
"""

import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime

from harness.policy.admission import OverQuota
from harness.policy.errors import NotFound, Unavailable
from harness.store import queries, sql
from harness.store.database import Connection

ABANDONED_S = 3600.0  # a reservation this old has no upload behind it any more
SAME_RETRY_S = 2.0


@dataclass(frozen=True, slots=True)
class ArtifactView:
    """An artifact as its owner sees it. `task`: the task that made it, while that is there; `path`: not for answers."""

    id: int
    public_id: uuid.UUID
    tenant: int
    task: uuid.UUID | None
    name: str
    content_type: str
    bytes: int
    sha256: str
    path: str
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class NewArtifact:
    """What is to be kept. `task`: the id of the task that makes it; `keep_s`: seconds until it expires."""

    tenant: int
    task: int | None
    name: str
    content_type: str
    sha256: str
    bytes: int
    keep_s: float


@dataclass(frozen=True, slots=True)
class Reserved:
    """Room for an artifact: bring its bytes to `path`, then publish or give up."""

    id: int
    public_id: uuid.UUID
    path: str


@dataclass(frozen=True, slots=True)
class Room:
    """What a tenant's artifacts may hold, and hold now. `n`: how many it sees."""

    quota_bytes: int
    held_bytes: int
    n: int


def reserve(connection: Connection, new: NewArtifact) -> Reserved | ArtifactView:
    """Reserve room, or return the artifact that has this content already, its time made longer.

    Raises: OverQuota; Unavailable when the same content is being stored just now; NotFound (tenant).
    """
    same = {"tenant": new.tenant, "sha256": new.sha256}
    with queries.as_tenant(connection, new.tenant):
        connection.execute(sql.load("artifacts/lock"), {"tenant": new.tenant})
        row = connection.execute(sql.load("artifacts/same"), same | {"keep_s": new.keep_s}).fetchone()
        if row:
            return ArtifactView(*row)
        has = _room(connection, new.tenant)
        if has.held_bytes + new.bytes > has.quota_bytes:
            if connection.execute(sql.load("artifacts/underway"), same).fetchone():
                raise Unavailable("the same content is being stored just now; try again", retry_after_s=SAME_RETRY_S)
            raise OverQuota(
                f"body: {new.bytes:,} bytes don't fit: this tenant's artifacts hold {has.held_bytes:,} of "
                f"{has.quota_bytes:,} bytes. Delete some (GET /api/v1/artifacts lists them), or let them expire",
                field="body",
                held_bytes=has.held_bytes,
                quota_bytes=has.quota_bytes,
            )
        public_id = uuid.uuid4()
        path = f"{new.tenant}/{public_id}"
        made = connection.execute(
            sql.load("artifacts/reserve"),
            {
                "public_id": public_id,
                "tenant": new.tenant,
                "task": new.task,
                "sha256": new.sha256,
                "bytes": new.bytes,
                "name": new.name,
                "content_type": new.content_type,
                "path": path,
                "keep_s": new.keep_s,
            },
        ).fetchone()
    assert made is not None
    return Reserved(made[0], public_id, path)


def publish(connection: Connection, reserved: Reserved, new: NewArtifact) -> ArtifactView:
    """Show an artifact whose bytes are at its path; or that of an equal upload, if one came first.

    The caller removes its own bytes when the answer has another id. Raises: Unavailable when it took too long.
    """
    same = {"tenant": new.tenant, "sha256": new.sha256}
    with queries.as_tenant(connection, new.tenant):
        connection.execute(sql.load("artifacts/lock"), {"tenant": new.tenant})
        row = connection.execute(sql.load("artifacts/same"), same | {"keep_s": new.keep_s}).fetchone()
        if row:
            return ArtifactView(*row)
        connection.execute(sql.load("artifacts/make_way"), same)
        row = connection.execute(sql.load("artifacts/publish"), {"id": reserved.id}).fetchone()
    if row is None:
        raise Unavailable("storing it took so long that it was given up; try again")
    return ArtifactView(*row)


def give_up(connection: Connection, tenant: int, public_id: uuid.UUID) -> tuple[int, str] | None:
    """Hide an artifact for good. Returns its row's id and path: remove the bytes, then `drop`. None: there is none."""
    with queries.as_tenant(connection, tenant):
        row = connection.execute(sql.load("artifacts/give_up"), {"tenant": tenant, "artifact": public_id}).fetchone()
    return (row[0], row[1]) if row else None


def drop(connection: Connection, tenant: int | None, ids: Sequence[int]) -> None:
    """Delete hidden rows whose bytes are gone. `tenant` None: anyone's (not under role web)."""
    with nullcontext() if tenant is None else queries.as_tenant(connection, tenant):
        connection.execute(sql.load("artifacts/drop"), {"ids": list(ids)})


def one(connection: Connection, tenant: int, public_id: uuid.UUID) -> ArtifactView:
    """Return one artifact. Raises: NotFound, also when it is another tenant's, or has expired."""
    with queries.as_tenant(connection, tenant):
        row = connection.execute(sql.load("artifacts/one"), {"tenant": tenant, "artifact": public_id}).fetchone()
    if row is None:
        raise NotFound(f"there is no artifact {public_id}")
    return ArtifactView(*row)


def page(
    connection: Connection, tenant: int, *, task: uuid.UUID | None, before: int, most: int
) -> tuple[list[ArtifactView], Room]:
    """Return artifacts with ids below `before`, newest first, and the tenant's room."""
    with queries.as_tenant(connection, tenant):
        cursor = connection.execute(
            sql.load("artifacts/page" if task is None else "artifacts/page_of_task"),
            {"tenant": tenant, "task": task, "before": before, "most": most},
            prepare=False,  # planned for this tenant: a plan for any may sort all that a large one has
        )
        return [ArtifactView(*row) for row in cursor], _room(connection, tenant)


def of_task(connection: Connection, tenant: int, task: uuid.UUID, *, most: int) -> list[ArtifactView]:
    """Return the newest artifacts that a task made; the connection is held to the tenant."""
    parameters = {"tenant": tenant, "task": task, "before": queries.LAST_ID, "most": most}
    return [ArtifactView(*row) for row in connection.execute(sql.load("artifacts/page_of_task"), parameters)]


def room(connection: Connection, tenant: int) -> Room:
    """Return a tenant's room. Raises: NotFound (tenant)."""
    with queries.as_tenant(connection, tenant):
        return _room(connection, tenant)


def leftovers(connection: Connection, *, tenant: int | None = None, limit: int) -> list[tuple[int, str]]:
    """Hide what expired or was broken off (with `tenant`: all that is its own). Returns rows (id, path) to remove."""
    cursor = connection.execute(
        sql.load("artifacts/leftovers"), {"abandoned_s": ABANDONED_S, "tenant": tenant, "limit": limit}
    )
    return [(row[0], row[1]) for row in cursor]


def _room(connection: Connection, tenant: int) -> Room:
    row = connection.execute(sql.load("artifacts/room"), {"tenant": tenant}).fetchone()
    if row is None:
        raise NotFound("there is no such tenant any more")
    return Room(*row)
