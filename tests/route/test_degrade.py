"""Cheaper forms through real processes: under pressure the same work of P2 and P3 takes 30 % fewer tokens at least."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from harness.ops.emulator import server
from harness.policy.pressure import Level
from tests.engine.test_pressure import set_level
from tests.ops.emulator.callers import emulated
from tests.route.conftest import Route
from tests.stage import wait_until

SENTENCES = [
    f"The dispatcher of plant {number} waits for room, and counts what waits in line number {number * 7}."
    for number in range(400)
]
FALL_LEAST = 0.30


def text(chars: int, begin: int = 0) -> str:
    return " ".join(SENTENCES[begin:])[:chars]


def turns(number: int) -> dict[str, Any]:
    """A conversation of several turns, and a question."""
    said = [{"role": ("user", "assistant")[n % 2], "content": text(900, n)} for n in range(number)]
    asked = {"role": "user", "content": text(400, 50) + " What does the dispatcher wait for?"}
    return {"messages": [{"role": "system", "content": "Answer in English."}, *said, asked], "model": "emulator-1"}


WORK = {
    "llm.chat": [turns(2), turns(4), turns(6), turns(8)],
    "llm.summarize": [{"text": text(chars), "sentences": 4} for chars in (6_000, 12_000, 30_000)],
}


@pytest.fixture
def provider() -> Iterator[server.Running]:
    with emulated() as running:
        yield running


def all_done(route: Route, tasks: list[int]) -> bool:
    done = "SELECT count(*) FROM task WHERE id = ANY(%s) AND state = 'succeeded'"
    return bool(route.stage.one(done, tasks) == len(tasks))


def tokens(route: Route, priority: int) -> dict[str, float]:
    """Do all of the work in a class, one kind after the other. Returns tokens a task, by kind."""
    found = {}
    for name, inputs in WORK.items():
        tasks = [task for one in inputs for task in route.stage.submit(name, priority=priority, input=json.dumps(one))]
        wait_until(partial(all_done, route, tasks), within_s=60)
        used = "SELECT sum(tokens)::float8 FROM attempt WHERE task_id = ANY(%s)"
        found[name] = route.stage.one(used, tasks) / len(tasks)
    return found


def test_at_high_p2_and_p3_take_30_percent_fewer_tokens_p1_none_and_it_returns_by_itself(
    route: Route, provider: server.Running
) -> None:
    route.environment |= {"LLM_BASE_URL": provider.base_url, "LLM_API_KEY": "sk-of-tests", "LLM_MODEL": "m-1"}
    route.dispatcher()
    route.worker("llm")
    whole = tokens(route, 2)
    set_level(route.stage, Level.HIGH)
    for priority in (2, 3):
        cheaper = tokens(route, priority)
        falls = {name: 1 - cheaper[name] / whole[name] for name in WORK}
        assert all(fall >= FALL_LEAST for fall in falls.values()), (priority, falls)
    assert tokens(route, 1) == whole
    set_level(route.stage, Level.ELEVATED)
    assert tokens(route, 3) == whole
    forms = route.stage.connection.execute(
        "SELECT task.priority, array_agg(DISTINCT coalesce(degraded, '-')) FROM attempt JOIN task ON task.id = task_id "
        "GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert forms == [(1, ["-"]), (2, ["-", "brief"]), (3, ["-", "brief"])]
