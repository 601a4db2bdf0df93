"""Agents work with a real MCP server over stdio and HTTP, by the emulator's script; what fails is told to them."""

import contextlib
import json
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import openai
import psutil
import pytest
from pydantic import ValidationError

from harness.kinds import Permanent, completions
from harness.ops.emulator import server as provider_server
from harness.ops.emulator.behaviour import Behaviour
from tasks.mcp_agents import example_server, servers
from tasks.mcp_agents.kind import agent, agents
from tasks.mcp_agents.payload import Agent, Team
from tests.kinds.sites import Page, site

COMMAND = shlex.join([sys.executable, "-m", example_server.__name__])


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[provider_server.Running]:
    with provider_server.running(Behaviour(latency_s=0)) as running:
        monkeypatch.setenv("LLM_BASE_URL", running.base_url)
        monkeypatch.setenv("LLM_MODEL", "any")
        monkeypatch.setenv("HARNESS_MCP_SHOP", COMMAND)
        monkeypatch.setenv("HARNESS_MCP_TENANTS_SHOP", "*")
        yield running
    completions.close()


@contextlib.contextmanager
def served() -> Iterator[str]:
    """The example's server over HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-m", example_server.__name__, str(port)]) as process:
        try:
            until_s = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                assert process.poll() is None and time.monotonic() < until_s, "the server doesn't start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def asked(*calls: tuple[str, dict[str, Any]], **more: Any) -> Agent:
    lines = "\n".join(f"call {name} {json.dumps(arguments)}" for name, arguments in calls)
    return Agent.model_validate({"question": f"Find out.\n{lines}", "servers": ["shop"]} | more)


def left_over() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if example_server.__name__ in one.cmdline()]


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_an_agent_calls_tools_and_answers_with_what_they_said(
    alone: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with served() if way == "http" else contextlib.nullcontext(COMMAND) as where:
        monkeypatch.setenv("HARNESS_MCP_SHOP", where)
        ctx = alone()
        found = agent(ctx, asked(("shop__stock", {"item": "bolts"}), ("shop__price", {"item": "nuts"})))
    assert found.answer == "There are 40 bolts in stock.\nOne of the nuts costs 2 euros."
    assert [(one.tool, one.ok) for one in found.calls] == [("shop__stock", True), ("shop__price", True)]
    assert ctx.calls.count("mcp:tools") == 3 and ctx.calls.count("llm:default") == 3 and found.turns == 3
    assert [name.partition(",")[0] for name in ctx.steps] == [
        "list tools",
        "turn 1",
        "turn 1",
        "turn 2",
        "turn 2",
        "turn 3",
    ]
    if way == "stdio":
        assert not left_over()


def test_a_tool_that_may_not_be_called_is_refused_and_its_server_never_asked(
    alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = ("shop__order", {"item": "nuts", "number": 5})
    ctx = alone()
    found = agent(ctx, asked(forbidden, ("os__remove", {}), ("shop__stock", {"item": "nuts"})))
    assert [(one.ok, one.refused) for one in found.calls] == [(False, True), (False, True), (True, False)]
    assert "were ordered" not in found.answer and "'shop__order' is no tool that may be called here" in found.answer
    assert ctx.calls.count("mcp:tools") == 2
    monkeypatch.setenv("HARNESS_MCP_TOOLS_SHOP", "order, stock")
    assert agent(alone(), asked(forbidden)).answer == "5 nuts were ordered."
    narrowed = agent(alone(), asked(forbidden, tools=["shop__stock"]))
    assert [one.refused for one in narrowed.calls] == [True], "the payload may narrow what the operator allows"


def test_a_name_that_no_step_could_have_is_refused_like_any_other(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "shop\u200b__order\n" + "x" * 200, "arguments": "{}"}}

    def said(message: dict[str, Any]) -> Page:
        whole = {"id": "1", "object": "chat.completion", "created": 1, "model": "any"}
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant"} | message}
        body = json.dumps(whole | {"choices": [choice]}).encode()
        return Page(body, headers={"content-type": "application/json"})

    with site() as model:
        model.pages["/v1/chat/completions"] = [said({"content": None, "tool_calls": [call]}), said({"content": "No."})]
        monkeypatch.setenv("LLM_BASE_URL", model.url("/v1"))
        ctx = alone()
        found = agent(ctx, asked())
    assert found.answer == "No." and [(one.ok, one.refused) for one in found.calls] == [(False, True)]
    assert ctx.steps[2].startswith("turn 1, call 1: shop?__order?xxx")


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_a_server_that_dies_is_a_tool_that_failed_and_the_next_call_finds_a_new_one(
    alone: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with served() if way == "http" else contextlib.nullcontext(COMMAND) as where:
        monkeypatch.setenv("HARNESS_MCP_SHOP", where)
        found = agent(alone(), asked(("shop__crash", {}), ("shop__stock", {"item": "bolts"})))
    crashed, after = found.calls
    assert (crashed.ok, crashed.refused) == (False, False) and "MCP server shop" in crashed.error
    assert after.ok == (way == "stdio"), "a server that is started by command is started again"
    assert "the tool failed: MCP server shop" in found.answer


def test_what_a_tool_refuses_and_what_is_no_argument_is_told_to_the_model(alone: Any) -> None:
    found = agent(alone(), asked(("shop__stock", {"item": "unicorns"}), ("shop__stock", {"thing": 1})))
    assert [one.ok for one in found.calls] == [False, False]
    assert "there is no 'unicorns'" in found.calls[0].error and found.calls[1].error.startswith("the tool failed: ")


def test_a_later_attempt_asks_and_calls_only_what_is_missing(alone: Any, provider: provider_server.Running) -> None:
    ctx = alone()
    question = asked(("shop__stock", {"item": "bolts"}), ("shop__stock", {"item": "nuts"}))
    provider.emulator.behaviour = Behaviour(latency_s=0, rpm=2, burst_s=60)
    with pytest.raises(openai.RateLimitError):
        agent(ctx, question)
    provider.emulator.behaviour = Behaviour(latency_s=0)
    ctx.calls.clear()
    assert agent(ctx, question).answer == "There are 40 bolts in stock.\nThere are 900 nuts in stock."
    assert ctx.calls == ["llm:default"]


def test_an_agent_that_never_ends_is_ended(alone: Any) -> None:
    with pytest.raises(Permanent, match="max_turns: no answer after 2"):
        agent(alone(), asked(*[("shop__stock", {"item": "nuts"})] * 3, max_turns=2))


def test_a_server_is_only_for_its_tenants_and_its_place_is_nowhere_told(
    alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_MCP_TENANTS_SHOP", "7, 8")
    for named in ("shop", "nowhere"):
        with pytest.raises(Permanent, match=f"servers: '{named}' isn't set up for this tenant") as refused:
            agent(alone(), asked(servers=[named]))
        assert COMMAND not in str(refused.value)
    assert servers.find("shop", 8).command[-1] == example_server.__name__
    assert "example_server" not in repr(servers.find("shop", 8))


def test_several_agents_work_as_tasks_of_their_own_and_a_conclusion_is_drawn_from_those_that_answered(
    alone: Any,
) -> None:
    def child(kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        assert kind == "mcp.agent"
        answered: dict[str, Any] = agent(alone(), Agent.model_validate(payload)).model_dump()
        return answered

    working = asked(("shop__stock", {"item": "bolts"}), name="working").model_dump()
    failing = asked(("shop__stock", {"item": "nuts"}), name="failing", max_turns=1).model_dump()
    ctx = alone()
    ctx.child = child
    found = agents(ctx, Team.model_validate({"question": "How many?", "agents": [working, failing]}))
    assert found.conclusion == "working: There are 40 bolts in stock."
    assert [(one.name, one.state) for one in found.members] == [
        ("working", "succeeded"), ("failing", "failed_terminal"),
    ]  # fmt: skip
    assert "max_turns" in found.members[1].error
    with pytest.raises(Permanent, match="none of 1 has an answer; the first: max_turns"):
        agents(ctx, Team.model_validate({"question": "How many?", "agents": [failing]}))


def test_a_server_that_doesnt_start_is_tried_again_later(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in ("/nowhere/at/all", "http://127.0.0.1:1/mcp"):
        monkeypatch.setenv("HARNESS_MCP_SHOP", where)
        with pytest.raises(Exception, match="MCP server shop: it isn't there") as failed:
            agent(alone(), asked())
        assert failed.value.error_class == "network"  # type: ignore[attr-defined]  # an error of work


@pytest.mark.parametrize(
    ("field", "value"),
    [("servers", []), ("servers", ["Shop"]), ("max_turns", 0), ("tool_s", 0), ("model", "nobody"), ("command", "sh")],
)
def test_a_wrong_field_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        asked(**{field: value})
    assert refused.value.errors()[0]["loc"][0] == field
