"""Cheaper forms on the real database: released, held, run and remembered as such; gone when the pressure is."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from harness.engine import execute, operate
from harness.kinds import Context, Form, Transient, kind, models, registry
from harness.kinds.forms import FORMS_MOST
from harness.policy.errors import Invalid
from harness.policy.models import parse
from harness.policy.pressure import Level
from harness.policy.resources import Resource
from harness.store import queries, transitions
from tests.engine.test_pressure import set_level
from tests.stage import Stage

LLM, SMALL = "llm:default", "llm:small"
RESOURCES = {name: Resource(name=name, held="call", capacity=10) for name in (LLM, SMALL)}


class Words(BaseModel):
    """What to say, and how often."""

    model_config = ConfigDict(extra="forbid")

    words: int = 100
    fails: bool = False


def fewer(payload: Words) -> Words:
    return payload.model_copy(update={"words": payload.words // 2})


@kind(
    "test.formed",
    pool="llm",
    input=Words,
    resources={LLM: 1},
    degrade=[Form(name="brief", change=fewer), Form(name="small", change=fewer, resources={SMALL: 1})],
)
def formed(ctx: Context, payload: Words) -> dict[str, Any]:
    """Say in which form it ran; fail in the first one, if it is asked to."""
    parts = ctx.step("split", lambda: payload.words // 10)
    for number in range(parts):
        ctx.step(f"part {number + 1}", lambda: "done")
    if payload.fails and ctx.form:
        raise Transient("once more")
    return {"form": ctx.form, "words": payload.words, "parts": parts}


@kind("test.misshaped", pool="llm", input=Words, degrade=[Form(name="odd", change=lambda payload: {"words": 1})])
def misshaped(ctx: Context, payload: Words) -> None:
    """Its form makes no input of its own schema."""


KINDS = {name: registry._KINDS.pop(name) for name in ("test.formed", "test.misshaped")}


@pytest.fixture(autouse=True)
def kinds(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The kinds and resources of this file, known only to its tests."""
    for name, one in KINDS.items():
        monkeypatch.setitem(registry._KINDS, name, one)
    known = settings.HARNESS_TOPOLOGY
    settings.HARNESS_TOPOLOGY = replace(known, resources={**known.resources, **RESOURCES})


@pytest.fixture
def small_model() -> Iterator[None]:
    """A cheaper model with a resource of its own."""
    file = {
        "default": "large",
        "cheaper": "small",
        "unpriced_usd_per_million_tokens": 1.0,
        "providers": {"p": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {
            "large": {"provider": "p", "resource": LLM},
            "small": {"provider": "p", "resource": SMALL},
        },
    }
    before = models.configured()
    models.configure(parse(file))
    yield
    models.configure(before)


def leases(stage: Stage) -> list[tuple[int, str | None, str]]:
    rows = stage.connection.execute("SELECT priority, degraded, signature FROM lease ORDER BY priority, id")
    return [(row[0], row[1], row[2]) for row in rows]


def attempts(stage: Stage, task: int) -> list[tuple[str, str | None]]:
    rows = stage.connection.execute("SELECT verdict, degraded FROM attempt WHERE task_id = %s ORDER BY id", (task,))
    return [(row[0], row[1]) for row in rows]


def output(stage: Stage, task: int) -> Any:
    return stage.one("SELECT output FROM task_body WHERE task_id = %s", task)


@pytest.mark.parametrize(
    ("level", "forms"),
    [
        (Level.ELEVATED, [None, None, None, None]),
        (Level.HIGH, [None, None, "brief", "brief"]),
        (Level.CRITICAL, [None, "brief", "small", "small"]),
    ],
)
def test_a_lease_says_the_form_and_holds_what_it_needs(stage: Stage, level: Level, forms: list[str | None]) -> None:
    stage.add_session({"llm": 20})
    set_level(stage, level)
    for priority, form in enumerate(forms):
        stage.submit("test.formed", priority=priority)
        stage.tick()
        stage.tick()  # the first one finds the flow of the class before empty
        assert leases(stage)[-1] == (priority, form, f"{SMALL}=1" if form == "small" else f"{LLM}=1")
        stage.connection.execute("DELETE FROM lease_member; DELETE FROM lease")


def test_an_attempt_runs_in_its_form_and_remembers_it(stage: Stage) -> None:
    session = stage.add_session({"llm": 20})
    set_level(stage, Level.HIGH)
    (task,) = stage.submit("test.formed", priority=2)
    with stage.process(session) as process:
        stage.run_all(process)
    assert output(stage, task) == {"form": "brief", "words": 50, "parts": 5}
    assert attempts(stage, task) == [("succeed", "brief")]
    claimed = stage.one("SELECT data FROM event WHERE task_id = %s AND event = 'claim'", task)
    assert claimed == {"degraded": "brief"}


def test_it_returns_by_itself_and_a_later_attempt_goes_on_from_the_steps_of_a_cheaper_one(stage: Stage) -> None:
    session = stage.add_session({"llm": 20})
    set_level(stage, Level.HIGH)
    (task,) = stage.submit("test.formed", priority=3, input=json.dumps({"fails": True}))
    with stage.process(session) as process:
        stage.run_all(process)
        assert stage.state(task) == "failed_retryable"
        set_level(stage, Level.ELEVATED)
        stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
        transitions.wake_due(stage.connection, actor="test")
        stage.run_all(process)
    assert output(stage, task) == {"form": "", "words": 100, "parts": 5}
    assert attempts(stage, task) == [("fail", "brief"), ("succeed", None)]


def test_a_tenant_that_forbids_it_is_served_whole_from_the_next_second_on(stage: Stage) -> None:
    stage.add_session({"llm": 20})
    set_level(stage, Level.HIGH)
    with stage.open("staff") as staff:
        changed = operate.set_tenant(staff, "acme", actor="test", reason="contract", degrade=False)
    assert str(changed) == "degrade yes -> no"
    stage.submit("test.formed", priority=2)
    stage.tick()
    assert [form for _, form, _ in leases(stage)] == [None]
    stage.lead()
    stage.submit("test.formed", priority=2)
    stage.tick()
    assert [form for _, form, _ in leases(stage)] == [None, None], "a new leader knows it too"
    with stage.open("staff") as staff:
        operate.set_tenant(staff, "acme", actor="test", reason="contract", degrade=True)
    stage.submit("test.formed", priority=2)
    stage.tick()
    assert sorted(str(form) for _, form, _ in leases(stage)) == ["None", "None", "brief"]


def test_a_task_that_forbids_it_is_released_whole_beside_one_that_does_not(stage: Stage) -> None:
    stage.add_session({"llm": 20})
    set_level(stage, Level.HIGH)
    stage.submit("test.formed", priority=2, degrade=False)
    stage.submit("test.formed", priority=2)
    stage.tick()
    assert [form for _, form, _ in leases(stage)] == [None, "brief"]


def test_a_task_whose_worker_died_is_remembered_in_the_form_that_it_ran_in(stage: Stage) -> None:
    session = stage.add_session({"llm": 20})
    set_level(stage, Level.CRITICAL)
    (task,) = stage.submit("test.formed", priority=2)
    (message,) = stage.tick()
    (claimed,) = stage.claim(message, session)
    assert claimed.degraded == "small"
    stage.connection.execute("UPDATE worker_session SET ended_at = clock_timestamp()")
    transitions.lose(stage.connection, max_attempts={}, retry_delay_s=1.0, actor="test")
    assert attempts(stage, task) == [("lose", "small")]


def test_who_asks_is_told_the_form_while_it_runs_and_after(stage: Stage) -> None:
    session = stage.add_session({"llm": 20})
    set_level(stage, Level.HIGH)
    (task,) = stage.submit("test.formed", priority=2)
    public = stage.one("SELECT public_id FROM task WHERE id = %s", task)

    def told() -> str | None:
        with stage.open("web") as web, queries.as_tenant(web, stage.tenant):
            found = queries.task(web, public)
            (listed,), _ = queries.tasks(web, tenant=stage.tenant, most=10)
        assert found is not None and found.degraded == listed.degraded
        return found.degraded

    assert told() is None
    (message,) = list(stage.tick())
    assert told() == "brief"
    with stage.process(session) as process:
        execute.run_lease(process, message.lease, message.token)
    assert (stage.state(task), told()) == ("succeeded", "brief")


def test_a_form_that_makes_something_else_of_an_input_fails_its_task_and_says_so(stage: Stage) -> None:
    session = stage.add_session({"llm": 20})
    set_level(stage, Level.HIGH)
    (task,) = stage.submit("test.misshaped", priority=2)
    with stage.process(session) as process:
        stage.run_all(process)
    message = stage.one("SELECT message FROM attempt WHERE task_id = %s", task)
    assert "form 'odd' made a dict of a Words" in message


def test_the_kinds_of_the_product_go_to_the_cheaper_model_where_there_is_one(stage: Stage, small_model: None) -> None:
    stage.add_session({"llm": 20})
    set_level(stage, Level.CRITICAL)
    for name in ("llm.chat", "llm.summarize"):
        stage.submit(name, priority=2)
    stage.tick()
    assert set(leases(stage)) == {(2, "small", f"{SMALL}=1")}
    chat = registry.find("llm.chat")
    assert chat is not None and chat.forms[1].signature == f"{SMALL}=1"
    assert chat.may_need() == {LLM: 1, SMALL: 1}


def test_without_a_cheaper_model_the_same_resource_is_needed_in_every_form() -> None:
    chat = registry.find("llm.chat")
    assert chat is not None and [form.signature for form in chat.forms] == [None, None]


@pytest.mark.parametrize(
    ("forms", "told"),
    [
        ([Form(name="Brief", change=fewer)], "its name must be"),
        ([Form(name="brief", change=fewer)] * 2, "stands there twice"),
        ([Form(name="brief")], "changes nothing"),
        ([Form(name=f"f{i}", change=fewer) for i in range(FORMS_MOST + 1)], "more than"),
        ([Form(name="free", resources={})], "what costs declares the resource"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused_when_the_kind_is_registered(forms: list[Form], told: str) -> None:
    with pytest.raises(Invalid, match=told) as refused:
        kind("test.badly_formed", pool="llm", input=Words, resources={LLM: 1}, costs=True, degrade=forms)(formed)
    assert refused.value.field == "degrade" and "test.badly_formed" in refused.value.message


def test_a_form_that_needs_an_unknown_resource_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    odd = replace(KINDS["test.formed"], degrade=(Form(name="odd", resources={"llm:nowhere": 1}),))
    monkeypatch.setitem(registry._KINDS, "test.formed", odd)
    with pytest.raises(Invalid, match="needs resource 'llm:nowhere'"):
        registry.check_against(settings.HARNESS_TOPOLOGY)
