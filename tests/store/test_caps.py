"""A commit counts again what is in flight: a lease that would pass a cap is left out and told, the others are made."""

from typing import Any

import pytest
from psycopg import sql

from harness.policy.accounts import Changes, ClockRow
from harness.store import transitions
from harness.store.clocks import Moved
from harness.store.transitions import NewLease, Released
from tests.leases import new_lease
from tests.stage import Stage

LIMITS = {"browser": 3, "llm": 50}
NOTHING = Moved()


def commit(stage: Stage, *leases: NewLease, moved: Moved = NOTHING) -> Released:
    assert stage.epoch is not None
    return transitions.release(stage.connection, leases, moved, capacities=LIMITS, epoch=stage.epoch)


def one_each(stage: Stage, n: int, **more: Any) -> list[NewLease]:
    submitted: dict[str, Any] = {name: more[name] for name in ("tenant", "run", "signature") if name in more}
    return [new_lease(stage, [task], token=task, **more) for task in stage.submit(n=n, **submitted)]


def test_a_tenants_cap_lowered_since_the_look_is_kept(stage: Stage) -> None:
    stage.add_session({"db": 20})
    other = stage.add_tenant("other")
    first, second, third = one_each(stage, 3)
    others = one_each(stage, 2, tenant=other)
    stage.connection.execute("UPDATE tenant SET cap = 2 WHERE id = %s", (stage.tenant,))
    done = commit(stage, first, others[0], second, third, others[1])
    assert set(done.made) == {first.token, second.token, others[0].token, others[1].token}
    assert done.refused == {third.token: "tenant_cap"}
    assert stage.one("SELECT ready FROM task WHERE id = %s", third.tasks[0]), "it waits on"


def test_a_cap_lowered_below_what_is_in_flight_lets_nothing_new_start_and_ends_nothing(stage: Stage) -> None:
    stage.add_session({"db": 20})
    commit(stage, *one_each(stage, 5))
    stage.connection.execute("UPDATE tenant SET cap = 2 WHERE id = %s", (stage.tenant,))
    (more,) = one_each(stage, 1)
    assert commit(stage, more).refused == {more.token: "tenant_cap"}
    assert stage.one("SELECT count(*) FROM lease") == 5
    transitions.hand_back_unclaimed(stage.connection, older_than_s=0, limit=4)
    assert set(commit(stage, more).made) == {more.token}


def test_members_count_against_caps_and_leases_against_slots(stage: Stage) -> None:
    stage.add_session({"db": 2})
    run = stage.one("INSERT INTO run (tenant_id, size, fanout_cap) VALUES (%s, 9, 4) RETURNING id", stage.tenant)
    tasks = stage.submit(n=6, run=run)
    bundle = new_lease(stage, tasks[:3], token=1, run=run)
    too_many = new_lease(stage, tasks[3:5], token=2, run=run)
    assert commit(stage, bundle, too_many) == Released({1: (stage.one("SELECT max(id) FROM lease"), 3)}, {2: "run_cap"})
    singles = one_each(stage, 2)
    done = commit(stage, *singles)
    assert (set(done.made), done.refused) == ({singles[0].token}, {singles[1].token: "slots"})


def test_a_session_that_ended_since_the_look_gives_no_slots(stage: Stage) -> None:
    stage.forget_beats(stage.add_session({"db": 4}))
    (lease,) = one_each(stage, 1)
    assert commit(stage, lease).refused == {lease.token: "slots"}


def test_quarantine_has_slots_of_its_own(stage: Stage) -> None:
    stage.add_session({"db": 9, "quarantine": 1})
    first, second = one_each(stage, 2, via="quarantine")
    done = commit(stage, first, second)
    assert (set(done.made), done.refused) == ({first.token}, {second.token: "quarantine"})


def test_resources_are_counted_from_what_leases_hold(stage: Stage) -> None:
    stage.add_session({"db": 20})
    two = one_each(stage, 1, signature="browser=2,llm=1")
    assert set(commit(stage, *two).made) == {two[0].token}
    large, small, free = (
        one_each(stage, 1, signature="browser=2")[0],
        one_each(stage, 1, signature="browser=1")[0],
        one_each(stage, 1, signature="llm=9")[0],
    )
    done = commit(stage, large, small, free)
    assert done.refused[large.token] == "resource:browser"
    assert free.token in done.made
    # What is left out counts for those behind it too: never one too many, at most one too few until the next tick.
    assert set(commit(stage, small).made) == {small.token}


def test_a_resource_that_the_configuration_has_no_more_has_no_room(stage: Stage) -> None:
    stage.add_session({"db": 20})
    gone, plain = one_each(stage, 1, signature="gone=1")[0], one_each(stage, 1)[0]
    done = commit(stage, gone, plain)
    assert (set(done.made), done.refused) == ({plain.token}, {gone.token: "resource:gone"})


def quota(stage: Stage, scope: str, name: str, cap: int, *, tenant: int | None = None) -> None:
    engine = stage.one("SELECT current_user")
    stage.connection.execute("RESET ROLE")  # quotas are the owner's to write
    stage.connection.execute(
        "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (tenant_id, scope, name) DO UPDATE SET cap = excluded.cap",
        (tenant or stage.tenant, scope, name, cap),
    )
    stage.connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(engine)))


def test_a_quota_set_since_the_look_is_kept_in_members_of_the_pool(stage: Stage) -> None:
    stage.add_session({"db": 20})
    other = stage.add_tenant("other")
    tasks = stage.submit(n=2)
    bundle = new_lease(stage, tasks, token=1)
    first, second = one_each(stage, 2)
    (free,) = one_each(stage, 1, tenant=other)
    quota(stage, "pool", "db", 3)
    quota(stage, "pool", "llm", 0)
    quota(stage, "pool", "db", 0, tenant=stage.add_tenant("third"))
    done = commit(stage, bundle, first, second, free)
    assert (set(done.made), done.refused) == ({1, first.token, free.token}, {second.token: "quota:db"})
    quota(stage, "pool", "db", 2)  # below what is in flight
    assert commit(stage, second).refused == {second.token: "quota:db"}
    quota(stage, "pool", "db", 4)
    assert set(commit(stage, second).made) == {second.token}


def test_a_quota_on_a_resource_counts_what_the_tenants_leases_hold_of_it(stage: Stage) -> None:
    stage.add_session({"db": 20})
    quota(stage, "resource", "browser", 2)
    two = one_each(stage, 1, signature="browser=2,llm=1")
    assert set(commit(stage, *two).made) == {two[0].token}
    more = one_each(stage, 1, signature="browser=1")[0]
    free = one_each(stage, 1, signature="llm=9")[0]
    theirs = one_each(stage, 1, signature="browser=1", tenant=stage.add_tenant("other"))[0]
    done = commit(stage, more, free)
    assert (set(done.made), done.refused) == ({free.token}, {more.token: "quota:browser"})
    assert set(commit(stage, theirs).made) == {theirs.token}


@pytest.mark.parametrize("under", ["another epoch", "its own"])
def test_a_stopped_leader_that_wakes_up_writes_nothing(stage: Stage, under: str) -> None:
    stage.add_session({"db": 4})
    assert stage.epoch is not None
    (lease,) = one_each(stage, 1)
    (charge,) = stage.connection.execute(
        "INSERT INTO charge (lease_id, pool, tenant_id, run_id, kind, n, slot_s) VALUES (1, 'db', %s, 0, 'noop', 1, 1) "
        "RETURNING id",
        (stage.tenant,),
    ).fetchone() or (0,)
    flow = stage.one("SELECT id FROM flow")
    moved = Moved(
        changes={"db": Changes((ClockRow(2, stage.tenant, 0, 5.0, 1.0, 9.0),))}, charges=(charge,), known=(flow,)
    )
    if under == "another epoch":  # it slept while another led
        stage.connection.execute("UPDATE leader SET epoch = epoch + 1")
        assert commit(stage, lease, moved=moved) == Released({}, {})
    else:
        assert set(commit(stage, lease, moved=moved).made) == {lease.token}
    wrote = under == "its own"
    assert stage.one("SELECT count(*) FROM lease") == wrote
    assert stage.one("SELECT count(*) FROM clock") == wrote
    assert stage.one("SELECT count(*) FROM charge") == (not wrote)
    assert stage.one("SELECT known FROM flow") == wrote
