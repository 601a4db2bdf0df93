"""What the sweep has to wait for is nobody else's wait: releases go on beside it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from harness.store import transitions
from harness.store.message import Message
from tests.recovery.conftest import Ward
from tests.stage import wait_until

SOON_S = 2.0  # from submit to success of work that takes no time, on a busy machine
HELD_S = 7.0  # longer than the leader's TTL and any lock_timeout


@contextmanager
def locked(ward: Ward, *statements: str) -> Iterator[None]:
    """Hold the locks that these statements take, as an operator's forgotten psql would."""
    with psycopg.connect(ward.stage.url) as other:
        for statement in statements:
            assert other.execute(statement.encode()).rowcount >= 1
        yield
        other.rollback()


def lost_tasks(ward: Ward, n: int) -> list[int]:
    """Tasks that run on a session which has long been silent."""
    stage = ward.stage
    session = stage.add_session({"tool_read": n})
    stage.connection.execute("UPDATE tenant SET cap = 100000")
    stage.connection.execute("UPDATE leader SET until = clock_timestamp() + interval '1 hour', epoch = epoch + 1")
    stage.epoch = stage.one("SELECT epoch FROM leader")
    tasks = stage.submit("noop.sleep", n=n, input='{"sleep_s": 0}')
    messages: list[Message] = []
    while len(messages) < n:
        messages += stage.tick()
    leases = [(message.lease, message.token) for message in messages]
    for start in range(0, n, 100):
        transitions.claim_many(
            stage.connection, leases[start : start + 100], session=session, pid=1, actor="a worker that is gone"
        )
    assert ward.count("running") == n
    stage.forget_beats(session)
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    return tasks


def releases_go_on(ward: Ward, *, for_s: float = HELD_S) -> int:
    """Submit a task again and again; each is done soon. Returns how many."""
    until_s, n = time.monotonic() + for_s, 0
    while time.monotonic() < until_s:
        (task,) = ward.stage.submit("noop.single")
        wait_until(lambda task=task: ward.stage.state(task) == "succeeded", within_s=SOON_S)
        n += 1
        time.sleep(0.2)  # a steady trickle, not a flood
    return n


LOCKS = (
    "SELECT FROM task WHERE id = (SELECT min(task_id) FROM lease_member) FOR UPDATE",
    "SELECT FROM lease WHERE id = (SELECT max(id) FROM lease) FOR UPDATE",
    "SELECT FROM estimate FOR UPDATE",
    "SELECT FROM tenant FOR UPDATE",
    "SELECT FROM task WHERE id = (SELECT max(id) FROM task) FOR UPDATE",
)


def test_rows_that_somebody_has_locked_stop_neither_releases_nor_the_recovery_of_other_tasks(ward: Ward) -> None:
    """A lost task, a lost lease, an estimate, the tenant, and a task that waits: all of them for 7 s."""
    stage = ward.stage
    stage.connection.execute("INSERT INTO estimate (kind, mean_s) VALUES ('noop.single', 0.001)")
    tasks = lost_tasks(ward, 6)
    (waits,) = stage.submit("noop.single")
    ward.worker("db")
    with locked(ward, *LOCKS):
        first = ward.dispatcher()
        wait_until(lambda: ward.leads(first), within_s=15)
        epoch = ward.leader()[1]
        releases_go_on(ward)
        assert ward.leads(first) and ward.leader()[1] == epoch
        assert ward.count("running") == 2
        assert stage.state(waits) == "queued"
    wait_until(lambda: ward.count("running") == 0 and stage.state(waits) == "succeeded", within_s=5)
    assert ward.leader()[1] == epoch
    assert {tuple(stage.events(task)) for task in tasks} == {("submit", "claim", "lose")}


def test_three_thousand_lost_leases_are_taken_back_in_seconds_beside_the_releases(ward: Ward) -> None:
    tasks = lost_tasks(ward, 3000)
    ward.worker("db")
    ward.dispatcher()
    began_s = time.monotonic()
    (first,) = ward.stage.submit("noop.single")
    wait_until(lambda: ward.stage.state(first) == "succeeded", within_s=15)
    releases_go_on(ward, for_s=3)
    wait_until(lambda: ward.count("running") == 0, within_s=20)
    assert time.monotonic() - began_s < 40  # some 6 s on an idle machine
    assert ward.count("queued") == len(tasks)
