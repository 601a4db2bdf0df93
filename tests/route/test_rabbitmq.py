"""The route over RabbitMQ instead of Redis: late acknowledgement, as many messages as slots, nothing lost."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.route.conftest import Route
from tests.route.rabbitmq import MISSING, RabbitMQ, available
from tests.stage import wait_until

pytestmark = pytest.mark.skipif(not available(), reason=MISSING)

TEXTS = '{"texts": [{"id": "a", "text": "one text"}, {"id": "b", "text": "another text"}]}'
SLOTS = {"tool_read": 8, "cpu": 2}  # of one worker: threads, prefork


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), consumer_timeout_s=3600)
    yield server
    server.close()


@dataclass
class Hall:
    """A virtual host of its own, and the route through it."""

    server: RabbitMQ
    host: str
    route: Route

    def counts(self, pool: str) -> tuple[int, int]:
        return self.server.counts(self.host, f"{pool}.")


@pytest.fixture
def hall(rabbitmq: RabbitMQ, route: Route) -> Hall:
    host = uuid.uuid4().hex
    route.environment |= {"BROKER_URL": rabbitmq.add_host(host), "HARNESS_CONSUMER_TIMEOUT_S": "3600"}
    return Hall(rabbitmq, host, route)


def test_threads_and_prefork_do_their_work_through_rabbitmq(hall: Hall) -> None:
    route = hall.route
    route.dispatcher()
    route.worker("db")
    route.worker("cpu")
    bundled = route.stage.submit("noop", n=200)
    single = route.stage.submit("noop.single", n=40)
    compared = route.stage.submit("cpu.similar", n=6, input=TEXTS)
    wait_until(lambda: route.count("succeeded") == 246, within_s=40)
    for task in (bundled[0], single[0], compared[0]):
        assert route.stage.events(task) == ["submit", "claim", "succeed"]
    assert route.stage.one("SELECT max(attempts_used) + max(lost_starts) FROM task") == 0
    wait_until(lambda: hall.counts("db") == hall.counts("cpu") == (0, 0), within_s=5)


def test_a_worker_on_rabbitmq_holds_exactly_its_slots(hall: Hall) -> None:
    route = hall.route
    route.worker("tool_read")
    # A session without a process: the dispatcher releases twice what the worker has slots for.
    route.stage.add_session({"tool_read": SLOTS["tool_read"]})
    route.stage.submit("noop.sleep", n=40, input='{"sleep_s": 60}')
    route.dispatcher()
    wait_until(lambda: hall.counts("tool_read") == (SLOTS["tool_read"], SLOTS["tool_read"]), within_s=9)
    assert route.count("running") == SLOTS["tool_read"]


def test_a_killed_worker_on_rabbitmq_loses_no_task(hall: Hall) -> None:
    route = hall.route
    route.dispatcher()
    worker = route.worker("tool_read")
    tasks = route.stage.submit("noop.sleep", n=8, input='{"sleep_s": 8}')
    wait_until(lambda: route.count("running") == 8, within_s=15)
    assert hall.counts("tool_read") == (0, 8)
    worker.kill()
    worker.wait()
    route.worker("tool_read")
    wait_until(lambda: route.count("succeeded") == 8, within_s=60)
    for task in tasks:
        assert route.stage.events(task) == ["submit", "claim", "lose", "claim", "succeed"]
        assert (route.stage.row(task)["lost_starts"], route.stage.row(task)["attempts_used"]) == (1, 0)
    wait_until(lambda: hall.counts("tool_read") == (0, 0), within_s=5)


def test_a_worker_cut_off_from_rabbitmq_works_on_and_holds_no_more_than_its_slots(hall: Hall) -> None:
    route = hall.route
    route.worker("tool_read")
    tasks = route.stage.submit("noop.sleep", n=24, input='{"sleep_s": 4}')
    route.dispatcher()
    wait_until(lambda: hall.counts("tool_read") == (0, 8), within_s=10)
    hall.server.close_connections(hall.host)
    held = []

    def all_done() -> bool:
        held.append(hall.counts("tool_read")[1])
        return route.count("succeeded") == len(tasks)

    wait_until(all_done, within_s=40)
    assert max(held) == SLOTS["tool_read"]
    assert all(route.stage.events(task) == ["submit", "claim", "succeed"] for task in tasks)
    wait_until(lambda: hall.counts("tool_read") == (0, 0), within_s=5)


def test_a_hint_sent_before_a_worker_ever_came_waits_for_it_in_rabbitmq(hall: Hall) -> None:
    route = hall.route
    route.stage.add_session({"tool_read": 2})
    route.stage.submit("noop.sleep", n=2, input='{"sleep_s": 0}')
    route.dispatcher()
    wait_until(lambda: route.stage.one("SELECT count(*) FROM lease") == 2, within_s=10)
    wait_until(lambda: hall.counts("tool_read") == (2, 0), within_s=5)


def test_a_worker_refuses_to_start_where_rabbitmq_would_cut_its_tasks_off(hall: Hall) -> None:
    hall.route.environment["HARNESS_CONSUMER_TIMEOUT_S"] = "900"  # noop.sleep may take 630 s, a stuck thread 300 more
    worker = hall.route.start("-m", "celery", "-A", "config", "worker", "--resource-pool", "tool_read")
    assert worker.wait(30) == 78
    said = (hall.route.folder / "0.log").read_text()
    assert "Traceback" not in said and said.count("\n") == 1
    assert "for longer than consumer_timeout, and here that may be 930 s" in said
    assert "raise consumer_timeout in rabbitmq.conf" in said and "now 900, 1800 is RabbitMQ's own default" in said
    del hall.route.environment["HARNESS_CONSUMER_TIMEOUT_S"]
    hall.route.worker("tool_read")
