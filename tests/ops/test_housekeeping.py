"""`tenant delete` and `retention` on a real database: what goes, what stays, what is refused."""

import io
import json
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from harness.engine import artifacts as engine
from harness.engine import housekeeping
from harness.store import artifact_files, keys, sessions, transitions
from harness.store import housekeeping as stored
from harness.store.database import borrowed, open_pool
from tests.stage import Stage


def run(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def keep(stage: Stage, tenant: int, content: bytes) -> Path:
    pool = open_pool(stage.url, "engine", size=1, application_name="test")
    try:
        with engine.spool() as spooled:
            spooled.write(content)

            def borrow(work: Any, /) -> Any:
                with borrowed(pool) as connection:
                    return work(connection)

            kept = engine.keep(borrow, spooled, tenant=tenant, task=None, name="a", content_type="a/b", keep_s=3600)
    finally:
        pool.close()
    return Path(settings.HARNESS_ARTIFACTS_DIR) / kept.artifact.path


def of_tenant(stage: Stage, tenant: int) -> dict[str, int]:
    """Rows of a tenant in every table that has any, found without the code under test."""
    found = {}
    with psycopg.connect(stage.url) as owner:
        tables = owner.execute(
            "SELECT DISTINCT table_name FROM information_schema.columns "
            "WHERE column_name = 'tenant_id' AND table_schema = 'public'"
        ).fetchall()
        for (table,) in tables:
            row = owner.execute(f"SELECT count(*) FROM {table} WHERE tenant_id = %s", (tenant,)).fetchone()
            if row and row[0]:
                found[table] = row[0]
    return found


def filled(stage: Stage, name: str) -> int:
    """A tenant with ended tasks, events, attempts, a run, keys, a quota, an artifact, an idempotency key, a pause."""
    tenant = stage.add_tenant(name)
    keys.create_key(name)
    session = stage.add_session()
    run_id = stage.one("INSERT INTO run (tenant_id, size) VALUES (%s, 1) RETURNING id", tenant)
    stage.submit(n=3, tenant=tenant)
    stage.submit(n=1, tenant=tenant, run=run_id)
    with stage.process(session) as process:
        stage.run_all(process)
    execute = stage.connection.execute
    execute(
        "INSERT INTO step (task_id, tenant_id, ordinal, key, name, release_no, began_at) "
        "SELECT id, tenant_id, n, '', 'a', 1, now() FROM task, generate_series(1, 2) n WHERE tenant_id = %s",
        (tenant,),
    )
    execute(
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at, open) "
        "SELECT id, tenant_id, 1, 'ask', 'Go on?', '{approved}', 'pause', 'cancel', now(), false FROM task "
        "WHERE tenant_id = %s",
        (tenant,),
    )
    execute("INSERT INTO approval_hook VALUES (%s, 'https://example.com', 'me', now())", (tenant,))
    execute("INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', 'db', 1)", (tenant,))
    execute(
        "INSERT INTO idempotency (tenant_id, route, key, body_hash, fields, made, expires_at) "
        "VALUES (%s, 'tasks', 'k', '', '{}', %s, now() + interval '1 day')",
        (tenant, uuid.uuid4()),
    )
    execute(
        "INSERT INTO pause (scope, key, source, author, reason) VALUES ('tenant', %s, 'test', 'me', '')", (str(tenant),)
    )
    return tenant


def test_deleting_a_tenant_leaves_no_row_no_file_and_one_audit_entry(stage: Stage) -> None:
    tenant, other = filled(stage, "leaver"), filled(stage, "stayer")
    path, others = keep(stage, tenant, b"theirs"), keep(stage, other, b"ours")
    before = of_tenant(stage, other)
    assert {"task", "task_body", "event", "run", "artifact", "api_key", "quota"} <= set(of_tenant(stage, tenant))
    said = run("tenant", "delete", "leaver", "--yes", "--reason", "asked for")
    assert "is gone" in said
    assert of_tenant(stage, tenant) == {} and not path.exists() and not path.parent.exists()
    assert of_tenant(stage, other) == before and others.read_bytes() == b"ours"
    assert [one.name for one in keys.tenants() if one.name == "leaver"] == []
    assert stage.one("SELECT count(*) FROM pause WHERE key = %s", str(tenant)) == 0
    row = stage.connection.execute(
        "SELECT verb, subject, subject_id, actor, reason, data, ended_at >= at FROM audit_entry"
    ).fetchall()
    assert len(row) == 1
    verb, subject, subject_id, actor, reason, data, ended = row[0]
    assert (verb, subject, subject_id, reason, ended) == ("tenant.delete", "tenant leaver", tenant, "asked for", True)
    assert actor.startswith("operator:")
    of_work = {name: data[name] for name in ("attempt", "charge", "clock", "flow") if name in data}
    assert data | {"event": 0} == of_work | {
        "task": 4, "task_body": 4, "step": 8, "approval": 4, "approval_hook": 1, "event": 0,
        "run": 1, "artifact": 1, "api_key": 1, "quota": 1,
        "idempotency": 1, "tenant": 1,
    }  # fmt: skip
    assert data["event"] == 12


def test_without_yes_nothing_is_deleted_and_what_would_be_is_shown(stage: Stage) -> None:
    tenant = filled(stage, "leaver")
    before = of_tenant(stage, tenant)
    with pytest.raises(CommandError, match=r"nothing was deleted.*--yes"):
        run("tenant", "delete", "leaver")
    assert of_tenant(stage, tenant) == before and stage.one("SELECT count(*) FROM audit_entry") == 0
    with pytest.raises(CommandError, match="tenant list"):
        run("tenant", "delete", "nobody", "--yes")


def test_live_tasks_are_refused_unless_they_are_cancelled_first(stage: Stage) -> None:
    tenant = filled(stage, "leaver")
    stage.submit(n=5, tenant=tenant)
    before = of_tenant(stage, tenant)
    with pytest.raises(CommandError, match=r"5 unfinished tasks.*--cancel"):
        run("tenant", "delete", "leaver", "--yes")
    assert of_tenant(stage, tenant) == before
    assert "5 tasks were cancelled first" in run("tenant", "delete", "leaver", "--yes", "--cancel")
    assert of_tenant(stage, tenant) == {}


def test_a_running_task_is_waited_for_and_the_command_can_be_run_again(stage: Stage) -> None:
    tenant = filled(stage, "leaver")
    key = keys.create_key("leaver")
    stage.connection.execute("DELETE FROM pause")
    (task,) = stage.submit(n=1, tenant=tenant)
    session = stage.add_session()
    (message,) = stage.tick()
    stage.claim(message, session)
    with pytest.raises(CommandError, match=r"1 tasks still run and 1 slots are held.*run this again"):
        run("tenant", "delete", "leaver", "--yes", "--cancel", "--wait-s", "0")
    assert stage.row(task)["want"] == "cancel" and of_tenant(stage, tenant)["task"] == 5
    with stage.open("web") as web, pytest.raises(Exception, match="revoked"):
        keys.authenticate(web, key)  # it takes no more work
    # The worker dies: the sweep obeys the wish, and the second try ends what the first began.
    stage.forget_beats(session)
    sessions.end_dead(stage.connection)
    transitions.lose(stage.connection, max_attempts={}, retry_delay_s=1.0, actor="test")
    assert stage.state(task) == "cancelled"
    run("tenant", "delete", "leaver", "--yes")
    assert of_tenant(stage, tenant) == {}
    assert stage.one("SELECT count(*) FROM audit_entry") == 1
    assert stage.one("SELECT data->>'task' FROM audit_entry") == "5"


def test_files_that_cannot_be_removed_stop_the_deletion_before_the_rows_go(stage: Stage) -> None:
    tenant = filled(stage, "leaver")
    path = keep(stage, tenant, b"theirs")
    path.unlink()
    path.mkdir()
    (path / "in the way").touch()
    with pytest.raises(CommandError, match=r"can't be removed.*again"):
        run("tenant", "delete", "leaver", "--yes")
    assert of_tenant(stage, tenant)["artifact"] == 1 and of_tenant(stage, tenant)["task"] == 4
    (path / "in the way").unlink()
    run("tenant", "delete", "leaver", "--yes")
    assert of_tenant(stage, tenant) == {} and not path.parent.exists()


def test_rows_that_a_request_under_way_left_after_the_deletion_go_with_retention(stage: Stage) -> None:
    tenant = filled(stage, "leaver")
    run("tenant", "delete", "leaver", "--yes")
    stage.connection.execute("INSERT INTO run (tenant_id, size) VALUES (%s, 1)", (tenant,))
    run("retention")
    assert of_tenant(stage, tenant) == {}


def test_tables_that_refer_to_others_are_emptied_first(stage: Stage) -> None:
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("CREATE TABLE zz_shelf (id int PRIMARY KEY, tenant_id int)")
        owner.execute("CREATE TABLE aa_book (tenant_id int, shelf int REFERENCES zz_shelf)")
        owner.execute("CREATE TABLE zz_page (tenant_id int, shelf int REFERENCES zz_shelf)")
        try:
            with psycopg.connect(stage.url) as connection:
                order = stored.tenant_tables(connection)
        finally:
            owner.execute("DROP TABLE aa_book, zz_page, zz_shelf")
    assert order.index("aa_book") < order.index("zz_shelf") and order.index("zz_page") < order.index("zz_shelf")
    assert not {"task", "task_body", "event", "attempt"} & set(order)


def test_retention_removes_what_is_old_and_nothing_else(stage: Stage) -> None:
    tenant = filled(stage, "acme2")
    (waiting,) = stage.submit(n=1, tenant=tenant)
    old = [row[0] for row in stage.connection.execute(
        "SELECT id FROM task WHERE tenant_id = %s AND finished_at IS NOT NULL ORDER BY id LIMIT 3", (tenant,)
    )]  # fmt: skip
    with psycopg.connect(stage.url) as owner:
        owner.execute(
            "UPDATE task SET created_at = now() - interval '50 days', finished_at = now() - interval '40 days' "
            "WHERE id = ANY(%s)",
            (old,),
        )
        owner.execute("UPDATE task SET created_at = now() - interval '50 days' WHERE id = %s", (waiting,))
        owner.execute("UPDATE run SET created_at = now() - interval '50 days'")
        owner.execute("UPDATE idempotency SET expires_at = now() - interval '1 s'")
    done = json.loads(run("retention", "--json"))
    assert done["rows"]["task"] == 3 and done["rows"]["task_body"] == 3 and done["rows"]["event"] == 9
    assert done["rows"]["step"] == 6 and done["rows"]["approval"] == 3
    assert done["rows"]["idempotency"] == 1
    left = stage.one("SELECT array_agg(id) FROM task WHERE tenant_id = %s", tenant)
    assert waiting in left and len(left) == 2 and not set(old) & set(left)
    assert stage.events(waiting) == ["submit"]
    assert stage.one("SELECT count(*) FROM run") == 1  # its task is young
    assert json.loads(run("retention", "--json"))["rows"] == {}


def test_days_of_the_trace_are_dropped_but_a_task_that_still_waits_keeps_its_story(stage: Stage) -> None:
    (waiting,) = stage.submit(n=1)
    day = "event_20200101"
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute(f"CREATE TABLE {day} PARTITION OF event FOR VALUES FROM ('2020-01-01Z') TO ('2020-01-02Z')")
        owner.execute(
            "INSERT INTO event (task_id, tenant_id, seq, at, event, to_state, actor) "
            "SELECT unnest(%s::bigint[]), 1, 0, '2020-01-01 12:00Z', 'old', 'queued', 'test'",
            ([waiting, 10**12],),
        )
        owner.execute(
            "INSERT INTO event (task_id, tenant_id, seq, at, event, to_state, actor) "
            "VALUES (%s, 1, 0, '2019-05-01Z', 'stray', 'queued', 'test')",
            (10**12,),
        )
        done = json.loads(run("retention", "--json"))
        assert done["days"] == [day] and done["rows"]["event"] == 1
        assert owner.execute("SELECT to_regclass(%s)", (day,)).fetchone() == (None,)
        row = owner.execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'event'::regclass").fetchone()
        assert row and row[0] >= 15  # today and the days ahead stay
    assert stage.events(waiting) == ["old", "submit"]
    assert stage.one("SELECT count(*) FROM event WHERE task_id = %s", 10**12) == 0
    run("retention")
    assert stage.events(waiting) == ["old", "submit"]


def test_retention_removes_expired_artifacts_and_says_so(stage: Stage) -> None:
    path, young = keep(stage, stage.tenant, b"old"), keep(stage, stage.tenant, b"young")
    stage.connection.execute("UPDATE artifact SET expires_at = now() WHERE bytes = 3")
    assert "artifacts removed: 1" in run("retention")
    assert not path.exists() and young.exists()


@pytest.mark.parametrize("days", ["0", "0.5", "-3", "nan"])
def test_retention_of_less_than_a_day_is_refused(stage: Stage, days: str) -> None:
    with pytest.raises(CommandError, match="HARNESS_KEEP_DAYS"):
        run("retention", "--keep-days", days)


def test_nobody_deletes_from_the_audit(stage: Stage) -> None:
    run("tenant", "create", "brief")
    run("tenant", "delete", "brief", "--yes")
    refused = (psycopg.errors.InsufficientPrivilege, psycopg.errors.CheckViolation)
    with stage.open("engine") as engine_role, pytest.raises(refused):
        engine_role.execute("DELETE FROM audit_entry")
    with stage.open("staff") as staff, pytest.raises(refused):
        staff.execute("DELETE FROM audit_entry")
    with psycopg.connect(stage.url) as owner, pytest.raises(refused):
        owner.execute("DELETE FROM audit_entry")
    with stage.open("engine") as engine_role, pytest.raises(psycopg.errors.InsufficientPrivilege):
        engine_role.execute("SELECT harness_drop_event_day(now())")
    assert stage.one("SELECT count(*) FROM audit_entry") == 1


def test_the_room_of_artifacts_is_shown_and_set(stage: Stage) -> None:
    keep(stage, stage.tenant, b"12345")
    assert run("tenant", "artifacts", "acme", "--quota", "2K") == "acme: 1 artifacts hold 5 of 2,048 bytes\n"
    with pytest.raises(SystemExit):
        run("tenant", "artifacts", "acme", "--quota", "much")
    with pytest.raises(CommandError, match="tenant list"):
        run("tenant", "artifacts", "nobody", "--quota", "1")


def test_a_deletion_broken_off_goes_on_where_it_was(stage: Stage) -> None:
    tenant = filled(stage, "leaver")

    class Broken(Exception):
        pass

    def say(line: str) -> None:
        if "rows of" in line:
            raise Broken

    with stored.as_owner(stage.url, application_name="test") as connection:
        with pytest.raises(Broken):
            housekeeping.delete_tenant(connection, "leaver", actor="one", patience_s=1, say=say)
        assert of_tenant(stage, tenant)
        housekeeping.delete_tenant(connection, "leaver", actor="two", patience_s=1, say=lambda line: None)
    assert of_tenant(stage, tenant) == {}
    assert stage.connection.execute("SELECT actor, data->>'task', data->>'run' FROM audit_entry").fetchall() == [
        ("one", "4", "1")
    ]
    assert artifact_files.drop_stale_spools() == 0


def test_dead_letters_are_kept_longer_with_their_trace_and_can_still_be_sent_again(stage: Stage) -> None:
    from harness.engine import operate

    done, gone, dead, older = stage.submit(n=4)
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        for task, state, days in (
            (done, "succeeded", 40),
            (gone, "cancelled", 40),
            (dead, "failed_terminal", 40),
            (older, "failed_terminal", 95),
        ):
            owner.execute(
                "UPDATE task SET state = %s, ready = false, created_at = now() - %s * interval '1 day', "
                "finished_at = now() - %s * interval '1 day' WHERE id = %s",
                (state, days, days, task),
            )
        owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
    assert json.loads(run("retention", "--json"))["rows"]["task"] == 3
    assert stage.one("SELECT array_agg(id) FROM task") == [dead]
    assert stage.events(dead) == ["submit"]
    public = stage.row(dead)["public_id"]
    assert (
        operate.VERBS["redrive"].run(stage.connection, public, tenant=stage.tenant, actor="test").outcome == "redriven"
    )
    assert json.loads(run("retention", "--json", "--keep-days", "1"))["rows"] == {}, "it lives again"


def test_dead_letters_are_never_kept_shorter_than_the_others(stage: Stage) -> None:
    with pytest.raises(CommandError, match="HARNESS_DEAD_KEEP_DAYS: must be at least HARNESS_KEEP_DAYS"):
        run("retention", "--dead-keep-days", "3")
