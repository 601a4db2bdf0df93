"""Real processes: towards a downstream that asked for peace nothing is released, and all else of the pool goes on."""

import redis
from django.conf import settings

from harness.policy.permits import Ask, Granted, Report, Want
from harness.policy.resources import Live
from harness.store.permits import Permits
from tests.route.conftest import Route
from tests.stage import wait_until

BLOCKED = "rag:search"
EACH = 40


def block(route: Route) -> None:
    """As if a worker's call had been answered by 429 with a Retry-After of ten minutes."""
    live = {name: Live(resource=one) for name, one in settings.HARNESS_TOPOLOGY.resources.items()}
    permits = Permits(route.environment["BROKER_URL"], lambda: live)
    ask = Ask(member="1:1:1", tenant=1, priority=2, calls_done=0, since_s=0.0, wants=(Want(BLOCKED),), waits=False)
    granted = permits.acquire(ask)
    assert isinstance(granted, Granted)
    permits.finish(granted, Report(outcome="drop", retry_after_s=600.0))
    permits.close()


def test_a_blocked_downstream_costs_its_tasks_no_release_and_others_no_time(route: Route) -> None:
    block(route)
    route.dispatcher()
    route.worker("db")
    held = route.stage.submit("rag.search", n=EACH, priority=1, input='{"query": "anything"}')
    route.stage.submit("noop.single", n=EACH)
    wait_until(lambda: route.count("succeeded") == EACH, within_s=30)
    assert route.stage.one("SELECT sum(release_no + attempts_used) FROM task WHERE id = ANY(%s)", held) == 0
    noted = "SELECT count(*) FROM wait_reason WHERE code = 'blocked' AND subject = %s AND until IS NULL"
    wait_until(lambda: route.stage.one(noted, BLOCKED) == 1, within_s=10)
    with redis.Redis.from_url(route.environment["BROKER_URL"]) as client:
        client.flushdb()  # nobody knows of the block any more
    wait_until(lambda: route.count("succeeded") == 2 * EACH, within_s=30)
    assert route.stage.one("SELECT max(attempts_used) FROM task") == 0
