"""Operators' overrides of resources: in force at once, over by themselves, and every change of a limit has its row."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from django.conf import settings

from harness.engine import operate
from harness.policy.errors import HarnessError, Invalid, NotFound
from harness.policy.resources import Live, Resource
from harness.store import overrides, resources
from harness.store.database import Connection
from harness.store.resources import ResourceNow
from tests.stage import Stage

BY: dict[str, Any] = {"actor": "operator:jo", "reason": "the key is shared"}
SOON = timedelta(hours=1)
SOONER = datetime(2999, 1, 1)  # noqa: DTZ001  (that it has no zone is the case)
MADE = {
    one.name: one
    for one in (
        Resource(name="llm", held="call", capacity=50, limiter="csl", floor=5, p0_reserve=1),
        Resource(name="tool", held="call", capacity=20),
        Resource(name="browser", held="task", capacity=3, breaker=False),
    )
}


@pytest.fixture(autouse=True)
def configured(settings: Any) -> None:
    settings.HARNESS_TOPOLOGY = replace(settings.HARNESS_TOPOLOGY, resources=MappingProxyType(MADE))


@pytest.fixture
def staff(stage: Stage) -> Iterator[Connection]:
    with stage.open("staff") as connection:
        yield connection


def now(connection: Connection, name: str) -> Live:
    return resources.effective(connection, settings.HARNESS_TOPOLOGY.resources)[name]


def limits(connection: Connection) -> list[tuple[str, int | None, int, str, str]]:
    found = resources.changes(connection, most=100)
    return [(one.resource, one.old, one.new, one.reason, one.mode) for one in reversed(found)]


def make_over(stage: Stage) -> None:
    """As if every override's time had passed a minute ago."""
    stage.connection.execute("UPDATE override SET until = now() - interval '1 min' WHERE until IS NOT NULL")


def test_an_override_is_read_at_once_by_who_has_another_connection(stage: Stage, staff: Connection) -> None:
    done = operate.set_resource(staff, "tool", {"capacity": 7, "rpm": 600}, **BY, until=datetime.now(UTC) + SOON)
    assert (done.before, done.after) == ({"capacity": 20, "rpm": None}, {"capacity": 7, "rpm": 600.0})
    live = now(stage.connection, "tool")
    assert live.resource == replace(MADE["tool"], capacity=7, rpm=600.0) and live.limit == 7
    said = live.overrides["capacity"]
    assert (said.author, said.reason) == ("operator:jo", "the key is shared")
    assert said.until_s is not None and 3500 < said.until_s - said.created_s < 3700


def test_setting_the_same_twice_is_one_act_and_another_end_or_value_a_new_one(staff: Connection) -> None:
    until = datetime.now(UTC) + SOON
    operate.set_resource(staff, "tool", {"capacity": 7}, **BY, until=until)
    again = operate.set_resource(staff, "tool", {"capacity": 7}, **BY, until=until)
    assert str(again) == "as it was"
    assert operate.set_resource(staff, "tool", {"capacity": 7}, **BY).after == {"capacity": 7}
    assert operate.set_resource(staff, "tool", {"capacity": 8, "rpm": 60}, **BY).before == {"capacity": 7, "rpm": None}
    rows = staff.execute("SELECT field, value, ended_at IS NULL FROM override ORDER BY id").fetchall()
    assert rows == [("capacity", 7, False), ("capacity", 7, False), ("capacity", 8, True), ("rpm", 60.0, True)]
    assert limits(staff) == [
        ("tool", 20, 7, "set by operator:jo: the key is shared", "override"),
        ("tool", 7, 8, "set by operator:jo: the key is shared", "override"),
    ]


def test_who_set_and_cleared_what_stays_in_the_audit(staff: Connection) -> None:
    operate.set_resource(staff, "tool", {"breaker": False}, **BY)
    done = operate.clear_resource(staff, "tool", actor="operator:al", reason="mended")
    assert (done.before, done.after) == ({"breaker": False}, {"breaker": True})
    rows = staff.execute("SELECT actor, subject, reason, data FROM audit_entry WHERE verb = 'resource' ORDER BY id")
    assert rows.fetchall() == [
        (
            "operator:jo",
            "resource tool",
            "the key is shared",
            {"before": {"breaker": True}, "after": {"breaker": False}, "until": None},
        ),
        (
            "operator:al",
            "resource tool",
            "mended",
            {"before": {"breaker": False}, "after": {"breaker": True}, "until": None},
        ),
    ]


def test_one_field_is_cleared_and_the_others_stay(staff: Connection) -> None:
    operate.set_resource(staff, "llm", {"capacity": 4, "floor": 2, "tpm": 9000}, **BY)
    operate.clear_resource(staff, "llm", ["floor"], **BY)
    assert now(staff, "llm").resource == replace(MADE["llm"], capacity=4, floor=4, tpm=9000.0)
    with pytest.raises(NotFound, match="floor isn't overridden; what is: capacity, tpm"):
        operate.clear_resource(staff, "llm", ["floor"], **BY)
    operate.clear_resource(staff, "llm", **BY)
    assert now(staff, "llm").resource == MADE["llm"]
    with pytest.raises(NotFound, match="nothing of it is overridden"):
        operate.clear_resource(staff, "llm", **BY)


def test_an_override_ends_by_itself_for_readers_before_anyone_has_ended_its_row(
    stage: Stage, staff: Connection
) -> None:
    operate.set_resource(staff, "tool", {"capacity": 7}, **BY, until=datetime.now(UTC) + SOON)
    make_over(stage)
    assert now(staff, "tool").resource == MADE["tool"]
    with pytest.raises(NotFound, match="nothing of it is overridden"):
        operate.clear_resource(staff, "tool", **BY)
    assert operate.set_resource(staff, "tool", {"capacity": 9}, **BY).before == {"capacity": 20}


def test_what_is_over_is_ended_once_and_the_limit_that_comes_back_has_its_row(stage: Stage, staff: Connection) -> None:
    soon = datetime.now(UTC) + SOON
    operate.set_resource(staff, "tool", {"capacity": 7, "rpm": 60}, **BY, until=soon)
    operate.set_resource(staff, "browser", {"capacity": 1}, **BY, until=soon)
    operate.set_resource(staff, "llm", {"capacity": 30}, **BY)
    assert overrides.end_over(stage.connection, MADE) == 0
    make_over(stage)
    assert [overrides.end_over(stage.connection, MADE) for _ in range(2)] == [3, 0]
    assert sorted(row for row in limits(staff) if row[3] == "an override is over") == [
        ("browser", 1, 3, "an override is over", "override"),
        ("tool", 7, 20, "an override is over", "override"),
    ]
    assert [row.field for row in overrides.standing(staff)] == ["capacity"], "that of llm has no end"


def test_two_that_end_what_is_over_at_once_end_it_once(stage: Stage, staff: Connection) -> None:
    operate.set_resource(staff, "tool", {"capacity": 7}, **BY, until=datetime.now(UTC) + SOON)
    make_over(stage)
    with stage.open() as other, stage.connection.transaction():
        assert overrides.end_over(stage.connection, MADE) == 1
        other.execute("SET lock_timeout = '200ms'")
        with pytest.raises(Exception, match="lock timeout"):
            overrides.end_over(other, MADE)
    assert overrides.end_over(stage.connection, MADE) == 0
    assert len(limits(staff)) == 2


def test_a_learned_limit_that_is_fixed_by_hand_is_a_change_from_what_was_learned(
    stage: Stage, staff: Connection
) -> None:
    resources.keep(stage.connection, [ResourceNow(resource="llm", limit_now=31, proven=30)], [])
    operate.set_resource(staff, "llm", {"limiter": "fixed", "capacity": 12}, **BY)
    operate.set_resource(staff, "llm", {"limiter": "aimd"}, **BY)
    assert limits(staff) == [("llm", 31, 12, "set by operator:jo: the key is shared", "override")]


def test_a_capacity_of_0_closes_a_resource_and_what_is_below_its_use_ends_nothing(
    stage: Stage, staff: Connection
) -> None:
    resources.keep(stage.connection, [ResourceNow(resource="llm", limit_now=31, proven=30, in_flight=31)], [])
    done = operate.set_resource(staff, "llm", {"capacity": 0}, **BY)
    assert str(done) == "capacity 50 -> 0 (nothing uses it)"
    assert now(staff, "llm").limit == 0
    operate.clear_resource(staff, "llm", **BY)
    live = now(staff, "llm")
    assert (live.limit, live.proven, live.resource) == (31, 30, MADE["llm"])


def test_an_override_of_a_resource_that_is_gone_harms_nothing_and_can_be_cleared(
    stage: Stage, staff: Connection, settings: Any
) -> None:
    operate.set_resource(staff, "tool", {"capacity": 7}, **BY, until=datetime.now(UTC) + SOON)
    operate.set_resource(staff, "browser", {"capacity": 2}, **BY)
    left = MappingProxyType({"llm": MADE["llm"]})
    settings.HARNESS_TOPOLOGY = replace(settings.HARNESS_TOPOLOGY, resources=left)
    assert set(resources.effective(staff, left)) == {"llm"}
    make_over(stage)
    assert overrides.end_over(stage.connection, left) == 1
    operate.clear_resource(staff, "browser", **BY)
    assert overrides.standing(staff) == []


REFUSED: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("gpu", {"capacity": 1}, "there is no resource 'gpu'; choose from browser, llm, tool"),
    ("", {"capacity": 1}, "there is no resource ''"),
    ("llm", {}, "nothing to set"),
    ("llm", {"capacity": 4}, r"floor must not exceed capacity \(4\), not 5: lower it, too"),
    ("llm", {"rpm": 0}, "rpm must be a number"),
    ("llm", {"rpm": -1}, "rpm must be a number"),
    ("llm", {"rpm": float("nan")}, "rpm must be a number"),
    ("llm", {"limiter": "vegas"}, "limiter must be one of fixed, csl, aimd, gradient, not vegas"),
    ("llm", {"capacity": None}, "or 0: nothing uses it, not none"),
    ("llm", {"tpm": 60, "colour": "red"}, "colour can't be set; of this resource one can set capacity, limiter"),
    ("browser", {"rpm": 60}, "one can set capacity, tenant_cap"),
)


@pytest.mark.parametrize(("name", "changes", "says"), REFUSED)
def test_what_makes_no_sense_is_refused_whole(staff: Connection, name: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(HarnessError, match=says):
        operate.set_resource(staff, name, changes, **BY)
    assert overrides.standing(staff) == [] and limits(staff) == []


@pytest.mark.parametrize("until", [datetime(2020, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC), SOONER])
def test_an_end_that_is_past_far_away_or_without_a_zone_is_refused(staff: Connection, until: datetime) -> None:
    with pytest.raises(Invalid, match=r"^until: "):
        operate.set_resource(staff, "tool", {"capacity": 7}, **BY, until=until)


@pytest.mark.parametrize("reason", ["", "  ", "x" * 501, "a\nb"])
def test_an_override_without_a_reason_is_refused(staff: Connection, reason: str) -> None:
    with pytest.raises(Invalid, match=r"^reason: "):
        operate.set_resource(staff, "tool", {"capacity": 7}, actor="operator:jo", reason=reason)
    with pytest.raises(Invalid, match=r"^reason: "):
        operate.clear_resource(staff, "tool", actor="operator:jo", reason=reason)


def test_tenants_neither_read_nor_set_overrides(stage: Stage) -> None:
    with stage.open("web") as web:
        for statement in ("SELECT * FROM override", "SELECT * FROM limit_change", "DELETE FROM resource_state"):
            with pytest.raises(Exception, match="permission denied"):
                web.execute(statement)
        assert json.dumps(web.execute("SELECT limit_now FROM resource_state").fetchall()) == "[]"
