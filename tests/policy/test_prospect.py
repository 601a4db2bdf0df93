"""From rows to places, and who of the deferred is let in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import prospect
from harness.policy.admission import TARGET_S
from harness.policy.predicted import Crowd
from harness.policy.pressure.facts import Held, Limit
from harness.policy.prospect import Came, Deferred, Facts, Ran, Waits

LLM = "pool llm"


def _deferred(
    tenant: int, tasks: int, *, weight: float = 1.0, signature: str = "", first: int | None = None
) -> Deferred:
    return Deferred("llm", 2, signature, tenant, weight, tasks, tenant if first is None else first)


def test_a_pool_and_a_resource_of_the_same_name_are_two_places() -> None:
    facts = Facts(
        slots={"browser": 4},
        limits={"browser": Limit(limit=2, in_use=0, calls=False)},
        waiting=[Waits("pool browser", 2, None, 7, 1.0), Waits("resource browser", 2, None, 14, 1.0)],
        held=[Held("browser", "browser=2", 1, 30.0)],
        came=[Came("browser", "browser=2", 2, 0.5)],
        ran=[Ran("browser", "browser=2", 2, 20.0)],
    )
    found = prospect.places(facts)
    pool, resource = found["pool browser"], found["resource browser"]
    assert (pool.slots, pool.in_use, pool.mean_s, pool.rates[2]) == (4, 1, 10, 0.5)
    assert (resource.slots, resource.in_use, resource.mean_s, resource.rates[2]) == (2, 2, 10, 1.0)
    assert pool.crowds[2] == (Crowd(7, 1.0),) and resource.crowds[2] == (Crowd(14, 1.0),)


def test_a_resource_that_calls_hold_is_as_wide_as_its_limit_over_what_tasks_use_of_it() -> None:
    facts = Facts(
        slots={"llm": 64},
        limits={"llm:a": Limit(limit=50, in_use=20, calls=True), "shut": Limit(limit=0, in_use=0, calls=True)},
        held=[Held("llm", "llm:a=1", 40, 5.0)],
    )
    found = prospect.places(facts)
    assert found["resource llm:a"].slots == pytest.approx(100)
    assert "resource shut" not in found


def test_deferred_tasks_are_let_in_until_the_last_waits_as_long_as_its_class_should() -> None:
    facts = Facts(
        slots={"llm": 10},
        held=[Held("llm", "", 10, 5.0)],
        ran=[Ran("llm", "", 10, 50.0)],
        waiting=[Waits(LLM, 2, None, 1000, 1.0)],
        deferred=[_deferred(1, 5000)],
    )
    (let,) = prospect.let_in(facts, prospect.places(facts))
    may_wait = (TARGET_S[2] - 0.25) * 2.0 - 1
    assert let.tasks == int(may_wait / 2)  # shared with who is there, by weight


def test_nothing_is_let_in_where_the_line_is_long_or_nobody_works() -> None:
    full = Facts(
        slots={"llm": 10},
        ran=[Ran("llm", "", 1, 5.0)],
        waiting=[Waits(LLM, 2, 1, 5000, 1.0)],
        deferred=[_deferred(1, 9)],
    )
    assert prospect.let_in(full, prospect.places(full)) == []
    closed = Facts(slots={}, deferred=[_deferred(1, 9)])
    assert prospect.let_in(closed, prospect.places(closed)) == []


def test_the_narrowest_of_its_places_says_how_many_are_let_in() -> None:
    facts = Facts(
        slots={"llm": 100},
        limits={"licence": Limit(limit=1, in_use=0, calls=False)},
        ran=[Ran("llm", "licence=1", 1, 60.0)],
        deferred=[_deferred(1, 500, signature="licence=1")],
    )
    (let,) = prospect.let_in(facts, prospect.places(facts))
    assert let.tasks == int((TARGET_S[2] - 0.25) / 60.0 - 1)


def test_where_there_is_room_for_fewer_than_tenants_wait_the_oldest_go_first() -> None:
    facts = Facts(
        slots={"llm": 1},
        held=[Held("llm", "", 1, 200.0)],
        deferred=[_deferred(1, 5, first=30), _deferred(2, 5, first=10), _deferred(3, 5, first=20)],
    )
    assert [(one.tenant, one.tasks) for one in prospect.let_in(facts, prospect.places(facts))] == [(2, 1)]


deferrals = st.lists(
    st.tuples(st.integers(1, 500), st.sampled_from([0.5, 1.0, 3.0]), st.integers(0, 800)), min_size=1, max_size=8
)


@given(st.integers(1, 64), st.floats(0.1, 100), deferrals, st.integers(0, 2000))
def test_what_is_let_in_keeps_the_target_and_invents_nothing(
    slots: int, mean_s: float, those: list[tuple[int, float, int]], others: int
) -> None:
    facts = Facts(
        slots={"llm": slots},
        held=[Held("llm", "", slots, mean_s)],
        waiting=[Waits(LLM, 2, None, others, 1.0)]
        + [Waits(LLM, 2, tenant, there, weight) for tenant, (_, weight, there) in enumerate(those)],
        deferred=[_deferred(tenant, tasks, weight=weight) for tenant, (tasks, weight, _) in enumerate(those)],
    )
    let = prospect.let_in(facts, prospect.places(facts))
    asked = {tenant: tasks for tenant, (tasks, _, _) in enumerate(those)}
    assert all(0 < one.tasks <= asked[one.tenant] for one in let)
    if let:
        # Who is let in waits behind those whom fair service puts before it.
        came = {one.tenant: one.tasks for one in let}
        level = max((there + came[at]) / weight for at, (_, weight, there) in enumerate(those) if at in came)
        before = min(float(others), level) + sum(
            min(there + came.get(at, 0), level * weight) for at, (_, weight, there) in enumerate(those)
        )
        rounding = sum(weight for _, weight, _ in those) / min(weight for _, weight, _ in those) + len(those) + 1
        assert (before - rounding) * mean_s / slots <= TARGET_S[2]
