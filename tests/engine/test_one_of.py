"""A kind that needs one of several resources by its input: each task is held by the one that it needs, and no other."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings

from harness.engine import operate, submit
from harness.engine.submit import Door, TaskRequest
from harness.kinds import models, registry
from harness.policy.admission import TenantFacts
from harness.policy.errors import Invalid
from harness.policy.known import know
from harness.policy.models import parse
from harness.policy.resources import Resource
from tests.dead_letters import bury, public
from tests.stage import Stage

FILE = {
    "default": "small",
    "unpriced_usd_per_million_tokens": 1.0,
    "providers": {"p": {"base_url": "http://127.0.0.1:1/v1"}},
    "models": {"small": {"provider": "p"}, "large": {"provider": "p", "resource": "llm:p:large"}},
}
PLACES = {"llm:p": 3, "llm:p:large": 1}


@pytest.fixture(autouse=True)
def two_models(settings: Any) -> Iterator[None]:
    resources = {name: Resource(name=name, held="call", capacity=n) for name, n in PLACES.items()}
    settings.HARNESS_TOPOLOGY = replace(settings.HARNESS_TOPOLOGY, resources=resources)
    before = models.configured()
    models.configure(parse(FILE))
    yield
    models.configure(before)


def chat(model: str | None = None) -> dict[str, Any]:
    given = {} if model is None else {"model": model}
    return {"messages": [{"role": "user", "content": "hello"}], **given}


def door(stage: Stage, *inputs: dict[str, Any]) -> list[str]:
    """Submit a chat for each input; return the signatures of the tasks."""
    facts = TenantFacts(id=stage.tenant, name="acme", top_priority=0, backlog_quota=100)
    with stage.open("web") as web:
        requests = [TaskRequest(kind="llm.chat", input=one) for one in inputs]
        accepted = submit.submit(Door(body_max_bytes=10_000), web, facts, requests, actor="test")
    rows = stage.connection.execute("SELECT public_id, signature FROM task").fetchall()
    found: dict[Any, str] = dict(rows)
    return [found[task] for task in accepted.task_ids]


def test_a_task_needs_the_resource_of_the_model_that_it_names(stage: Stage) -> None:
    signatures = door(stage, chat(), chat("small"), chat("large"))
    assert signatures == ["llm:p=1", "llm:p=1", "llm:p:large=1"]


def test_a_full_model_holds_only_those_who_asked_for_it(stage: Stage) -> None:
    stage.add_session({"llm": 20})
    door(stage, *[chat("large")] * 3, *[chat()] * 2)
    stage.tick()
    rows = stage.connection.execute("SELECT signature, count(*) FROM lease GROUP BY 1").fetchall()
    assert dict(rows) == {"llm:p:large=1": 2, "llm:p=1": 2}, "one calls, one waits for its turn; the third is held"


def test_a_spent_budget_holds_the_tasks_of_every_model() -> None:
    found = know(registry.costing(), {})
    assert found.costing_in["llm"] >= {"llm:p=1", "llm:p:large=1"}


def test_another_input_is_sent_again_to_the_resource_of_its_model(stage: Stage) -> None:
    door(stage, chat("large"))
    task = int(stage.one("SELECT id FROM task"))
    bury(stage, [task])
    redrive = operate.VERBS["redrive"].run
    redrive(stage.connection, public(stage, task), tenant=stage.tenant, actor="test")
    assert stage.row(task)["signature"] == "llm:p:large=1", "its input is what it was"
    bury(stage, [task])
    redrive(stage.connection, public(stage, task), tenant=stage.tenant, actor="test", input=chat())
    assert stage.row(task)["signature"] == "llm:p=1"


def test_a_task_whose_models_resource_is_gone_is_sent_again_to_the_usual_one(stage: Stage) -> None:
    door(stage, chat("large"))
    task = int(stage.one("SELECT id FROM task"))
    bury(stage, [task])
    models.configure(parse(FILE | {"models": {"small": {"provider": "p"}, "large": {"provider": "p"}}}))
    operate.VERBS["redrive"].run(stage.connection, public(stage, task), tenant=stage.tenant, actor="test")
    assert stage.row(task)["signature"] == "llm:p=1"


def test_a_model_whose_resource_is_not_configured_stops_the_start_and_its_tasks_alone(
    stage: Stage, settings: Any
) -> None:
    others = {name for kind in registry.all_kinds() for name in kind.resources}  # those are looked at as well
    left = {name: Resource(name=name, held="task", capacity=1) for name in others}
    left["llm:p"] = settings.HARNESS_TOPOLOGY.resources["llm:p"]
    settings.HARNESS_TOPOLOGY = replace(settings.HARNESS_TOPOLOGY, resources=left)
    with pytest.raises(Invalid, match=r"llm:p:large', unknown to resources\.toml"):
        registry.check_against(settings.HARNESS_TOPOLOGY)
    assert door(stage, chat("small")) == ["llm:p=1"]
    with pytest.raises(Invalid, match=r"'llm:p:large', which resources\.toml doesn't have"):
        door(stage, chat("large"))


def test_every_resource_that_a_kind_may_need_is_told() -> None:
    kind = registry.find("llm.chat")
    assert kind is not None
    assert kind.may_need() == {"llm:p": 1, "llm:p:large": 1}
    assert (kind.signature, json.dumps(sorted(kind.signatures))) == ("llm:p=1", '["llm:p:large=1", "llm:p=1"]')
    assert settings.HARNESS_TOPOLOGY.resources.keys() == PLACES.keys()
