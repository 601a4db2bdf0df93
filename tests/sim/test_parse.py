"""A scenario that makes no sense is refused by the path of its key."""

import math
from pathlib import Path
from typing import Any

import pytest

from harness.policy.errors import Invalid
from harness.sim.parse import load, load_all, parse
from harness.sim.report import simulate
from harness.sim.vary import variations
from tests.sim.scenes import scene

STEP = {"pool": "llm", "mean_s": 1.0}
WORK = {"tenants": "a", "kind": "step", "arrivals": "at"}


@pytest.mark.parametrize(
    ("more", "key", "says"),
    [
        ({"durations": 5}, "durations", "is unknown; known here:"),
        ({"duration_s": 0}, "duration_s", "must be a number above 0, not 0"),
        ({"duration_s": float("nan")}, "duration_s", "must be a number above 0, not nan"),
        ({"pools": {}}, "pools", "must name a pool"),
        ({"pools": {"llm": {"slots": -1}}}, "pools.llm.slots", "must be a whole number of at least 0"),
        ({"pools": {"llm": {"slots": [[5, 1]]}}}, "pools.llm.slots", "[[0, number]"),
        ({"pools": {"llm": {"slots": [[0, 1], [0, 2]]}}}, "pools.llm.slots", "[[0, number]"),
        ({"pools": {"llm": {}}}, "pools.llm.slots", "is missing"),
        ({"pools": [1]}, "pools", "must be a table"),
        ({"kinds": {"step": STEP | {"pool": "gpu"}}}, "kinds.step.pool", "names 'gpu', which [pools] doesn't have"),
        ({"kinds": {"step": STEP | {"law": "normal"}}}, "kinds.step.law", "must be one of fixed, exponential"),
        ({"kinds": {"step": STEP | {"sigma": 1.0}}}, "kinds.step.sigma", "is of no use with another"),
        ({"kinds": {"step": STEP | {"law": "lognormal"}}}, "kinds.step.sigma", "must be above 0"),
        ({"kinds": {"step": STEP | {"needs": {"gpu": 1}}}}, "kinds.step.needs.gpu", "there is none"),
        ({"kinds": {"step": STEP | {"failures": {"oops": 0.1}}}}, "kinds.step.failures.oops", "is no class of errors"),
        ({"kinds": {"step": STEP | {"failures": {"bug": 0.6, "lost": 0.6}}}}, "kinds.step.failures", "at most 1"),
        ({"resources": {"a=b": {"capacity": 1}}}, "resources.a=b", "without ',' and '='"),
        ({"tenants": {"a": {"weight": 0}}}, "tenants.a.weight", "must be a number above 0"),
        ({"tenants": {"a": {"weight": [[0, 1.0], [5, 0]]}}}, "tenants.a.weight", "must be a number above 0, or [[0"),
        ({"tenants": {"a": {"weight": [[5, 1.0]]}}}, "tenants.a.weight", "must be a number above 0, or [[0"),
        ({"tenants": {"a": {"cap": [[0, 1], [0, 2]]}}}, "tenants.a.cap", "[[0, number]"),
        *(
            ({"tenants": {"a": {"weight": wrong}}}, "tenants.a.weight", "must be a number above 0")
            for wrong in (0, -1, math.nan, math.inf, "much", True)
        ),
        ({"tenants": {"a": {"cap": -1}}}, "tenants.a.cap", "must be a whole number"),
        ({"tenants": {"a": {"cap": True}}}, "tenants.a.cap", "must be a whole number"),
        ({"tenants": {"a": {"quotas": {"pool": {"gpu": 1}}}}}, "tenants.a.quotas.pool.gpu", "names 'gpu'"),
        ({"tenants": {"a": {}, "all": {}}}, "tenants.all", "must be called something else"),
        ({"work": []}, "work", "is missing"),
        ({"work": [WORK | {"tenants": "b"}]}, "work[0].tenants", "names 'b'"),
        ({"work": [WORK | {"kind": ["step", "leap"]}]}, "work[0].kind", "names 'leap'"),
        ({"work": [WORK | {"kind": []}]}, "work[0].kind", "must be a text, or an array of them"),
        ({"work": [WORK | {"priority": "p9"}]}, "work[0].priority", "must be one of p0, p1, p2, p3"),
        ({"work": [WORK, WORK | {"arrivals": "poisson"}]}, "work[1].rate_per_s", "is missing"),
        ({"work": [WORK | {"at_s": [5, 1]}]}, "work[0].at_s", "in order"),
        ({"work": [WORK | {"fanout_cap": 3}]}, "work[0].fanout_cap", "say run = true"),
        ({"losses": [{"at_s": 1, "pool": "llm", "slots": 0}]}, "losses[0].slots", "at least 1"),
        ({"breakers": [{"resource": "gpu", "until_s": 9}]}, "breakers[0].resource", "names 'gpu'"),
        ({"pauses": [{"scope": "world", "key": "x", "until_s": 1}]}, "pauses[0].scope", "must be one of"),
        ({"expect": {"makespan_s": 5}}, 'expect."makespan_s"', "must be [least, most]"),
        ({"expect": {"makespan_s": [5, 1]}}, 'expect."makespan_s"', "is an empty range"),
        ({"plan": "magic"}, "plan", "must be one of fair, first_come"),
        ({"ci": 1}, "ci", "must be true or false"),
        ({"ci": {"c": [1]}}, "ci.c", "of a name in [vary]; there is none"),
        ({"measure": {"window_s": 10, "step_s": 3}}, "measure.step_s", "must divide window_s, 10"),
        ({"phases": [{"name": "x"}, {"name": "x"}]}, "phases[1].name", "names a second phase 'x'"),
        ({"phases": [{"name": "x", "until_s": 200}]}, "phases[0].until_s", "must be at most duration_s, 100"),
    ],
)
def test_nonsense_is_refused_by_its_key(more: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        scene(**more)
    assert refused.value.field == key
    assert refused.value.message.startswith(f"test.toml: {key} ")
    assert says in refused.value.message


def test_a_file_that_is_not_there_or_not_toml_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"nowhere\.toml: can't be read"):
        load(tmp_path / "nowhere.toml")
    (tmp_path / "bad.toml").write_text("a = = b")
    with pytest.raises(Invalid, match=r"bad\.toml: isn't TOML"):
        load(tmp_path / "bad.toml")


VARIED = """
title = "varied"
duration_s = "= 100 * s / c"
ci = { c = [2] }
[vary]
c = [1, 2]
s = [0.5, 60]
[pools.llm]
slots = "= c"
[kinds.step]
pool = "llm"
mean_s = "= s"
[tenants.a]
[[work]]
tenants = "a"
kind = "step"
arrivals = "at"
at_s = ["= min(s, 1)", "= (7 if c <= 1 else 8) - -ceil(s)"]
[expect]
"counts.succeed" = [2, "= floor(2.5)"]
"""


def test_a_scenario_is_made_once_for_each_combination_of_what_it_varies(tmp_path: Path) -> None:
    path = tmp_path / "varied.toml"
    path.write_text(VARIED)
    every = load_all(path)
    assert [one.title for one in every] == [f"varied c={c} s={s}" for c in (1, 2) for s in (0.5, 60)]
    assert [one.ci for one in every] == [False, False, True, True]
    assert [one.duration_s for one in every] == [50, 6000, 25, 3000]
    assert [one.works[0].at_s for one in every] == [(0.5, 8), (1, 67), (0.5, 9), (1, 68)]
    assert all(simulate(one).missed == () for one in every)
    with pytest.raises(Invalid, match="vary makes 4 scenarios of it, where one is wanted"):
        load(path)


@pytest.mark.parametrize(
    ("sum_", "says"),
    [
        ("= 2 * d", "names here: c"),
        ("= c / 0", "can't be worked out"),
        ("= c +", "can't be worked out"),
        ("= open('x')", "can't be worked out"),
        ("= c.real", "can't be worked out"),
        ("= [1]", "can't be worked out"),
        ("= 'a' * 3", "must be a number"),
    ],
)
def test_a_sum_that_makes_no_sense_is_refused_by_its_key(sum_: str, says: str) -> None:
    def read() -> None:
        for values, one in variations({"vary": {"c": [1]}, "title": "x", "duration_s": sum_}, "x.toml"):
            parse(one, name="x.toml", varied=values)

    with pytest.raises(Invalid) as refused:
        read()
    assert refused.value.field == "duration_s"
    assert says in refused.value.message


@pytest.mark.parametrize("vary", [{"c": []}, {"c": 1}, {"c": [True]}, {"c": [[1]]}])
def test_what_is_varied_must_be_a_list_of_values(vary: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match=r"vary\.c must be an array of numbers or texts"):
        variations({"vary": vary}, "x.toml")
