"""Whether a viewer may open a task or a run, and for whom it is then read: another tenant's is not there at all.

Operators and viewers see every tenant: whose the object is, is looked up first; the page is then read as that tenant.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from asgiref.sync import sync_to_async

from harness.policy.errors import NotFound
from harness.store import queries, staff
from harness.store.database import Connection
from harness.store.queries import TaskView
from harness.web.pages.access import Viewer

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """A task that a viewer may see, as it stands.

    `above`: those that it was spawned by and that the viewer may see, from its parent on, each with what it is called.
    """

    task: TaskView
    above: tuple[tuple[uuid.UUID, str], ...]


async def tenant_of(viewer: Viewer, look: Callable[[Connection], int | None]) -> int:
    """Return as which tenant a page is read. `look`: whose the object is. Raises: NotFound, Unavailable."""
    if viewer.tenant is not None:
        return viewer.tenant
    found = await sync_to_async(_looked_up)(look)
    if found is None:
        raise NotFound("there is no such page")
    return found


async def tenant_of_task(viewer: Viewer, task: uuid.UUID) -> int:
    """Return as which tenant a task's page is read. Raises: NotFound, Unavailable."""
    return await tenant_of(viewer, lambda connection: queries.tenant_of_task(connection, task))


async def tenant_of_run(viewer: Viewer, run: uuid.UUID) -> int:
    """Return as which tenant a run's page is read. Raises: NotFound, Unavailable."""
    return await tenant_of(viewer, lambda connection: (queries.run_and_tenant(connection, run) or (0, None))[1])


def opened(connection: Connection, viewer: Viewer, task: uuid.UUID) -> Opened:
    """Return a task that the viewer may see; the connection is held to its tenant. Raises: NotFound."""
    found = queries.the_task(connection, task)
    line = queries.above(connection, task)
    link = viewer.link
    if link is not None and link.what == "run" and found.run != link.public_id:
        raise NotFound("this link doesn't open that task")
    if link is not None and link.what == "task":
        ids = [one for one, _ in line]
        if link.public_id not in ids:
            raise NotFound("this link doesn't open that task")
        line = line[: ids.index(link.public_id) + 1]
    return Opened(task=found, above=tuple(line[1:]))


def may_open_run(viewer: Viewer, run: uuid.UUID) -> None:
    """Check that the viewer may see a run. Whose it is, the tenant's own rows say. Raises: NotFound."""
    if viewer.link is not None and (viewer.link.what != "run" or viewer.link.public_id != run):
        raise NotFound("this link doesn't open that run")


def _looked_up(look: Callable[[Connection], int | None]) -> int | None:
    with staff.own_connection(None) as connection:
        return look(connection)
