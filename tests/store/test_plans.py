"""Hot statements find their rows by the index that their file names, whatever the table held when they were planned."""

import json
import re

import psycopg
import pytest

from harness.store import sql
from tests.stage import Stage
from tests.store.plans import plan_of

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
    "snapshot/in_use",
    "snapshot/heads",
    "snapshot/line",
    "snapshot/fold",
    "steps/begin",
    "steps/finish",
    "steps/recorded",
    "steps/differ",
    "approvals/ask",
    "approvals/of_task",
    "approvals/page",
    "approvals/take_notices",
    "transitions/answer",
    "transitions/deny",
    "transitions/reask",
    "transitions/approval_timeout",
    "transitions/resume_version",
    "transitions/redrive",
    "transitions/rouse",
    "children/states",
    "children/results",
    "children/cut_off",
    "children/family",
    "children/orphans",
    "children/failed",
    "children/waits",
    "children/shown",
    "foresee/outside",
    "runs/states",
    "runs/states_of_parent",
    "runs/slowest",
    "runs/failures",
    "runs/graph",
    "runs/reasons_of_run",
    "runs/reasons_of_tenant",
    "queries/task_above",
    "queries/task_last_trace",
    "snapshot/delete_empty_flows",
    "snapshot/restore_flows",
)

BY_PARTIAL_INDEX = ("transitions/wake_due", "transitions/expire_due", "transitions/resume_version")  # holds what is due

# The auditor's: each table that may be large is read by windows of its primary key, the rest of it by key.
AUDIT = (
    "tasks", "members", "leases", "trace", "attempts", "orphaned_attempts", "orphaned_bodies", "orphaned_steps",
    "flows",
    "usage_attempts",
)  # fmt: skip
LARGE = r"Scan .*on (task|task_body|attempt|step|lease_member|lease|flow|run|event_\w+)\b"


@pytest.mark.parametrize("analysed", [False, True])
def test_no_hot_statement_reads_the_whole_of_a_large_table(stage: Stage, analysed: bool) -> None:
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("TRUNCATE task, task_body, step")  # an autovacuum may have seen them nearly empty, or full
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
            if not re.search(r"Scan .*on (task|task_body|step)\b", line):
                continue
            assert "Seq Scan" not in line, (name, line)
            bounded = any(re.search(r"(Index|Recheck|TID) Cond", after) for after in lines[at + 1 : at + 3])
            by_time = re.search(r"using (task_not_before|task_start_by|task_deadline|task_head|task_held)", line)
            assert bounded or (by_time and name in BY_PARTIAL_INDEX), (name, line)


@pytest.mark.parametrize("analysed", [False, True])
def test_the_auditor_reads_windows_and_rows_by_key(stage: Stage, analysed: bool) -> None:
    fill(stage, 5000)
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE task; ANALYZE task_body; ANALYZE attempt")
    for name in AUDIT:
        lines = plan_of(stage, f"audit/{name}").splitlines()
        for at, line in enumerate(lines):
            if re.search(LARGE, line):
                assert "Seq Scan" not in line, (name, line)
                by_key = any(re.search(r"(Index|Recheck) Cond", after) for after in lines[at + 1 : at + 4])
                assert by_key or "task_head" in line, (name, line)


@pytest.mark.parametrize("analysed", [False, True])
def test_signals_are_read_from_the_newest_rows_and_by_flow(stage: Stage, analysed: bool) -> None:
    fill(stage, 5000)
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE task; ANALYZE attempt")
    for line in plan_of(stage, "pressure/facts").splitlines():
        if re.search(r"Scan .*on (task|attempt)\b", line):
            assert re.search(r"using (task_pkey|task_head|attempt_pkey)", line), line


@pytest.mark.parametrize("analysed", [False, True])
def test_the_operations_page_counts_by_flow_and_by_partial_indexes(stage: Stage, analysed: bool) -> None:
    fill(stage, 5000)
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE task; ANALYZE attempt")
    for name in ("operations/waiting", "operations/now", "evaluations/keep", "evaluations/since", "evaluations/used"):
        for line in plan_of(stage, name).splitlines():
            if re.search(r"Scan .*on (task|attempt)\b", line):
                assert re.search(r"using (task_head|task_not_before)", line), (name, line)


@pytest.mark.parametrize("analysed", [False, True])
def test_waits_are_predicted_from_the_newest_rows_and_by_flow(stage: Stage, analysed: bool) -> None:
    fill(stage, 5000)
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE task; ANALYZE attempt")
    used = r"(task_pkey|task_head|attempt_pkey|task_not_before|task_deferred)"
    for name in ("door/look", "door/seen", "transitions/let_in"):
        for line in plan_of(stage, name).splitlines():
            if re.search(r"Scan .*on (task|attempt)\b", line):
                assert re.search(f"(using|on) {used}", line), (name, line)


@pytest.mark.parametrize("analysed", [False, True])
def test_what_metrics_are_counted_from_is_found_by_number_and_time(stage: Stage, analysed: bool) -> None:
    fill(stage, 5000)
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE task; ANALYZE attempt; ANALYZE event")
    used = {
        "grown": r"((task|attempt|door_answer|level_change)_pkey|attempt_once|event_\w*at_idx|approval_once)",
        "stands": r"(task_head|approval_open)",
        "depth": r"(task_head|task_not_before|task_held|task_dead)",
        "begin": r"(task_pkey|attempt_pkey|door_answer_pkey|level_change_pkey)",
    }
    large = r"(?:task|attempt|door_answer|level_change|approval|event)(?:_\w+)?\b"
    for name, indexes in used.items():
        for line in plan_of(stage, f"tally/{name}").splitlines():
            assert not re.search(f"Seq Scan on {large}", line), (name, line)
            found = re.search(f"Scan using (\\w+) on {large}", line) or re.search(
                f"Bitmap Index Scan on ({large}.*)", line
            )
            assert found is None or re.match(indexes, found[1]), (name, line)


def test_a_tick_reads_no_more_with_many_finished_tasks_than_with_none(stage: Stage) -> None:
    stage.add_session({"db": 4})
    stage.submit(n=50)

    def buffers() -> int:
        """Blocks that one look at a flow touches, as PostgreSQL counts them."""
        statement = re.sub(r"(?m)--.*$", "", sql.load("snapshot/heads"))
        parameters = {
            "pool": "db", "flows": json.dumps([[2, stage.tenant, 0, "", 8]]), "lost_below": 2,
        }  # fmt: skip
        rows = psycopg.ClientCursor(stage.connection).execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters
        )
        plan = rows.fetchone()[0][0]["Plan"]  # type: ignore[index]  # one row of JSON
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    buffers()
    before = buffers()
    fill(stage, 50_000)
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("VACUUM (ANALYZE) task")
    assert buffers() <= before + 4  # a level of the index may be added


REASONS = ("note", "of_task", "notes_at", "flows", "open", "last_events")


@pytest.mark.parametrize("analysed", [False, True])
def test_notes_on_waits_are_written_and_read_by_the_keys_of_their_flows(stage: Stage, analysed: bool) -> None:
    stage.connection.execute(
        "INSERT INTO wait_reason "
        "(pool, priority, tenant_id, run_id, signature, code, subject, facts, before, since, until) "
        "SELECT 'db', 2, i, 0, '', 'turn', '', '{}', '{}', now(), CASE WHEN i > 5000 THEN now() END "
        "FROM generate_series(1, 20000) i"
    )
    if analysed:
        with psycopg.connect(stage.url, autocommit=True) as owner:
            owner.execute("ANALYZE wait_reason")
    for name in REASONS:
        lines = plan_of(stage, f"reasons/{name}").splitlines()
        for at, line in enumerate(lines):
            if re.search(r"Scan .*on (wait_reason|task|flow|tenant|run|event_\w+)\b", line):
                assert "Seq Scan" not in line, (name, line)
                by_key = any(re.search(r"(Index|Recheck) Cond", after) for after in lines[at + 1 : at + 4])
                assert by_key or (name, "wait_reason_open" in line) == ("open", True), (name, line)
            assert not re.search(r"wait_reason_open", line) or name in ("open", "of_task", "note"), (name, line)


def test_time_per_reason_costs_the_same_however_often_the_reason_changed(stage: Stage) -> None:
    (task,) = stage.submit()
    statement = re.sub(r"(?m)--.*$", "", sql.load("reasons/notes_at"))

    def buffers() -> int:
        rows = psycopg.ClientCursor(stage.connection).execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}",
            {"task": task, "priorities": [2, 2], "moments": [1000.0, 4e9]},
        )
        plan = rows.fetchone()[0][0]["Plan"]  # type: ignore[index]  # one row of JSON
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def note(first: int, last: int) -> None:
        stage.connection.execute(
            "INSERT INTO wait_reason "
            "(pool, priority, tenant_id, run_id, signature, code, subject, facts, before, since, until) "
            "SELECT 'db', 2, %s, 0, '', 'turn', '', '{}', '{}', to_timestamp(i), to_timestamp(i + 1) "
            "FROM generate_series(%s::integer, %s::integer) i",
            (stage.tenant, first, last),
        )

    note(1, 10)
    buffers()
    before = buffers()
    note(11, 20_000)
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("VACUUM (ANALYZE) wait_reason")
    assert buffers() <= before + 8  # two descents, each a level or two deeper


def fill(stage: Stage, n: int) -> None:
    """Insert so many finished tasks, with bodies and attempts, past the triggers."""
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        try:
            owner.execute(
                "WITH t AS (INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready, finished_at, "
                "release_no) SELECT %s, 'noop.single', 1, 'db', 2, 'succeeded', false, now(), 1 "
                "FROM generate_series(1, %s) RETURNING id, tenant_id), "
                "b AS (INSERT INTO task_body (task_id, tenant_id, input) SELECT id, tenant_id, '{}' FROM t) "
                "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict) "
                "SELECT id, tenant_id, 1, now(), 'succeed' FROM t",
                (stage.tenant, n),
            )
        finally:
            owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
