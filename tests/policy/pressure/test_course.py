"""What is kept of an evaluation for charts: it adds up, and shares that are due leave nobody out."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.pressure import course
from harness.policy.pressure.course import OTHERS, TENANTS_MOST, Course, Stood
from harness.policy.pressure.facts import Ended, Facts, Held, Limit

FACTS = Facts(
    slots={"llm": 4},
    held=(Held("llm", "llm:default=1", 3, 1.0), Held("browser", "browser=2", 2, 1.0)),
    limits={
        "llm:default": Limit(limit=18, in_use=2, calls=True),
        "browser": Limit(limit=4, in_use=0, calls=False),
    },
    ended_s=30.0,
)


def ended(tenant: int, slot_s: float, error: str = "") -> Ended:
    return Ended("llm", 2, tenant, "llm:default=1", "llm.chat", slot_s, "postpone" if error else "succeed", error, 1.0)


def test_a_resource_is_kept_with_its_limit_what_uses_it_and_how_often_it_refused() -> None:
    seen = replace(FACTS, ended=(ended(1, 1.0), ended(1, 0.1, "rate_limit"), ended(2, 1.0, "timeout")))
    assert course.of(seen).resources == {"llm:default": Stood(18, 2, 3, 1), "browser": Stood(4, 4, 0, 0)}
    assert course.of(None) == Course() == course.of(replace(FACTS, limits=None)), "what couldn't be read is left out"


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.0, 100.0)), max_size=200))
def test_what_tenants_used_adds_up_and_is_bounded(times: list[tuple[int, float]]) -> None:
    found = course.of(replace(FACTS, ended=tuple([ended(*one) for one in times]))).tenants
    assert sum(found.values()) == pytest.approx(sum(s for _, s in times) / 30.0)
    assert len(found) <= TENANTS_MOST + 1
    assert min((n for tenant, n in found.items() if tenant != OTHERS), default=0.0) >= 0.0


@given(
    st.dictionaries(st.integers(1, 9), st.floats(0.0, 100.0)),
    st.dictionaries(st.integers(1, 9), st.floats(0.1, 40.0), min_size=1),
)
def test_those_who_wait_are_due_what_the_others_leave_by_weight(
    used: dict[int, float], weights: dict[int, float]
) -> None:
    found = course.due(used, weights)
    total = sum(used.values())
    others = sum(n for tenant, n in used.items() if tenant not in weights) / total if total else 0.0
    assert found.keys() == weights.keys()
    assert sum(found.values()) + others == pytest.approx(1.0)
    most, least = max(weights, key=lambda one: weights[one]), min(weights, key=lambda one: weights[one])
    assert found[most] >= found[least] >= 0.0
