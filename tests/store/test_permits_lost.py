"""Redis is emptied or away, or a worker dies: permits are never more than before, and none is lost for long."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from harness.policy.permits import PREFIX, Granted, Refused
from harness.store.permits import Permits
from tests.own_redis import OwnRedis, own_redis
from tests.stage import wait_until
from tests.store.permit_cast import SUCCESS, Resources, ask, granted, most_at_once, process

CAPACITY = 12
PROCESSES = 4
THREADS = 6  # of each process: twice what may be under way


@pytest.fixture
def own() -> Iterator[OwnRedis]:
    with own_redis() as own:
        yield own


def empty(own: OwnRedis) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.flushall()


class Callers:
    """Real processes that call one resource as fast as they are let."""

    def __init__(self, own: OwnRedis, root: Path, folder: Path, call_s: float, **values: Any) -> None:
        self.outputs = [folder / f"{number}.json" for number in range(PROCESSES)]
        head = [sys.executable, "-m", "tests.store.permit_process", own.url, json.dumps(values)]
        self.processes = [
            subprocess.Popen([*head, str(THREADS), str(call_s), str(output)], stdin=subprocess.PIPE, cwd=root)
            for output in self.outputs
        ]

    def stop(self) -> list[tuple[float, float]]:
        for one in self.processes:
            one.communicate(timeout=20)
        return [(began, ended) for output in self.outputs for began, ended in json.loads(output.read_text())]


def in_flight(own: OwnRedis) -> int:
    with redis.Redis.from_url(own.url) as client:
        return int(client.zcard(f"{PREFIX}llm:held"))


def test_an_emptied_redis_lets_no_more_in_than_before_and_learns_what_runs(
    own: OwnRedis, root: Path, tmp_path: Path
) -> None:
    callers = Callers(own, root, tmp_path, 1.0, capacity=CAPACITY)
    wait_until(lambda: in_flight(own) == CAPACITY, within_s=15)
    emptied = []
    for _ in range(3):
        time.sleep(0.7)  # in the middle of calls
        empty(own)
        emptied.append(time.monotonic())
    time.sleep(2.0)
    calls = callers.stop()
    assert most_at_once(calls) <= CAPACITY + 1
    for moment in emptied:
        running = sum(1 for began, ended in calls if began < moment < ended)
        assert CAPACITY - 2 <= running <= CAPACITY + 1
    assert sum(1 for began, _ in calls if emptied[-1] < began < emptied[-1] + 2.0) >= CAPACITY / 2  # it goes on


def test_an_emptied_redis_begins_at_half_of_what_was_proven(own: OwnRedis) -> None:
    resources = Resources(llm={"limiter": "csl", "capacity": 100})
    resources.proven("llm", 40)
    with process(own.url, resources) as permits:
        granted(permits, ask(1, "llm"))
        empty(own)
        granted(permits, ask(2, "llm"))
        readings = permits.read(["llm"])
    assert readings is not None
    assert (readings["llm"].limit, readings["llm"].mode, readings["llm"].in_flight) == (20, "ramp", 2)


def test_a_newcomer_after_the_loss_opens_the_door_only_little_by_little(own: OwnRedis) -> None:
    resources = Resources(llm={"capacity": 20})
    resources.proven("llm", 20)  # kept in the database: somebody may be calling
    with process(own.url, resources) as permits:
        found = [permits.acquire(ask(number, "llm")) for number in range(20)]
    let_in = [one for one in found if isinstance(one, Granted)]
    assert 1 <= len(let_in) <= 3
    last = found[-1]
    assert isinstance(last, Refused) and last.limit == "redis" and 0 < last.wait_s < 1


def local(permits: Permits, numbers: Sequence[int]) -> list[Granted]:
    found = [permits.acquire(ask(number, "llm")) for number in numbers]
    return [one for one in found if isinstance(one, Granted) and one.local]


def test_without_redis_a_process_uses_its_share_of_half_and_tells_what_runs_when_it_is_back(own: OwnRedis) -> None:
    resources = Resources(llm={"capacity": 16})
    with process(own.url, resources, processes=2) as one, process(own.url, resources, processes=2) as other:
        before = granted(one, ask(1, "llm"))
        own.stop()
        alone = local(one, range(10, 20))
        assert len(alone) == 3  # 16 / 2 / 2 = 4, and one runs already
        assert one.read(["llm"]) is None and one.changes() == ()
        found = one.acquire(ask(20, "llm"))
        assert isinstance(found, Refused) and found.limit == "redis"
        assert len(local(other, range(30, 40))) == 4
        one.finish(alone.pop(), SUCCESS)
        one.finish(before, SUCCESS)
        own.start()
        wait_until(lambda: other.read(["llm"]) is not None, within_s=10)
        wait_until(lambda: one.read(["llm"]) is not None, within_s=10)
        readings = one.read(["llm"])
        assert readings is not None and readings["llm"].in_flight == len(alone) + 4
        for grant in alone:
            one.finish(grant, SUCCESS)
        again = granted(one, ask(50, "llm"))
        assert not again.local
        readings = one.read(["llm"])
        assert readings is not None and readings["llm"].in_flight == 5


def test_no_redis_at_all_is_the_process_alone() -> None:
    with process("", Resources(llm={"capacity": 4})) as permits:
        assert len(local(permits, range(9))) == 2
        assert permits.read(["llm"]) is None
        assert permits.take_retry("llm") == 0.0
        permits.renew()
        permits.ended([(1, 1)])


def test_the_permits_of_a_killed_worker_are_free_when_its_attempts_have_ended(
    own: OwnRedis, root: Path, tmp_path: Path
) -> None:
    callers = Callers(own, root, tmp_path, 60.0, capacity=CAPACITY)
    wait_until(lambda: in_flight(own) == CAPACITY, within_s=15)
    for one in callers.processes:
        one.send_signal(signal.SIGKILL)
        one.wait()
    with process(own.url, Resources(llm={"capacity": CAPACITY})) as permits:
        assert isinstance(permits.acquire(ask(1, "llm", waits=False)), Refused)
        permits.ended([(one.pid, thread) for one in callers.processes for thread in range(THREADS)])
        readings = permits.read(["llm"])
        assert readings is not None and readings["llm"].in_flight == 0
        granted(permits, ask(1, "llm"))
    for one in callers.processes:
        assert one.stdin is not None
        one.stdin.close()
