"""Readings from facts, where a number alone could mislead: bursts, closed resources, idle pools, few attempts."""

import pytest

from harness.policy.pressure import READS, SIGNALS, Facts, Level, Memory, learn, measure
from harness.policy.pressure.facts import Arrived, Ended, Head, Held, Limit, Waits

LATER = Memory(since_s=3600.0)
NEED = "llm:default=1"


def ended(
    n: int, *, slot_s: float = 5.0, verdict: str = "succeed", tenant: int = 1, error: str = ""
) -> tuple[Ended, ...]:
    return tuple(Ended("llm", 1, tenant, NEED, "chat", slot_s, verdict, error, 60.0 * i / n) for i in range(n))


def arrivals(by_bin: list[int], priority: int = 2) -> tuple[Arrived, ...]:
    return tuple(Arrived("llm", "", priority, at, n) for at, n in enumerate(by_bin) if n)


def read(name: str, facts: Facts, memory: Memory = LATER) -> float:
    value = measure(facts, memory)[name]
    assert value is not None
    return value


def test_every_signal_of_the_table_is_measured_and_nothing_is_0() -> None:
    assert READS.keys() == SIGNALS.keys()
    assert set(measure(Facts(slots={}), LATER).values()) == {0.0}


def test_a_run_of_a_thousand_at_once_is_a_queue_and_no_demand() -> None:
    once = Facts(slots={"llm": 10}, arrived=arrivals([0, 1000]), ended=ended(30))
    assert read("demand", once) == 0.0
    lasting = Facts(slots={"llm": 10}, arrived=arrivals([40] * 30), ended=ended(30))
    assert read("demand", lasting) == 2.0
    waiting = Facts(slots={"llm": 10}, waiting=(Waits("llm", 2, "", 1000),), held=(Held("llm", "", 10, 5.0),))
    assert read("queue_depth", waiting) > SIGNALS["queue_depth"].elevated


@pytest.mark.parametrize(("covered_s", "came"), [(2.0, [10_000]), (9.0, [10_000]), (35.0, [0, 0, 0, 10_000])])
def test_a_run_of_ten_thousand_is_no_demand_though_nothing_before_it_is_looked_at(
    covered_s: float, came: list[int]
) -> None:
    once = Facts(slots={"llm": 10}, arrived=arrivals(came), arrived_s=covered_s, ended=ended(30))
    assert read("demand", once) == 0.0


def test_a_flood_of_which_only_the_newest_are_looked_at_is_demand() -> None:
    flood = Facts(slots={"llm": 10}, arrived=arrivals([4000, 4000, 2000]), arrived_s=25.0, ended=ended(30))
    assert read("demand", flood) == pytest.approx(min(99.0, 400 * 5.0 / 10))


def test_of_few_arrivals_five_minutes_are_looked_at() -> None:
    few = [1, 0, 0, 0, 0, 0] * 5  # one a minute, of 5 s each, in one slot
    assert read("demand", Facts(slots={"llm": 1}, arrived=arrivals(few), ended=ended(30))) == 5.0 / 60.0


def test_demand_is_silent_in_the_first_minute() -> None:
    flood = Facts(slots={"llm": 10}, arrived=arrivals([400] * 30), ended=ended(30))
    assert read("demand", flood, Memory(since_s=59.0)) == 0.0
    assert read("demand", flood, Memory(since_s=60.0)) == 20.0


def test_waits_are_those_of_the_worst_place_and_a_resource_is_one() -> None:
    facts = Facts(
        slots={"llm": 50, "cpu": 2},
        waiting=(Waits("llm", 1, NEED, 20),),
        held=(Held("llm", NEED, 10, 5.0),),
        ended=ended(30),
        limits={"llm:default": Limit(limit=5, in_use=5, calls=True)},
    )
    # The limit of 5 is as wide as 10 slots, since of 10 tasks 5 were calling: 2 tasks a second.
    assert round(read("p1_wait", facts) * 60.0, 2) == round(0.25 + 0.5 + 20 / 2.0, 2)


def test_a_resource_that_somebody_has_closed_and_a_pool_without_a_queue_press_nobody() -> None:
    closed = Facts(
        slots={"llm": 50},
        waiting=(Waits("llm", 1, NEED, 1),),
        limits={"llm:default": Limit(limit=0, in_use=0, calls=True)},
        ended=ended(30),
    )
    assert read("p1_wait", closed) < 0.1 and read("llm_in_use", closed) == 0.0
    idle = Facts(slots={"cpu": 1}, held=(Held("cpu", "", 1, 600.0),))
    assert read("p1_wait", idle) == read("worker_busy_ratio", idle) == 0.0


def test_without_workers_what_waits_is_as_bad_as_can_be() -> None:
    facts = Facts(slots={"llm": 0}, waiting=(Waits("llm", 1, "", 3),))
    assert all(SIGNALS[name].score(read(name, facts)) == Level.CRITICAL for name in ("queue_depth", "p1_wait"))


def test_shares_of_few_attempts_say_nothing() -> None:
    for name, verdict, error in (("tool_error_rate", "bury", "timeout"), ("retry_storm", "fail", "bug")):
        assert read(name, Facts(slots={}, ended=ended(19, verdict=verdict, error=error))) == 0.0
        assert read(name, Facts(slots={}, ended=ended(20, verdict=verdict, error=error))) > 0.4


def test_a_kind_is_compared_with_itself_over_a_day() -> None:
    memory = Memory()
    for _ in range(720):
        memory = learn(memory, Facts(slots={}, ended=ended(30, slot_s=2.0)), 5.0)
    slow = Facts(slots={}, ended=ended(30, slot_s=6.0))
    assert read("p95_task_latency", slow, memory) == 3.0
    # An hour of it moves what is usual by as much as an hour of two, not by what two looks say.
    assert read("p95_task_latency", slow, learn(memory, slow, 5.0)) > 2.9
    assert read("p95_task_latency", slow, Memory()) == 0.0, "a kind that nobody knows"


def test_fairness_is_judged_among_those_who_have_waited_all_the_time() -> None:
    heads = (Head("llm", 1, 1, 1.0, 90.0), Head("llm", 1, 2, 1.0, 90.0))
    unfair = Facts(slots={"llm": 10}, heads=heads, ended=ended(78) + ended(2, tenant=2))
    assert read("tenant_fairness", unfair) > SIGNALS["tenant_fairness"].high
    weighted = (Head("llm", 1, 1, 39.0, 90.0), Head("llm", 1, 2, 1.0, 90.0))
    assert read("tenant_fairness", Facts(slots={"llm": 10}, heads=weighted, ended=unfair.ended)) < 0.01
    newcomer = (Head("llm", 1, 1, 1.0, 90.0), Head("llm", 1, 2, 1.0, 30.0))
    assert read("tenant_fairness", Facts(slots={"llm": 10}, heads=newcomer, ended=unfair.ended)) == 0.0


def test_what_can_not_be_read_is_none() -> None:
    blind = measure(Facts(slots={}, limits=None, connections_busy_ratio=None, waits_s=None), LATER)
    unknown = {name for name, value in blind.items() if value is None}
    assert unknown == {"llm_rate_limit", "llm_in_use", "db_connection_usage", "db_pool_wait", "http_pool_wait"}
