"""Sending ended tasks again: what is reset, what stays, what is refused, and that it happens once."""

import json
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.test import override_settings
from pydantic import BaseModel

from harness.engine import letters, operate
from harness.engine.letters import Wanted
from harness.engine.operate import KEEP
from harness.kinds import Context, Permanent, kind, registry
from harness.policy.admission import Forbidden, OverQuota
from harness.policy.errors import Conflict, Invalid, NotFound
from harness.store import queries, transitions
from tests.dead_letters import bury, public, with_steps
from tests.stage import Stage, wait_until

_tokens: list[str] = []


class Delivery(BaseModel):
    """To whom."""

    to: str


@kind("test.deliver", pool="db", input=Delivery)
def deliver(ctx: Context, payload: Delivery) -> None:
    """Note the token of the effect, which nobody takes."""
    _tokens.append(ctx.token)
    if payload.to == "nobody":
        raise Permanent("there is nobody")


RESET = ("attempts_used", "lost_starts", "postponements")


redrive = operate.VERBS["redrive"].run


def dead(stage: Stage, wanted: Wanted) -> Iterator[list[int]]:
    return letters.batches(stage.connection, wanted, tenant=stage.tenant)


def send(stage: Stage, task: int, **more: Any) -> operate.Done:
    fields: dict[str, Any] = {"tenant": stage.tenant, "actor": "test", **more}
    return redrive(stage.connection, public(stage, task), **fields)


def body(stage: Stage, task: int) -> tuple[Any, ...]:
    row = stage.connection.execute("SELECT input, output, error FROM task_body WHERE task_id = %s", (task,)).fetchone()
    assert row is not None
    return tuple(row)


def test_as_it_was_counts_begin_at_zero_and_fence_token_epoch_and_story_stay(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    stage.connection.execute("UPDATE task SET release_no = 4 WHERE id = %s", (task,))
    done = send(stage, task, reason="the site is up again")
    assert (done.outcome, done.anew) == ("redriven", False)
    row = stage.row(task)
    assert (row["state"], row["ready"], row["single"], row["finished_at"], row["dead_at"]) == (
        "queued",
        True,
        False,
        None,
        None,
    )
    assert [row[name] for name in RESET] == [0, 0, 0]
    assert (row["release_no"], row["token_epoch"], row["first_claimed_at"]) == (4, 0, None)
    assert body(stage, task) == ({}, None, None)
    data = stage.one("SELECT data FROM event WHERE task_id = %s AND event = 'redrive'", task)
    assert data == {"reason": "the site is up again", "input": "kept"}
    assert stage.one("SELECT count(*) FROM flow WHERE tenant_id = %s", stage.tenant) == 1
    assert stage.one("SELECT count(*) FROM attempt WHERE task_id = %s", task) == 1, "the story stays"


def test_it_runs_again_under_the_token_it_had_and_with_another_input_under_another(stage: Stage) -> None:
    _tokens.clear()
    (task,) = stage.submit("test.deliver", input='{"to": "nobody"}')
    session = stage.add_session()
    with stage.process(session) as process:
        for value in (KEEP, {"to": "nobody"}, {"to": "someone"}):
            stage.run_all(process)
            assert stage.state(task) == "failed_terminal"
            send(stage, task, input=value)
        stage.run_all(process)
    assert stage.state(task) == "succeeded"
    assert stage.events(task) == ["submit", *["claim", "bury", "redrive"] * 3, "claim", "succeed"]
    assert stage.row(task)["release_no"] == 4
    first = f"harness-{public(stage, task)}"
    assert _tokens == [first, first, first, f"{first}-1"]


def test_another_input_begins_anew_under_another_token(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    done = send(stage, task, input={"tag": "other"})
    assert done.anew and stage.row(task)["token_epoch"] == 1
    assert body(stage, task)[0] == {"tag": "other"}
    data = stage.one("SELECT data FROM event WHERE task_id = %s AND event = 'redrive'", task)
    assert data == {"input": "changed", "token_epoch": 1}
    session = stage.add_session()
    stage.tick()
    (message,) = stage.messages
    (claimed,) = stage.claim(message, session)
    assert claimed.token_epoch == 1 and claimed.input == {"tag": "other"}


def test_an_input_equal_to_the_old_one_changes_nothing(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit(input='{"tag": "a", "i": 1}'))
    assert not send(stage, task, input={"i": 1, "tag": "a"}).anew
    assert stage.row(task)["token_epoch"] == 0


def test_the_time_to_start_is_that_of_a_new_submission(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit(priority=2))
    with override_settings(HARNESS_TTL_S=(1.0, 1.0, 100.0, None)):
        send(stage, task)
        left = stage.one("SELECT extract(epoch FROM start_by - now())::float FROM task WHERE id = %s", task)
        assert 95 < left <= 100
        (batch,) = bury(stage, stage.submit(priority=3))
        send(stage, batch)
    assert stage.row(batch)["start_by"] is None


def test_a_cancelled_task_is_sent_again_and_no_other_state_is(stage: Stage) -> None:
    (task,) = stage.submit()
    assert send(stage, task).outcome == "already"
    with pytest.raises(Conflict, match="keeps its input"):
        send(stage, task, input={"tag": "other"})
    transitions.cancel(stage.connection, task, actor="test")
    assert send(stage, task).outcome == "redriven"
    assert send(stage, task).outcome == "already"
    session = stage.add_session()
    with stage.process(session) as process:
        stage.run_all(process)
    with pytest.raises(Conflict, match="succeeded") as refused:
        send(stage, task)
    assert refused.value.facts["state"] == "succeeded"
    with pytest.raises(NotFound):
        redrive(stage.connection, uuid.uuid4(), tenant=None, actor="test")


def test_an_input_that_the_kind_does_not_take_is_refused_with_its_field_and_nothing_changes(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    for value, field in (({"tag": ""}, "input.tag"), ({"tag": 1}, "input.tag"), (None, "input"), ([1], "input")):
        with pytest.raises(Invalid) as refused:
            send(stage, task, input=value)
        assert refused.value.field == field
    with pytest.raises(Invalid) as refused:
        send(stage, task, reason="two\nlines")
    assert refused.value.field == "reason"
    assert stage.state(task) == "failed_terminal" and stage.events(task) == ["submit"]


def test_an_unknown_kind_is_refused_and_another_version_needs_an_input(stage: Stage) -> None:
    (lost,) = bury(stage, stage.submit("no.such.kind"))
    (old,) = bury(stage, stage.submit(version=7))
    with pytest.raises(Conflict, match="no kind"):
        send(stage, lost)
    with pytest.raises(Conflict, match="no kind"):
        send(stage, lost, input={"tag": "x"})
    with pytest.raises(Conflict, match="version 7"):
        send(stage, old)
    assert send(stage, old, input={}).anew, "equal, but for another version"
    row = stage.row(old)
    known = registry.find("noop.single")
    assert known is not None and (row["version"], row["token_epoch"], row["pool"]) == (known.version, 1, known.pool)


def test_another_input_is_found_by_its_own_words(stage: Stage) -> None:
    marks = json.dumps(
        {"title": "Report", "tags": ["red"], "terms": ["#red", "report", "red", "noop", "single", "old"]}
    )
    (task,) = bury(stage, stage.submit(input='{"tag": "old"}', marks=marks))
    send(stage, task, input={"tag": "fresh"})
    terms = stage.one("SELECT array_agg(term ORDER BY term) FROM task_term WHERE task_id = %s", task)
    assert "fresh" in terms and "old" not in terms and "#red" in terms


def test_two_redrives_at_once_make_one(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    outcomes: list[str] = []
    barrier = threading.Barrier(6)

    def click() -> None:
        with stage.open() as connection:
            barrier.wait()
            outcomes.append(
                redrive(connection, public_id, tenant=stage.tenant, actor="test").outcome  # the same for all
            )

    public_id = public(stage, task)
    threads = [threading.Thread(target=click) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["already"] * 5 + ["redriven"]
    assert stage.events(task) == ["submit", "redrive"]


def test_the_backlog_quota_holds_also_when_many_come_at_once(stage: Stage) -> None:
    tasks = bury(stage, stage.submit(n=12))
    stage.connection.execute("UPDATE tenant SET backlog_quota = 5 WHERE id = %s", (stage.tenant,))
    tallies: list[operate.Tally] = []
    barrier = threading.Barrier(3)

    def click(some: list[int]) -> None:
        with stage.open() as connection:
            barrier.wait()
            tallies.append(operate.bulk(connection, "redrive", [some], tenant=stage.tenant, actor="test"))

    threads = [threading.Thread(target=click, args=(tasks[i::3],)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(tally.done["redriven"] for tally in tallies) == 5
    assert sum(tally.refused["over_quota"] for tally in tallies) == 7
    assert stage.one("SELECT count(*) FROM task WHERE state = 'queued'") == 5
    left = next(task for task in tasks if stage.state(task) == "failed_terminal")
    with pytest.raises(OverQuota, match="5 of this tenant's tasks are unfinished"):
        send(stage, left)


def test_a_tenant_sends_nothing_more_urgent_than_it_may_ask_for_but_an_operator_does(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit(priority=0))
    with pytest.raises(Forbidden):
        send(stage, task)
    assert send(stage, task, tenant=None).outcome == "redriven"


def test_work_that_costs_is_refused_beyond_the_budget(stage: Stage) -> None:
    from harness.policy.money import BudgetExceeded

    (task,) = bury(stage, stage.submit("llm.chat", input='{"messages": []}'))
    stage.connection.execute("INSERT INTO budget (tenant_id, day_usd, author) VALUES (%s, 0, 'test')", (stage.tenant,))
    with pytest.raises(BudgetExceeded):
        send(stage, task)
    assert stage.state(task) == "failed_terminal"


def test_a_tenant_sends_its_own_tasks_alone(stage: Stage) -> None:
    theirs = stage.add_tenant("other")
    (ours,), (foreign,) = bury(stage, stage.submit()), bury(stage, stage.submit(tenant=theirs))
    with pytest.raises(NotFound):
        send(stage, foreign)
    tally = operate.bulk(stage.connection, "redrive", [[ours, foreign]], tenant=stage.tenant, actor="test")
    assert tally.done["redriven"] == 1 and stage.state(foreign) == "failed_terminal"
    with stage.open("web") as web:
        with pytest.raises(NotFound):
            redrive(web, public(stage, foreign), tenant=stage.tenant, actor="test")
        bury(stage, [ours])
        assert redrive(web, public(stage, ours), tenant=stage.tenant, actor="t", input={"tag": "b"}).anew
    bury(stage, [ours])
    assert (
        operate.bulk(stage.connection, "redrive", [[ours, foreign]], tenant=None, actor="operator").done["redriven"]
        == 2
    )


def test_all_of_a_reason_go_together_and_what_is_refused_is_counted_with_its_message(stage: Stage) -> None:
    odd = bury(stage, stage.submit(n=450), "row {} is odd", "validation")
    (other,) = bury(stage, stage.submit(), "no answer", "timeout")
    (gone,) = bury(stage, stage.submit("no.such.kind"), "row 1 is odd", "validation")
    seen = operate.forecast(stage.connection, dead(stage, Wanted(error_class="validation")), tenant=stage.tenant)
    assert (seen.tasks, seen.anew, seen.states) == (450, 0, {"failed_terminal": 450})
    assert seen.tally.refused == {"kind": 1} and (seen.attempts, seen.slot_s, seen.tokens) == (450, 1125.0, 45_000)
    assert seen.usd == pytest.approx(112.5) and seen.expected_slot_s > 0 and seen.room is not None
    assert all(stage.state(task) == "failed_terminal" for task in (*odd, other, gone)), "a preview does nothing"
    tally = operate.bulk(
        stage.connection,
        "redrive",
        dead(stage, Wanted(error_class="validation")),
        tenant=stage.tenant,
        actor="test",
        reason="mended",
        most=400,
    )
    assert (tally.done["redriven"] + tally.refused["kind"], tally.more) == (400, True)
    tally = operate.bulk(
        stage.connection, "redrive", dead(stage, Wanted(error_class="validation")), tenant=stage.tenant, actor="test"
    )
    assert not tally.more and "no kind" in tally.messages["kind"]
    assert stage.one("SELECT count(*) FROM event WHERE event = 'redrive'") == 450
    assert stage.state(other) == stage.state(gone) == "failed_terminal"
    nothing = operate.bulk(
        stage.connection, "redrive", dead(stage, Wanted(kind="none")), tenant=stage.tenant, actor="test"
    )
    assert (nothing.done["redriven"], nothing.already, dict(nothing.refused)) == (0, 0, {})


def test_finished_steps_stay_with_the_old_input_and_go_with_another_and_the_preview_says_so(stage: Stage) -> None:
    kept, dropped = bury(stage, stage.submit("test.deliver", n=2, input='{"to": "nobody"}'))
    with_steps(stage, kept)
    with_steps(stage, dropped)
    seen = operate.forecast_one(stage.connection, public(stage, kept), tenant=stage.tenant)
    assert (seen.steps_kept, seen.steps_dropped) == (2, 0)
    seen = operate.forecast_one(stage.connection, public(stage, dropped), tenant=stage.tenant, input={"to": "you"})
    assert (seen.steps_kept, seen.steps_dropped) == (0, 2)
    many = operate.forecast(stage.connection, [[kept, dropped]], tenant=None)
    assert (many.steps_kept, many.steps_dropped) == (4, 0)
    assert stage.one("SELECT count(*) FROM step") == 6, "a preview does nothing"
    send(stage, kept)
    send(stage, dropped, input={"to": "you"})
    assert stage.one("SELECT array_agg(DISTINCT task_id) FROM step") == [kept]
    told = "SELECT data FROM event WHERE task_id = %s AND event = 'redrive'"
    assert stage.one(told, kept) == {"input": "kept", "steps_kept": 2}
    assert stage.one(told, dropped) == {"input": "changed", "token_epoch": 1, "steps_dropped": 2}


def test_role_web_drops_the_steps_of_its_own_tenant_alone_and_writes_none(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit("test.deliver", input='{"to": "nobody"}'))
    with_steps(stage, task)
    web = stage.open("web")
    with web:
        redrive(web, public(stage, task), tenant=stage.tenant, actor="key:1", input={"to": "you"})
        assert stage.one("SELECT count(*) FROM step") == 0
        with_steps(stage, task)
        other = stage.add_tenant("other")
        with queries.as_tenant(web, other):
            assert web.execute("SELECT count(*) FROM step").fetchone() == (0,)
            assert web.execute("DELETE FROM step").rowcount == 0
        for statement in ("UPDATE step SET result = '2'", "INSERT INTO step (task_id) VALUES (1)"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), queries.as_tenant(web, stage.tenant):
                web.execute(statement)


def test_a_preview_of_one_says_whether_it_begins_anew(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())

    def look(value: object) -> operate.Forecast:
        return operate.forecast_one(stage.connection, public(stage, task), tenant=stage.tenant, input=value)

    assert (look(KEEP).tasks, look(KEEP).anew) == (1, 0)
    assert (look({"tag": "b"}).tasks, look({"tag": "b"}).anew) == (1, 1)
    with pytest.raises(Invalid):
        look({"tag": ""})
    send(stage, task)
    assert (look(KEEP).tasks, look(KEEP).tally.already) == (0, 1)


def test_many_with_another_input_count_those_that_do_not_take_it(stage: Stage) -> None:
    marks = bury(stage, stage.submit(n=2))
    faults = bury(stage, stage.submit("noop.fault", n=1))
    tally = operate.bulk(
        stage.connection, "redrive", [[*marks, *faults]], tenant=stage.tenant, actor="test", input={"fail": "bug"}
    )
    assert tally.done["redriven"] == 1 and tally.refused == {"invalid": 2} and "input.fail" in tally.messages["invalid"]


def test_the_dispatcher_is_woken(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    stage.connection.execute("UPDATE leader SET sleeping = true")
    with stage.open() as listening:
        listening.execute("LISTEN harness_doorbell")
        send(stage, task)
        wait_until(lambda: bool(list(listening.notifies(timeout=0.2, stop_after=1))), within_s=5)


def test_a_tenant_that_looks_on_sees_it_under_its_setting_alone(stage: Stage) -> None:
    (task,) = bury(stage, stage.submit())
    with stage.open("web") as web:
        redrive(web, public(stage, task), tenant=stage.tenant, actor="test")
        assert queries.task(web, public(stage, task)) is None, "the setting ends with the verb"
