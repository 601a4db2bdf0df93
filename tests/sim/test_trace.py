"""A trace is written and read as it is, made of what the event table says, and replayed with its own attempts."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.policy.errors import Invalid
from harness.sim import trace as traces
from harness.sim.parse import load
from harness.sim.record import Happened, task_of
from harness.sim.report import simulate
from harness.sim.trace import Trace, TracedAttempt, TracedKind, TracedTask, TracedTenant


def task(submit_s: float, *attempts: TracedAttempt, run: int = 0, withdrawn_s: float | None = None) -> TracedTask:
    return TracedTask(
        submit_s=submit_s,
        tenant=7,
        run=run,
        kind="step",
        pool="llm",
        priority=2,
        signature="",
        ready_s=0.0,
        attempts=attempts,
        withdrawn_s=withdrawn_s,
    )


def trace_of(*tasks: TracedTask) -> Trace:
    kind = TracedKind(name="step", pool="llm", signature="", est_s=1.0, bundle=False, costs=False, max_attempts=4)
    tenant = TracedTenant(id=7, cap=5, weight=2.0, backlog_quota=9, top_priority=1, quotas=(("pool", "llm", 4),))
    return Trace(
        pools={"llm": 1},
        resources={"model": 3},
        kinds=(kind,),
        tenants=(tenant,),
        runs={3: (7, 2)},
        tasks=tasks,
        estimates={"step": 1.5},
    )


def recorded(*events: Happened) -> TracedTask:
    return task_of(submit_s=1.0, tenant=7, run=0, kind="step", pool="llm", priority=2, signature="", events=events)


SUBMIT: Happened = (1.0, "submit", None, "queued")


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_a_trace_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    trace = trace_of(
        task(0.0, TracedAttempt("fail", 0.5, 1.25, 2.0), TracedAttempt("succeed", 4.0, 1.0, None), run=3),
        task(0.5, withdrawn_s=3.0),
    )
    traces.write(trace, tmp_path / name)
    assert traces.read(tmp_path / name) == trace


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "line 1 isn't that of a trace"), ('{"format": 2}\n', "must say format 1"), ("[]\n", "line 1")],
)
def test_what_is_no_trace_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(Invalid, match=says):
        traces.read(tmp_path / "x.jsonl")
    traces.write(trace_of(task(0.0)), tmp_path / "y.jsonl")
    with (tmp_path / "y.jsonl").open("a") as file:
        file.write("[1, 2]\n")
    with pytest.raises(Invalid, match="line 3 isn't that of a trace"):
        traces.read(tmp_path / "y.jsonl")
    with pytest.raises(Invalid, match="can't be read as a trace"):
        traces.read(tmp_path / "nowhere.jsonl")


def test_a_trace_that_lacks_what_its_tasks_need_is_refused_or_has_none_of_it(tmp_path: Path) -> None:
    traces.write(replace(trace_of(task(0.0)), pools={"db": 1}), tmp_path / "t.jsonl")
    with pytest.raises(Invalid, match="kind 'step' in pool 'llm', which it doesn't describe"):
        load(tmp_path / "t.jsonl")
    gone = replace(task(0.0, run=99), signature="gone=1")  # a resource that was removed, a run that was deleted
    traces.write(trace_of(gone, task(0.0)), tmp_path / "t.jsonl")
    figures = simulate(load(tmp_path / "t.jsonl")).figures
    assert (figures["counts"]["succeed"], figures["groups"]["t7"]["unfinished"]) == (1, 1)


def test_attempts_are_what_lies_between_claim_and_exit() -> None:
    one = recorded(
        SUBMIT,
        (3.0, "ripen", "queued", "queued"),
        (4.0, "claim", "queued", "running"),
        (4.5, "wish", "running", "running"),
        (5.0, "step_started", "running", "running"),
        (6.0, "fail", "running", "failed_retryable"),
        (9.0, "requeue", "failed_retryable", "queued"),
        (10.0, "claim", "queued", "running"),
        (11.0, "lose", "running", "queued"),
        (12.0, "claim", "queued", "running"),
        (13.0, "ask", "running", "waiting_approval"),
        (20.0, "approve", "waiting_approval", "waiting_approval"),
        (21.0, "claim", "waiting_approval", "running"),
        (25.0, "succeed", "running", "succeeded"),
    )
    assert one.ready_s == 2.0
    assert one.attempts == (
        TracedAttempt("fail", 4.0, 2.0, 3.0),
        TracedAttempt("lose", 10.0, 1.0, 0.0),
        TracedAttempt("ask", 12.0, 1.0, 7.0),
        TracedAttempt("succeed", 21.0, 4.0, None),
    )
    assert recorded(SUBMIT, (5.0, "cancel", "queued", "cancelled")).withdrawn_s == 4.0
    assert recorded(SUBMIT, (2.0, "claim", "queued", "running")).attempts == ()  # it still ran


def test_a_replay_does_what_was_recorded_with_waits_of_its_own(tmp_path: Path) -> None:
    trace = trace_of(
        task(0.0, TracedAttempt("fail", 9.0, 2.0, 5.0), TracedAttempt("succeed", 50.0, 1.0, None)),
        task(1.0, TracedAttempt("succeed", 90.0, 3.0, None)),
        task(2.0, withdrawn_s=1.0),
    )
    traces.write(trace, tmp_path / "t.jsonl")
    figures = simulate(load(tmp_path / "t.jsonl")).figures
    counts = figures["counts"]
    assert (counts["submitted"], counts["starts"], counts["fail"], counts["succeed"], counts["withdrawn"]) == (
        3, 3, 1, 2, 1,
    )  # fmt: skip
    assert figures["makespan_s"] == pytest.approx(8.0, abs=0.1)  # 2 s, then ready again at 7 s, while another took 3 s
    assert figures["waits"]["t7"]["p2"]["max_s"] == pytest.approx(1.0, abs=0.1)
    (tmp_path / "what_if.toml").write_text(
        'title = "two slots"\ntrace = "t.jsonl"\n[pools.llm]\nslots = 2\n[tenants.t7]\ncap = 1\n'
    )
    figures = simulate(load(tmp_path / "what_if.toml")).figures
    assert figures["groups"]["t7"]["most_in_flight"] == 1
    assert figures["counts"]["succeed"] == 2
