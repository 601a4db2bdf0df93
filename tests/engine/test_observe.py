"""What Redis knows of resources is kept in PostgreSQL: once, also when two are at it or one dies half-way."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis
from django.conf import settings

from harness.engine import observe, operate
from harness.engine.pressure import ONCE
from harness.policy.resources import Resource
from harness.store import pressure, resources
from harness.store.permits import Permits
from tests.engine.downstreams import LLM, Downstreams
from tests.stage import Stage

CONFIGURED = {
    **settings.HARNESS_TOPOLOGY.resources,
    LLM: Resource(name=LLM, held="call", capacity=50, limiter="csl", start=20),
}


@pytest.fixture
def downstreams(stage: Stage, broker_url: str) -> Iterator[Downstreams]:
    found = Downstreams(stage, broker_url, CONFIGURED)
    yield found
    found.permits.close()


def kept(downstreams: Downstreams) -> observe.Observed:
    downstreams.look()
    return observe.keep(downstreams.stage.connection, CONFIGURED, downstreams.readings.live, downstreams.permits)


def changes(stage: Stage) -> list[tuple[str, int | None, int, str]]:
    return [(one.resource, one.old, one.new, one.reason) for one in resources.changes(stage.connection, most=100)]


def test_states_and_changes_are_kept_and_a_change_only_once(stage: Stage, downstreams: Downstreams) -> None:
    downstreams.call(1)
    downstreams.fail()
    first = kept(downstreams)
    assert not first.skipped and not first.away
    assert first.states == len([one for one in CONFIGURED.values() if one.held == "call"])
    state = resources.kept(stage.connection)[LLM]
    assert (state.breaker, state.in_flight) == ("open", 1)
    assert state.breaker_until_s is not None and state.seen_s is not None
    told = changes(stage)
    assert (LLM, "breaker_opened") in [(resource, reason) for resource, _, _, reason in told]
    assert first.changes == len(told)
    assert downstreams.permits.changes() == []
    assert kept(downstreams).changes == 0 and changes(stage) == told


def test_who_dies_between_the_commit_and_redis_makes_nobody_write_a_change_again(
    stage: Stage, downstreams: Downstreams
) -> None:
    class Dies(Permits):
        def kept(self, last_id: str) -> None:
            raise ConnectionError(last_id)

    downstreams.fail()
    dies = Dies(settings.BROKER_URL, downstreams.readings.effective)
    with pytest.raises(ConnectionError):
        observe.keep(stage.connection, CONFIGURED, downstreams.readings.live, dies)
    dies.close()
    told = changes(stage)
    assert told and downstreams.permits.changes()
    assert kept(downstreams).changes == 0
    assert changes(stage) == told and downstreams.permits.changes() == []


def test_two_at_once_do_it_once(stage: Stage, downstreams: Downstreams) -> None:
    downstreams.fail()
    with stage.open() as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(%s)", (ONCE,))
        assert kept(downstreams).skipped
        assert changes(stage) == [] and resources.kept(stage.connection) == {}
    assert not kept(downstreams).skipped and changes(stage)


def test_while_redis_is_away_the_last_values_hold_and_overrides_still_end(
    stage: Stage, downstreams: Downstreams
) -> None:
    downstreams.call(1)
    kept(downstreams)
    before = resources.kept(stage.connection)
    with stage.open() as connection:
        operate.set_resource(
            connection,
            LLM,
            {"capacity": 9},
            actor="jo",
            reason="test",
            until=datetime.now(UTC) + timedelta(hours=1),
        )
    stage.connection.execute("UPDATE override SET until = clock_timestamp() - interval '1 second'")
    gone = Permits("redis://127.0.0.1:1/0", downstreams.readings.effective)
    found = observe.keep(stage.connection, CONFIGURED, downstreams.readings.live, gone)
    gone.close()
    assert found == observe.Observed(away=True, overrides_over=1)
    assert resources.kept(stage.connection) == before
    assert stage.one("SELECT count(*) FROM override WHERE ended_at IS NULL") == 0


def test_what_was_proven_outlives_an_empty_redis(stage: Stage, downstreams: Downstreams) -> None:
    stage.connection.execute(
        "INSERT INTO resource_state (resource, limit_now, proven, mode, breaker, in_flight, waiting, seen_at) "
        "VALUES (%s, 40, 40, 'hold', 'closed', 0, 0, clock_timestamp())",
        (LLM,),
    )
    with redis.Redis.from_url(settings.BROKER_URL) as client:
        client.flushdb()
    outlook = downstreams.look()
    assert outlook.readings[LLM].limit == 20  # half of what is proven
    kept(downstreams)
    assert resources.kept(stage.connection)[LLM].proven in (20, 40)


def test_the_task_of_the_beat_keeps_what_is_so(stage: Stage, broker_url: str) -> None:
    from harness.worker.tasks import observe as task

    task.run()
    assert resources.kept(stage.connection).keys() == {
        name for name, one in settings.HARNESS_TOPOLOGY.resources.items() if one.held == "call"
    }
    level = pressure.now(stage.connection)
    assert level is not None and level.now_s - level.seen_s < 30


def test_the_beat_comes_every_five_seconds_to_the_pool_system() -> None:
    from config.celery import app

    entry = app.conf.beat_schedule["observe"]
    assert (entry["task"], entry["schedule"], entry["options"]["queue"]) == ("harness.observe", 5.0, "system")
    assert entry["options"]["expires"] <= 5.0, "rounds that nobody took don't pile up"
