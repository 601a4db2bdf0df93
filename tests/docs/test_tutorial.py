"""The tutorial's kind, taken from the page, does what the page says."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from harness.engine import approve
from harness.kinds import registry
from tests.docs.pages import samples
from tests.stage import Stage


@pytest.fixture
def written(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    """The kind and its test, as a reader would have written them."""
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    kind, test = samples(root / "docs/tutorial.md", "python")
    found = []
    for name, text in (("tasks.word_report.kind", kind), ("tutorial_test_kind", test)):
        file = tmp_path / f"{name.replace('.', '_')}.py"
        file.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        if name.startswith("tasks."):
            monkeypatch.setitem(sys.modules, "tasks.word_report", ModuleType("tasks.word_report"))
            monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        found.append(module)
    return found[0], found[1]


def test_the_kind_of_the_tutorial_does_what_the_page_says(
    stage: Stage, written: tuple[ModuleType, ModuleType], root: Path
) -> None:
    text = (root / "docs/tutorial.md").read_text("utf-8")
    payload = {"texts": ["a cat and a dog", "a bird"]}
    assert json.dumps(payload) in text
    (task,) = stage.submit("words.report", input=json.dumps(payload))
    with stage.process(stage.add_session(), connections=4) as process:
        stage.run_all(process)
        assert stage.state(task) == "waiting_approval"
        public = stage.row(task)["public_id"]
        approve.approve(
            stage.connection, public, tenant=stage.tenant, actor="mia", choice="publish", reason="looks right"
        )
        stage.run_all(process)
    assert stage.state(task) == "succeeded"
    output = json.loads(str(stage.one("SELECT output::text FROM task_body WHERE task_id = %s", task)))
    assert output == {"words": {"a": 3, "and": 1, "cat": 1}, "published": True}
    assert json.dumps(output)[1:-1] in text
    assert "steps_replayed" in stage.events(task) and "steps_replayed" in text


def test_the_test_of_the_tutorial_passes(written: tuple[ModuleType, ModuleType]) -> None:
    written[1].test_words_are_counted_whatever_their_case()
