"""What a report says of shares, phases, kinds and windows is what happened, where that is known beforehand."""

import pytest

from tests.sim.scenes import played

IDEAL = {"coalesce_s": 0, "hop_s": 0}


def test_phases_tell_who_had_the_slots_in_a_part_of_the_time() -> None:
    work = [
        {"tenants": "a", "kind": "step", "arrivals": "at", "batch": 40, "priority": "p1"},
        {"tenants": "b", "kind": "step", "arrivals": "at", "at_s": 20, "batch": 40, "priority": "p2"},
    ]
    phases = [{"name": "first", "until_s": 20.0}, {"name": "later", "from_s": 20.0, "until_s": 30.0}]
    figures = played(tenants={"a": {}, "b": {}}, work=work, phases=phases, dispatcher=IDEAL).figures
    first, later = (figures["phases"][name]["pools"]["llm"] for name in ("first", "later"))
    assert first["groups"] == {"a": {"slot_s": 40.0, "share_of_slot_s": 1.0}}
    assert first["classes"]["p1"]["share_of_slot_s"] == 1.0
    assert later["groups"]["b"]["slot_s"] == pytest.approx(20.0)
    assert later["classes"]["p2"]["share_of_slot_s"] == pytest.approx(1.0)


def test_kinds_tell_their_waits_and_the_longest_time_without_a_start_while_some_waited() -> None:
    kinds = {"step": {"pool": "llm", "mean_s": 5.0}, "rare": {"pool": "llm", "mean_s": 1.0}}
    work = [
        {"tenants": "a", "kind": "step", "arrivals": "at", "batch": 4},
        {"tenants": "a", "kind": "rare", "arrivals": "at", "at_s": [1, 40]},
    ]
    figures = played(kinds=kinds, work=work, pools={"llm": {"slots": 1}}, dispatcher=IDEAL).figures
    step, rare = figures["kinds"]["step"], figures["kinds"]["rare"]
    assert (step["n"], rare["n"]) == (4, 2)
    assert rare["max_s"] == rare["longest_gap_s"]  # it waited behind steps once, and not at all at 40
    assert 4.0 <= rare["max_s"] <= 19.0
    assert step["longest_gap_s"] == pytest.approx(6.0 if rare["max_s"] < 19.0 else 5.0)


def test_groups_tell_what_they_used_of_pools_and_resources_and_classes_what_it_cost() -> None:
    kinds = {
        "step": {"pool": "llm", "mean_s": 1.0},
        "call": {"pool": "llm", "mean_s": 1.0, "needs": {"browser": 1}},
    }
    work = [
        {"tenants": "a", "kind": "step", "arrivals": "at", "batch": 2000},
        {"tenants": "b", "kind": "call", "arrivals": "at", "batch": 2000, "priority": "p1"},
    ]
    figures = played(
        kinds=kinds,
        work=work,
        tenants={"a": {}, "b": {}},
        pools={"llm": {"slots": 8}},
        resources={"browser": {"capacity": 2}},
        dispatcher=IDEAL,
        drain=False,
    ).figures
    a, b = figures["groups"]["a"], figures["groups"]["b"]
    assert b["resources"]["browser"] == b["dominant_share"] == pytest.approx(1.0, abs=0.02)
    assert b["pools"]["llm"] == pytest.approx(0.25, abs=0.01)
    assert a["dominant_share"] == a["pools"]["llm"] == pytest.approx(0.75, abs=0.01)
    classes = figures["pools"]["llm"]["classes"]
    assert classes["p1"]["cost_of_capacity"] == pytest.approx(
        1.0, abs=0.02
    )  # two of two browsers: as much as all slots
    assert classes["p2"]["cost_of_capacity"] == pytest.approx(0.75, abs=0.01)


def test_windows_may_overlap_and_the_worst_is_told() -> None:
    work = [
        {"tenants": "a", "kind": "step", "arrivals": "at", "batch": 400},
        {"tenants": "b", "kind": "step", "arrivals": "at", "batch": 400},
    ]
    tenants: dict[str, dict[str, object]] = {"a": {}, "b": {"cap": [[0, 1000], [45, 0], [50, 1000]]}}
    more = {"tenants": tenants, "work": work, "drain": False, "dispatcher": IDEAL}
    apart = played(**more, measure={"window_s": 10}).figures["pools"]["llm"]["jain_slot_seconds"]
    overlapping = played(**more, measure={"window_s": 10, "step_s": 1}).figures["pools"]["llm"]["jain_slot_seconds"]
    assert overlapping["windows"] == 10 * apart["windows"] + 9
    assert overlapping["min"] <= apart["min"] < 1.0


def test_weights_and_caps_that_change_are_obeyed_from_then_on_and_a_lower_cap_is_no_excess() -> None:
    tenants = {"a": {"cap": [[0, 2], [10, 1]], "weight": [[0, 1], [5, 2]]}, "b": {}}
    kinds = {"step": {"pool": "llm", "mean_s": 4.0}}
    work = [{"tenants": one, "kind": "step", "arrivals": "at", "batch": 100} for one in tenants]
    phases = [{"name": "capped", "from_s": 20.0, "until_s": 60.0}]
    figures = played(
        tenants=tenants, kinds=kinds, work=work, phases=phases, pools={"llm": {"slots": 4}}, dispatcher=IDEAL
    ).figures
    assert figures["groups"]["a"]["most_in_flight"] == 2
    assert figures["caps_exceeded"] == 0
    assert figures["phases"]["capped"]["pools"]["llm"]["groups"]["a"]["share_of_slot_s"] == pytest.approx(0.25)


def test_a_run_may_mix_kinds_in_turn() -> None:
    kinds = {"step": {"pool": "llm", "mean_s": 1.0}, "leap": {"pool": "llm", "mean_s": 2.0}}
    work = [{"tenants": "a", "kind": ["step", "step", "leap"], "arrivals": "at", "batch": 9, "run": True}]
    figures = played(kinds=kinds, work=work).figures
    assert {name: one["n"] for name, one in figures["kinds"].items()} == {"step": 6, "leap": 3}
