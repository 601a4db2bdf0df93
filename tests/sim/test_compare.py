"""What if: the same traffic under other limits, weights, workers or another plan, and how it is told and drawn."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from harness.policy.errors import Invalid
from harness.sim.chart import chart
from harness.sim.compare import differences, overlaid
from harness.sim.parse import load_all, load_other, parse
from harness.sim.report import simulate
from tests.sim.scenes import scene

FIRST: dict[str, Any] = {
    "title": "first",
    "duration_s": 200.0,
    "pools": {"llm": {"slots": 2}},
    "kinds": {"step": {"pool": "llm", "mean_s": 1.0, "law": "lognormal", "sigma": 1.0}},
    "tenants": {"a": {}, "b": {}},
    "work": [
        {"tenants": name, "kind": "step", "arrivals": "poisson", "rate_per_s": 1.2, "until_s": 100.0} for name in "ab"
    ],
    "expect": {"counts.succeed": [0, 1]},
}


def slot_seconds(raw: dict[str, Any]) -> tuple[float, float]:
    found = simulate(parse(raw, name="x.toml"), alike=True).figures
    return found["counts"]["succeed"], found["classes"]["p2"]["slot_s"]


@pytest.mark.parametrize(
    "other",
    [
        {"pools": {"llm": {"slots": 7}}},
        {"tenants": {"a": {"weight": 5.0}, "b": {"cap": 1}}},
        {"plan": "first_come"},
        {"resources": {"browser": {"capacity": 1}}},
    ],
)
def test_the_same_tasks_come_and_take_the_same_whatever_is_other(other: dict[str, Any]) -> None:
    other = {"title": "other", **other}
    first, then = slot_seconds(FIRST), slot_seconds(overlaid(FIRST, other, name="other.toml"))
    assert first[0] == then[0] > 100
    assert first[1] == pytest.approx(then[1])


def test_more_workers_only_shorten_waits_and_the_difference_is_told_figure_by_figure() -> None:
    raw = overlaid(FIRST, {"pools": {"llm": {"slots": 7}}}, name="other.toml")
    assert "expect" not in raw and FIRST["expect"], "what is expected of the first is not of the other"
    first, then = (simulate(parse(one, name="x.toml"), alike=True).figures for one in (FIRST, raw))
    found = {one.figure: one for one in differences(first, then)}
    assert found["counts.submitted"].alike and found["counts.succeed"].alike
    wait = found["waits.all.p2.p95_s"]
    assert wait.first and wait.other is not None and wait.other < wait.first / 3 and not wait.alike
    assert not any(figure.startswith(("cost", "by_cell", "seed")) for figure in found)


def test_a_figure_that_only_one_of_both_has_is_told_and_is_not_alike() -> None:
    first, other = differences({"a": {"x": 1}}, {"b": 2.0})
    assert (first.figure, first.first, first.other, first.alike) == ("a.x", 1.0, None, False)
    assert (other.figure, other.first, other.other, other.alike) == ("b", None, 2.0, False)


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"work": []}, "work"),
        ({"duration_s": 5.0}, "duration_s"),
        ({"seed": 3}, "seed"),
        ({"kinds": {"step": {"mean_s": 9.0}}}, "kinds.step.mean_s"),
        ({"kinds": {"step": {"failures": {"timeout": 0.5}}}}, "kinds.step.failures"),
    ],
)
def test_what_makes_the_traffic_cannot_be_other(other: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        overlaid(FIRST, other, name="other.toml")
    assert refused.value.field == field
    assert str(refused.value).startswith(f"other.toml: {field} must be that of the first")


def test_a_whole_scenario_may_be_the_other_one_if_its_traffic_is_the_same() -> None:
    whole = FIRST | {"title": "whole", "pools": {"llm": {"slots": 3}}}
    assert overlaid(FIRST, whole, name="other.toml")["pools"] == {"llm": {"slots": 3}}


def test_every_variation_has_its_other(tmp_path: Path) -> None:
    first, other = tmp_path / "first.toml", tmp_path / "other.toml"
    first.write_text(
        'title = "t"\nduration_s = 10\n[vary]\nc = [1, 2]\n[pools.llm]\nslots = "= c"\n[kinds.step]\npool = "llm"\n'
        'mean_s = 1.0\n[tenants.a]\n[[work]]\ntenants = "a"\nkind = "step"\narrivals = "at"\n'
    )
    other.write_text('title = "other"\n[pools.llm]\nslots = "= 3 * c"\n')
    slots = [[one.pools["llm"][0][1] for one in of] for of in (load_all(first), load_other(first, other))]
    assert slots == [[1, 2], [3, 6]]


def test_without_being_asked_for_alike_tasks_a_scenario_gives_what_it_always_gave() -> None:
    one = scene(kinds={"step": {"pool": "llm", "mean_s": 1.0, "law": "exponential"}})
    assert simulate(one).figures["makespan_s"] == simulate(one, tracked=True).figures["makespan_s"]


def test_a_chart_is_drawn_of_one_or_two_and_names_become_no_markup() -> None:
    one = scene(
        title="<b>&",
        resources={"browser": {"capacity": 1}},
        kinds={"step": {"pool": "llm", "mean_s": 1.0, "needs": {"browser": 1}}},
        duration_s=20.0,
    )
    track = simulate(one, tracked=True).track
    assert track is not None
    steps = {len(line) for line in track.series.values()}
    assert len(steps) == 1 and steps.pop() > 100
    assert max(track.series["used browser"]) == 1.0
    for tracks in ({"it": track}, {"<one>": track, "two": track}):
        found = chart(one.title, tracks)
        root = ET.fromstring(found)
        assert root.get("aria-label") == "<b>&"
        assert found == chart(one.title, tracks)
        lines = root.findall("{http://www.w3.org/2000/svg}polyline")
        assert len(lines) >= 5 * len(tracks)
