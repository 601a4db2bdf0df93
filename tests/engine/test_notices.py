"""A tenant's hook hears of each question at least once, under one key, by a link that only it gets."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel

from harness.engine import approve, execute
from harness.engine.approve import links, notices
from harness.kinds import Context, kind
from harness.policy.errors import Invalid
from harness.store import approvals
from tests.kinds.sites import Page, Site, site
from tests.stage import Stage


class Nothing(BaseModel):
    """Any input."""


@kind("test.asking_hook", pool="db", input=Nothing)
def asking(ctx: Context, payload: Nothing) -> Any:
    return ctx.ask("Go on?")


def ask(stage: Stage, *, tenant: int | None = None) -> int:
    (task,) = stage.submit("test.asking_hook", tenant=tenant or stage.tenant)
    with stage.process(stage.add_session()) as process:
        for message in list(stage.tick()):
            execute.run_lease(process, message.lease, message.token)
    assert stage.state(task) == "waiting_approval"
    return task


def hook(stage: Stage, url: str | None, tenant: str = "acme") -> None:
    with stage.open("staff") as connection:
        approve.set_hook(connection, tenant, url, actor="ops", reason="so")


def due(stage: Stage) -> None:
    """As if the time of the next try had come."""
    stage.connection.execute("UPDATE approval SET notify_after = clock_timestamp() WHERE notify_after IS NOT NULL")


def bodies(found: Site) -> list[dict[str, Any]]:
    return [json.loads(request.body) for request in found.seen if request.method == "POST"]


def test_the_hook_hears_what_waits_with_a_link_that_decides(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with site() as receiver:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", receiver.allow)
        hook(stage, receiver.url("/hook"))
        receiver.pages["/hook"] = [Page(status=204)]
        task = ask(stage)
        assert approve.notify(stage.connection) == 1
        assert approve.notify(stage.connection) == 0  # once is enough when it was taken
        (body,) = bodies(receiver)
    public = str(stage.one("SELECT public_id FROM task WHERE id = %s", task))
    assert (body["type"], body["task_id"], body["prompt"]) == ("approval.waiting", public, "Go on?")
    text = body["link"].rpartition("/decide/")[2]
    link = links.read(text, now=datetime.now(UTC))
    question = approvals.last(stage.connection, task)
    assert question is not None and question.notified_at is not None
    assert (link.approval, link.asks, link.label) == (question.id, 1, "webhook")
    # The link stands in no row: who may only read can't decide by it.
    assert stage.one("SELECT count(*) FROM task_body WHERE input::text LIKE '%%/decide/%%'") == 0


def test_a_receiver_that_fails_hears_of_it_again_under_the_same_key_until_it_takes_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site() as receiver:
        monkeypatch.setenv("HARNESS_EGRESS_ALLOW", receiver.allow)
        hook(stage, receiver.url("/hook"))
        receiver.pages["/hook"] = [Page(status=503), Page(status=302), Page(status=200)]
        task = ask(stage)
        for expected in (0, 0, 1):
            assert approve.notify(stage.connection) == expected
            due(stage)
        keys = {request.headers["idempotency-key"] for request in receiver.seen}
        assert len(receiver.seen) == 3 and len(keys) == 1
    question = approvals.last(stage.connection, task)
    assert question is not None and question.notified_at is not None and question.notify_error is None


def test_a_private_address_is_refused_and_it_gives_up_at_last(stage: Stage) -> None:
    hook(stage, "http://127.0.0.1:9/hook?key=secret")
    task = ask(stage)
    for _ in range(notices.TRIES_MOST):
        assert approve.notify(stage.connection) == 0
        due(stage)
    question = approvals.last(stage.connection, task)
    assert question is not None and question.notified_at is None
    assert "127.0.0.1" in str(question.notify_error) and "secret" not in str(question.notify_error)
    assert stage.one("SELECT notify_after IS NULL AND notify_tries = 12 FROM approval WHERE task_id = %s", task)
    assert stage.state(task) == "waiting_approval"


def test_what_was_decided_before_is_no_news_and_no_hook_hears_nothing(stage: Stage) -> None:
    ask(stage)
    assert stage.one("SELECT count(*) FROM approval WHERE notify_after IS NOT NULL") == 0
    hook(stage, "https://example.com/hook")
    task = ask(stage)
    assert stage.one("SELECT notify_after IS NOT NULL FROM approval WHERE task_id = %s", task)
    public = stage.one("SELECT public_id FROM task WHERE id = %s", task)
    approve.deny(stage.connection, public, tenant=stage.tenant, actor="jo")
    assert approvals.take_notices(stage.connection, limit=9, again_s=1, again_most_s=1) == []
    hook(stage, None)
    assert approvals.hook(stage.connection, stage.tenant) is None


def test_one_tenants_hook_that_is_down_holds_up_nobody_elses(stage: Stage) -> None:
    other = stage.add_tenant("other")
    hook(stage, "https://example.com/a")
    hook(stage, "https://example.com/b", "other")
    for _ in range(6):
        ask(stage)
    ask(stage, tenant=other)
    taken = approvals.take_notices(stage.connection, limit=8, again_s=60, again_most_s=60)
    assert sorted(one.tenant for one in taken) == sorted([stage.tenant] * 4 + [other])


@pytest.mark.parametrize("url", ["ftp://example.com", "example.com", "http://", "https://" + "x" * 2001])
def test_a_hook_that_is_no_address_is_refused(stage: Stage, url: str) -> None:
    with pytest.raises(Invalid, match="url"):
        hook(stage, url)
