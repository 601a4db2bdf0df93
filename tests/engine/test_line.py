"""The leader's line: what stands in its memory is also written, so nothing is lost with it and nobody else writes."""

import time
from collections import Counter
from typing import Any, cast

import pytest
from django.conf import settings

from harness.engine import dispatch, sweep
from harness.engine.memory import Memory
from harness.engine.schedules import Firing
from harness.policy.lifecycle import Event
from harness.store import leader, snapshot, transitions
from harness.store.database import Connection
from harness.store.message import Message
from harness.store.transitions import Outcome
from tests.stage import Stage

EST_S = 0.001  # of kind noop.single, until it is measured


class Killed(BaseException):
    """The process is gone."""


def run(stage: Stage, messages: list[Message], *, slot_s: float) -> None:
    """Run what was sent, each in so many seconds as the worker measures them, claimed at the moment of its release."""
    session = stage.one("SELECT uuid FROM worker_session LIMIT 1")
    for message in messages:
        outcomes = [
            Outcome(task=task.id, release_no=task.release_no, event=Event.SUCCEED, slot_s=slot_s)
            for task in stage.claim(message, session)
        ]
        stage.connection.execute("UPDATE lease SET released_at = claimed_at WHERE id = %s", (message.lease,))
        transitions.settle(
            stage.connection, outcomes, lease=message.lease, token=message.token, session=session, actor="test worker"
        )


def clocks(stage: Stage) -> dict[tuple[int, int], float]:
    """Virtual time by tenant and run, as it is written."""
    rows = stage.connection.execute("SELECT tenant_id, run_id, v FROM clock WHERE pool = 'db'")
    return {(row[0], row[1]): row[2] for row in rows}


def test_a_settle_moves_the_clock_before_the_slot_that_it_gave_back_is_given(stage: Stage) -> None:
    """One slot, two tenants: who just used three seconds isn't next, though nothing of his is in flight any more."""
    stage.add_session({"db": 1})
    other = stage.add_tenant("other")
    stage.submit(n=3)
    stage.submit(n=3, tenant=other)
    served = []
    for slot_s in (3.0, 1.0, 1.0, 1.0):
        (message,) = list(stage.tick())
        served.append(stage.one("SELECT tenant_id FROM lease"))
        run(stage, [message], slot_s=slot_s)
    assert served == [stage.tenant, other, other, other]


def test_clocks_and_charges_are_written_by_the_commit_that_releases(stage: Stage) -> None:
    stage.add_session({"db": 1})
    stage.submit(n=3)
    run(stage, list(stage.tick()), slot_s=5.0)
    begun = clocks(stage)[stage.tenant, 0]
    assert stage.one("SELECT count(*) FROM charge") == 1
    stage.tick()
    assert stage.one("SELECT count(*) FROM charge") == 0
    assert clocks(stage)[stage.tenant, 0] == pytest.approx(begun + (5.0 - EST_S) + EST_S)


def test_a_charge_that_comes_with_no_release_is_written_within_a_second(stage: Stage) -> None:
    stage.add_session({"db": 1})
    stage.submit(n=1)
    run(stage, list(stage.tick()), slot_s=5.0)
    stage.memory.folded_s = time.monotonic() - dispatch.FOLD_EVERY_S / 2
    stage.tick()
    assert stage.one("SELECT count(*) FROM charge") == 1
    stage.memory.folded_s = time.monotonic() - dispatch.FOLD_EVERY_S
    stage.tick()
    assert stage.one("SELECT count(*) FROM charge") == 0
    assert clocks(stage)[stage.tenant, 0] == pytest.approx(5.0)
    assert stage.one("SELECT mean_s FROM estimate WHERE kind = 'noop.single'") == 5.0


def test_a_locked_estimate_keeps_the_leader_not_waiting(stage: Stage) -> None:
    stage.add_session({"db": 1})
    stage.submit(n=3)
    run(stage, list(stage.tick()), slot_s=5.0)
    stage.fold()
    with stage.open() as other, other.transaction():
        other.execute("SELECT FROM estimate FOR UPDATE")
        run(stage, list(stage.messages), slot_s=9.0)
        stage.connection.execute("SET lock_timeout = '50ms'")  # it would raise
        stage.fold()
    assert stage.one("SELECT mean_s FROM estimate WHERE kind = 'noop.single'") == 5.0
    assert stage.one("SELECT count(*) FROM charge") == 0
    run(stage, list(stage.messages), slot_s=15.0)
    stage.fold()
    assert stage.one("SELECT mean_s FROM estimate WHERE kind = 'noop.single'") == pytest.approx(6.0)


def test_a_change_of_leader_keeps_clocks_and_charges_each_task_once(stage: Stage) -> None:
    stage.add_session({"db": 2})
    other = stage.add_tenant("other")
    stage.submit(n=40)
    stage.submit(n=40, tenant=other)
    for turn in range(12):
        run(stage, list(stage.tick()), slot_s=1.0 + turn % 3)
        if turn % 4 == 2:  # with charges that are read by nobody yet
            remembered = {key: v for line in stage.memory.lines.values() for key, v in line.clocks().items()}
            stage.lead()
            read = {key: v for line in stage.memory.lines.values() for key, v in line.clocks().items()}
            assert read == pytest.approx(remembered)
    stage.fold()
    used: Counter[int] = Counter(
        dict(stage.connection.execute("SELECT tenant_id, sum(slot_s) FROM attempt GROUP BY tenant_id").fetchall())
    )
    in_flight: Counter[int] = Counter(
        dict(stage.connection.execute("SELECT tenant_id, sum(est_s * cost) FROM lease GROUP BY 1").fetchall())
    )
    # The clocks began at V = 0: they are what was used, and what is charged for those in flight.
    assert clocks(stage) == pytest.approx({(tenant, 0): used[tenant] + in_flight[tenant] for tenant in used})
    assert abs(used[stage.tenant] - used[other]) <= 3.0


def test_a_dispatcher_killed_between_commit_and_publish_costs_nobody_anything(stage: Stage) -> None:
    stage.add_session({"db": 2})
    tasks = stage.submit(n=2)

    def die(_: object) -> None:
        raise Killed

    assert stage.epoch is not None
    with pytest.raises(Killed):
        dispatch.tick(stage.connection, settings.HARNESS_TOPOLOGY, stage.memory, epoch=stage.epoch, publish=die)
    assert clocks(stage) == pytest.approx({(stage.tenant, 0): 2 * EST_S})  # charged with the leases
    assert stage.one("SELECT count(*) FROM lease") == 2
    # Another process leads, ten seconds pass, its sweep finds what nobody claimed.
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    stage.epoch = leader.take(stage.connection, "another")
    assert stage.epoch is not None
    stage.lead()
    assert stage.tick() == []
    stage.connection.execute("UPDATE lease SET released_at = released_at - interval '11 s'")
    assert sweep.sweep(stage.connection, epoch=stage.epoch, firing=Firing()).unclaimed == 2
    messages = list(stage.tick())
    assert len(messages) == 2
    assert clocks(stage) == pytest.approx({(stage.tenant, 0): 2 * EST_S})  # given back, and charged again
    run(stage, messages, slot_s=1.0)
    assert [stage.state(task) for task in tasks] == ["succeeded"] * 2


def test_a_stopped_leader_that_wakes_up_releases_and_writes_nothing(stage: Stage) -> None:
    stage.add_session({"db": 4})
    stage.submit(n=8)
    run(stage, list(stage.tick())[:2], slot_s=9.0)
    old, old_epoch = stage.memory, stage.epoch
    assert old_epoch is not None
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    stage.epoch = leader.take(stage.connection, "another")
    stage.lead()
    stage.fold()
    facts = (
        "SELECT (SELECT json_agg(c ORDER BY c::text) FROM clock c)::text, "
        "(SELECT json_agg(l.id ORDER BY id) FROM lease l)::text, "
        "(SELECT json_agg(a ORDER BY lane) FROM class_credit a)::text"
    )
    run(stage, list(stage.messages)[:1], slot_s=9.0)
    before = stage.connection.execute(facts).fetchone()
    charges = stage.one("SELECT count(*) FROM charge")
    assert charges == 1
    sent: list[Message] = []
    old.folded_s = 0.0
    released = dispatch.tick(stage.connection, settings.HARNESS_TOPOLOGY, old, epoch=old_epoch, publish=sent.extend)
    assert (released, sent) == (0, [])
    assert stage.connection.execute(facts).fetchone() == before
    assert stage.one("SELECT count(*) FROM charge") == charges
    assert len(stage.tick()) == 1  # the one who leads now goes on


def test_a_lease_left_out_by_the_commit_is_given_back_and_the_caps_are_read_again(stage: Stage) -> None:
    stage.add_session({"db": 4})
    stage.submit(n=4)
    stage.tick()
    transitions.hand_back_unclaimed(stage.connection, older_than_s=0)
    stage.fold()  # all are in flight again; the scopes have just been read
    transitions.hand_back_unclaimed(stage.connection, older_than_s=0)
    stage.connection.execute("UPDATE tenant SET cap = 1 WHERE id = %s", (stage.tenant,))
    sent: list[Message] = []
    assert stage.epoch is not None
    dispatch.tick(stage.connection, settings.HARNESS_TOPOLOGY, stage.memory, epoch=stage.epoch, publish=sent.extend)
    assert len(sent) == 1
    assert stage.memory.scopes is None, "the next tick knows the new cap"
    stage.fold()
    assert clocks(stage) == pytest.approx({(stage.tenant, 0): EST_S})


def test_weights_and_caps_change_while_the_leader_runs(stage: Stage) -> None:
    stage.add_session({"db": 1})
    heavy = stage.add_tenant("heavy")
    stage.submit(n=60)
    stage.submit(n=60, tenant=heavy)
    served: Counter[int] = Counter()
    for turn in range(48):
        if turn == 12:
            stage.connection.execute("UPDATE tenant SET weight = 3 WHERE id = %s", (heavy,))
        if turn == 36:
            stage.connection.execute("UPDATE tenant SET weight = 1, cap = 0 WHERE id = %s", (heavy,))
        messages = list(stage.tick())
        served[stage.one("SELECT tenant_id FROM lease") * 100 + turn // 12] += 1
        run(stage, messages, slot_s=1.0)
    shares = [served[heavy * 100 + quarter] for quarter in range(4)]
    assert shares[0] in (5, 6, 7)
    assert shares[1] + shares[2] in (17, 18, 19)
    assert shares[3] == 0


def test_a_resource_taken_out_of_the_configuration_holds_those_who_need_it_and_nobody_else(stage: Stage) -> None:
    stage.add_session({"db": 4})
    waiting = stage.submit(n=3, signature="gone=1")
    (free,) = stage.submit()
    assert "gone" not in settings.HARNESS_TOPOLOGY.resources
    assert [stage.one("SELECT task_id FROM lease_member WHERE lease_id = %s", m.lease) for m in stage.tick()] == [free]
    assert stage.tick() == []
    assert stage.one("SELECT count(*) FROM task WHERE ready AND id = ANY(%s)", waiting) == 3
    assert stage.one("SELECT count(*) FROM flow WHERE signature = 'gone=1'") == 1


def test_ten_thousand_tenants_with_one_task_each_all_start_and_their_flows_go(stage: Stage) -> None:
    stage.add_session({"db": 100})
    fill(stage, 10_000)
    began_s = time.perf_counter()
    stage.lead()
    read_s = time.perf_counter() - began_s
    took_s = []
    for _ in range(100):
        began_s = time.process_time()
        messages = list(stage.tick())
        took_s.append(time.process_time() - began_s)
        assert len(messages) == 100
        stage.connection.execute("DELETE FROM lease_member; DELETE FROM lease")  # they are gone: next
    assert stage.one("SELECT count(DISTINCT tenant_id) FROM task WHERE NOT ready") == 10_000
    assert read_s < 3.0
    assert sorted(took_s)[50] < 0.06  # 20 ms on an idle machine: this is for what is quadratic
    while stage.one("SELECT count(*) FROM flow"):
        assert stage.tick() == []
    assert not len(stage.memory.line("db"))


def test_a_new_leader_knows_how_long_the_oldest_have_waited(stage: Stage) -> None:
    (old,) = stage.submit(priority=3)
    stage.submit(priority=2)
    stage.connection.execute("UPDATE task SET ready_at = clock_timestamp() - interval '1 hour' WHERE id = %s", (old,))
    stage.lead()
    line = stage.memory.line("db")
    now_s = snapshot.in_use(stage.connection).now_s
    ages = sorted(now_s - line.since(flow) for flow in line.flows)
    assert ages == [pytest.approx(0.0, abs=5.0), pytest.approx(3600.0, abs=5.0)]


def test_flows_deleted_with_their_tenant_leave_the_line(stage: Stage) -> None:
    stage.add_session({"db": 4})
    stage.submit()
    stage.lead()
    stage.connection.execute("DELETE FROM task_body; DELETE FROM flow")
    stage.connection.execute("UPDATE task SET ready = false")
    stage.tick()
    assert not len(stage.memory.line("db"))


def test_losing_the_memory_loses_no_task(stage: Stage) -> None:
    stage.add_session({"db": 3})
    tasks = stage.submit(n=30)
    for turn in range(30):
        if turn % 3 == 0:
            stage.memory = Memory()  # as if a leader began without its read: it knows only what is new
            stage.lead()
        run(stage, list(stage.tick()), slot_s=0.1)
    assert {stage.state(task) for task in tasks} == {"succeeded"}


def fill(stage: Stage, tenants: int) -> None:
    """Tenants with one waiting task each, as a submission leaves them."""
    stage.connection.execute(
        "WITH t AS (INSERT INTO tenant (name) SELECT 'many' || i FROM generate_series(1, %s) i RETURNING id), "
        "f AS (INSERT INTO flow (pool, priority, tenant_id, run_id, signature) SELECT 'db', 1, id, 0, '' FROM t) "
        "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready) "
        "SELECT id, 'noop.single', 1, 'db', 1, 'queued', true FROM t",
        (tenants,),
    )


class Counting:
    """A connection that notes what is asked of it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, query: Any, *more: Any) -> Any:
        """Note it, and do it."""
        self.asked.append(str(query).partition("\n")[0])
        return self._connection.execute(query, *more)


@pytest.mark.parametrize("tenants", [1, 7, 300])
def test_a_tick_that_releases_takes_three_statements(stage: Stage, tenants: int) -> None:
    stage.add_session({"db": 6})
    for tenant in range(tenants):
        stage.submit(n=1 + 300 // tenants, tenant=stage.add_tenant(f"t{tenant}"))
    stage.lead()
    for _ in range(5):
        run(stage, list(stage.tick())[:4], slot_s=0.1)
    for _ in range(20):
        counting, sent = Counting(stage.connection), list[Message]()
        assert stage.epoch is not None
        stage.memory.folded_s = stage.memory.scopes_read_s = time.monotonic()  # what comes once a second is apart
        dispatch.tick(
            cast(Connection, counting), settings.HARNESS_TOPOLOGY, stage.memory, epoch=stage.epoch, publish=sent.extend
        )
        assert len(sent) in range(1, 7)
        assert [asked.split(".")[0][:22] for asked in counting.asked] == [
            "-- What a tick begins ",
            "-- The first ready tas",
            "-- Commit a plan: leas",
        ]
        run(stage, sent[:4], slot_s=0.1)
        for message in sent[4:]:
            run(stage, [message], slot_s=0.3)
