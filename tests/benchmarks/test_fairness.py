"""What `script/bench fairness` plays and how it judges: planted faults are found, and nothing else is."""

import doctest
import json

import pytest

from benchmarks.effects import Effect
from benchmarks.fairness import caps, measure, scenes, score


def effect(i: int, started_s: float, ended_s: float, submitted_s: float = 0.0) -> Effect:
    return Effect(
        mark="D", tag="t", i=i, submitted_s=submitted_s, started_s=started_s, ended_s=ended_s, pid=1
    )  # fmt: skip


def change(at_s: float, step: int, tenant: str = "a", run: int = 0, **more: object) -> caps.Change:
    return caps.Change(at_s=at_s, step=step, tenant=tenant, run=run, pool="llm", **more)  # type: ignore[arg-type]


def test_every_arm_gets_the_same_score_whichever_process_reads_it() -> None:
    for quick in (True, False):
        programme = scenes.programme(quick)
        assert programme == scenes.programme(quick)
        for scene in programme:
            sent = json.loads(json.dumps(score.as_json(scene.arrivals)))
            assert tuple(score.from_json(sent)) == scene.arrivals
    assert len(json.dumps(score.as_json(scenes.elephant(quick=False).arrivals))) < 100_000, "it is one argument"


def test_no_two_tasks_of_a_tag_have_the_same_number() -> None:
    for scene in scenes.programme(quick=False):
        for tag in scene.tasks():
            numbers = [
                part.first + k
                for arrival in scene.arrivals
                for part in arrival.parts
                if part.tag == tag
                for k in range(part.n)
            ]
            assert len(numbers) == len(set(numbers)), tag
    tags = [tag for scene in scenes.programme(quick=False) for tag in scene.tasks()]
    assert len(tags) == len(set(tags))


def test_the_elephant_is_a_run_of_a_thousand_seconds_and_the_others_are_a_tenth_of_it() -> None:
    tasks = scenes.elephant(quick=False).tasks()
    assert (tasks["elephant10"], tasks["elephant2"]) == (1000, 200)
    assert 90 <= tasks["victims10"] <= 100 and 18 <= tasks["victims2"] <= 20
    (run,) = [one for one in scenes.elephant(quick=False).arrivals if one.parts[0].tag == "elephant10"]
    assert run.run and run.parts[0].duration_s == 1.0


def test_nobody_in_the_scene_of_weights_can_be_out_of_work_under_a_fair_plan() -> None:
    scene = scenes.weights(quick=False)
    total = sum(weight for weight, _ in scenes.WEIGHTS.values())
    for slots in scenes.POOLS:
        for name, (weight, cost_s) in scenes.WEIGHTS.items():
            work_s = scene.tasks()[f"{name}{slots}"] * cost_s
            assert work_s > 2 * slots * weight / total * scene.until_s


@pytest.mark.parametrize("ended_first", [True, False])
def test_a_cap_is_exceeded_when_more_run_at_once_and_not_when_one_follows_another(ended_first: bool) -> None:
    follows = [change(1.0, 1), change(2.0, -1), change(2.0, 1), change(3.0, -1)]
    most = caps.most_at_once(follows if ended_first else reversed(follows))
    assert caps.exceeded(most, {("tenant", "a"): 1, ("pool", "llm"): 1}) == []
    over = caps.most_at_once([*follows, change(1.5, 1), change(1.6, -1)])
    assert caps.exceeded(over, {("tenant", "a"): 1, ("pool", "llm"): 2}) == ["tenant a: 2 at once, of 1"]


def test_runs_quotas_and_needs_are_counted_in_scopes_of_their_own() -> None:
    changes = [
        change(1.0, 1, run=7, needs=(("browser", 2),)),
        change(1.1, 1, tenant="b", needs=(("browser", 1),)),
        change(1.2, 1, run=8),
    ]
    most = caps.most_at_once(changes)
    assert most["run", "7"] == most["run", "8"] == 1 and ("run", "0") not in most
    assert (most["resource", "browser"], most["a/resource", "browser"], most["a/pool", "llm"]) == (3, 2, 2)
    limits = {("resource", "browser"): 2, ("a/resource", "browser"): 1, ("b/pool", "llm"): 0}
    assert len(caps.exceeded(most, limits)) == 3


def test_windows_see_only_what_ran_in_them_and_weigh_it() -> None:
    fair = {"a": [effect(i, i, i + 1.0) for i in range(8)], "b": [effect(i, i, i + 0.5) for i in range(8)]}
    found = measure.jain_windows(fair, {"a": 2.0, "b": 1.0}, since_s=0.0, until_s=8.0, window_s=4.0, step_s=1.0)
    assert found == [1.0] * 5
    late = {"a": fair["a"], "b": fair["b"][4:]}
    found = measure.jain_windows(late, {"a": 2.0, "b": 1.0}, since_s=0.0, until_s=8.0, window_s=4.0, step_s=4.0)
    assert found == [0.5, 1.0]
    assert measure.shares(late, 0.0, 8.0) == {"a": 0.8, "b": 0.2}


def test_a_makespan_lasts_from_the_first_submit_and_bodies_that_touch_do_not_overlap() -> None:
    first, second = effect(1, 2.0, 3.0, submitted_s=1.0), effect(2, 3.0, 5.0, submitted_s=1.5)
    assert measure.makespan_s([first], [second]) == 4.0
    assert measure.at_once([first, second]) == 1 and measure.at_once([first, second, second]) == 2
    assert measure.waits_s([first, second]) == [1.0, 1.5]


def test_the_examples_hold() -> None:
    for module in (measure, score):
        assert doctest.testmod(module).failed == 0
