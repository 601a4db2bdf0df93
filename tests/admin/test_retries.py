"""The table of retries in the admin: all of it, what kinds make of it, and nobody changes it there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from harness.kinds import Rule, kind, registry
from harness.policy.retry import VERDICTS
from tests.admin.conftest import House


class Nothing(BaseModel):
    """No input."""


@pytest.fixture
def odd() -> Iterator[None]:
    @kind(
        "test.odd_table",
        pool="db",
        input=Nothing,
        retry={"timeout": Rule(verdict="retry", most_attempts=7, why="its tool is slow")},
        repair=lambda ctx, payload, error: None,
    )
    def nothing(ctx: object, payload: Nothing) -> None:
        return None

    yield
    registry._KINDS.pop("test.odd_table")


def test_the_table_shows_each_class_and_what_kinds_make_of_it(house: House, odd: None) -> None:
    page = house.login("viewer").get("/admin/retries/")
    assert page.status_code == 200
    for name, rule in VERDICTS.items():
        assert f">{name}</td>" in page.text and rule.why.replace("'", "&#x27;") in page.text
    assert "approval timeout" in page.text
    row = page.text.split("test.odd_table", maxsplit=1)[1]
    assert ">7</td>" in row and "its tool is slow" in row
    assert "once to the kind&#x27;s repair function" in row.split("test.odd_table", maxsplit=1)[1]
    assert "/admin/retries/" in house.login("viewer").get("/admin/").text


def test_who_may_not_look_at_tasks_may_not_look_at_it(house: House) -> None:
    assert house.login("loose").get("/admin/retries/").status_code == 403
    assert "/admin/retries/" not in house.login("loose").get("/admin/").text


def test_the_page_of_the_documentation_says_the_same(root: Path) -> None:
    page = (root / "docs" / "howto" / "retries.md").read_text()
    for name, rule in VERDICTS.items():
        most = rule.most_attempts or "as the kind says"
        assert f"| `{name}` | {rule.verdict} | {most} | {rule.why} |" in page
