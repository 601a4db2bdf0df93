"""The closed set of reasons: each has words, their order is one, and of other tenants only counts can be said."""

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.binding import Facts, Flow, PauseFacts, binder
from harness.policy.forms import Form
from harness.policy.known import know
from harness.policy.money import Standing
from harness.policy.reasons import TABLE, Code, Fact, Reason, Who, label, told
from harness.policy.room import Room

# What a reason may say: figures of one's own, what everybody shares, and how many others there are.
SAYABLE = {
    "used", "limit", "halved_of", "needs", "most", "ahead", "beyond", "others", "slots", "lost", "left", "total",
    "need", "failed", "pool", "resource", "name", "period", "what", "author", "reason", "since", "until", "lifts",
    "subject",
}  # fmt: skip
FACTS: dict[str, Fact | None] = {
    **dict.fromkeys(
        ("used", "halved_of", "needs", "most", "ahead", "others", "slots", "lost", "left", "total", "need", "failed"), 2
    ),
    **dict.fromkeys(("pool", "resource", "name", "period", "what", "author", "reason"), "x"),
    "limit": 3,
    "beyond": "More than",
    "source": "operator",
    "since_s": 1.0,
    "until_s": 2.0,
}
UNKNOWN: dict[str, Fact | None] = dict.fromkeys(("since_s", "author", "reason", "slots", "others", "beyond", "source"))


@dataclass(frozen=True)
class Kind:
    """A kind that costs, in the pool `llm`."""

    name: str = "costly"
    pool: str = "llm"
    signatures: frozenset[str] = frozenset({"gpu=2"})
    est_s: float = 1.0
    bundle: bool = False
    costs: bool = True
    forms: tuple[Form, ...] = ()


@pytest.mark.parametrize("code", list(Code))
@pytest.mark.parametrize("facts", [FACTS, FACTS | {"limit": 0}, FACTS | UNKNOWN])
def test_every_reason_has_whole_sentences_whatever_is_known(code: Code, facts: dict[str, Fact | None]) -> None:
    said = told(Reason(code, "s", facts), lambda at_s: f"at {at_s:g}")
    for text in (said.words, said.frees):
        assert not re.search(r"[\[\]{}|]", text) and "  " not in text
    assert said.words.endswith(".") and said.words[:1] != " "
    assert label(code, "s") and isinstance(Reason(code).who, Who)


def test_what_can_be_said_is_of_ones_own_of_all_or_a_count() -> None:
    entries = [part for one in TABLE.values() for part in (one.label, one.words, one.frees, *(one.at_none or ()))]
    assert {name for text in entries for name in re.findall(r"\{(\w+)", text)} <= SAYABLE
    assert list(TABLE) == list(Code)


@given(st.integers(0, 99), st.integers(0, 99))
def test_a_figure_that_moves_leaves_the_reason_the_same_and_a_limit_makes_it_another(one: int, other: int) -> None:
    first = Reason(Code.TENANT_CAP, "", {"used": one, "limit": 5})
    assert first.key == Reason(Code.TENANT_CAP, "", {"used": other, "limit": 5}).key
    assert (first.key == Reason(Code.TENANT_CAP, "", {"used": one, "limit": other}).key) == (other == 5)


# Each constraint, and facts in which it binds; a flow under several is told the first of the table.
CONSTRAINTS = ("paused", "no_worker", "too_large", "budget", "tenant_cap", "run_cap", "quota", "resource", "ramp")


@given(st.sets(st.sampled_from(CONSTRAINTS)))
def test_of_several_constraints_the_first_of_the_table_binds_and_none_is_the_turn(binding: set[str]) -> None:
    pause = PauseFacts(scope="run", key="9", source="tenant", author="a", reason="r", since_s=0.0, until_s=None)
    has = binding.__contains__
    room = Room(
        slots={} if has("no_worker") else {"llm": 4},
        free={"llm": 4},
        capacities={"gpu": 4},
        resources={"gpu": 1 if has("resource") or has("too_large") else 4},
        quotas={(7, "pool", "llm"): 0} if has("quota") else {},
        tenants={7: 5},
        runs={9: 2},
    )
    facts = Facts(
        room=room,
        capacities={"gpu": 1 if has("too_large") else 4},
        quotas={(7, "pool", "llm"): 3} if has("quota") else {},
        pauses=[pause] if has("paused") else [],
        kinds=know([Kind()], {}),
        beyond={7: Standing(line="hard", period="day", limit_usd=5.0)} if has("budget") else {},
        ramped={"llm": {("tenant", 7): 0}} if has("ramp") else {},
    )
    flow = Flow(1, ("llm", 2, 7, 9, "gpu=2"), 5 if has("tenant_cap") else 6, 2 if has("run_cap") else 3)
    reason = binder(facts)(flow)
    expected = min((Code(one) for one in binding), key=list(TABLE).index, default=Code.TURN)
    assert reason.code == expected
    # A flow that stands under none of these, in the same facts.
    free = binder(facts)(Flow(2, ("llm", 1, 8, 0, ""), 1, None))
    assert free.code == (Code.NO_WORKER if has("no_worker") else Code.TURN)
