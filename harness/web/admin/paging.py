"""Pages of tables with millions of rows: from a key downwards, never counted, never skipped over with OFFSET.

A filter that no index serves looks at windows of ids, each larger than the last, until the page is full or LOOK_S have
passed. So a page may be short and still have a next one; it says how far it has looked.
"""

import time
from collections.abc import Sequence
from typing import Any

from django.core.paginator import Paginator
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from unfold.views import ChangeList

from harness.store import staff

BEFORE = "before"
FIRST_WINDOW = 20_000  # ids: some 10 ms where every row has to be looked at
LOOK_S = 0.08  # then the page is shown as it is; the last window takes about as long again
LAST_KEY = 2**62


def page(
    queryset: QuerySet[Any],
    keys: Sequence[str],
    *,
    before: Sequence[int] | None,
    last: int,
    most: int,
    exact: bool = False,
) -> tuple[list[Any], tuple[int, ...] | None]:
    """Return at most `most` rows with keys below `before`, highest first, and where the next page begins (or None).

    `last`: the highest value that the first key has; `exact`: few rows match, and an index finds them.
    """
    first = keys[0]
    top = last if before is None else min(last, before[0])
    window = LAST_KEY if exact else FIRST_WINDOW
    ordered = queryset.order_by(*(f"-{key}" for key in keys))
    rows: list[Any] = []
    until_s = time.monotonic() + LOOK_S
    while top > 0 and len(rows) <= most:
        part = ordered.filter(**{f"{first}__lte": top, f"{first}__gt": top - window})
        if before is not None:
            part = part.filter(_below(keys, before))
        rows += part[: most + 1 - len(rows)]
        top -= window
        window *= 2
        if time.monotonic() > until_s:
            break
    if len(rows) > most:
        rows = rows[:most]
        return rows, tuple(getattr(rows[-1], key) for key in keys)
    return rows, (top + 1, *(0 for _ in keys[1:])) if top > 0 else None


def _below(keys: Sequence[str], before: Sequence[int]) -> Q:
    if len(keys) == 1:
        return Q(**{f"{keys[0]}__lt": before[0]})
    first, second = keys
    return Q(**{f"{first}__lt": before[0]}) | Q(**{first: before[0], f"{second}__lt": before[1]})


def cursor_of(text: str | None, parts: int) -> tuple[int, ...] | None:
    """Return the place that a link names; nonsense is the first page.

    >>> cursor_of("17-3", 2), cursor_of("x", 1), cursor_of(None, 1)
    ((17, 3), None, None)
    """
    numbers = (text or "").split("-")
    if len(numbers) != parts or not all(number.isascii() and number.isdigit() for number in numbers):
        return None
    return tuple(min(int(number), LAST_KEY) for number in numbers)


class Footer(Paginator):  # type: ignore[type-arg]  # it isn't generic when it runs
    """What stands where page numbers would."""

    template_name = "harness/admin/older.html"


class Keyset(ChangeList):  # type: ignore[misc]  # Unfold has no types
    """A list that is paged by key. Its ModelAdmin says `keys`, and `keys_from`: the table that gives the first out."""

    def __init__(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        self.before = request.GET.get(BEFORE)
        if self.before is not None:
            # Django would take it for a filter.
            query = request.GET.copy()
            del query[BEFORE]
            request.GET = query  # type: ignore[assignment]  # a QueryDict too
        super().__init__(request, *args, **kwargs)

    def get_results(self, request: HttpRequest) -> None:
        """Fetch one page."""
        admin = self.model_admin
        rows, following = page(
            self.queryset,
            admin.keys,
            before=cursor_of(self.before, len(admin.keys)),
            last=staff.last_id(admin.keys_from or self.model._meta.db_table),
            most=self.list_per_page,
            exact=getattr(request, "harness_exact", False),
        )
        self.result_list = rows
        self.result_count = len(rows)
        self.full_result_count = len(rows)  # else Unfold says "50 results", of who knows how many
        self.show_full_result_count = False
        self.show_admin_actions = False
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Footer(rows, max(1, self.list_per_page))
        self.short = following is not None and len(rows) < self.list_per_page
        self.newest_url = self.get_query_string() if self.before is not None else None
        self.older_url = (
            self.get_query_string({BEFORE: "-".join(str(number) for number in following)}) if following else None
        )
