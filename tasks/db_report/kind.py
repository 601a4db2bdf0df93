"""`db.report`: a report of the target database `db:main`, from a statement that stands here as a file.

Clients choose a report by name and give its parameters; they never write SQL. Each runs in a transaction that can't
write, on one of the connections that the resource counts. To add one, put `reports/NAME.sql` here.
"""

import re
import time
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from psycopg.rows import tuple_row
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from harness.kinds import Context, kind

TARGET = "db:main"
ROWS_MOST = 1000
Parameter = bool | int | float | str

_NAMED = re.compile(r"%\((\w+)\)s")


def _reports() -> Mapping[str, str]:
    folder = files(__package__).joinpath("reports")
    found = {one.name.removesuffix(".sql"): one.read_text(encoding="utf-8") for one in folder.iterdir()}
    return MappingProxyType(dict(sorted(found.items())))


REPORTS = _reports()


class Wanted(BaseModel):
    """Which report, and its parameters, all of them."""

    model_config = ConfigDict(extra="forbid")

    report: str = Field(min_length=1, max_length=60)
    parameters: dict[str, Parameter] = Field(default_factory=dict, max_length=20)

    @field_validator("report")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in REPORTS:
            raise ValueError(f"there is no report {value!r}; there are {', '.join(REPORTS)}")
        return value

    @field_validator("parameters")
    @classmethod
    def _short(cls, value: dict[str, Parameter]) -> dict[str, Parameter]:
        for name, one in value.items():
            if isinstance(one, str) and (len(one) > 1000 or "\0" in one):
                raise ValueError(f"{name} must be at most 1000 characters, without NUL")
        return value

    @model_validator(mode="after")
    def _complete(self) -> "Wanted":
        wanted = set(_NAMED.findall(REPORTS[self.report]))
        if wanted != self.parameters.keys():
            names = ", ".join(sorted(wanted)) or "none"
            raise ValueError(f"the report {self.report!r} takes exactly these parameters: {names}")
        return self


class Rows(BaseModel):
    """The rows, at most ROWS_MOST. `waited_s`: for the connection; `took_s`: the statement and its rows."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool
    waited_s: float
    took_s: float


@kind("db.report", pool="target", input=Wanted, output=Rows, resources={TARGET: 1}, est_s=0.2, timeout_s=60)
def report(ctx: Context, payload: Wanted) -> Rows:
    """Run one statement on the target."""
    asked_s = time.monotonic()
    with ctx.target(TARGET) as connection:
        began_s = time.monotonic()
        connection.execute("SET TRANSACTION READ ONLY")
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(REPORTS[payload.report].encode(), payload.parameters)
            columns = [column.name for column in cursor.description or ()]
            rows = cursor.fetchmany(ROWS_MOST + 1)
        ended_s = time.monotonic()
    return Rows(
        columns=columns,
        rows=[[_plain(value) for value in row] for row in rows[:ROWS_MOST]],
        truncated=len(rows) > ROWS_MOST,
        waited_s=round(began_s - asked_s, 6),
        took_s=round(ended_s - began_s, 6),
    )


def _plain(value: object) -> object:
    """A value as JSON has it; what JSON doesn't know becomes text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, Decimal | date | datetime):
        return str(value)
    return value if isinstance(value, list | dict) else str(value)
