"""The ceiling of a pool comes from its narrowest downstreams, and what is beyond it is refused with the derivation."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.capacity import (
    Bound,
    Carries,
    Need,
    Wish,
    bounds,
    configured,
    judge,
    objections,
    process_connections,
)
from harness.policy.settings import Pool, Topology, parse


def pool(name: str, *, slots: int = 16, connections: int = 3) -> Pool:
    return Pool(name=name, workers="threads", slots=slots, connections=connections, prefetch_multiplier=1, events=False)


def topology(*pools: Pool, budget: int = 80) -> Topology:
    return Topology(database_connections=budget, pools={one.name: one for one in pools}, resources={})


def need(kind: str, at: str = "x", **resources: int) -> Need:
    return Need(kind=kind, pool=at, resources=resources)


def task(limit: int) -> Carries:
    return Carries(held="task", limit=limit)


def call(limit: int, phi: float = 1.0) -> Carries:
    return Carries(held="call", limit=limit, phi=phi)


def bound(needs: list[Need], carries: Mapping[str, Carries], *, slots: int = 16) -> Bound:
    return bounds(topology(pool("x", slots=slots)), needs, carries)["x"]


def test_the_narrowest_downstream_binds() -> None:
    found = bound([need("a", db=1, provider=1, tool=1)], {"db": task(30), "provider": call(50), "tool": call(20)})
    assert [one.resource for one in found.bindings] == ["tool"]
    assert (found.slots, found.processes) == (22, 2)
    assert found.derivation() == "tool ceil(1.1 x 20 / 1.00) = 22"


def test_kinds_with_downstreams_of_their_own_add_up() -> None:
    found = bound([need("a", db=1), need("b", search=1)], {"db": task(20), "search": call(8)})
    assert found.slots == 29
    assert found.derivation() == "db 20 + search ceil(1.1 x 8 / 1.00) = 9: 29"


def test_a_downstream_that_all_need_binds_before_the_sum_of_their_own() -> None:
    needs = [need("a", db=1, shared=1), need("b", search=1, shared=2)]
    found = bound(needs, {"db": task(20), "search": task(20), "shared": task(12)})
    assert [(one.resource, one.each, one.slots) for one in found.bindings] == [("shared", 1, 12)]


def test_tasks_that_hold_several_need_fewer_slots_and_tasks_that_seldom_call_more() -> None:
    assert bound([need("a", browser=3)], {"browser": task(10)}).slots == 3
    assert bound([need("a", provider=1)], {"provider": call(50, phi=0.5)}).slots == 110


def test_a_downstream_that_carries_nothing_leaves_one_process() -> None:
    found = bound([need("a", db=1)], {"db": task(0)})
    assert (found.slots, found.processes) == (0, 1)


def test_kinds_that_need_nothing_are_named() -> None:
    found = bound([need("a", db=1), need("quick")], {"db": task(20)})
    assert (found.slots, found.free) == (20, ("quick",))
    assert bound([need("quick")], {}).slots is None
    assert bound([], {}).derivation() == "no kind runs here"


def test_pools_that_share_a_downstream_say_so() -> None:
    found = bounds(topology(pool("x"), pool("y")), [need("a", r=1), need("b", "y", r=1)], {"r": task(5)})
    assert found["x"].bindings[0].shared_with == ("y",)


def test_forty_workers_of_twenty_slots_are_refused_with_the_derivation() -> None:
    at = topology(pool("x"))
    found = bounds(at, [need("a", tool=1)], {"tool": call(20)})
    slots, connections = judge(at, found, {"x": Wish(40, 20)})
    assert slots.error
    assert slots.message == (
        "pool x: 40 processes x 20 slots = 800, but its downstreams carry 22 (tool ceil(1.1 x 20 / 1.00) = 22)"
    )
    assert slots.hint == "2 do; the other 38 would get no work"
    assert connections.message.startswith(
        "Harness's own database: x 40 x 5 = 200 connections, but the budget is 80 - 20"
    )
    assert judge(at, found, {"x": Wish(2, 20)}) == ()


def test_one_process_may_stand_by_where_the_ceiling_is_exact() -> None:
    at = topology(pool("x", slots=20))
    found = bounds(at, [need("a", db=1)], {"db": task(20)})
    assert judge(at, found, {"x": Wish(2)}) == ()
    (one,) = judge(at, found, {"x": Wish(8)})
    assert one.error
    assert one.hint == "1 do; the other 7 would get no work"


def test_more_processes_for_kinds_without_a_downstream_are_no_error() -> None:
    at = topology(pool("x"))
    found = bounds(at, [need("a", db=1), need("quick")], {"db": task(16)})
    (one,) = judge(at, found, {"x": Wish(3)})
    assert not one.error
    assert one.hint == "1 do; only quick gain from the other 2"


def test_a_process_with_more_slots_than_its_downstream_carries_is_told_from_the_file_alone(root: Path) -> None:
    raw = tomllib.loads((root / "config" / "resources.toml").read_text())
    raw["resources"]["llm:default"] = {"held": "call", "capacity": 5}
    (one,) = objections(parse(raw), [Need(kind="llm.chat", pool="llm", resources={"llm:default": 1})])
    assert one.message.startswith("pool llm: one process has 16 slots, but its downstreams carry 6")
    assert "pools.llm.slots = 6" in one.hint


def test_a_budget_that_holds_not_one_process_a_pool_is_an_error(root: Path) -> None:
    raw = tomllib.loads((root / "config" / "resources.toml").read_text())
    raw["database"]["connections"] = 40
    (one,) = objections(parse(raw), [])
    assert (one.id, one.error) == ("connections", True)


def test_the_shipped_file_adds_up(root: Path) -> None:
    at = parse(tomllib.loads((root / "config" / "resources.toml").read_text()))
    assert objections(at, []) == ()
    assert configured(at)["db:main"] == task(20)


def test_what_a_process_opens_is_its_pools_and_two_more() -> None:
    assert process_connections([pool("x", connections=3), pool("y", connections=2)]) == 7
    assert process_connections([pool("system", connections=1)]) == 4


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abcde"), st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=5
    ),
    st.fixed_dictionaries({name: st.integers(0, 30) for name in "abcde"}),
)
def test_no_mix_of_tasks_that_fits_the_downstreams_is_larger_than_the_ceiling(
    signatures: list[dict[str, int]], limits: dict[str, int]
) -> None:
    found = bound(
        [Need(kind=f"k{at}", pool="x", resources=one) for at, one in enumerate(signatures)],
        {name: task(n) for name, n in limits.items()},
    )
    left, placed = dict(limits), 0
    for one in signatures:  # a greedy mix: it fits, so it must be within the bound
        while all(left[name] >= n for name, n in one.items()):
            for name, n in one.items():
                left[name] -= n
            placed += 1
    assert found.slots is not None
    assert placed <= found.slots


@given(st.integers(0, 60), st.integers(0, 60))
def test_a_larger_limit_never_carries_less(one: int, other: int) -> None:
    least, most = sorted((one, other))
    needs = [need("a", db=1, r=2), need("b", db=2)]
    low = bound(needs, {"db": task(least), "r": call(7)}).slots
    high = bound(needs, {"db": task(most), "r": call(7)}).slots
    assert low is not None and high is not None and low <= high


@pytest.mark.parametrize("name", ["quarantine", "system"])
def test_pools_without_slots_of_their_own_are_left_out(name: str) -> None:
    assert name not in bounds(topology(pool(name), pool("x")), [need("a", db=1)], {"db": task(1)})
