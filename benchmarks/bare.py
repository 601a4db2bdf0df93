"""The product without what guards it, for the scenario `guards`: no trigger, no trace of the route, no audit.

HARNESS_BENCH_BARE=1 in an arm's environment asks for it: `install` cuts the trace out of claim and settle in each
process of the arm, `disable_triggers` is for the arm's fresh database, the audit is off by the product's own setting.
Only benchmarks have this; nothing in the product knows it.
"""

import os
import re
from collections.abc import Mapping

import psycopg

from harness.store import sql

VARIABLE = "HARNESS_BENCH_BARE"
ENVIRONMENT: Mapping[str, str] = {VARIABLE: "1", "HARNESS_AUDIT_EVERY_S": "0"}
CUT = ("transitions/claim", "transitions/settle")
TABLES = ("task", "lease", "lease_member", "event")

_TRACE = re.compile(r"^e AS \(\n.*?^\),\n", re.DOTALL | re.MULTILINE)


def asked() -> bool:
    """Whether this process belongs to the arm without guards."""
    return bool(os.environ.get(VARIABLE))


def without_trace(text: str) -> str:
    """Return a statement without its insert into the trace. Raises: ValueError when it has none."""
    cut, found = _TRACE.subn("", text)
    if found != 1:
        raise ValueError(f"{found} inserts into the trace where one was expected")
    return cut


def install() -> None:
    """Let this process claim and settle without a trace."""
    whole = sql.load
    texts = {name: without_trace(whole(name)) for name in CUT}
    sql.load = lambda name: texts.get(name) or whole(name)  # type: ignore[assignment]  # a plain function, uncached


def disable_triggers(url: str) -> None:
    """Disable the triggers of the hot tables; `url` logs in as their owner."""
    with psycopg.connect(url, autocommit=True) as owner:
        for table in TABLES:
            owner.execute(f"ALTER TABLE {table} DISABLE TRIGGER USER")
