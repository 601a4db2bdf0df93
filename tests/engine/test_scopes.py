"""Pauses of scopes: each side lifts its own, a tenant reaches only its own, and the slots come back by a ramp."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from harness.engine import operate
from harness.policy.admission import Forbidden
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.policy.ramp import most_in_flight
from harness.policy.scopes import Scope
from harness.store import audit, pauses
from harness.store.backlog import insert_run
from tests.stage import Stage


def act(stage: Stage, verb: str, scope: Scope, named: str, *, tenant: int | None = None) -> str:
    function = operate.pause_scope if verb == "pause" else operate.resume_scope
    with stage.open("web" if tenant is not None else "engine") as connection:
        done = function(connection, scope, named, tenant=tenant, actor="someone", reason="too hot")
        return done.outcome


def a_run(stage: Stage, *, size: int, tenant: int | None = None, **more: Any) -> tuple[str, int]:
    public = uuid.uuid4()
    whose = stage.tenant if tenant is None else tenant
    run = insert_run(stage.connection, public_id=public, tenant=whose, name="", size=size, fanout_cap=None)
    if size:
        stage.submit(n=size, run=run, tenant=whose, **more)
    return str(public), run


def test_each_side_lifts_only_its_own_pause(stage: Stage) -> None:
    stage.add_session()
    run, _ = a_run(stage, size=1)
    assert act(stage, "pause", "run", run, tenant=stage.tenant) == "paused"
    assert act(stage, "pause", "run", run) == "paused"
    assert act(stage, "pause", "run", run) == "already"
    assert stage.tick() == []
    assert act(stage, "resume", "run", run) == "held"
    with pytest.raises(Conflict, match="paused by the tenant, not by you"):
        act(stage, "resume", "run", run)
    assert stage.tick() == []
    assert act(stage, "resume", "run", run, tenant=stage.tenant) == "resumed"
    assert len(stage.tick()) == 1
    with pytest.raises(Conflict, match="isn't paused"):
        act(stage, "resume", "run", run)
    noted = stage.connection.execute("SELECT verb, subject, data ->> 'tenant' FROM audit_entry ORDER BY id").fetchall()
    assert noted == [
        (verb, f"run {run}", whose and str(whose))
        for verb, whose in (("pause", stage.tenant), ("pause", None), ("resume", None), ("resume", stage.tenant))
    ]


@pytest.mark.parametrize("by_tenant", [True, False])
def test_who_paused_and_resumed_and_why_stay_when_the_scope_is_paused_again(stage: Stage, by_tenant: bool) -> None:
    whose = stage.tenant if by_tenant else None
    story = [
        ("ann", "pause", "too hot"),
        ("ben", "resume", "cool again"),
        ("cem", "pause", "too cold"),
        ("dee", "resume", ""),
    ]
    with stage.open("web" if by_tenant else "engine") as connection:
        for actor, verb, reason in story:
            function = operate.pause_scope if verb == "pause" else operate.resume_scope
            function(connection, "tenant", "acme", tenant=whose, actor=actor, reason=reason)
        operate.pause_scope(connection, "tenant", "acme", tenant=whose, actor="eva", reason="once")
        operate.pause_scope(connection, "tenant", "acme", tenant=whose, actor="eva", reason="changes nothing")
    noted = stage.connection.execute(
        "SELECT actor, verb, reason FROM audit_entry WHERE subject = 'tenant acme' AND ended_at IS NOT NULL ORDER BY id"
    ).fetchall()
    assert noted == [*story, ("eva", "pause", "once")]


def test_a_tenant_writes_no_other_entry_of_the_audit_and_reads_none(stage: Stage) -> None:
    other = stage.add_tenant("other")
    with stage.open("web") as web:
        web.execute("SELECT set_config('harness.tenant', %s, false)", (str(stage.tenant),))
        for verb, whose in (("pause", other), ("pause", None), ("tenant.delete", stage.tenant)):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                audit.note(web, actor="x", verb=verb, subject="tenant acme", reason="", tenant=whose)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("SELECT FROM audit_entry")


def test_a_tenant_pauses_nothing_that_is_not_its_own(stage: Stage) -> None:
    other = stage.add_tenant("other")
    run, number = a_run(stage, size=1, tenant=other)
    with pytest.raises(NotFound):
        act(stage, "pause", "run", run, tenant=stage.tenant)
    with pytest.raises(Forbidden):
        act(stage, "pause", "pool", "db", tenant=stage.tenant)
    for key, scope in ((str(number), "run"), (str(other), "tenant"), ("db", "pool")):
        with stage.open("web") as web:
            web.execute("SELECT set_config('harness.tenant', %s, false)", (str(stage.tenant),))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                pauses.put(
                    web, scope=scope, key=key, source="tenant", tenant=stage.tenant, author="x", reason="", until=None
                )


@pytest.mark.parametrize(("scope", "named"), [("priority", "p0"), ("pool_priority", "db.p0")])
def test_p0_is_paused_only_with_force(stage: Stage, scope: Scope, named: str) -> None:
    stage.add_session()
    stage.submit(priority=0)
    with pytest.raises(Invalid, match="use force") as raised:
        act(stage, "pause", scope, named)
    assert raised.value.field == "force" and pauses.in_force(stage.connection) == []
    done = operate.pause_scope(stage.connection, scope, named, tenant=None, actor="me", force=True)
    assert done.outcome == "paused" and stage.tick() == []


@pytest.mark.parametrize(
    ("scope", "named", "field"),
    [
        ("pool", "gpu", "pool"),
        ("priority", "p9", "priority"),
        ("pool_priority", "db", "pool_priority"),
        ("run", "7", "run"),
    ],
)
def test_a_scope_that_does_not_exist_is_named(stage: Stage, scope: Scope, named: str, field: str) -> None:
    with pytest.raises(Invalid) as raised:
        act(stage, "pause", scope, named)
    assert raised.value.field == field
    if scope != "run":
        assert "p0, p1, p2, p3" in raised.value.message or "tool_read, tool_write" in raised.value.message


def test_a_pause_until_a_moment_ends_by_itself_and_the_past_is_refused(stage: Stage) -> None:
    stage.add_session()
    stage.submit()
    soon = datetime.now(UTC) + timedelta(hours=1)
    done = operate.pause_scope(stage.connection, "pool", "db", tenant=None, actor="me", until=soon)
    assert done.outcome == "paused" and stage.tick() == []
    stage.connection.execute("UPDATE pause SET until = clock_timestamp()")
    assert len(stage.tick()) == 1
    with pytest.raises(Invalid):
        operate.pause_scope(
            stage.connection, "pool", "db", tenant=None, actor="me", until=datetime.now(UTC) - timedelta(seconds=1)
        )


@pytest.mark.parametrize("scope", ["pool", "priority", "pool_priority", "tenant", "run"])
def test_the_tick_after_a_resume_releases_no_more_than_the_share(stage: Stage, scope: Scope) -> None:
    """20 slots: 2 at once, 4 after 5 s, 8, 16, then all; what runs already counts."""
    stage.add_session({"tool_read": 20})
    run, _ = a_run(stage, size=40, pool="tool_read", kind="nobody")
    named = {"pool": "tool_read", "priority": "p2", "pool_priority": "tool_read.p2", "tenant": "acme", "run": run}[
        scope
    ]
    act(stage, "pause", scope, named)
    assert stage.tick() == []
    act(stage, "resume", scope, named)
    total = 0
    for resumed_s in (0, 5, 10, 15, 20):
        stage.connection.execute(
            "UPDATE pause SET resumed_at = clock_timestamp() - make_interval(secs => %s)", (resumed_s + 0.5,)
        )
        total += len(stage.tick())
        assert total == most_in_flight(20, resumed_s)
        assert stage.tick() == []
    assert total == 20


def test_a_ramp_of_one_scope_leaves_the_others_alone(stage: Stage) -> None:
    stage.add_session({"tool_read": 20})
    run, _ = a_run(stage, size=20, pool="tool_read", kind="nobody")
    stage.submit(n=30, pool="tool_read", kind="nobody")
    act(stage, "pause", "run", run)
    stage.tick()
    held = stage.one("SELECT count(*) FROM lease")
    assert held == 20
    stage.connection.execute("DELETE FROM lease_member")
    stage.connection.execute("DELETE FROM lease")
    act(stage, "resume", "run", run)
    assert len(stage.tick()) == 12  # ten singles that are left, and two of the run
