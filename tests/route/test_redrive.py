"""A task that failed for good is sent again through a real worker: anew under another token, or as it was."""

import json
import uuid
from pathlib import Path

import pytest

from harness.engine import operate
from harness.kinds import registry
from harness.store import letters
from tests.route.conftest import Route
from tests.stage import wait_until


@pytest.fixture
def route_with_tokens(route: Route) -> Route:
    """The route with a kind of its own, which fails as long as its input says so and leaves its token in a file."""
    route.environment["HARNESS_TASK_PACKAGES"] = "tasks,tests.route.kinds"
    registry.discover("tests.route.kinds")
    return route


def tokens(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split() if path.exists() else []


def test_a_changed_input_succeeds_under_another_token_and_an_old_one_keeps_its_own(
    route_with_tokens: Route, tmp_path: Path
) -> None:
    route, stage = route_with_tokens, route_with_tokens.stage
    route.dispatcher()
    route.worker("tool_read")
    told = {"folder": str(tmp_path), "fail": True}
    (changed,) = stage.submit("route.token", input=json.dumps(told | {"name": "changed"}))
    (kept,) = stage.submit("route.token", input=json.dumps(told | {"name": "kept"}))
    wait_until(lambda: route.count("failed_terminal") == 2, within_s=20)
    found = {letter.id: letter for letter in letters.whole(stage.connection, [changed, kept])}
    assert found[changed].error_class == "validation" and found[changed].attempts_used == 1
    assert [event["event"] for event in found[changed].events] == ["bury", "claim", "submit"]

    def send(task: int, value: object = operate.KEEP) -> operate.Done:
        public = uuid.UUID(str(stage.row(task)["public_id"]))
        return operate.VERBS["redrive"].run(stage.connection, public, tenant=stage.tenant, actor="test", input=value)

    assert send(changed, told | {"name": "changed", "fail": False}).anew
    assert not send(kept).anew
    wait_until(lambda: stage.state(changed) == "succeeded" and stage.state(kept) == "failed_terminal", within_s=20)
    public = {task: stage.row(task)["public_id"] for task in (changed, kept)}
    assert tokens(tmp_path, "changed") == [f"harness-{public[changed]}", f"harness-{public[changed]}-1"]
    assert tokens(tmp_path, "kept") == [f"harness-{public[kept]}"] * 2
    assert stage.events(changed) == ["submit", "claim", "bury", "redrive", "claim", "succeed"]
    assert (stage.row(kept)["release_no"], stage.row(kept)["attempts_used"]) == (2, 1)
