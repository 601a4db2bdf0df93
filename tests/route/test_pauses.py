"""Pauses of pressure with real processes: within two seconds everywhere, whatever is restarted; caps halve at once."""

import signal
import time
import uuid
from pathlib import Path

import redis

from harness.policy.pressure import Level
from harness.store import pauses
from harness.store.backlog import insert_run
from harness.store.broker import Broker
from harness.store.message import Message
from tests.engine.test_pressure import fail, set_level
from tests.engine.test_pressure_pauses import ours
from tests.own_redis import OwnRedis
from tests.route.conftest import Route
from tests.route.test_pressure import beat, level
from tests.stage import wait_until

REACHES_S = 2.0
KEY = "tool_read.p3"


def put(route: Route, *keys: str, seconds: float = 600.0) -> float:
    """Pause queues as an evaluation does; return when."""
    pauses.put_for(
        route.stage.connection,
        scope="pool_priority",
        keys=keys,
        source="pressure",
        author="pressure",
        reason="test",
        seconds=seconds,
    )
    return time.monotonic()


def told(route: Route, number: int) -> int:
    """How often a process has said that its queues changed."""
    return (route.folder / f"{number}.log").read_text().count("queues_changed")


def send(route: Route, queue: str) -> None:
    """A hint that nobody needs: who consumes the queue takes it, and throws it away."""
    broker = Broker(route.environment["BROKER_URL"])
    broker.publish([Message(queue=queue, kind="noop.single", lease=987_654, token=1, time_limits_s=None)])
    broker.close()


def is_consumed(route: Route, queue: str, *, within_s: float = 1.5) -> bool:
    """Whether a worker takes what is in a queue."""
    with redis.Redis.from_url(route.environment["BROKER_URL"]) as client:
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            if client.llen(queue) == 0:
                return True
            time.sleep(0.05)
    return False


def test_a_pause_reaches_every_worker_within_two_seconds_and_so_does_its_end(route: Route) -> None:
    pools = ("tool_read", "tool_read", "llm", "db")
    route.workers(*pools)
    keys = tuple(f"{pool}.p3" for pool in sorted(set(pools)))
    took_s = []
    for turn in range(1, 5):
        if turn % 2:
            began_s = put(route, *keys)
        else:
            for key in keys:
                pauses.end(route.stage.connection, scope="pool_priority", key=key, source="pressure", by="pressure")
            began_s = time.monotonic()
        for number in range(len(pools)):
            wait_until(lambda number=number, turn=turn: told(route, number) >= turn, within_s=10)
        took_s.append(time.monotonic() - began_s)
    assert max(took_s) <= REACHES_S, took_s
    began_s = put(route, KEY)
    wait_until(lambda: all(told(route, number) >= 5 for number in (0, 1)), within_s=10)
    # A poll of the broker that is under way still takes what comes meanwhile: after the two seconds none is.
    wait_until(lambda: time.monotonic() - began_s >= REACHES_S, within_s=REACHES_S)
    send(route, KEY)
    assert not is_consumed(route, KEY)
    send(route, "llm.p3")
    assert is_consumed(route, "llm.p3")


def test_a_pause_outlives_workers_dispatcher_beat_and_redis(route: Route, own_broker: OwnRedis, tmp_path: Path) -> None:
    route.environment["BROKER_URL"] = own_broker.url
    workers = route.workers("system", "tool_read")
    beating = beat(route, tmp_path)
    dispatcher = route.dispatcher()
    # Most calls fail, whatever succeeds meanwhile, and P1 has more work than slots: critical; the beat pauses P3.
    fail(route.stage, 800, of=1000)
    route.stage.submit("noop.sleep", n=400, priority=1, input='{"sleep_s": 1}')
    wait_until(lambda: level(route) is Level.CRITICAL and KEY in ours(route.stage), within_s=40)
    route.stage.submit("noop.sleep", n=3, priority=3, input='{"sleep_s": 0}')

    def stands() -> None:
        send(route, KEY)
        assert not is_consumed(route, KEY)
        send(route, "tool_read.p2")
        assert is_consumed(route, "tool_read.p2", within_s=20), "the others are served"
        assert (
            route.stage.one(
                "SELECT count(*) FROM event WHERE event = 'claim' AND task_id IN "
                "(SELECT id FROM task WHERE priority = 3)"
            )
            == 0
        )

    wait_until(lambda: told(route, 1) >= 1, within_s=10)
    stands()
    workers[1].kill()
    workers[1].wait(5)
    route.worker("tool_read")
    stands()
    for process in (dispatcher, beating, workers[0]):
        process.send_signal(signal.SIGKILL)
        process.wait(5)
    before = pauses.in_force(route.stage.connection)
    second = route.dispatcher()
    wait_until(lambda: route.leads(second), within_s=20)
    stands()
    own_broker.stop()
    own_broker.start()
    stands()
    assert pauses.in_force(route.stage.connection) == before, "nobody evaluates, and it is as it was"


def test_at_high_a_run_starts_half_as_much_from_the_next_tick_on(route: Route) -> None:
    connection = route.stage.connection
    set_level(route.stage, Level.NORMAL)
    route.dispatcher()
    route.worker("tool_read")
    run = insert_run(connection, public_id=uuid.uuid4(), tenant=route.stage.tenant, name="", size=400, fanout_cap=6)
    route.stage.submit("noop.sleep", n=400, run=run, input='{"sleep_s": 0.4}')
    wait_until(lambda: route.count("succeeded") >= 12, within_s=30)
    assert seen(route, 4.0)[1] == 6
    whole_s = seen(route, 4.0)[0]
    set_level(route.stage, Level.HIGH)
    time.sleep(0.75)  # one tick, and what runs ends
    halved_s, most = seen(route, 4.0)
    assert most == 3
    assert 0.35 < halved_s / whole_s < 0.65
    set_level(route.stage, Level.NORMAL)
    time.sleep(0.5)
    assert seen(route, 2.0)[1] == 6


def seen(route: Route, seconds: float) -> tuple[float, int]:
    """Return how many tasks started a second, and how many were in flight at most."""
    started = "SELECT count(*) FROM event WHERE event = 'claim'"
    before, began_s, most = int(route.stage.one(started)), time.monotonic(), 0
    while time.monotonic() < began_s + seconds:
        most = max(most, int(route.stage.one("SELECT count(*) FROM lease_member")))
        time.sleep(0.02)
    return (int(route.stage.one(started)) - before) / (time.monotonic() - began_s), most
