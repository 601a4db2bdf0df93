"""What a run of chaos asks around itself: the product's audit, the provider's slots, the operator's pauses."""

import json
from pathlib import Path

import pytest

from benchmarks.chaos import pausing, recorder, sabotage, schedule
from benchmarks.chaos.births import FAMILY, QUESTION, TALK
from benchmarks.chaos.cast import Cast
from benchmarks.chaos.mischief import Mischief
from benchmarks.chaos.schedule import Pausing
from benchmarks.chaos.summary import broken_off
from benchmarks.scenarios.chaos import _topology, provider_slots, read_audit
from benchmarks.servers import Servers
from harness.ops.emulator.behaviour import Behaviour
from harness.policy.pressure.signals import SIGNALS
from harness.store import pauses
from tests.stage import Stage

FAULT = {"rule": "stranded", "subject": "task 1", "level": "fault"}


def report(*findings: dict[str, str], looks: int = 1) -> str:
    return json.dumps({"findings": findings, "looks": {f"look{n}": {} for n in range(looks)}})


def test_an_audit_without_faults_is_the_only_one_that_counts_as_none() -> None:
    assert list(read_audit(report(), [])) == []
    assert list(read_audit(report({**FAULT, "level": "warning"}), [])) == []
    assert len(read_audit(report(FAULT), [])) == 1
    assert list(read_audit(report(FAULT), ["stranded: task 1 (open)"])) == ["stranded: task 1 (open)"]
    for broken in ("", "Traceback (most recent call last)", "[]", '{"findings": []}', report(looks=0)):
        assert len(read_audit(broken, [])) == 1, broken


def test_the_provider_itself_would_admit_more_than_there_are_slots_for() -> None:
    assert 0 < provider_slots(_topology()) < Behaviour().quota


def test_a_part_of_the_bench_that_breaks_off_is_told() -> None:
    assert broken_off(operator=None, sampler=None) == []
    assert broken_off(operator=ValueError("odd"), sampler=None) == ["operator: ValueError: odd"]


def test_a_sampler_that_ends_before_its_time_says_why(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "_SAMPLE", "SELECT 1.0::double precision, '{}'::jsonb, '[1]'::jsonb")
    with recorder.Sampler(stage.url) as sampler:
        sampler._thread.join(10.0)
    assert isinstance(sampler.error, TypeError)


def test_a_fault_beside_the_others_that_breaks_off_says_why(tmp_path: Path) -> None:
    cast = Cast(tmp_path / "stack", {}, port=1)
    servers = Servers(database_url="", broker_url="")
    mischief = Mischief(cast, servers, "no address", tmp_path, ["db.p1"])
    plan = schedule.Plan(at_s=0.0, what="messages", role="duplicate", for_s=0.0, dice=0.0)
    mischief.play([plan], 0.0)
    mischief.end()
    assert isinstance(mischief.errors["duplicate"], ValueError)


def test_scopes_are_paused_and_resumed_by_the_operators_verb(stage: Stage) -> None:
    for scope, key in schedule.PAUSED:
        one = Pausing(at_s=0.0, scope=scope, key="acme" if scope == "tenant" else key, for_s=0.0)
        named = str(stage.tenant) if scope == "tenant" else key
        pausing.pause(stage.url, one)
        assert [found.source for found in pauses.of(stage.connection, scope, named)] == ["operator"]
        pausing.resume(stage.url, one)
        assert pauses.of(stage.connection, scope, named) == []
        done: list[Pausing] = []
        pausing.play(stage.url, [one], 0.0, done)
        assert done == [one]
        pausing.resume(stage.url, one)  # as after an answer that was lost
        assert pauses.of(stage.connection, scope, named) == []
    verbs = stage.connection.execute("SELECT verb, actor, reason FROM audit_entry ORDER BY id").fetchall()
    assert verbs == [("pause", "chaos", "chaos"), ("resume", "chaos", "chaos")] * 2 * len(schedule.PAUSED)


def test_a_piece_of_work_in_twenty_fails_and_not_so_many_that_pressure_takes_it_for_a_storm() -> None:
    for seed in range(5):
        work = schedule.work(seed, 600.0, verbs=set())
        failing = [one for one in work if one.fails]
        assert 15 < len(failing) < len(work) / 15
        retries = sum(one.fails for one in failing) + sum(one.how == "deaf" for one in work)
        assert retries / len(work) < 0.8 * SIGNALS["retry_storm"].high
        errors = sum(one.fails for one in failing) + 2 * sum(one.how == "deaf" for one in work)
        assert errors / (len(work) + retries) < 0.8 * SIGNALS["tool_error_rate"].high


def test_ten_minutes_bring_each_shape_often_enough_and_well_over_a_thousand_write_steps() -> None:
    for seed in range(5):
        work = schedule.work(seed, 600.0, verbs=set())
        written = sum(one.effects for one in work if one.kind.startswith((schedule.STEPS, FAMILY, QUESTION, TALK)))
        assert written > 1500
        for shape, least in ((FAMILY, 20), (QUESTION, 30), (TALK, 20)):
            assert sum(one.kind == shape for one in work) >= least
        families = [dict(one.more) for one in work if one.kind == FAMILY]
        assert {one["depth"] for one in families} >= {0, 1} and {one["policy"] for one in families} == {"all", "any"}
        assert {dict(one.more)["on_timeout"] for one in work if one.kind == QUESTION} == {"pause", "cancel"}
        assert sum(bool(one.after) for one in work) >= 30


def test_some_work_expires_soon_so_that_a_claim_may_come_too_late() -> None:
    work = schedule.work(1, 600.0, verbs=set())
    assert sum(one.ttl_s is not None for one in work) > 30
    assert {f"tell_expired.{point}.{how}" for point in sabotage.POINTS for how in sabotage.HOWS} <= set(
        sabotage.orders()
    )
