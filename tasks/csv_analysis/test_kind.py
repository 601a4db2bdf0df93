"""A question about a CSV: written, run, mended and answered against the emulator; what is no CSV costs no call."""

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from harness.kinds import Permanent, completions, sandbox
from harness.ops.emulator import server
from harness.ops.emulator.behaviour import Behaviour
from tasks.csv_analysis import kind, look, prompts
from tasks.csv_analysis.kind import Question, analyse
from tasks.sandbox_python.kind import Program, run

CSV = "region;sold;day\nnorth;10.5;2026-01-01\nsouth;4;2026-01-02\nnorth;1;2026-01-03\n<east> & co;2;2026-01-04\n"
needs_sandbox = pytest.mark.skipif((why := sandbox.lack()) is not None, reason=f"no sandbox here: {why}")


@pytest.fixture(autouse=True)
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[server.Running]:
    with server.running(Behaviour(latency_s=0)) as running:
        monkeypatch.setenv("LLM_BASE_URL", running.base_url)
        monkeypatch.setenv("LLM_MODEL", "any")
        yield running
    completions.close()


def playing(alone: Any) -> Any:
    """A context whose children run as they would, on the same shelf."""
    ctx = alone()
    ctx.child = lambda kind, payload: run(ctx, Program.model_validate(payload)).model_dump(mode="json")
    return ctx


def content(ctx: Any, found: kind.Analysed, name: str) -> bytes:
    (artifact,) = [one.artifact_id for one in found.files if one.name == name]
    with ctx.artifacts.open(artifact) as file:
        return bytes(file.read())


@needs_sandbox
def test_the_model_writes_the_sandbox_runs_and_figures_chart_and_program_are_artifacts(alone: Any) -> None:
    ctx = playing(alone)
    upload = ctx.documents.add("sales.csv", CSV.encode(), "text/csv")
    found = analyse(ctx, Question(question="Which region sold most?", artifact_id=upload))
    assert "The largest region is north with 11.50." in found.printed and found.programs == 1
    assert "north" in found.answer and found.tokens_in > 0
    figures = json.loads(content(ctx, found, "result.json"))
    assert figures["total"] == 17.5 and figures["groups"][0] == {"group": "north", "sum": 11.5, "rows": 2}
    chart = content(ctx, found, "chart.svg").decode()
    assert chart.startswith("<svg") and "&lt;east&gt; &amp; co" in chart
    assert b"csv.DictReader" in content(ctx, found, "program.py")
    assert ctx.steps == ["look", "write 1", "answer", "keep the program"]
    ((child, asked),) = ctx.spawned
    assert (child, asked["files"]) == ("sandbox.python", [{"name": "data.csv", "artifact_id": upload}])


@needs_sandbox
def test_a_program_that_fails_is_mended_and_the_model_sees_why(alone: Any) -> None:
    ctx = playing(alone)
    found = analyse(ctx, Question(question="Which region sold most? [broken 2]", content=CSV))
    assert found.programs == 3 and "11.50" in found.printed and len(ctx.spawned) == 3
    assert "ValueError: program 1 is broken" in "".join(ctx.shown)
    assert [one for one in ctx.steps if one.startswith("write")] == ["write 1", "write 2", "write 3"]


@needs_sandbox
def test_when_no_program_does_it_the_task_fails_with_the_last_error(alone: Any) -> None:
    with pytest.raises(
        Permanent, match=r"none of 2 programs did it; the last one: it ended with 1\s(?s:.*)program 2 is broken"
    ):
        analyse(playing(alone), Question(question="Sum it. [broken 9]", content=CSV, programs=2))


@needs_sandbox
def test_an_attempt_after_a_crash_asks_only_for_what_is_missing(alone: Any, provider: server.Running) -> None:
    first = playing(alone)
    analyse(first, Question(question="Which region sold most?", content=CSV))
    asked = provider.emulator.stats()["answered"]
    again = playing(alone)
    again.documents.uploads = first.documents.uploads
    again.recorded = {name: first.recorded[name] for name in ("look", "keep the content", "write 1")}
    found = analyse(again, Question(question="Which region sold most?", content=CSV))
    assert again.steps == ["answer", "keep the program"] and "11.50" in found.printed
    assert provider.emulator.stats()["answered"] == asked + 1


def test_a_csv_that_is_too_large_is_refused_with_the_limit_and_costs_no_call(
    alone: Any, provider: server.Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = alone()
    upload = ctx.documents.add("huge.csv", b"a,b\n1,2\n", "text/csv")
    about, raw = ctx.documents.uploads[upload]
    ctx.documents.uploads[upload] = (type(about)(**{**_members(about), "bytes": 200 * sandbox.MIB}), raw)
    with pytest.raises(Permanent, match=r"artifact_id: huge\.csv has 209,715,200 bytes; .* may have 67,108,864: split"):
        analyse(ctx, Question(question="Sum it.", artifact_id=upload))
    assert provider.emulator.stats()["calls"] == 0


def _members(about: Any) -> dict[str, Any]:
    return {name: getattr(about, name) for name in about.__slots__}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("only a line", "needs a line of column names and a line of values"),
        ("a,b\n\n , \n", "needs a line of column names"),
        ("a\0b,c\n1,2\n", "holds NUL bytes"),
        (",".join(f"c{n}" for n in range(300)) + "\n" + ",".join("1" * 300) + "\n", "has 300 columns"),
        ('a,b\n1,"' + "x" * 140_000 + '"\n', "field larger than field limit"),
    ],
)
def test_what_is_no_csv_to_analyse_is_refused_and_costs_no_call(
    alone: Any, provider: server.Running, text: str, why: str
) -> None:
    with pytest.raises(Permanent, match=why):
        analyse(alone(), Question(question="Sum it.", content=text))
    assert provider.emulator.stats()["calls"] == 0


def test_it_reads_what_columns_are_from_the_beginning_alone() -> None:
    rows = "".join(f"{n},{n}.5,k{n % 3},2026-01-0{1 + n % 9}\n" for n in range(50_000)).encode()
    raw = "\ufeffid,Größe,k,day\n".encode() + rows
    found = look.facts(io.BytesIO(raw), "x.csv", len(raw))
    assert [(one["name"], one["type"]) for one in found["columns"]] == [
        ("id", "number"), ("Größe", "number"), ("k", "text"), ("day", "date"),
    ]  # fmt: skip
    assert (found["encoding"], found["delimiter"], found["columns"][2]["distinct_in_sample"]) == ("utf-8-sig", ",", 3)
    latin = "stra\xdfe\tn\nx\t1\n".encode("latin-1")
    assert look.facts(io.BytesIO(latin), "x.csv", len(latin))["encoding"] == "latin-1"


def test_one_source_and_no_unknown_model() -> None:
    for wrong in (
        {},
        {"content": CSV, "artifact_id": "00000000-0000-4000-8000-000000000001"},
        {"content": CSV, "model": "no"},
    ):
        with pytest.raises(ValidationError):
            Question.model_validate({"question": "Sum it."} | wrong)


@pytest.mark.parametrize("text", ["", "```python\n\n```", "```python\n" + "x" * 70_000 + "\n```"])
def test_an_answer_without_a_program_is_one(text: str) -> None:
    with pytest.raises(Permanent, match="the model gave no program"):
        prompts.program_of(text)


def test_without_a_sandbox_it_fails_and_says_what_to_install(alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Permanent, match=r"program 1 \(task .*\) couldn't be run: .*bubblewrap isn't there: install it"):
        analyse(playing(alone), Question(question="Sum it.", content=CSV))
