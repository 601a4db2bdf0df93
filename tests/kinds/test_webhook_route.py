"""A webhook on its whole route: one token over all attempts, and its secret in no row, log or output."""

import base64
import json
import logging

import pytest
import standardwebhooks

from harness.engine import execute
from harness.store import transitions
from tests.kinds.sites import Page, Site, raw, site
from tests.stage import Stage

SECRET = "whsec_" + base64.b64encode(b"an-old-secret-of-32-bytes-length").decode()
HIDDEN = (SECRET, SECRET.removeprefix("whsec_"), "an-old-secret", "hunter2")


def run(stage: Stage, task: int, *, times: int) -> None:
    """Run a task's attempts; what waits for the next one is due at once."""
    session = stage.add_session(pools={"tool_write": 4})
    with stage.process(session) as process:
        for _ in range(times):
            for message in list(stage.tick()):
                execute.run_lease(process, message.lease, message.token)
            stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
            transitions.wake_due(stage.connection, actor="sweep")


def set_up(found: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_EGRESS_ALLOW", found.allow)
    monkeypatch.setenv("HARNESS_WEBHOOK_URL_BILLING", found.url("/hook?key=hunter2"))
    monkeypatch.setenv("HARNESS_WEBHOOK_TENANTS_BILLING", "*")
    monkeypatch.setenv("HARNESS_WEBHOOK_SECRET_BILLING", SECRET)


def everything_in(stage: Stage) -> str:
    """Every row of every table, as text."""
    tables = stage.connection.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition "
        "AND relnamespace = 'public'::regnamespace AND has_table_privilege(oid, 'SELECT')"
    ).fetchall()
    return "\n".join(
        row[0] for (table,) in tables for row in stage.connection.execute(f"SELECT t::text FROM {table} t").fetchall()
    )


def test_attempts_repeat_one_token_until_a_2xx_ends_it_and_the_secret_stands_nowhere(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    with site() as receiver:
        set_up(receiver, monkeypatch)
        statuses = (503, 429, 409, 201, 500)
        receiver.pages["/hook"] = [Page(status=status) for status in statuses]
        (task,) = stage.submit("tool.webhook", input=json.dumps({"endpoint": "billing", "body": {"n": 1}}))
        run(stage, task, times=7)
        assert stage.state(task) == "succeeded"
        assert len(receiver.seen) == 4, "a 2xx ends it"
    token = receiver.seen[0].headers["idempotency-key"]
    assert token.startswith(f"harness-{stage.row(task)['public_id']}-s1-")  # of its step
    for seen in receiver.seen:
        assert seen.headers["idempotency-key"] == seen.headers["webhook-id"] == token
        assert standardwebhooks.Webhook(SECRET).verify(seen.body, seen.headers) == {"n": 1}
    assert [name for name in stage.events(task) if name in ("fail", "postpone", "succeed")] == [
        "fail", "postpone", "fail", "succeed",
    ]  # fmt: skip
    kept = everything_in(stage) + caplog.text + "".join(capfd.readouterr())
    assert token in kept and '"status": 201' in kept.replace('""', '"')
    assert not [secret for secret in HIDDEN if secret in kept]


def test_two_tasks_never_share_a_token(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as receiver:
        set_up(receiver, monkeypatch)
        receiver.pages["/hook"] = Page()
        for task in stage.submit("tool.webhook", 2, input='{"endpoint": "billing", "body": {}}'):
            run(stage, task, times=2)
        assert len({seen.headers["idempotency-key"] for seen in receiver.seen}) == len(receiver.seen) == 2


def test_a_secret_stays_out_of_the_rows_of_a_delivery_that_fails(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with raw(lambda connection: connection.sendall(b"not http at all\r\n\r\n")) as receiver:
        set_up(receiver, monkeypatch)
        (task,) = stage.submit("tool.webhook", input='{"endpoint": "billing", "body": {}}')
        run(stage, task, times=8)
    assert stage.state(task) == "failed_terminal" and len(receiver.seen) == 6
    kept = everything_in(stage)
    assert "no whole HTTP answer" in kept and not [secret for secret in HIDDEN if secret in kept]


def test_a_refused_address_buries_the_task_naming_the_class(stage: Stage) -> None:
    (task,) = stage.submit("tool.webhook", input='{"url": "http://169.254.169.254/", "body": {}}')
    run(stage, task, times=1)
    assert stage.state(task) == "failed_terminal"
    error = stage.one("SELECT error FROM task_body WHERE task_id = %s", task)
    assert error["class"] == "permission" and "a metadata address" in error["message"]
