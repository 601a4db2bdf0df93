"""A scenario that makes no sense is refused by the path of its key."""

from pathlib import Path
from typing import Any

import pytest

from harness.policy.errors import Invalid
from harness.sim.parse import load
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
        ({"tenants": {"a": {"cap": True}}}, "tenants.a.cap", "must be a whole number"),
        ({"tenants": {"a": {"quotas": {"pool": {"gpu": 1}}}}}, "tenants.a.quotas.pool.gpu", "names 'gpu'"),
        ({"tenants": {"a": {}, "all": {}}}, "tenants.all", "must be called something else"),
        ({"work": []}, "work", "is missing"),
        ({"work": [WORK | {"tenants": "b"}]}, "work[0].tenants", "names 'b'"),
        ({"work": [WORK | {"priority": "p9"}]}, "work[0].priority", "must be one of p0, p1, p2, p3"),
        ({"work": [WORK, WORK | {"arrivals": "poisson"}]}, "work[1].rate_per_s", "is missing"),
        ({"work": [WORK | {"at_s": [5, 1]}]}, "work[0].at_s", "in order"),
        ({"work": [WORK | {"fanout_cap": 3}]}, "work[0].fanout_cap", "say run = true"),
        ({"losses": [{"at_s": 1, "pool": "llm", "slots": 0}]}, "losses[0].slots", "at least 1"),
        ({"pauses": [{"scope": "world", "key": "x", "until_s": 1}]}, "pauses[0].scope", "must be one of"),
        ({"expect": {"makespan_s": 5}}, 'expect."makespan_s"', "must be [least, most]"),
        ({"expect": {"makespan_s": [5, 1]}}, 'expect."makespan_s"', "is an empty range"),
        ({"plan": "magic"}, "plan", "must be one of present, first_come"),
        ({"ci": 1}, "ci", "must be true or false"),
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
