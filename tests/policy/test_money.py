"""Budgets, over any amounts; and the models' file, whose every mistake is named."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy import models, money
from harness.policy.errors import Invalid
from harness.policy.money import Budget, Spent, stand

amounts = st.floats(min_value=0, max_value=1e9)
limits = st.none() | amounts


@given(limits, limits, st.floats(min_value=0.01, max_value=1), amounts, amounts)
def test_a_line_is_reached_exactly_when_a_period_is_spent(
    day: float | None, month: float | None, soft: float, spent_day: float, spent_month: float
) -> None:
    budget = Budget(day_usd=day, month_usd=month, soft_ratio=soft)
    found = stand(budget, Spent(day_usd=spent_day, month_usd=spent_month, day_left_s=5, month_left_s=50))
    pairs = [(limit, spent) for limit, spent in ((day, spent_day), (month, spent_month)) if limit is not None]
    hard = any(spent >= limit for limit, spent in pairs)
    soft_reached = any(spent >= limit * soft for limit, spent in pairs)
    assert found.line == ("hard" if hard else "soft" if soft_reached else "open")
    assert (found.period is None) == (found.line == "open")


@given(amounts, amounts)
def test_a_larger_budget_never_stops_what_a_smaller_one_lets_through(limit: float, spent: float) -> None:
    order = {"open": 0, "soft": 1, "hard": 2}
    facts = Spent(day_usd=spent, month_usd=spent, day_left_s=1, month_left_s=1)
    small = stand(Budget(day_usd=limit, month_usd=None), facts)
    large = stand(Budget(day_usd=limit * 2 + 1, month_usd=None), facts)
    assert order[large.line] <= order[small.line]


def test_a_refusal_says_when_to_come_again() -> None:
    spent = Spent(day_usd=1, month_usd=1, day_left_s=120.5, month_left_s=9000)
    refused = money.refusal(stand(Budget(day_usd=1, month_usd=None), spent))
    assert refused.code == "budget_exceeded" and refused.facts["retry_after_s"] == 120.5
    assert "the day's budget of $1.00" in refused.message and "raised" in refused.message


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"day_usd": -1.0}, "day"),
        ({"month_usd": float("nan")}, "month"),
        ({"month_usd": float("inf")}, "month"),
        ({"day_usd": 1.0, "soft_ratio": 0.0}, "soft"),
        ({"day_usd": 1.0, "soft_ratio": 1.1}, "soft"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        money.budget(**({"day_usd": None, "month_usd": None} | wrong))
    assert refused.value.field == field


GOOD: dict[str, Any] = {
    "default": "a",
    "unpriced_usd_per_million_tokens": 10,
    "providers": {"p": {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "KEY"}},
    "models": {
        "a": {"provider": "p", "input_usd_per_million_tokens": 1, "output_usd_per_million_tokens": 2.5},
        "b": {"provider": "p", "upstream": "vendor/b-2"},
    },
}


def test_the_price_of_a_model_is_found_by_either_name_and_an_unknown_one_is_none() -> None:
    found = models.parse(GOOD)
    assert found.cost_usd("a", 1_000_000, 2_000_000) == 6.0
    assert found.cost_usd("b", 1, 1) is None and found.cost_usd("nobody", 1, 1) is None
    priced = copy.deepcopy(GOOD)
    priced["models"]["a"]["upstream"] = "vendor/a"
    assert models.parse(priced).cost_usd("vendor/a", 0, 400_000) == 1.0
    assert found.cost_usd("nobody", 0, 0) == 0.0


def test_a_models_calls_take_a_permit_of_its_providers_resource_unless_it_names_its_own() -> None:
    raw = copy.deepcopy(GOOD)
    raw["models"]["b"]["resource"] = "llm:p:b"
    found = models.parse(raw).models
    assert {name: one.resource for name, one in found.items()} == {"a": "llm:p", "b": "llm:p:b"}


def test_the_cheaper_model_costs_no_more_than_the_default_where_both_prices_are_known() -> None:
    raw = copy.deepcopy(GOOD)
    assert models.parse(raw).cheaper is None
    assert models.parse(raw | {"cheaper": "b"}).cheaper == "b", "it has no price"
    prices = {"input_usd_per_million_tokens": 1.0, "output_usd_per_million_tokens": 900.0}
    raw["models"]["b"] |= prices
    with pytest.raises(Invalid, match="costs more than the default model 'a'"):
        models.parse(raw | {"cheaper": "b"})


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        (("default",), "c", "default"),
        (("cheaper",), "c", "cheaper"),
        (("cheaper",), 5, "cheaper"),
        (("extra",), 1, "extra"),
        (("unpriced_usd_per_million_tokens",), "10", "unpriced_usd_per_million_tokens"),
        (("models", "a", "provider"), "q", "models.a.provider"),
        (("models", "a", "price"), 1, "models.a.price"),
        (("models", "a", "input_usd_per_million_tokens"), -1, "models.a.input_usd_per_million_tokens"),
        (("models", "a", "input_usd_per_million_tokens"), True, "models.a.input_usd_per_million_tokens"),
        (("models", "a", "output_usd_per_million_tokens"), float("inf"), "models.a.output_usd_per_million_tokens"),
        (("models", "b", "input_usd_per_million_tokens"), 1, "models.b.input_usd_per_million_tokens"),
        (("models", "b", "upstream"), "a b", "models.b.upstream"),
        *((("models", "b", "resource"), wrong, "models.b.resource") for wrong in ("", "a,b", "a=1", 5, None, True)),
        (("models", "b", "upstream_env"), "M", "models.b.upstream"),
        (("providers", "p", "base_url"), "ftp://x", "providers.p.base_url"),
        (("providers", "p", "base_url"), "http://user:secret@x", "providers.p.base_url"),
        (("providers", "p", "base_url_env"), "URL", "providers.p.base_url"),
        (("providers", "p", "api_key"), "x", "providers.p.api_key"),
    ],
)
def test_a_mistake_in_the_models_file_is_named(path: tuple[str, ...], value: object, key: str) -> None:
    raw = copy.deepcopy(GOOD)
    table = raw
    for part in path[:-1]:
        table = table[part]
    table[path[-1]] = value
    with pytest.raises(Invalid) as refused:
        models.parse(raw)
    assert refused.value.field == key


def test_a_key_written_into_the_file_by_mistake_is_not_repeated() -> None:
    raw = copy.deepcopy(GOOD)
    raw["providers"]["p"]["api_key_env"] = "sk-live-0123456789"
    with pytest.raises(Invalid) as refused:
        models.parse(raw)
    assert "0123456789" not in refused.value.message and refused.value.field == "providers.p.api_key_env"
