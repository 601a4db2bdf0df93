"""What goes wrong in a simulation goes wrong as it does in the real system."""

import pytest

from tests.sim.scenes import played


def one(**kind: object) -> dict[str, object]:
    """A single task of a kind that fails in some way."""
    return {
        "kinds": {"step": {"pool": "llm", "mean_s": 1.0} | kind},
        "work": [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 1}],
    }


def test_errors_are_retried_as_policy_says_and_buried_when_attempts_are_used_up() -> None:
    counts = played(**one(failures={"server_error": 1.0}, max_attempts=3)).figures["counts"]
    assert (counts["fail"], counts["bury"], counts["starts"]) == (2, 1, 3)
    counts = played(**one(failures={"validation": 1.0})).figures["counts"]
    assert (counts.get("fail", 0), counts["bury"], counts["starts"]) == (0, 1, 1)


def test_a_refusal_costs_no_attempt_and_waits_at_least_as_long_as_asked() -> None:
    figures = played(**one(failures={"rate_limit": 1.0}, retry_after_s=20), drain=False).figures
    assert figures["counts"].get("bury", 0) == 0
    assert 2 <= figures["counts"]["postpone"] <= 5  # in 100 s


def test_a_task_that_kills_its_workers_is_buried_after_quarantine() -> None:
    figures = played(**one(failures={"lost": 1.0}), duration_s=200).figures
    counts = figures["counts"]
    assert (counts["lose"], counts["bury"], counts["starts"]) == (2, 1, 3)
    assert figures["makespan_s"] >= 3 * 20  # each death is noticed after 20 s
    assert figures["pools"]["llm"]["use"] > 0


def test_a_dead_worker_holds_its_slots_until_it_is_missed_and_nothing_is_lost() -> None:
    work = [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 20}]
    kinds = {"step": {"pool": "llm", "mean_s": 5.0}}
    pools = {"llm": {"slots": 4}}
    losses = [{"at_s": 1, "pool": "llm", "slots": 2, "back_s": 3}]
    figures = played(work=work, kinds=kinds, pools=pools, losses=losses).figures
    counts = figures["counts"]
    assert (counts["succeed"], counts["lose"], counts["starts"]) == (20, 2, 22)
    assert figures["groups"]["a"]["unfinished"] == 0
    alone = played(work=work, kinds=kinds, pools=pools).figures
    assert alone["makespan_s"] == pytest.approx(25, abs=0.2)
    assert alone["makespan_s"] < figures["makespan_s"] < alone["makespan_s"] + 21


def test_a_timeout_leaves_a_zombie_that_holds_its_slot() -> None:
    work = [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 2}]
    kinds = {"step": {"pool": "llm", "mean_s": 5.0, "timeout_s": 2, "zombie_s": 30, "max_attempts": 1}}
    figures = played(work=work, kinds=kinds, pools={"llm": {"slots": 1}}).figures
    assert figures["counts"]["zombies"] == 2
    assert figures["waits"]["a"]["p2"]["max_s"] == pytest.approx(32, abs=0.1)
    assert figures["groups"]["a"]["most_in_flight"] == 1


def test_slots_and_capacities_that_change_are_obeyed() -> None:
    work = [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 100}]
    figures = played(work=work, pools={"llm": {"slots": [[0, 10], [2, 1], [12, 10]]}}).figures
    # 20 tasks by second 2, 10 that run on then, one a second until 12, ten a second from there
    assert figures["makespan_s"] == pytest.approx(12 + (100 - 30 - 9) / 10, abs=1.2)
    kinds = {"step": {"pool": "llm", "mean_s": 1.0, "needs": {"browser": 2}}}
    resources = {"browser": {"capacity": [[0, 4], [5, 0], [50, 4]]}}
    figures = played(kinds=kinds, resources=resources, pools={"llm": {"slots": 10}}).figures
    assert figures["makespan_s"] == pytest.approx(5, abs=0.2)
    resources = {"browser": {"capacity": [[0, 4], [2, 0], [50, 4]]}}
    figures = played(kinds=kinds, resources=resources, pools={"llm": {"slots": 10}}).figures
    assert figures["makespan_s"] == pytest.approx(53, abs=1.2)


def test_a_pause_holds_what_it_names_and_nothing_else() -> None:
    tenants: dict[str, dict[str, int]] = {"a": {}, "b": {}}
    work = [{"tenants": one, "kind": "step", "arrivals": "at", "at_s": 1} for one in tenants]
    pauses = [{"scope": "tenant", "key": "a", "until_s": 30}]
    waits = played(tenants=tenants, work=work, pauses=pauses).figures["waits"]
    assert waits["a"]["p2"]["max_s"] == pytest.approx(29, abs=0.1)
    assert waits["b"]["p2"]["max_s"] < 0.1


def test_what_comes_back_from_a_pause_comes_by_its_ramp() -> None:
    work = [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 200}]
    pauses = [{"scope": "pool", "key": "llm", "until_s": 30}]
    figures = played(work=work, pauses=pauses, pools={"llm": {"slots": 10}}).figures
    # 1, 2, 4 and 8 of ten slots for 5 s each, then all
    assert figures["makespan_s"] == pytest.approx(30 + 20 + (200 - 5 - 10 - 20 - 40) / 10, abs=1.5)


def test_what_the_door_refuses_is_counted_and_never_runs() -> None:
    tenants = {"a": {"backlog_quota": 4, "top_priority": 2}}
    work = [
        {"tenants": "a", "kind": "step", "arrivals": "at", "at_s": [0, 0.1], "batch": 3},
        {"tenants": "a", "kind": "step", "arrivals": "at", "priority": "p1"},
    ]
    counts = played(tenants=tenants, work=work).figures["counts"]
    assert (counts["succeed"], counts["refused_backlog"], counts["refused_priority"]) == (3, 3, 1)
