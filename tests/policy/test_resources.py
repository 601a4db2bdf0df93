"""What the file and operators may say of a resource: nonsense is refused by its key, what is in force never is."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.errors import Invalid
from harness.policy.resources import FIELDS, LIMITERS, Live, Resource, checked, fields_of, in_force, parse, read

CALL: dict[str, Any] = {"held": "call", "capacity": 50, "limiter": "csl", "floor": 5}
TASK: dict[str, Any] = {"held": "task", "capacity": 4}
LLM = parse("llm", CALL)
BROWSER = parse("browser", TASK)

NO_NUMBERS: tuple[Any, ...] = (math.nan, math.inf, -math.inf, True, "5", None, [])
NO_COUNTS: tuple[Any, ...] = (0, -1, 1.5, 10**9, *NO_NUMBERS)
NO_RATES: tuple[Any, ...] = (0, 0.0, -60, 1e-9, 1e12, *NO_NUMBERS)
NO_LIMITERS: tuple[Any, ...] = ("vegas", "", 5, None, True, [])
NO_TRUTHS: tuple[Any, ...] = (1, 0, "on", None, math.nan)
WRONG: tuple[tuple[str, Any], ...] = (
    *(("capacity", wrong) for wrong in NO_COUNTS),
    *(("floor", wrong) for wrong in NO_COUNTS),
    *(("start", wrong) for wrong in NO_COUNTS),
    *(("rpm", wrong) for wrong in NO_RATES),
    *(("tpm", wrong) for wrong in NO_RATES),
    *(("timeout_s", wrong) for wrong in (0, -1, 1e6, *NO_NUMBERS)),
    *(("p0_reserve", wrong) for wrong in (-1, 1.5, 10**9, *NO_NUMBERS)),
    *(("retry_ratio", wrong) for wrong in (-0.1, 1.1, *NO_NUMBERS)),
    *(("retry_per_s", wrong) for wrong in (-1, 1e6, *NO_NUMBERS)),
    *(("tenant_cap", wrong) for wrong in (-1, 1.5, 2**31, *NO_NUMBERS)),
    *(("limiter", wrong) for wrong in NO_LIMITERS),
    *(("breaker", wrong) for wrong in NO_TRUTHS),
    ("floor", 51),
    ("start", 4),
    ("start", 51),
    ("p0_reserve", 50),
    ("colour", "red"),
    ("held", "both"),
    ("held", None),
)


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_the_file_is_refused_by_the_path_of_the_key(key: str, value: object) -> None:
    with pytest.raises(Invalid, match=r"resources\.toml: resources\.llm\.") as caught:
        parse("llm", {**CALL, key: value})
    assert caught.value.field == f"resources.llm.{key}"


@pytest.mark.parametrize("key", [key for key in FIELDS if key not in ("capacity", "tenant_cap")])
def test_what_only_calls_have_is_refused_of_a_resource_that_tasks_hold(key: str) -> None:
    with pytest.raises(Invalid, match='is for resources with held = "call"'):
        parse("browser", {**TASK, key: 5})


@pytest.mark.parametrize("name", ["", "a,b", "a=b", "a b", "a\nb"])
def test_a_name_that_no_signature_or_command_could_say_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="must be named without"):
        parse(name, TASK)


@pytest.mark.parametrize("table", [{"held": "call"}, {"held": "task"}, {"held": "call", "rpm": 60}])
def test_a_resource_without_a_limit_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="a resource without a limit protects nothing") as caught:
        parse("llm", table)
    assert caught.value.field == "resources.llm.capacity"


def test_defaults_keep_a_place_for_p0_only_where_the_limit_is_learned() -> None:
    fixed = parse("x", {"held": "call", "capacity": 8})
    assert fixed == Resource(name="x", held="call", capacity=8)
    assert (LLM.p0_reserve, LLM.adaptive, LLM.permit_ttl_s) == (1, True, 65.0)
    assert parse("x", {"held": "call", "capacity": 1, "limiter": "csl"}).p0_reserve == 0, "others need the only place"
    assert (BROWSER.breaker, BROWSER.adaptive) == (False, False)


def test_operators_text_is_read_as_the_file_would_be() -> None:
    said = {"capacity": "1,000", "rpm": "0.5", "tpm": "none", "breaker": "off", "limiter": "aimd", "start": "None"}
    values = {key: read(text) for key, text in said.items()}
    assert checked(LLM, values) == {
        "capacity": 1000,
        "rpm": 0.5,
        "tpm": None,
        "breaker": False,
        "limiter": "aimd",
        "start": None,
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({key: value}, key)
        for key, value in WRONG
        if not (key == "capacity" and value == 0 and type(value) is int)
        and not (value is None and key in ("start", "rpm", "tpm", "tenant_cap"))
        and not isinstance(value, list)
    ]
    + [({"capacity": 4}, "floor"), ({"name": "x"}, "name"), ({"rpm": read("nan")}, "rpm"), ({"rpm": read("")}, "rpm")],
)
def test_an_override_is_refused_by_the_same_rules(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid, match=r"^llm: ") as caught:
        checked(LLM, changes)
    assert caught.value.field == field


def test_an_override_of_what_only_calls_have_is_refused_of_a_resource_that_tasks_hold() -> None:
    with pytest.raises(Invalid, match="one can set capacity, tenant_cap"):
        checked(BROWSER, {"rpm": 60})


def test_floor_and_capacity_may_be_lowered_together() -> None:
    assert checked(LLM, {"capacity": 4, "floor": 2}) == {"capacity": 4, "floor": 2}


def test_a_first_limit_that_nobody_named_now_gives_way_to_a_lower_capacity_or_a_higher_floor() -> None:
    started = replace(LLM, start=40)
    assert checked(started, {"capacity": 20}) == {"capacity": 20}
    assert in_force(started, {"capacity": 20}).start == 20 and in_force(started, {"floor": 45}).start == 45
    with pytest.raises(Invalid, match="start must be from floor"):
        checked(started, {"capacity": 20, "start": 40})


def test_a_capacity_of_0_lets_nothing_through_whatever_the_limiter() -> None:
    assert checked(LLM, {"capacity": 0}) == {"capacity": 0}
    closed = in_force(LLM, {"capacity": 0})
    assert (closed.capacity, closed.adaptive, closed.p0_reserve) == (0, False, 0)
    assert Live(resource=closed, limit_now=30).limit == Live(resource=in_force(BROWSER, {"capacity": 0})).limit == 0


def test_a_usual_reserve_follows_the_limiter_and_one_that_was_said_stays() -> None:
    assert in_force(LLM, {"limiter": "fixed"}).p0_reserve == 0
    assert in_force(in_force(LLM, {"limiter": "fixed"}), {"limiter": "csl"}).p0_reserve == 1
    assert in_force(replace(LLM, p0_reserve=3), {"limiter": "fixed"}).p0_reserve == 3


def test_only_a_learned_limit_or_one_of_a_measured_target_is_what_was_last_kept() -> None:
    assert Live(resource=LLM, limit_now=30).limit == 30 and Live(resource=LLM, limit_now=99).limit == 50
    assert Live(resource=BROWSER, limit_now=2).limit == 2
    assert Live(resource=in_force(LLM, {"limiter": "fixed"}), limit_now=30).limit == 50


anything = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 200), st.floats(), st.sampled_from([*LIMITERS, "vegas", "none", ""])
)
changes_of = st.dictionaries(st.sampled_from([*FIELDS, "colour"]), anything)


@given(st.sampled_from([LLM, BROWSER]), changes_of)
def test_what_is_in_force_always_makes_sense(resource: Resource, changes: dict[str, Any]) -> None:
    now = in_force(resource, changes)
    assert now.name == resource.name and now.held == resource.held
    if now.capacity:
        table = {field: getattr(now, field) for field in fields_of(now.held) if getattr(now, field) is not None}
        assert parse(now.name, {"held": now.held, **table}) == now


@given(st.sampled_from([LLM, BROWSER]), changes_of)
def test_what_an_operator_may_set_is_in_force_to_the_letter(resource: Resource, changes: dict[str, Any]) -> None:
    try:
        kept = checked(resource, changes)
    except Invalid:
        return
    now = in_force(resource, kept)
    fixed_by_0 = ("limiter", "p0_reserve", "floor", "start") if kept.get("capacity") == 0 else ()
    adaptive_only = () if now.adaptive else ("floor", "start")
    for field, value in kept.items():
        if field not in (*fixed_by_0, *adaptive_only):
            assert getattr(now, field) == value
