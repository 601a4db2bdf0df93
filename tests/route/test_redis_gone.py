"""Redis loses what it held, or is away: it only carries what the database knows."""

import signal
from pathlib import Path

import redis

from harness.store import keys
from tests.own_redis import OwnRedis
from tests.route.conftest import Route
from tests.stage import wait_until
from tests.web.conftest import Api, start_web

ROUNDS = 2
EACH = 60  # tasks a round: more than the slots


def test_an_emptied_redis_loses_no_task(route: Route) -> None:
    dispatcher = route.dispatcher()
    worker = route.worker("db")
    wait_until(lambda: route.leads(dispatcher), within_s=15)
    with redis.Redis.from_url(route.environment["BROKER_URL"]) as client:
        for number in range(1, ROUNDS + 1):
            worker.send_signal(signal.SIGSTOP)
            # What it has asked for is still handed to it; after that, what is published waits in Redis.
            wait_until(lambda: client.info("clients")["blocked_clients"] == 0, within_s=10)
            route.stage.submit("noop.single", n=EACH)
            wait_until(lambda: client.llen("db.p2") > 1, within_s=10)
            client.flushdb()
            worker.send_signal(signal.SIGCONT)
            wait_until(lambda n=number: route.count("succeeded") == n * EACH, within_s=40)
    assert route.stage.one("SELECT count(*) FROM task WHERE release_no > 1") > 0, "their message was among the lost"
    assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0
    assert route.stage.one("SELECT count(*) FROM attempt") == ROUNDS * EACH


def test_what_is_accepted_while_redis_is_down_runs_when_it_is_back(
    route: Route, own_broker: OwnRedis, root: Path, tmp_path: Path
) -> None:
    route.environment["BROKER_URL"] = own_broker.url
    dispatcher = route.dispatcher()
    route.worker("db")
    wait_until(lambda: route.leads(dispatcher), within_s=15)
    web = start_web(root, tmp_path / "web.log", {"BROKER_URL": own_broker.url})
    try:
        keys.create_tenant("alpha")
        api = Api(web, "alpha", keys.create_key("alpha"))
        own_broker.stop()
        answers = [api.submit("noop.single") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [202] * 5
        # A release that can't be published is taken back at once.
        wait_until(lambda: route.stage.one("SELECT min(release_no) FROM task") > 0, within_s=10)
        assert (route.count("queued"), route.count("succeeded")) == (5, 0)
        own_broker.start()
        wait_until(lambda: route.count("succeeded") == 5, within_s=30)
        api.http.close()
    finally:
        web.stop()
    assert route.stage.one("SELECT max(attempts_used + lost_starts) FROM task") == 0
    for (task,) in route.stage.connection.execute("SELECT id FROM task").fetchall():
        assert route.stage.events(task) == ["submit", "claim", "succeed"]
