"""Evaluations of the pressure as they were, on the real database: each is kept for an hour, some for a day."""

import pytest

from harness.policy.pressure import Level
from harness.store import evaluations
from tests.engine.test_autoscale import observed, refuse
from tests.engine.test_pressure import judge
from tests.stage import Stage


def moved(stage: Stage, seconds: float) -> None:
    """As if all that is kept were so much older."""
    stage.connection.execute("UPDATE evaluation SET at = at - make_interval(secs => %s)", (seconds,))


def test_each_evaluation_is_kept_with_its_signals_resources_and_who_used_the_slots(stage: Stage) -> None:
    observed(stage, in_flight=7)
    refuse(stage, 40)
    judge(stage, 2)
    rows = evaluations.since(stage.connection, seconds=3600.0, each_s=0.001)
    assert len(rows) == 2 and rows[0].at_s < rows[1].at_s
    last = rows[1]
    assert last.level is Level.CRITICAL or last.level is Level.HIGH or last.level is Level.ELEVATED
    assert last.signals["llm_rate_limit"] == (1.0, 3)
    stood = last.resources["llm:default"]
    assert (stood.limit, stood.in_use, stood.tried, stood.refused) == (50, 7, 40, 40)
    (used,) = evaluations.used(stage.connection, seconds=600.0)
    assert (used.tenant, used.name, used.weight) == (stage.tenant, "acme", 1.0)
    assert used.used == pytest.approx(40 * 0.2 / 60.0, rel=0.01)


def test_of_each_span_the_last_evaluation_is_told(stage: Stage) -> None:
    judge(stage, 3)
    assert len(evaluations.since(stage.connection, seconds=3600.0, each_s=0.000001)) == 3
    assert len(evaluations.since(stage.connection, seconds=3600.0, each_s=86_400_000.0)) == 1
    moved(stage, 4000.0)
    assert evaluations.since(stage.connection, seconds=3600.0, each_s=1.0) == []


def test_all_are_kept_for_an_hour_one_of_five_minutes_for_a_day_and_none_longer(stage: Stage) -> None:
    judge(stage, 5)
    moved(stage, evaluations.WHOLE_S - 10.0)
    judge(stage, 1)
    assert stage.one("SELECT count(*) FROM evaluation") == 6
    moved(stage, 20.0)
    judge(stage, 1)
    assert stage.one("SELECT count(*) FROM evaluation WHERE kept") == 2, "the first of each five minutes"
    assert stage.one("SELECT count(*) FROM evaluation") == 3
    moved(stage, evaluations.KEPT_S)
    judge(stage, 1)
    assert stage.one("SELECT count(*) FROM evaluation") == 1


def test_only_who_sees_every_tenant_reads_them(stage: Stage) -> None:
    judge(stage)
    with stage.open("web") as web, pytest.raises(Exception, match="permission denied"):
        web.execute("SELECT * FROM evaluation")
    with stage.open("staff") as staff:
        assert len(evaluations.since(staff, seconds=3600.0, each_s=1.0)) == 1
        staff.execute("SELECT set_config('harness.tenant', %s, false)", (str(stage.tenant),))
        assert evaluations.since(staff, seconds=3600.0, each_s=1.0) == []
