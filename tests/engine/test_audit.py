"""The auditor finds each fault that is planted past the triggers, repairs what is safe, and leaves one row."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.conf import settings
from structlog.testing import capture_logs

from harness.engine.audit import RULES
from harness.engine.auditor import Alerts, Auditor, Finding
from harness.store import transitions
from tests.engine.plants import PLANTS, House, attempt, queue_too_long, stranded
from tests.stage import Stage

LATER_S = 100.0  # of the auditor's clock: more than it waits between two looks


def audited(house: House, *, repair: bool = True, dry: bool = False, **more: Any) -> list[Finding]:
    """One whole audit with a fresh memory, on a clock of its own."""
    values: dict[str, Any] = {"topology": settings.HARNESS_TOPOLOGY, "alerts": Alerts(transaction_s=3600)}
    auditor = Auditor(**values | more, repair=repair, dry=dry)
    auditor.look(house.stage.connection, now_s=0.0)
    findings: list[Finding] = []
    for turn in range(1, 4):
        findings += auditor.confirm(house.stage.connection, now_s=turn * LATER_S)
    assert auditor.due_in_s(0.0) is None
    auditor.close_gone(house.stage.connection, now_s=4 * LATER_S)
    return findings


def rows(house: House) -> list[tuple[Any, ...]]:
    return house.stage.connection.execute(
        "SELECT rule, subject, repaired_at IS NOT NULL, closed_at IS NOT NULL, seen FROM audit_finding ORDER BY id"
    ).fetchall()


@pytest.fixture
def house(stage: Stage) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(stage, stack)


def test_every_rule_has_a_plant() -> None:
    assert PLANTS.keys() == RULES.keys()


@pytest.mark.parametrize("rule", RULES)
def test_a_planted_fault_is_found_once_repaired_once_and_leaves_one_row(house: House, rule: str) -> None:
    planted = PLANTS[rule](house)
    (finding,) = audited(house, **planted.auditor)
    repairable = RULES[rule].repair is not None
    assert (finding.rule, finding.subject, finding.repaired) == (rule, planted.subject, repairable)
    assert rows(house) == [(rule, planted.subject, repairable, repairable, 1)]
    if repairable:
        assert audited(house, **planted.auditor) == []
        assert rows(house) == [(rule, planted.subject, True, True, 1)]
        planted.after()
    else:
        (again,) = audited(house, **planted.auditor)
        assert (again.rule, again.subject, again.new) == (rule, planted.subject, False)
        assert rows(house) == [(rule, planted.subject, False, False, 2)]


@pytest.mark.parametrize("rule", [name for name, rule in RULES.items() if rule.repair is not None])
def test_without_the_order_to_repair_a_fault_is_only_written_down(house: House, rule: str) -> None:
    planted = PLANTS[rule](house)
    assert [one.repaired for one in audited(house, repair=False, **planted.auditor)] == [False]
    assert rows(house) == [(rule, planted.subject, False, False, 1)]
    assert [one.repaired for one in audited(house, **planted.auditor)] == [True]
    assert rows(house) == [(rule, planted.subject, True, True, 2)]


@pytest.mark.parametrize("locked", ["lease", "task"])
def test_a_lease_that_someone_has_locked_is_not_told_as_repaired_until_it_is_gone(house: House, locked: str) -> None:
    planted = PLANTS["release_not_taken_back"](house)
    with house.stage.open() as other, other.transaction():
        other.execute(f"SELECT id FROM {locked} FOR UPDATE")
        assert [one.repaired for one in audited(house)] == [False]
        assert rows(house) == [("release_not_taken_back", planted.subject, False, False, 1)]
        assert house.stage.one("SELECT count(*) FROM lease") == 1
    assert [one.repaired for one in audited(house)] == [True]
    planted.after()


def test_a_lease_that_was_claimed_in_the_last_moment_is_not_told_as_repaired(house: House) -> None:
    PLANTS["release_not_taken_back"](house)
    (message,) = house.stage.messages

    def claimed_meanwhile() -> bool:
        raise AssertionError("a claimed lease isn't looked at")

    assert house.stage.claim(message, house.session)
    assert not transitions.take_back_unclaimed(house.stage.connection, message.lease, claimed_meanwhile)
    assert house.stage.one("SELECT count(*) FROM lease") == 1


def test_a_repair_that_leaves_the_fault_standing_is_not_told_as_one(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "stranded", replace(RULES["stranded"], repair=lambda *_: True))
    planted = stranded(house)
    assert [one.repaired for one in audited(house)] == [False]
    assert rows(house) == [("stranded", planted.subject, False, False, 1)]


@pytest.mark.parametrize("rule", ["stranded", "parked_for_nothing"])
def test_what_a_notice_will_wake_is_no_fault_however_long_the_dispatcher_takes(house: House, rule: str) -> None:
    planted = PLANTS[rule](house)
    house.force("UPDATE task SET depends = true WHERE state = 'queued'")
    task = int(planted.subject.removeprefix("task "))
    house.force("INSERT INTO notice (task_id, tenant_id, down) VALUES (%s, %s, false)", task, house.stage.tenant)
    assert audited(house) == [] and rows(house) == []
    house.force("DELETE FROM notice")
    assert [one.rule for one in audited(house)] == [rule]


@pytest.mark.parametrize("rule", ["old_transaction", "dead_rows", "stranded"])
def test_what_ails_the_database_is_told_to_the_log_as_an_alert_and_once(house: House, rule: str) -> None:
    planted = PLANTS[rule](house)
    with capture_logs() as told:
        for _ in range(2):
            audited(house, repair=False, **planted.auditor)
    (line,) = [one for one in told if one["event"] in ("database_alert", "audit_found")]
    assert line["event"] == ("audit_found" if rule == "stranded" else "database_alert")
    assert (line["rule"], line["subject"], line["log_level"]) == (rule, planted.subject, "warning")
    if rule == "old_transaction":
        assert line["fact_age_s"] >= 0 and line["fact_role"]
    if rule == "dead_rows":
        assert line["fact_dead"] >= 100


def test_a_dry_run_writes_nothing(house: House) -> None:
    planted = stranded(house)
    (finding,) = audited(house, dry=True, **planted.auditor)
    assert finding.rule == "stranded" and rows(house) == []


def test_what_is_over_at_the_second_look_is_no_finding(house: House) -> None:
    stranded(house)
    auditor = Auditor(topology=settings.HARNESS_TOPOLOGY, alerts=Alerts(), repair=True)
    assert auditor.look(house.stage.connection, now_s=0.0) == 1
    assert auditor.confirm(house.stage.connection, now_s=1.0) == []  # too early to look again
    house.force("UPDATE task SET not_before = now() + interval '1 day'")
    assert auditor.confirm(house.stage.connection, now_s=LATER_S) == []
    assert auditor.due_in_s(0.0) is None and rows(house) == []


def test_a_finding_that_goes_away_by_itself_is_closed_and_may_come_again(house: House) -> None:
    house.released(n=3)
    house.force("UPDATE tenant SET cap = 2")
    assert [one.level for one in audited(house)] == ["warning"]  # the cap was lowered: nothing was released beyond it
    house.force("UPDATE tenant SET cap = 3")
    assert audited(house) == []
    subject = f"tenant {house.stage.tenant}"
    assert rows(house) == [("tenant_over_cap", subject, False, True, 1)]
    house.force("UPDATE tenant SET cap = 2")
    assert len(audited(house)) == 1
    assert len(rows(house)) == 2


def test_releasing_beyond_a_cap_is_a_fault_and_not_only_a_warning(house: House) -> None:
    house.released(n=3)
    house.force("UPDATE tenant SET cap = 2")
    auditor = Auditor(topology=settings.HARNESS_TOPOLOGY, alerts=Alerts())
    auditor.look(house.stage.connection, now_s=0.0)
    assert auditor.confirm(house.stage.connection, now_s=LATER_S) == []
    house.lease(claimed="clock_timestamp()", zombie="clock_timestamp()")  # one more, while it is over its cap
    (finding,) = auditor.confirm(house.stage.connection, now_s=2 * LATER_S)
    assert (finding.rule, finding.level) == ("tenant_over_cap", "fault")


@pytest.mark.parametrize(
    ("want", "state", "event", "holds"),
    [("cancel", "cancelled", "abort", []), ("pause:operator,tenant", "paused", "halt", ["operator", "tenant"])],
)
def test_a_wish_about_a_task_without_lease_is_obeyed(
    house: House, want: str, state: str, event: str, holds: list[str]
) -> None:
    task = house.claimed()
    house.force("UPDATE task SET want = %s", want)
    house.force("DELETE FROM lease_member")
    house.force("DELETE FROM lease")
    assert [one.repaired for one in audited(house)] == [True]
    assert (house.stage.state(task), house.stage.events(task)[-1]) == (state, event)
    assert house.stage.row(task)["holds"] == holds and audited(house) == []


def test_a_bundle_loses_only_the_member_that_does_not_fit(house: House) -> None:
    first, second = house.stage.submit("noop", n=2)
    house.stage.see_short_work()
    house.force("UPDATE worker_session SET pools = '{\"db\": 1}'")
    (message,) = house.stage.tick()
    assert len(house.stage.claim(message, house.session)) == 2
    house.into(first, "succeeded")
    assert [one.subject for one in audited(house)] == [f"task {first}"]
    assert house.stage.state(second) == "running" and house.stage.one("SELECT count(*) FROM lease_member") == 1
    assert audited(house) == []


def test_a_lease_whose_session_ended_is_left_to_the_sweep_for_a_minute(house: House) -> None:
    house.claimed()
    house.force("UPDATE worker_session SET ended_at = clock_timestamp() - interval '30 s'")
    assert audited(house) == []
    house.force("UPDATE worker_session SET ended_at = clock_timestamp() - interval '2 minutes'")
    assert [one.rule for one in audited(house)] == ["lease_without_session"]


def test_after_a_redrive_only_what_came_later_counts(house: House) -> None:
    (task,) = house.stage.submit()
    house.force("UPDATE task SET release_no = 3")
    attempt(house, task, release_no=1, verdict="fail")
    assert [one.rule for one in audited(house)] == ["attempts_miscounted"]
    house.force(
        "UPDATE task SET event_no = 2; "
        "INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor) "
        f"VALUES ({task}, {house.stage.tenant}, 2, clock_timestamp(), 'redrive', 'failed_terminal', 'queued', 'test')"
    )
    assert audited(house) == []
    attempt(house, task, release_no=2, verdict="bury")
    assert [one.rule for one in audited(house)] == ["attempts_miscounted"]
    house.force("UPDATE task SET attempts_used = 1")
    assert audited(house) == []


def test_windows_go_on_where_the_last_round_stopped_and_cover_everything(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.store import findings

    monkeypatch.setattr(findings, "WINDOWS", findings.WINDOWS | dict.fromkeys(findings.WINDOWS, 3))
    tasks = house.stage.submit(n=20)
    house.force("UPDATE task SET ready = false WHERE id = ANY(%s)", [tasks[0], tasks[9], tasks[19]])
    auditor = Auditor(topology=settings.HARNESS_TOPOLOGY, alerts=Alerts())
    suspected = [auditor.look(house.stage.connection, now_s=0.0, budget_s=1e-9) for _ in range(80)]
    assert suspected[-1] == 3 and suspected[0] < 3
    assert auditor.costs["tasks"].statements >= 7


def test_a_tenant_sees_its_own_findings_and_no_others(house: House) -> None:
    stranded(house)
    queue = queue_too_long(house)
    assert len(audited(house, repair=False, **queue.auditor)) == 2
    with house.stage.open("web") as web:
        assert web.execute("SELECT rule FROM audit_finding").fetchall() == []
        web.execute("SELECT set_config('harness.tenant', %s, false)", (str(house.stage.tenant),))
        assert web.execute("SELECT rule FROM audit_finding").fetchall() == [("stranded",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("DELETE FROM audit_finding")
    with house.stage.open("staff") as staff, pytest.raises(psycopg.errors.InsufficientPrivilege):
        staff.execute("UPDATE audit_finding SET how = ''")


def test_a_snapshot_that_another_login_holds_is_timed_from_when_it_was_first_seen(house: House) -> None:
    name = f"audit_other_{house.stage.tenant}"
    house.owner.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'other'")
    house.stack.callback(house.owner.execute, f"DROP ROLE {name}")
    with psycopg.connect(house.stage.url, user=name, password="other") as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT 1")
        pid = other.info.backend_pid
        if house.stage.one("SELECT age_s FROM harness_transactions() WHERE pid = %s", pid) is not None:
            pytest.skip("the owner of the tables may see every login's sessions here")
        auditor = Auditor(topology=settings.HARNESS_TOPOLOGY, alerts=Alerts(transaction_s=300), patience_s=0)
        for now_s, expected in ((0.0, []), (299.0, []), (301.0, [f"session {pid}"])):
            auditor.look(house.stage.connection, now_s=now_s)
            found = auditor.confirm(house.stage.connection, now_s=now_s)
            assert [one.subject for one in found if one.rule == "old_transaction"] == expected
