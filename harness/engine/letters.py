"""Dead letters as people look at them: a page, one, and all of them by reason.

Every look is bounded: a page covers SCAN_ROWS of the newest, groups GROUPED_ROWS, and each says when there are more.
`tenant` None is for operators: letters of every tenant that the connection sees. Nothing here writes.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime

from harness.policy.errors import NotFound
from harness.policy.letters import Reason, reason_of
from harness.store import letters, queries
from harness.store.database import Connection
from harness.store.letters import END_OF_TIME, EVERY_CHAR, Letter, Looked, Place

SCAN_ROWS = 5000  # looked at for one page of a filter
EXPIRED = {"class": "expired", "message": "expired before it could start"}  # what has no error has expired at its claim
EACH_ROWS = 1000  # looked at in one statement on the way through all of them
GROUPED_ROWS = 5000  # looked at to count by reason: some 250 ms, most of it for the patterns of messages


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """Which letters: of a kind, an error class, a reason (its key). None: any."""

    kind: str | None = None
    error_class: str | None = None
    reason: str | None = None

    def fits(self, one: Looked) -> bool:
        """Whether a letter is one of them."""
        return (
            (self.kind is None or one.kind == self.kind)
            and (self.error_class is None or one.error_class == self.error_class)
            and (self.reason is None or reason_of_letter(one).key == self.reason)
        )

    @property
    def everything(self) -> bool:
        """Whether every letter fits."""
        return self.kind is None and self.error_class is None and self.reason is None


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Letters of one reason. `example`: the newest of them; `tenants`: how many tenants they are of."""

    reason: Reason
    count: int
    newest: datetime
    oldest: datetime
    tenants: int
    example: int
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Groups, largest first. `looked`: letters counted, the newest; `more`: there are older ones, not counted."""

    items: tuple[Group, ...]
    looked: int
    more: bool


def reason_of_letter(one: Looked | Letter) -> Reason:
    """Return the reason that a letter died for."""
    return reason_of(kind=one.kind, error_class=one.error_class, message=one.message)


def page(
    connection: Connection,
    wanted: Wanted,
    *,
    tenant: int | None,
    before: Place = END_OF_TIME,
    most: int,
    scan: int = SCAN_ROWS,
) -> tuple[list[Letter], Place | None]:
    """Return a page of letters, newest first, and where the next one begins (None: nowhere).

    A page may be short, even empty, and have a next one: one look covers `scan` letters.
    """
    looked, following = look(connection, wanted, tenant=tenant, before=before, most=most, scan=scan)
    return letters.whole(connection, [one.id for one in looked]), following


def look(
    connection: Connection, wanted: Wanted, *, tenant: int | None, before: Place, most: int, scan: int = SCAN_ROWS
) -> tuple[list[Looked], Place | None]:
    """The same, without what only people read."""
    rows = most if wanted.everything else scan
    seen = letters.looked(connection, tenant=tenant, kind=wanted.kind, before=before, scan=rows)
    found: list[Looked] = []
    for one in seen:
        if wanted.fits(one):
            found.append(one)
            if len(found) == most:
                return found, one.place
    return found, seen[-1].place if len(seen) == rows else None


def each(connection: Connection, wanted: Wanted, *, tenant: int | None) -> Iterator[list[Looked]]:
    """Yield all letters that fit, by looks of EACH_ROWS, newest first; what dies meanwhile isn't among them."""
    before = END_OF_TIME
    while seen := letters.looked(connection, tenant=tenant, kind=wanted.kind, before=before, scan=EACH_ROWS):
        yield [one for one in seen if wanted.fits(one)]
        before = seen[-1].place


def batches(connection: Connection, wanted: Wanted, *, tenant: int | None) -> Iterator[list[int]]:
    """Yield the ids of all letters that fit, newest first, for a bulk redrive."""
    for some in each(connection, wanted, tenant=tenant):
        yield [letter.id for letter in some]


def ids(connection: Connection, tasks: Sequence[uuid.UUID], *, tenant: int | None) -> list[int]:
    """Return the ids of tasks by their public ids. Raises: NotFound naming the first that isn't there."""
    with nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant):
        known = letters.ids(connection, tasks)
    for task in tasks:
        if task not in known:
            raise NotFound(f"there is no task {task}", field="task_ids")
    return sorted(set(known.values()))


def one(connection: Connection, task: uuid.UUID) -> Letter:
    """Return one letter with all of its input. Raises: NotFound."""
    known = letters.ids(connection, [task])
    found = letters.whole(connection, list(known.values()), input_chars=EVERY_CHAR)
    if not found:
        raise NotFound(f"there is no dead letter {task}: no such task, or it has not failed for good")
    return found[0]


def groups(
    connection: Connection, wanted: Wanted | None = None, *, tenant: int | None, most: int = GROUPED_ROWS
) -> Groups:
    """Count the newest letters by reason."""
    asked = wanted or Wanted()
    seen = letters.looked(connection, tenant=tenant, kind=asked.kind, scan=most + 1)
    counted = seen[:most]
    found: dict[str, tuple[Reason, list[Looked]]] = {}
    for letter in counted:
        if asked.fits(letter):
            reason = reason_of_letter(letter)
            found.setdefault(reason.key, (reason, []))[1].append(letter)
    items = [
        Group(
            reason=reason,
            count=len(letters_),
            newest=letters_[0].dead_at,
            oldest=letters_[-1].dead_at,
            tenants=len({letter.tenant for letter in letters_}),
            example=letters_[0].id,
            message=letters_[0].message,
        )
        for reason, letters_ in found.values()
    ]
    items.sort(key=lambda group: (-group.count, group.reason.key))
    return Groups(items=tuple(items), looked=len(counted), more=len(seen) > most)
