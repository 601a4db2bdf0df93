"""Hot statements find their rows by the index that their file names, whatever the table held when they were planned."""

import re

import psycopg
import pytest

from harness.store import sql
from tests.stage import Stage

TABLES = {"task": 20_000, "task_body": 20_000}
HOT = (
    "transitions/release",
    "transitions/claim",
    "transitions/settle",
    "transitions/lose",
    "transitions/hand_back_unclaimed",
    "transitions/wake_due",
    "transitions/expire_due",
    "transitions/cancel",
    "transitions/pause",
    "transitions/resume",
    "transitions/requeue",
    "transitions/reprioritise",
    "transitions/wish",
    "transitions/lock_tasks",
    "transitions/lock_leases_of",
    "bulk/of_run",
    "bulk/of_tag",
    "bulk/of_tenant",
    "leases/wished",
    "snapshot/flows",
    "snapshot/delete_empty_flows",
    "snapshot/restore_flows",
)


def plan_of(stage: Stage, name: str) -> str:
    """The generic plan, as a prepared statement of the engine gets it."""
    numbers: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return f"${numbers.setdefault(found[1], len(numbers) + 1)}"

    text = re.sub(r"%\((\w+)\)s", number, re.sub(r"(?m)--.*$", "", sql.load(name)))
    if stage.connection.info.server_version < 160000:
        pytest.skip("EXPLAIN (GENERIC_PLAN) came with PostgreSQL 16")
    rows = psycopg.ClientCursor(stage.connection).execute(f"EXPLAIN (GENERIC_PLAN) {text}")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("analysed", [False, True])
def test_no_hot_statement_reads_the_whole_of_a_large_table(stage: Stage, analysed: bool) -> None:
    stage.connection.execute(
        "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready) "
        "SELECT %s, 'noop.single', 1, 'db', 2, 'queued', i %% 2 = 0 FROM generate_series(1, 20000) i",
        (stage.tenant,),
    )
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE task")
    for name in HOT:
        lines = plan_of(stage, name).splitlines()
        for at, line in enumerate(lines):
            if not re.search(r"Scan .*on (task|task_body)\b", line):
                continue
            assert "Seq Scan" not in line, (name, line)
            bounded = any("Index Cond" in after for after in lines[at + 1 : at + 3])
            by_time = re.search(r"using (task_not_before|task_start_by|task_deadline|task_head|task_held)", line)
            assert bounded or (by_time and name in ("transitions/wake_due", "transitions/expire_due")), (name, line)
