"""The leader goes by what permits and rows say of resources: on a real Redis, real rows, and without either."""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from structlog.testing import capture_logs

from harness.engine import operate, readings
from harness.engine.readings import LATE_S, Readings
from harness.policy.outlook import Outlook
from harness.policy.permits import Report
from harness.policy.resources import Resource
from harness.store.permits import Permits
from harness.store.resources import ResourceNow, keep
from tests.engine.downstreams import LLM, Downstreams
from tests.engine.test_dispatch import add_blocked_flows
from tests.engine.watch import Watch
from tests.stage import Stage, wait_until

NOBODY = "redis://127.0.0.1:1/0"


@pytest.fixture
def downstreams(stage: Stage, broker_url: str) -> Iterator[Downstreams]:
    found = Downstreams(stage, broker_url)
    yield found
    found.permits.close()


def released(stage: Stage) -> list[int]:
    cursor = stage.connection.execute("SELECT task_id FROM lease_member ORDER BY task_id")
    return [row[0] for row in cursor]


def a_run(stage: Stage) -> int:
    return int(
        stage.one(
            "INSERT INTO run (public_id, tenant_id, size) VALUES (gen_random_uuid(), %s, 9) RETURNING id", stage.tenant
        )
    )


# -- a breaker that is open


def test_while_a_breaker_is_open_no_attempt_is_spent_and_all_else_goes_on_in_the_same_run(
    stage: Stage, downstreams: Downstreams
) -> None:
    stage.add_session({"llm": 40})
    run = a_run(stage)
    downstreams.fail()
    held = stage.submit("llm.summarize", n=3, run=run) + stage.submit("llm.summarize", priority=0)
    others = stage.submit(pool="llm", signature="", run=run, n=2)
    others += stage.submit(pool="llm", signature="tool:http=1", run=run, n=2)
    assert len(stage.tick()) == 4 and released(stage) == sorted(others)
    stage.tick()
    for task in held:
        row = stage.row(task)
        assert (row["state"], row["ready"], row["attempts_used"], row["release_no"]) == ("queued", True, 0, 0)
        assert stage.events(task) == ["submit"]


def test_five_thousand_flows_of_an_open_breaker_ranked_first_do_not_hide_the_runnable_one(
    stage: Stage, downstreams: Downstreams
) -> None:
    stage.add_session({"db": 1})
    downstreams.fail("rag:search")
    add_blocked_flows(stage, 5000)
    stage.connection.execute("UPDATE tenant SET cap = 1000")
    stage.connection.execute("UPDATE flow SET signature = 'rag:search=1'")
    stage.connection.execute("UPDATE task SET signature = 'rag:search=1', kind = 'rag.search'")
    (last,) = stage.submit(priority=1)
    stage.connection.execute(
        "INSERT INTO clock (pool, priority, tenant_id, run_id, v, at_s) VALUES ('db', 1, %s, 0, 1e6, 0)",
        (stage.tenant,),
    )
    stage.lead()
    downstreams.look()
    assert len(stage.tick()) == 1
    assert released(stage) == [last]


def test_when_a_breaker_may_be_tried_three_tasks_go_and_after_it_closed_a_tenth(
    stage: Stage, downstreams: Downstreams
) -> None:
    stage.add_session({"llm": 80})
    downstreams.fail()
    stage.submit("llm.summarize", n=70)
    assert stage.tick() == []
    downstreams.later(130.0)  # longer than the longest that it stays open
    assert len(stage.tick()) == 3
    assert stage.tick() == []
    downstreams.says(LLM, breaker="closed", breaker_until_s=0.0, limit=50, proven=50, in_flight=3, asked=3)
    assert len(stage.tick()) == 6 - 3
    downstreams.says(LLM, breaker="closed", breaker_until_s=0.0, limit=50, proven=50, in_flight=6, asked=6)
    downstreams.later(20.0)
    stage.tick()
    assert len(released(stage)) == 51


def test_a_task_that_computes_between_two_calls_lets_another_in(stage: Stage, downstreams: Downstreams) -> None:
    stage.add_session({"llm": 80})
    stage.submit("llm.summarize", n=70)
    assert len(stage.tick()) == 51
    for task in released(stage)[:4]:  # all but these still have to ask
        downstreams.permits.finish(downstreams.call(task), Report(outcome="success"))
    downstreams.look()
    assert len(stage.tick()) == 4
    downstreams.call(released(stage)[0])
    downstreams.look()
    assert stage.tick() == []


def test_p0_is_released_past_a_limit_that_others_use_up(stage: Stage, downstreams: Downstreams) -> None:
    stage.add_session({"llm": 80})
    stage.submit("llm.summarize", n=70)
    stage.tick()
    for task in released(stage)[:50]:
        downstreams.call(task)
    downstreams.look()
    stage.submit("llm.summarize", n=2)
    (urgent,) = stage.submit("llm.summarize", priority=0)
    assert len(stage.tick()) == 1 and urgent in released(stage)


# -- without Redis, without observe


def test_without_redis_half_of_what_is_proven_goes_and_what_was_shut_stays_shut(stage: Stage) -> None:
    stage.add_session({"llm": 80})
    now_s = stage.one("SELECT extract(epoch FROM clock_timestamp())::double precision")
    states = [
        ResourceNow(resource=LLM, limit_now=44, proven=40, mode="fixed", breaker="closed"),
        ResourceNow(resource="tool:http", limit_now=20, proven=20, breaker="open", breaker_until_s=now_s + 60),
        ResourceNow(resource="tool:webhook", limit_now=9, proven=9, breaker="open", breaker_until_s=now_s - 60),
    ]
    keep(stage.connection, states, [])
    with capture_logs() as logs:
        Downstreams(stage, NOBODY)
    assert [one["event"] for one in logs] == ["permits_unread"]
    stage.submit("llm.summarize", n=70)
    assert len(stage.tick()) == 21
    shut = stage.submit(pool="llm", signature="tool:http=1", n=2)
    tried = stage.submit(pool="llm", signature="tool:webhook=1", n=9)
    stage.tick()
    assert not set(shut) & set(released(stage))
    assert len(set(tried) & set(released(stage))) == 5


def test_the_last_readings_hold_while_redis_is_away_for_a_moment(stage: Stage, broker_url: str) -> None:
    downstreams = Downstreams(stage, broker_url)
    downstreams.call(1)
    before = downstreams.look()
    downstreams.permits.close()
    downstreams.readings.permits = Permits(NOBODY, downstreams.readings.effective)
    now = downstreams.look()
    assert not now.blind and now.readings[LLM] == before.readings[LLM]
    downstreams.readings._last_s = time.monotonic() - readings.BLIND_AFTER_S - 0.1
    now = downstreams.look()
    assert now.blind and now.readings[LLM].limit == 25


def test_that_observe_does_not_come_is_told_once_the_values_hold_and_that_it_came_is_told(
    stage: Stage, broker_url: str
) -> None:
    old = stage.one("SELECT extract(epoch FROM clock_timestamp())::double precision") - LATE_S - 1.0
    keep(stage.connection, [ResourceNow(resource=LLM, limit_now=7, proven=7, seen_s=old)], [])
    downstreams = Downstreams(stage, broker_url)
    downstreams.readings.began_s = time.monotonic() - LATE_S - 1.0
    with capture_logs() as logs:
        downstreams.look()
        downstreams.look()
        assert downstreams.readings.live[LLM].proven == 7
        keep(stage.connection, [ResourceNow(resource=LLM, limit_now=7, proven=7)], [])
        downstreams.look()
    assert [one["event"] for one in logs] == ["observe_late", "observe_back"]
    downstreams.permits.close()


def test_the_thread_reads_four_times_a_second_and_survives_a_connection_that_breaks(
    stage: Stage, broker_url: str
) -> None:
    seen: list[Outlook] = []
    over = threading.Event()
    reader = Readings(configured=settings.HARNESS_TOPOLOGY.resources)
    reader.permits = Permits(broker_url, reader.effective)
    opened = []

    def connect() -> Any:
        opened.append(stage.open())
        return opened[-1]

    thread = threading.Thread(target=readings.run, args=(reader, connect, seen.append), kwargs={"over": over})
    thread.start()
    try:
        wait_until(lambda: len(seen) >= 3, within_s=5)
        opened[0].close()
        reader._rows_s = None
        wait_until(lambda: len(opened) == 2, within_s=5)
        before = len(seen)
        wait_until(lambda: len(seen) > before, within_s=5)
    finally:
        over.set()
        thread.join()
    assert all(not one.blind for one in seen)


# -- rows: overrides, what tasks hold


def test_an_override_counts_at_the_next_look_and_is_told(stage: Stage, downstreams: Downstreams) -> None:
    watch = Watch(stage)
    stage.add_session({"llm": 80})
    with stage.open() as connection:
        operate.set_resource(
            connection,
            LLM,
            {"capacity": 2},
            actor="jo",
            reason="the provider asked",
            until=datetime.now(UTC) + timedelta(hours=1),
        )
    downstreams.look()
    *_, last = stage.submit("llm.summarize", n=9)
    assert len(stage.tick()) == 3
    watch.look()
    code, words = watch.told(last)
    assert code == "limited"
    assert words.startswith("llm:default is limited to 2 at once since ") and "by an operator" in words
    assert "jo" not in words and "provider" not in words
    with stage.open() as connection:
        operate.clear_resource(connection, LLM, actor="jo", reason="over")
    downstreams.look()
    assert len(stage.tick()) == 6


def browsers(capacity: int) -> dict[str, Resource]:
    return {**settings.HARNESS_TOPOLOGY.resources, "browser": Resource(name="browser", held="task", capacity=capacity)}


def test_what_tasks_hold_is_exact_by_its_live_limit_in_plan_and_commit(stage: Stage, broker_url: str) -> None:
    watch = Watch(stage)
    stage.add_session({"llm": 80})
    downstreams = Downstreams(stage, broker_url, browsers(5))
    keep(stage.connection, [ResourceNow(resource="browser", limit_now=2, mode="yield")], [])
    downstreams.look()
    *_, last = stage.submit(pool="llm", signature="browser=1", n=9)
    assert len(stage.tick()) == 2
    assert stage.memory.course.caps["browser"] == 2
    keep(stage.connection, [ResourceNow(resource="browser", limit_now=0, mode="yield")], [])
    downstreams.look()
    assert stage.tick() == []
    assert stage.one("SELECT count(*) FROM lease") == 2, "what runs is left alone"
    keep(stage.connection, [ResourceNow(resource="browser", limit_now=9, mode="follow")], [])
    downstreams.look()
    assert len(stage.tick()) == 3
    downstreams.permits.close()
    del watch, last


# -- why


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        (
            {"breaker": "open", "breaker_until_s": "later"},
            "breaker",
            "Calls to llm:default keep failing since {now}, so none is sent before {later}.",
        ),
        ({"blocked_until_s": "later"}, "blocked", "llm:default has asked to be sent nothing until {later}."),
        ({"rate_wait_s": 7200.0}, "rate", "The rate limit of llm:default is used up until {later}."),
    ],
)
def test_what_is_shut_is_told_with_its_end(
    stage: Stage, downstreams: Downstreams, said: dict[str, Any], code: str, words: str
) -> None:
    watch = Watch(stage)
    stage.add_session({"llm": 4})
    at_s = downstreams.look().at_s
    downstreams.says(LLM, **{name: at_s + 7200.0 if value == "later" else value for name, value in said.items()})
    (task,) = stage.submit("llm.summarize")
    assert stage.tick() == []
    watch.look()
    found, told = watch.told(task)
    assert found == code
    head, _, tail = words.partition("{now}")
    assert told.startswith(head.split("{later}")[0]) and " UTC" in told
    assert tail.split("{later}")[0] in told
    (bound,) = watch.why(task).bound
    assert "attempt" in bound.told.frees or "by itself" in bound.told.frees


def test_a_limit_that_the_limiter_has_lowered_is_told_since_when(stage: Stage, broker_url: str) -> None:
    configured = {
        **settings.HARNESS_TOPOLOGY.resources,
        LLM: Resource(name=LLM, held="call", capacity=50, limiter="csl", start=20),
    }
    downstreams = Downstreams(stage, broker_url, configured)
    watch = Watch(stage)
    stage.add_session({"llm": 80})
    *_, last = stage.submit("llm.summarize", n=60)
    assert len(stage.tick()) == 21
    watch.look()
    code, words = watch.told(last)
    assert code == "limited" and words.startswith("llm:default is limited to 20 at once since ")
    assert words.endswith("UTC, all in use.")
    assert watch.look().begun == 0
    downstreams.says(LLM, limit=21)  # a probe
    stage.tick()
    assert watch.look().begun == 0
    downstreams.permits.close()


def test_a_resources_cap_for_each_tenant_holds_its_tasks_and_leaves_the_rest_to_others(
    stage: Stage, broker_url: str
) -> None:
    configured = {
        **settings.HARNESS_TOPOLOGY.resources,
        LLM: Resource(name=LLM, held="call", capacity=50, tenant_cap=4),
    }
    downstreams = Downstreams(stage, broker_url, configured)
    watch = Watch(stage)
    stage.add_session({"llm": 80})
    other, more = stage.add_tenant("other"), stage.add_tenant("more")
    stage.connection.execute(
        "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'resource', %s, 6)", (more, LLM)
    )
    *_, last = stage.submit("llm.summarize", n=60)
    stage.submit("llm.summarize", n=60, tenant=other)
    stage.submit("llm.summarize", n=60, tenant=more)
    stage.tick()
    cursor = stage.connection.execute("SELECT tenant_id, count(*) FROM lease GROUP BY tenant_id")
    assert dict(cursor.fetchall()) == {stage.tenant: 4, other: 4, more: 6}
    watch.look()
    assert watch.told(last) == ("quota", "You hold 4 of your 4 in llm:default at once.")
    downstreams.permits.close()


def test_a_capacity_of_nothing_stops_all_and_is_told(stage: Stage, downstreams: Downstreams) -> None:
    watch = Watch(stage)
    stage.add_session({"llm": 80})
    with stage.open() as connection:
        operate.set_resource(connection, LLM, {"capacity": 0}, actor="jo", reason="the bill")
    downstreams.look()
    (last,) = stage.submit("llm.summarize")
    stage.submit("llm.summarize", priority=0)
    assert stage.tick() == []
    watch.look()
    code, words = watch.told(last)
    assert code == "limited" and words.startswith("Nothing may use llm:default now since ")
    assert words.endswith(", says an operator.")
