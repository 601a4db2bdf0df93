"""The lists of tasks, and one task, give the same columns: each statement stands alone, and all fill a TaskView."""

import re
from dataclasses import fields

import pytest

from harness.store import sql
from harness.store.queries import TaskView

PAGES = ("queries/task_page", "queries/task_page_of_run", "search/task_page_of_terms")


def columns(name: str) -> list[str]:
    """The columns of a statement's last SELECT, with one name for the task's table, whatever it is called there."""
    text = sql.load(name)
    last = text.partition("SELECT bounds.next, " if "SELECT bounds.next" in text else "\nSELECT ")[2]
    listed = re.split(r"\n(?:FROM|LEFT JOIN) ", last)[0]
    flat = re.sub(r"\bf\.", "t.", " ".join(listed.split()))
    return re.split(r", (?![^(]*\))", flat)


@pytest.mark.parametrize("name", PAGES[1:])
def test_every_page_of_tasks_ends_as_the_first_does(name: str) -> None:
    ends = [sql.load(one).partition("SELECT bounds.next")[2] for one in (PAGES[0], name)]
    assert ends[0] and ends[0] == ends[1]


def test_a_page_gives_what_one_task_gives_but_for_its_output() -> None:
    paged, one = columns(PAGES[0]), columns("queries/task_one")
    output = [field.name for field in fields(TaskView)].index("output")
    assert len(paged) == len(one) == len(fields(TaskView))
    assert (paged.pop(output), one.pop(output)) == ("NULL::jsonb", "b.output")
    assert paged == one
