"""A report is chosen by name, complete in its parameters, and can't write."""

from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from harness.kinds.registry import find
from tasks.db_report import kind
from tasks.db_report.kind import REPORTS, ROWS_MOST, Wanted, report


@pytest.mark.django_db
def test_the_largest_tables_are_told(alone: Any, connection: "psycopg.Connection[Any]") -> None:
    ctx = alone(connection)
    connection.rollback()  # a new transaction can be read only
    found = report(ctx, Wanted(report="tables", parameters={"most": 3}))
    assert found.columns == ["schema", "table", "rows_estimated", "bytes"]
    assert len(found.rows) == 3 and not found.truncated
    assert ctx.calls == ["db:main"]
    assert 0 <= found.waited_s < 5 and 0 < found.took_s < 5


@pytest.mark.django_db
def test_no_report_can_write(
    alone: Any, connection: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.rollback()
    monkeypatch.setattr(kind, "REPORTS", {"hold": "CREATE TABLE mine (n integer)"})
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        report(alone(connection), Wanted.model_construct(report="hold", parameters={}))


@pytest.mark.django_db
def test_rows_have_a_limit_and_what_json_does_not_know_is_text(
    alone: Any, connection: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.rollback()
    statement = "SELECT n, n / 2.0, now(), NULL, '{}'::jsonb, 'NaN'::float8 FROM generate_series(1, 1001) AS n"
    monkeypatch.setattr(kind, "REPORTS", {"hold": statement})
    found = report(alone(connection), Wanted.model_construct(report="hold", parameters={}))
    assert (len(found.rows), found.truncated) == (ROWS_MOST, True)
    number, half, when, nothing, empty, nan = found.rows[0]
    assert (number, nothing, empty, nan) == (1, None, {}, "nan")
    assert half.startswith("0.5") and isinstance(when, str)


def test_every_report_tells_its_parameters_in_its_first_line() -> None:
    assert {"tables", "hold"} <= REPORTS.keys()
    for text in REPORTS.values():
        assert text.startswith("-- ") and "Parameters: " in text.splitlines()[0]


def test_the_report_holds_one_connection_of_its_target() -> None:
    found = find("db.report")
    assert found and dict(found.resources) == {"db:main": 1} and found.pool == "target" and not found.bundle


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"report": "nothing"}, "there is no report 'nothing'; there are hold, tables"),
        ({"report": "../kind"}, "there is no report"),
        ({"report": "hold"}, "takes exactly these parameters: seconds"),
        ({"report": "hold", "parameters": {"seconds": 1, "most": 2}}, "takes exactly these parameters: seconds"),
        ({"report": "hold", "parameters": {"seconds": "x" * 1001}}, "at most 1000 characters"),
        ({"report": "hold", "parameters": {"seconds": [1]}}, "seconds"),
        ({"report": "hold", "sql": "DROP TABLE x"}, "sql"),
    ],
)
def test_a_wrong_field_is_refused_by_name(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Wanted.model_validate(given)
    assert words in str(refused.value)
