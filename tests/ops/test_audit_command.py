"""`manage.py audit`: what it prints, what it writes, how it ends."""

import io
import json
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from harness.engine.audit import RULES
from tests.stage import Stage, wait_until


def run(*words: str) -> tuple[str, int]:
    out = io.StringIO()
    try:
        call_command("audit", *words, stdout=out, stderr=io.StringIO())
    except SystemExit as left:
        return out.getvalue(), int(str(left.code))
    return out.getvalue(), 0


def as_json(*words: str) -> tuple[dict[str, Any], int]:
    text, code = run("--json", "--patience-s", "0.1", *words)
    return json.loads(text), code


def strand(stage: Stage) -> int:
    (task,) = stage.submit()
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("UPDATE task SET ready = false WHERE id = %s", (task,))
    return task


def test_a_sound_database_has_no_findings(stage: Stage, broker_url: str) -> None:
    stage.submit(n=5)
    stage.tick()
    report, code = as_json()
    assert (report["findings"], code, report["counts"]) == ([], 0, {})
    assert {"tasks", "trace", "queues", "caps"} <= report["looks"].keys()
    text, code = run()
    assert f"{len(RULES)} rules" in text and "0 found, 0 repaired" in text and code == 0


def test_a_fault_is_shown_written_down_and_repaired_only_when_asked(stage: Stage, broker_url: str) -> None:
    task = strand(stage)
    report, code = as_json("--dry-run")
    assert [one["rule"] for one in report["findings"]] == ["stranded"] and code == 1 and report["counts"] == {}
    report, code = as_json()
    assert code == 1 and report["counts"] == {"stranded": {"found": 1, "repaired": 0, "open": 1}}
    assert not stage.row(task)["ready"]
    text, code = run("--repair", "--patience-s", "0.1")
    assert f"fault: stranded: task {task}: " in text and "repaired: it is ready (ripen)" in text and code == 0
    assert stage.row(task)["ready"] and stage.events(task) == ["submit", "ripen"]
    report, code = as_json()
    assert report["findings"] == [] and report["counts"] == {"stranded": {"found": 1, "repaired": 1, "open": 0}}
    assert code == 0


def test_an_old_transaction_and_dead_rows_are_shown_but_are_no_failure(
    stage: Stage, broker_url: str, settings: Any
) -> None:
    settings.HARNESS_ALERT_TRANSACTION_S = 0.1
    settings.HARNESS_ALERT_DEAD_ROWS = 100
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ALTER TABLE flow SET (autovacuum_enabled = off)")
        try:
            owner.execute(
                "INSERT INTO flow (pool, priority, tenant_id, run_id, signature) "
                "SELECT 'db', 2, 1, n, '' FROM generate_series(1, 300) n"
            )
            owner.execute("DELETE FROM flow")
            owner.execute("SELECT pg_stat_force_next_flush()")
            dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'flow'"
            wait_until(lambda: stage.one(dead) > 100, within_s=5)
            with stage.open() as other, other.transaction():
                other.execute("SELECT 1")
                pid = other.info.backend_pid
                wait_until(
                    lambda: stage.one("SELECT max(age_s) FROM harness_transactions() WHERE pid = %s", pid) > 0.1,
                    within_s=5,
                )
                report, code = as_json()
        finally:
            owner.execute("ALTER TABLE flow RESET (autovacuum_enabled)")
    found = {one["rule"]: one for one in report["findings"]}
    assert found.keys() == {"old_transaction", "dead_rows"} and code == 0
    assert found["old_transaction"]["subject"] == f"session {pid}"
    assert found["old_transaction"]["facts"]["application"] == "test-other"
    assert found["dead_rows"]["subject"] == "table flow" and found["dead_rows"]["facts"]["dead"] >= 300


def test_the_rules_are_listed_and_nonsense_is_refused() -> None:
    text, code = run("--rules")
    assert code == 0 and all(name in text for name in RULES)
    assert [one["rule"] for one in json.loads(run("--rules", "--json")[0])] == list(RULES)
    with pytest.raises(CommandError, match="patience"):
        run("--patience-s", "-1")
    with pytest.raises(CommandError, match="not allowed with"):
        run("--repair", "--dry-run")
