"""One tick on real rows: every limit is honoured, what is blocked holds nobody else up."""

import pytest

from harness.policy.errors import Unavailable
from harness.store import sessions
from harness.store.snapshot import FLOWS_AT_ONCE
from tests.stage import Stage


def test_a_pool_is_given_no_more_than_the_slots_of_its_live_sessions(stage: Stage) -> None:
    stage.submit(n=10)
    assert stage.tick() == []  # no worker, no release
    dead = stage.add_session({"db": 3})
    stage.add_session({"db": 2})
    stage.forget_beats(dead)
    assert len(stage.tick()) == 2
    draining = stage.add_session({"db": 4})
    sessions.start_drain(stage.connection, draining)
    assert stage.tick() == []


def test_tenant_run_and_quota_caps_hold_and_the_rest_goes_on(stage: Stage) -> None:
    stage.add_session({"db": 20})
    capped = stage.add_tenant("capped", cap=2)
    quota = stage.add_tenant("quota")
    stage.connection.execute("INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', 'db', 3)", (quota,))
    run = stage.one(
        "INSERT INTO run (public_id, tenant_id, size, fanout_cap) VALUES (gen_random_uuid(), %s, 9, 1) RETURNING id",
        stage.tenant,
    )
    stage.submit(n=9, tenant=capped)
    stage.submit(n=9, tenant=quota)
    stage.submit(n=9, run=run)
    stage.submit(n=4)
    stage.tick()
    held: dict[str, int] = dict(
        stage.connection.execute(
            "SELECT tenant_id || '/' || (run_id <> 0)::text, count(*) FROM lease GROUP BY 1"
        ).fetchall()
    )
    assert held == {
        f"{capped}/false": 2,
        f"{quota}/false": 3,
        f"{stage.tenant}/true": 1,
        f"{stage.tenant}/false": 4,
    }
    assert stage.tick() == []


def test_a_resource_that_is_full_holds_only_those_who_need_it(stage: Stage, settings: object) -> None:
    stage.add_session({"llm": 80})
    stage.submit("llm.summarize", n=70, input="{}")
    stage.tick()
    assert stage.one("SELECT count(*) FROM lease") == 51  # those that llm:default can serve, and one who waits
    assert stage.tick() == []
    stage.submit(n=1, pool="llm")  # needs nothing
    assert len(stage.tick()) == 1


@pytest.mark.parametrize(
    ("scope", "key", "left"),
    [
        ("pool", "db", 0),
        ("priority", "p3", 1),
        ("pool_priority", "db.p3", 1),
        ("pool_priority", "llm.p3", 2),
        ("tenant", "{tenant}", 0),
    ],
)
def test_a_pause_is_obeyed_at_the_next_look(stage: Stage, scope: str, key: str, left: int) -> None:
    stage.add_session({"db": 5})
    stage.submit(priority=3)
    stage.submit(priority=1)
    stage.connection.execute(
        "INSERT INTO pause (scope, key, source, author, reason) VALUES (%s, %s, 'operator', 'me', 'test')",
        (scope, key.format(tenant=stage.tenant)),
    )
    assert len(stage.tick()) == left


def add_blocked_flows(stage: Stage, number: int) -> None:
    """Tenants that may have nothing in flight, with a task each."""
    stage.connection.execute(
        "WITH t AS (INSERT INTO tenant (name, cap) SELECT 'b' || i, 0 FROM generate_series(1, %s) i RETURNING id) "
        "INSERT INTO flow (pool, priority, tenant_id, run_id, signature) SELECT 'db', 1, id, 0, '' FROM t",
        (number,),
    )
    stage.connection.execute(
        "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready) "
        "SELECT tenant_id, 'noop.single', 1, 'db', 1, 'queued', true FROM flow"
    )


def test_five_thousand_blocked_flows_ranked_first_do_not_hide_the_runnable_one(stage: Stage) -> None:
    stage.add_session({"db": 1})
    add_blocked_flows(stage, 5000)
    (last,) = stage.submit(priority=1)
    stage.connection.execute(  # so that its tenant stands behind all others
        "INSERT INTO clock (pool, priority, tenant_id, run_id, v, at_s) VALUES ('db', 1, %s, 0, 1e6, 0)",
        (stage.tenant,),
    )
    stage.lead()
    assert len(stage.tick()) == 1
    assert stage.one("SELECT task_id FROM lease_member") == last


def test_five_thousand_new_flows_are_learnt_without_a_pause(stage: Stage) -> None:
    stage.add_session({"db": 1})
    add_blocked_flows(stage, 5000)
    (last,) = stage.submit(priority=1)
    ticks = 1
    while not stage.tick():
        assert stage.memory.more, "the next tick would wait"
        ticks += 1
    assert stage.one("SELECT task_id FROM lease_member") == last
    assert ticks <= 5000 / FLOWS_AT_ONCE + 1


def test_when_the_broker_is_away_the_leases_go_back_at_once(stage: Stage) -> None:
    from django.conf import settings

    from harness.engine import dispatch

    stage.add_session()
    (task,) = stage.submit()

    def refuse(_: object) -> None:
        raise Unavailable("no broker")

    assert stage.epoch is not None
    with pytest.raises(Unavailable):
        dispatch.tick(stage.connection, settings.HARNESS_TOPOLOGY, stage.memory, epoch=stage.epoch, publish=refuse)
    assert stage.one("SELECT count(*) FROM lease") == 0
    assert (stage.row(task)["ready"], stage.row(task)["attempts_used"]) == (True, 0)
    assert len(stage.tick()) == 1


def test_tasks_that_wait_for_quarantine_keep_nobody_of_their_flow_waiting(stage: Stage) -> None:
    session = stage.add_session({"tool_read": 2})
    suspects = stage.submit("noop.sleep", n=5)
    stage.connection.execute("UPDATE task SET lost_starts = 2 WHERE id = ANY(%s)", (suspects,))
    (healthy,) = stage.submit("noop.sleep")
    (message,) = stage.tick()
    assert [task.id for task in stage.claim(message, session)] == [healthy]
    assert stage.tick() == [], "no worker of quarantine: they wait, and their flow stays"

    quarantine = stage.add_session({"quarantine": 1})
    (message,) = stage.tick()
    assert message.queue == "quarantine.p2"
    assert [task.id for task in stage.claim(message, quarantine)] == suspects[:1]
