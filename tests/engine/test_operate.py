"""Verbs on tasks: what each does in each state, by whom, under races, and to a hundred thousand at once."""

import random
import re
import threading
import time
import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.engine import operate
from harness.engine.operate import batches
from harness.policy import verbs
from harness.policy.admission import Forbidden
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.policy.holds import PEOPLE, WISHES
from harness.policy.lifecycle import TERMINAL, Event, State
from harness.policy.verbs import Asked, Stand
from harness.store import flows, transitions
from harness.store.backlog import insert_run
from tests.flows import orphans
from tests.stage import Stage


def public(stage: Stage, task: int) -> uuid.UUID:
    found: uuid.UUID = stage.one("SELECT public_id FROM task WHERE id = %s", task)
    return found


def do(stage: Stage, name: str, task: int, *, tenant: int | None = None, **more: Any) -> str:
    with stage.open("engine" if tenant is None else "web") as connection:
        done = operate.VERBS[name].run(connection, public(stage, task), tenant=tenant, actor="me", reason="so", **more)
        return done.outcome


def put(owner: "psycopg.Connection[Any]", task: int, stand: Stand) -> None:
    """Put a task where no route leads quickly, past the triggers, as the table's owner."""
    finished = "clock_timestamp()" if stand.state in TERMINAL else "NULL"
    waits = "clock_timestamp() + interval '1 hour'" if stand.waits else "NULL"
    owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
    owner.execute(
        f"UPDATE task SET state = %s, want = %s, holds = %s, priority = %s, finished_at = {finished}, "
        f"not_before = {waits}, ready = %s WHERE id = %s",
        (
            stand.state,
            stand.want,
            list(stand.holds),
            stand.priority,
            stand.state is State.QUEUED and not stand.waits and not stand.leased,
            task,
        ),
    )
    owner.execute("ALTER TABLE task ENABLE TRIGGER USER")


@st.composite
def stands(draw: st.DrawFn) -> Stand:
    state = draw(st.sampled_from(State))
    return Stand(
        state=state,
        want=draw(st.sampled_from([None, *WISHES])) if state is State.RUNNING else None,
        holds=tuple(sorted(draw(st.sets(st.sampled_from([*PEOPLE, "version"]), min_size=1))))
        if state is State.PAUSED
        else (),
        waits=state in (State.QUEUED, State.FAILED_RETRYABLE) and draw(st.booleans()),
        priority=draw(st.integers(0, 3)),
    )


def test_each_verb_does_what_the_table_says_in_each_state_or_refuses_and_never_half(stage: Stage) -> None:
    """Against the database, with its triggers and checks: the row and its trace move together, or not at all."""
    with psycopg.connect(stage.url, autocommit=True) as owner:

        @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
        @given(stands(), st.sampled_from(sorted(operate.VERBS)), st.booleans(), st.integers(1, 3))
        def check(stand: Stand, name: str, by_tenant: bool, priority: int) -> None:
            (task,) = stage.submit()
            put(owner, task, stand)
            flows.scan(stage.connection)  # `put` has moved it to another flow
            before = stage.row(task)
            asked = Asked(hold=operate.hold_of(stage.tenant if by_tenant else None), priority=priority)
            expected = operate.VERBS[name].decide(stand, asked)
            more = {"priority": priority} if name == "priority" else {}
            whose = stage.tenant if by_tenant else None
            if name == "redrive" and by_tenant and stand.priority == 0 and expected.step is not None:
                expected = verbs.refused("it is more urgent than its tenant may ask for: admission, not the table")
                with pytest.raises(Forbidden):
                    do(stage, name, task, tenant=whose)
            elif expected.outcome == "refused":
                with pytest.raises(Conflict, match=re.escape(expected.why.removeprefix("it "))):
                    do(stage, name, task, tenant=whose, **more)
            else:
                assert do(stage, name, task, tenant=whose, **more) == expected.outcome
            after = stage.row(task)
            if expected.step is None:
                assert after == before and stage.events(task) == ["submit"]
            else:
                assert after["event_no"] == before["event_no"] + 1 and len(stage.events(task)) == 2
                author, reason = stage.connection.execute(
                    "SELECT actor, data ->> 'reason' FROM event WHERE task_id = %s AND seq = 2", (task,)
                ).fetchone() or ("", "")
                assert (author, reason) == ("me", "so")
                assert after["ready"] == (after["state"] == "queued" and after["not_before"] is None)
            assert orphans(stage) == 0

        check()


def test_a_tenants_resume_does_not_lift_an_operators_hold(stage: Stage) -> None:
    stage.add_session()
    (task,) = stage.submit()
    assert do(stage, "pause", task, tenant=stage.tenant) == "paused"
    assert do(stage, "pause", task) == "paused"
    assert do(stage, "resume", task, tenant=stage.tenant) == "held"
    with pytest.raises(Conflict, match="held by an operator, not by you"):
        do(stage, "resume", task, tenant=stage.tenant)
    assert stage.state(task) == "paused" and stage.tick() == []
    assert do(stage, "resume", task) == "resumed"
    assert len(stage.tick()) == 1
    with pytest.raises(Conflict, match="isn't held"):
        do(stage, "resume", task)


def test_pausing_a_released_task_frees_its_slot_in_the_same_step(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    assert do(stage, "pause", task) == "paused"
    assert stage.one("SELECT count(*) FROM lease") == 0 and stage.one("SELECT count(*) FROM lease_member") == 0
    assert stage.claim(message, session) == []
    do(stage, "resume", task)
    assert len(stage.claim(stage.tick()[0], session)) == 1


def test_a_wish_to_pause_is_taken_back_and_gives_way_to_a_cancel(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    stage.claim(stage.tick()[0], session)
    assert do(stage, "pause", task, tenant=stage.tenant) == "wished"
    assert do(stage, "pause", task) == "wished"
    assert stage.row(task)["want"] == "pause:operator,tenant"
    assert do(stage, "resume", task) == "held"
    assert do(stage, "resume", task, tenant=stage.tenant) == "resumed"
    assert stage.row(task)["want"] is None
    do(stage, "pause", task)
    assert do(stage, "cancel", task) == "wished"
    assert stage.row(task)["want"] == "cancel"
    for name in ("pause", "resume"):
        with pytest.raises(Conflict, match="being cancelled"):
            do(stage, name, task)


def test_a_back_off_goes_on_while_a_task_is_paused(stage: Stage) -> None:
    session = stage.add_session()
    for wait in ("1 hour", "-1 second"):
        (task,) = stage.submit()
        (message,) = stage.tick()
        stage.claim(message, session)
        failed = transitions.Outcome(task=task, release_no=1, event=Event.FAIL, slot_s=0.1, delay_s=3600.0, spends=1)
        transitions.settle(
            stage.connection, [failed], lease=message.lease, token=message.token, session=session, actor="test"
        )
        assert do(stage, "pause", task) == "paused"
        stage.connection.execute(
            f"UPDATE task SET not_before = clock_timestamp() + interval '{wait}' WHERE id = %s", (task,)
        )
        transitions.wake_due(stage.connection, actor="test")
        assert stage.state(task) == "paused"
        do(stage, "resume", task)
        assert stage.row(task)["ready"] is (wait == "-1 second")
        do(stage, "cancel", task)


def test_requeue_tries_a_failed_task_at_once(stage: Stage) -> None:
    session = stage.add_session()
    (task,) = stage.submit()
    (message,) = stage.tick()
    stage.claim(message, session)
    failed = transitions.Outcome(task=task, release_no=1, event=Event.FAIL, slot_s=0.1, delay_s=3600.0, spends=1)
    transitions.settle(
        stage.connection, [failed], lease=message.lease, token=message.token, session=session, actor="test"
    )
    assert stage.tick() == []
    assert do(stage, "requeue", task, tenant=stage.tenant) == "requeued"
    assert do(stage, "requeue", task, tenant=stage.tenant) == "already"
    assert len(stage.tick()) == 1 and stage.row(task)["attempts_used"] == 1


def test_a_verb_on_anothers_task_finds_none(stage: Stage) -> None:
    (task,) = stage.submit()
    other = stage.add_tenant("other")
    for name in operate.VERBS:
        more = {"priority": 3} if name == "priority" else {}
        with pytest.raises(NotFound):
            do(stage, name, task, tenant=other, **more)
    with pytest.raises(Invalid, match="reason"):
        operate.cancel(stage.connection, public(stage, task), tenant=None, actor="me", reason="a\nb")


@pytest.mark.parametrize(("one", "other"), [("pause", "resume"), ("cancel", "pause"), ("cancel", "priority")])
def test_two_operators_with_opposite_verbs_leave_each_task_legal_and_both_in_the_trace(
    stage: Stage, one: str, other: str
) -> None:
    """While a dispatcher and a worker go on: released, claimed and waiting tasks are all hit."""
    session = stage.add_session({"tool_read": 30})
    tasks = stage.submit("noop.sleep", n=90)
    names = {task: public(stage, task) for task in tasks}
    start = threading.Barrier(3)
    errors: list[Exception] = []
    acted: list[tuple[int, str]] = []

    def operator(name: str, order: list[int]) -> None:
        with stage.open() as connection:
            start.wait()
            for task in order:
                more = {"priority": 0} if name == "priority" else {}
                try:
                    done = operate.VERBS[name].run(connection, names[task], tenant=None, actor=name, **more)
                    if done.outcome != "already":
                        acted.append((task, name))
                except Conflict:
                    pass
                except Exception as error:  # noqa: BLE001  # what a thread raises must be seen
                    errors.append(error)

    shuffled = random.Random(7)
    threads = [
        threading.Thread(target=operator, args=(name, shuffled.sample(tasks, len(tasks)))) for name in (one, other)
    ]
    [thread.start() for thread in threads]  # type: ignore[func-returns-value]
    start.wait()
    while any(thread.is_alive() for thread in threads):
        for at, message in enumerate(stage.tick()):
            if at % 2:
                stage.claim(message, session)
    [thread.join() for thread in threads]  # type: ignore[func-returns-value]
    assert errors == []
    for task in tasks:
        row, events = stage.row(task), stage.events(task)
        assert len(events) == row["event_no"], "each change left its event"
        assert row["holds"] == (["operator"] if row["state"] == "paused" else [])
        if one == "cancel":
            assert row["state"] == "cancelled" or (row["state"] == "running" and row["want"] == "cancel")
    traced = stage.connection.execute(
        "SELECT task_id, actor FROM event WHERE actor IN (%s, %s)", (one, other)
    ).fetchall()
    assert sorted(traced) == sorted(acted) and {name for _, name in acted} == {one, other}
    assert (
        stage.one("SELECT count(*) FROM lease_member m JOIN task t ON t.id = m.task_id WHERE t.state = 'paused'") == 0
    )
    assert orphans(stage) == 0


def test_a_filter_that_matches_nothing_says_so_and_an_empty_one_is_refused(stage: Stage) -> None:
    where = operate.Filter(kind="noop")
    assert operate.preview(stage.connection, "cancel", where, tenant=None).matching == 0
    assert operate.bulk(stage.connection, "cancel", where, tenant=None, actor="me").matched == 0
    for wrong in (operate.Filter(), operate.Filter(tag="x")):
        with pytest.raises(Invalid):
            operate.bulk(stage.connection, "cancel", wrong, tenant=None, actor="me")
    with pytest.raises(Invalid):
        operate.bulk(stage.connection, "cancel", operate.Filter(tenant=1), tenant=stage.tenant, actor="me")
    with pytest.raises(Invalid, match="verb"):
        operate.bulk(stage.connection, "explode", where, tenant=None, actor="me")
    with pytest.raises(Invalid, match="priority"):
        operate.bulk(stage.connection, "priority", where, tenant=None, actor="me")


@pytest.mark.parametrize(
    ("name", "where"), [("pool", operate.Filter(pool="gone")), ("kind", operate.Filter(kind="gone"))]
)
def test_a_pool_or_kind_that_is_not_there_is_told_unless_tasks_of_it_are(
    stage: Stage, name: str, where: operate.Filter
) -> None:
    for ask in (
        lambda: operate.preview(stage.connection, "cancel", where, tenant=None),
        lambda: operate.bulk(stage.connection, "cancel", where, tenant=None, actor="me"),
    ):
        with pytest.raises(Invalid, match="there is no 'gone'") as told:
            ask()
        assert told.value.field == name
    (task,) = stage.submit()
    stage.connection.execute(f"UPDATE task SET {name} = 'gone' WHERE id = %s", (task,))
    assert operate.bulk(stage.connection, "cancel", where, tenant=None, actor="me").done == {"cancelled": 1}


def test_a_bulk_verb_reaches_what_its_filter_names_and_nothing_else(stage: Stage) -> None:
    other = stage.add_tenant("other")
    run = insert_run(stage.connection, public_id=uuid.uuid4(), tenant=stage.tenant, name="", size=3, fanout_cap=None)
    run_id = stage.one("SELECT public_id FROM run WHERE id = %s", run)
    in_run = stage.submit(n=3, run=run)
    tagged = stage.submit(n=2, marks='{"tags": ["red"], "terms": ["#red"], "title": ""}')
    low = stage.submit(n=2, priority=3)
    theirs = stage.submit(n=2, tenant=other, priority=3)
    with stage.open("web") as web:
        assert not operate.bulk(web, "pause", operate.Filter(run=run_id), tenant=stage.tenant, actor="k").refused
        with pytest.raises(NotFound):
            operate.bulk(web, "pause", operate.Filter(run=run_id), tenant=other, actor="k")
        done = operate.bulk(web, "pause", operate.Filter(priority=3), tenant=stage.tenant, actor="k")
        assert done.done == {"paused": 2}
        done = operate.bulk(web, "pause", operate.Filter(tag="red"), tenant=stage.tenant, actor="k")
        assert done.done == {"paused": 2}
    assert {stage.state(task) for task in (*in_run, *tagged, *low)} == {"paused"}
    assert {stage.state(task) for task in theirs} == {"queued"}
    seen = operate.preview(stage.connection, "cancel", operate.Filter(priority=3), tenant=None)
    assert seen.by_state == {"paused": 2, "queued": 2}
    done = operate.bulk(stage.connection, "resume", operate.Filter(tenant=stage.tenant), tenant=None, actor="op")
    assert done.refused == {"it is held by the tenant, not by you": 7}


def test_a_broken_off_bulk_verb_goes_on_where_it_stopped(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH", 10)
    stage.submit(n=35)
    stops = iter([False, False, True])
    first = operate.bulk(
        stage.connection,
        "pause",
        operate.Filter(tenant=stage.tenant),
        tenant=None,
        actor="me",
        stop=lambda: next(stops),
    )
    assert (first.matched, first.done, first.stopped) == (20, {"paused": 20}, "stopped") and first.next is not None
    rest = operate.bulk(
        stage.connection, "pause", operate.Filter(tenant=stage.tenant), tenant=None, actor="me", after=first.next
    )
    assert (rest.matched, rest.next, rest.stopped) == (15, None, "")


def test_a_locked_row_keeps_a_bulk_verb_from_none_of_the_others_and_is_told(stage: Stage) -> None:
    leased, *_ = stage.submit(n=6)
    stage.add_session({"db": 2})
    stage.tick()
    locked, *others = stage.submit(n=6)
    lease = stage.one("SELECT lease_id FROM lease_member WHERE task_id = %s", leased)
    with stage.open() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM lease WHERE id = %s FOR UPDATE", (lease,))
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (locked,))
        began_s = time.monotonic()
        done = operate.bulk(
            stage.connection,
            "pause",
            operate.Filter(tenant=stage.tenant),
            tenant=None,
            actor="me",
            reason="maintenance",
        )
        took_s = time.monotonic() - began_s
        other.execute("ROLLBACK")
    kept = {locked, leased}
    assert (done.matched, done.next, done.stopped) == (12, None, "")
    assert done.done == {"paused": 12 - len(kept)}
    assert done.refused == {"someone else has it locked; try again": len(kept)}
    assert {stage.state(task) for task in kept} == {"queued"}
    assert {stage.state(task) for task in others} == {"paused"}
    assert took_s < 3.0, "it waited for no lock"


def test_what_was_locked_for_a_moment_is_done_after_the_others(stage: Stage) -> None:
    first, *rest = stage.submit(n=4)
    with stage.open() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM task WHERE id = %s FOR UPDATE", (first,))

        def let_go(_: operate.Tally) -> None:
            other.execute("ROLLBACK")

        done = operate.bulk(
            stage.connection, "pause", operate.Filter(tenant=stage.tenant), tenant=None, actor="me", say=let_go
        )
    assert (done.done, done.refused) == ({"paused": 4}, {})
    assert {stage.state(task) for task in (first, *rest)} == {"paused"}


def test_a_bulk_verb_over_a_hundred_thousand_tasks_keeps_no_release_waiting(stage: Stage) -> None:
    """Its batches lock for milliseconds: the worst tick beside it is bounded, and so is the longest transaction."""
    stage.add_session({"db": 16})
    stage.connection.execute(
        "INSERT INTO task (tenant_id, kind, version, pool, priority, state, ready) "
        "SELECT %s, 'noop.single', 1, 'db', 3, 'queued', true FROM generate_series(1, 100000)",
        (stage.tenant,),
    )
    flows.scan(stage.connection)
    seen = operate.preview(stage.connection, "pause", operate.Filter(pool="db"), tenant=None)
    assert (seen.matching, seen.more) == (100_000, False)
    result: list[operate.Tally] = []

    def act() -> None:
        with stage.open() as connection:
            where = operate.Filter(pool="db", priority=3)
            result.append(operate.bulk(connection, "cancel", where, tenant=None, actor="me", reason="too many"))

    thread = threading.Thread(target=act)
    ticks_s: list[float] = []
    longest_s = 0.0
    stage.connection.execute("UPDATE tenant SET cap = 1000000")
    thread.start()
    with psycopg.connect(stage.url, autocommit=True) as watching:  # roles don't see each other's transactions
        while thread.is_alive():
            began_s = time.monotonic()
            stage.tick()
            ticks_s.append(time.monotonic() - began_s)
            stage.connection.execute("DELETE FROM lease_member")
            stage.connection.execute("DELETE FROM lease")
            row = watching.execute(
                "SELECT max(extract(epoch FROM clock_timestamp() - xact_start))::float FROM pg_stat_activity "
                "WHERE application_name = 'test-other' AND state <> 'idle' AND pid <> pg_backend_pid() "
                "AND datname = current_database()"
            ).fetchone()
            longest_s = max(longest_s, (row[0] if row else None) or 0.0)
            thread.join(0.02)
    (done,) = result
    assert done.matched == 100_000 and done.stopped == ""
    assert done.done["cancelled"] == 100_000
    ticks_s.sort()
    figures = f"p95 {ticks_s[int(len(ticks_s) * 0.95)]:.3f} s, worst {ticks_s[-1]:.3f} s, transaction {longest_s:.3f} s"
    assert ticks_s[-1] < 1.0 and longest_s < 3.0, figures
    assert ticks_s[int(len(ticks_s) * 0.95)] < 0.3, figures
