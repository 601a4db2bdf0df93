"""Questions to people: asked without a slot, answered once, replayed; denied, run out, asked again."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pydantic import BaseModel

from harness.engine import approve, execute, operate
from harness.engine import why as whys
from harness.engine.process import ProcessState
from harness.kinds import DENIED, Context, Transient, kind
from harness.policy.errors import Conflict, HarnessError, Invalid, NotFound
from harness.store import approvals, queries, transitions
from tests.stage import Stage

done: list[str] = []
script: list[Callable[[Context], Any]] = []  # what the kind does, an attempt each; the last one from then on


class Nothing(BaseModel):
    """Any input."""

    n: int = 0


@kind("test.asking", pool="db", input=Nothing)
def asking(ctx: Context, payload: Nothing) -> Any:
    return (script.pop(0) if len(script) > 1 else script[0])(ctx)


@kind("test.bundled_asking", pool="db", input=Nothing, bundle=True, est_s=0.001)
def bundled(ctx: Context, payload: Nothing) -> Any:
    return ctx.ask("Go on?")


@pytest.fixture(autouse=True)
def fresh() -> None:
    done.clear()
    script.clear()


@pytest.fixture
def process(stage: Stage) -> Iterator[ProcessState]:
    with stage.process(stage.add_session(), connections=4) as process:
        yield process


def act(ctx: Context, name: str) -> str:
    def fn() -> str:
        done.append(name)
        return name

    return ctx.step(name, fn)


def publish(ctx: Context) -> Any:
    draft = act(ctx, "write")
    answer = ctx.ask(f"Publish {draft}?", choices=["by mail", "on paper"], deny="answer")
    return [answer, act(ctx, "publish")]


def asks(**more: Any) -> Callable[[Context], Any]:
    return lambda ctx: ctx.ask("Go on?", **more)


def once(stage: Stage, process: ProcessState) -> None:
    for message in list(stage.tick()):
        execute.run_lease(process, message.lease, message.token)


def asked(stage: Stage, process: ProcessState, does: Callable[[Context], Any], **more: Any) -> int:
    """A task that waits for a decision."""
    script[:] = [does]
    (task,) = stage.submit("test.asking", **more)
    once(stage, process)
    assert stage.state(task) == "waiting_approval"
    return task


def public(stage: Stage, task: int) -> uuid.UUID:
    return uuid.UUID(str(stage.one("SELECT public_id FROM task WHERE id = %s", task)))


def say(stage: Stage, verb: str, task: int, **more: Any) -> approve.Answered:
    acts: dict[str, Callable[..., approve.Answered]] = {
        "approve": approve.approve,
        "deny": approve.deny,
        "reask": approve.reask,
    }
    given = {"tenant": stage.tenant, "actor": "jo", **more}
    return acts[verb](stage.connection, public(stage, task), **given)


def row(stage: Stage, task: int) -> approvals.Approval:
    found = approvals.last(stage.connection, task)
    assert found is not None
    return found


def overdue(stage: Stage, task: int) -> None:
    """As if the time for an answer were over."""
    stage.connection.execute(
        "UPDATE approval SET deadline = clock_timestamp() - interval '1 s' WHERE task_id = %s", (task,)
    )


def output(stage: Stage, task: int) -> Any:
    return stage.one("SELECT output FROM task_body WHERE task_id = %s", task)


def error(stage: Stage, task: int) -> Any:
    return stage.one("SELECT error FROM task_body WHERE task_id = %s", task)


def leases(stage: Stage) -> int:
    return int(stage.one("SELECT count(*) FROM lease"))


def test_a_task_asks_holds_no_slot_and_goes_on_with_the_choice(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, publish)
    assert leases(stage) == 0 and stage.one("SELECT count(*) FROM lease_member") == 0
    assert stage.tick() == []  # nothing to release
    question = row(stage, task)
    assert (question.prompt, question.choices, question.open) == ("Publish write?", ["by mail", "on paper"], True)
    done_ = say(stage, "approve", task, choice="on paper", reason="as ever")
    assert done_ == approve.Answered(outcome="approved", choice="on paper")
    assert stage.state(task) == "waiting_approval" and stage.row(task)["ready"]
    once(stage, process)
    assert stage.state(task) == "succeeded" and output(stage, task) == ["on paper", "publish"]
    assert done == ["write", "publish"]  # the step before wasn't done again
    assert stage.row(task)["attempts_used"] == 0
    began, ended = "step_started", "step_finished"
    assert stage.events(task) == [
        "submit", "claim", began, ended, began, "ask", "approve",
        "claim", "steps_replayed", began, ended, began, ended, "succeed",
    ]  # fmt: skip
    trace = stage.connection.execute(
        "SELECT event, from_state, to_state, actor, data FROM event WHERE task_id = %s "
        "AND event IN ('ask', 'approve', 'claim') ORDER BY seq",
        (task,),
    ).fetchall()
    assert [(one[0], one[1], one[2]) for one in trace] == [
        ("claim", "queued", "running"),
        ("ask", "running", "waiting_approval"),
        ("approve", "waiting_approval", "waiting_approval"),
        ("claim", "waiting_approval", "running"),
    ]
    assert trace[2][3:] == ("jo", {"ordinal": 2, "choice": "on paper", "reason": "as ever"})
    question = row(stage, task)
    assert (question.verdict, question.choice, question.note) == ("approve", "on paper", "as ever")
    assert question.decided_by == "jo" and question.decided_at is not None and question.waited_s > 0


def test_the_answer_outlives_a_loss_and_is_replayed(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, publish)
    say(stage, "approve", task, choice="by mail")
    (message,) = stage.tick()
    session = stage.add_session()
    stage.claim(message, session)  # a worker that dies before it has come to the answer
    stage.connection.execute("UPDATE worker_session SET ended_at = clock_timestamp() WHERE uuid = %s", (session,))
    (lost,) = transitions.lose(stage.connection, max_attempts={}, retry_delay_s=1, actor="sweep")
    assert lost.state == "queued"
    once(stage, process)
    assert stage.state(task) == "succeeded" and output(stage, task) == ["by mail", "publish"]
    assert stage.events(task).count("ask") == 1


def test_a_later_attempt_gets_the_recorded_choice_without_asking(stage: Stage, process: ProcessState) -> None:
    def fails(ctx: Context) -> Any:
        assert ctx.ask("Go on?") == "approved"
        raise Transient("down")

    script[:] = [asks(), fails, lambda ctx: [ctx.ask("Go on?"), ctx.ask("And on?", choices=["a", "b"])]]
    (task,) = stage.submit("test.asking")
    once(stage, process)
    say(stage, "approve", task)
    once(stage, process)
    assert stage.state(task) == "failed_retryable"
    stage.connection.execute("UPDATE task SET not_before = clock_timestamp() WHERE id = %s", (task,))
    transitions.wake_due(stage.connection, actor="sweep")
    once(stage, process)
    assert stage.state(task) == "waiting_approval"  # it asks the next thing
    say(stage, "approve", task, choice="b")
    once(stage, process)
    assert output(stage, task) == ["approved", "b"]
    assert [one.choice for one in approvals.of_task(stage.connection, task, most=9)] == ["b", "approved"]


def test_a_no_cancels_the_task_and_says_who_and_why(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, asks())
    assert say(stage, "deny", task, reason="too risky").outcome == "denied"
    assert stage.state(task) == "cancelled"
    assert error(stage, task) == {"class": "denied", "message": "denied by jo: too risky"}
    assert stage.events(task)[-1] == "deny" and not row(stage, task).open
    assert stage.tick() == []


def test_a_no_is_an_answer_where_the_kind_wants_it(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, publish)
    assert say(stage, "deny", task) == approve.Answered(outcome="answered", choice=DENIED)
    once(stage, process)
    assert output(stage, task) == ["denied", "publish"]
    assert stage.events(task)[6] == "deny"


def test_a_question_is_answered_once_and_the_second_hears_who_was_first(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, publish)
    say(stage, "approve", task, choice="by mail", actor="mia", reason="go")
    for verb, more in (("approve", {"choice": "on paper"}), ("deny", {})):
        with pytest.raises(Conflict, match=r"was decided already: approved \(by mail\) by mia at .* UTC: “go”") as no:
            say(stage, verb, task, **more)
        assert no.value.facts["decided_by"] == "mia" and no.value.facts["choice"] == "by mail"
        assert str(no.value.facts["decided_at"]).endswith("+00:00")
    once(stage, process)
    with pytest.raises(Conflict, match="was decided already"):
        say(stage, "approve", task, choice="by mail")
    assert stage.events(task).count("approve") == 1


def race(stage: Stage, task: uuid.UUID, start: threading.Barrier, verb: str) -> str:
    """Answer at the same time as others. Returns `done`, or who was first."""
    connection = stage.open("web")
    given: dict[str, Any] = {"tenant": stage.tenant, "actor": verb}
    try:
        start.wait()
        if verb == "deny":
            approve.deny(connection, task, **given)
        else:
            approve.approve(connection, task, choice=verb, **given)
        return "done"
    except Conflict as no:
        return str(no.facts.get("decided_by"))
    finally:
        connection.close()


def test_two_answers_at_once_have_one_result(stage: Stage, process: ProcessState) -> None:
    for _ in range(8):
        task = asked(stage, process, publish)
        one = partial(race, stage, public(stage, task), threading.Barrier(4))
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(one, ("by mail", "on paper", "deny", "by mail")))
        assert results.count("done") == 1
        winner = row(stage, task).decided_by
        assert set(results) - {"done"} == {winner}
        once(stage, process)
        assert stage.state(task) == "succeeded"


def test_a_decision_stands_and_is_answered_though_nobody_can_be_woken(
    stage: Stage, process: ProcessState, database_url: str
) -> None:
    task = asked(stage, process, publish)
    role = sql.Identifier(stage.one("SELECT current_user"))
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute(sql.SQL("REVOKE SELECT ON leader FROM {}").format(role))
        try:
            assert say(stage, "approve", task, choice="by mail").choice == "by mail"
        finally:
            owner.execute(sql.SQL("GRANT SELECT ON leader TO {}").format(role))
    once(stage, process)
    assert output(stage, task) == ["by mail", "publish"]


def test_nobodys_silence_is_a_yes(stage: Stage, process: ProcessState) -> None:
    pausing, cancelling = (
        asked(stage, process, asks(timeout_s=60)),
        asked(stage, process, asks(timeout_s=60, on_timeout="cancel")),
    )
    assert transitions.time_out(stage.connection, actor="sweep") == 0
    for task in (pausing, cancelling):
        overdue(stage, task)
    assert transitions.time_out(stage.connection, actor="sweep") == 2
    assert stage.state(pausing) == "paused" and stage.row(pausing)["holds"] == ["approval_timeout"]
    assert stage.state(cancelling) == "cancelled" and error(stage, cancelling)["class"] == "approval_timeout"
    for verb in ("approve", "deny"):
        with pytest.raises(Conflict, match="nobody decided in time, so it is paused: ask again"):
            say(stage, verb, pausing)
    with pytest.raises(Conflict, match="has ended"):
        say(stage, "approve", cancelling)
    assert transitions.time_out(stage.connection, actor="sweep") == 0 and stage.tick() == []
    assert say(stage, "reask", pausing).outcome == "reasked"
    assert stage.state(pausing) == "waiting_approval" and row(stage, pausing).asks == 2
    assert transitions.time_out(stage.connection, actor="sweep") == 0  # a new clock
    say(stage, "approve", pausing)
    once(stage, process)
    assert stage.state(pausing) == "succeeded"


def test_only_what_ran_out_is_asked_again_and_only_when_nobody_else_holds_it(
    stage: Stage, process: ProcessState
) -> None:
    task = asked(stage, process, asks(timeout_s=60))
    with pytest.raises(Conflict, match="is asked already"):
        say(stage, "reask", task)
    overdue(stage, task)
    transitions.time_out(stage.connection, actor="sweep")
    operate.pause(stage.connection, public(stage, task), tenant=None, actor="ops", reason="wait")
    with pytest.raises(Conflict, match="is held by others too"):
        say(stage, "reask", task)
    with pytest.raises(Conflict, match="not by you"):
        operate.resume(stage.connection, public(stage, task), tenant=stage.tenant, actor="jo")
    operate.resume(stage.connection, public(stage, task), tenant=None, actor="ops")
    assert stage.row(task)["holds"] == ["approval_timeout"]
    say(stage, "reask", task)
    assert stage.state(task) == "waiting_approval"


def test_an_answer_before_the_question_or_after_the_end_is_refused(stage: Stage, process: ProcessState) -> None:
    script[:] = [asks()]
    (task,) = stage.submit("test.asking")
    for verb in ("approve", "deny", "reask"):
        with pytest.raises(Conflict, match="queued"):
            say(stage, verb, task)
    once(stage, process)
    operate.cancel(stage.connection, public(stage, task), tenant=stage.tenant, actor="jo")
    with pytest.raises(Conflict, match=r"has ended \(cancelled\), so it can't be approved"):
        say(stage, "approve", task)
    assert not row(stage, task).open
    with pytest.raises(NotFound):
        approve.approve(stage.connection, uuid.uuid4(), tenant=stage.tenant, actor="jo")
    other = stage.add_tenant("other")
    waiting = asked(stage, process, asks())
    connection = stage.open("web")
    try:
        with pytest.raises(NotFound):
            approve.approve(connection, public(stage, waiting), tenant=other, actor="spy")
    finally:
        connection.close()


def test_what_can_not_be_asked_or_answered_names_the_field(stage: Stage, process: ProcessState) -> None:
    for more, field in (
        ({"choices": []}, "choices"),
        ({"choices": "yes"}, "choices"),
        ({"choices": ["a", "a"]}, r"choices\[1\]"),
        ({"choices": ["denied"]}, r"choices\[0\]"),
        ({"timeout_s": 0}, "timeout_s: must be 1 to 31536000 seconds"),
        ({"on_timeout": "approve"}, "on_timeout.*never a yes"),
        ({"deny": "retry"}, "deny"),
    ):
        script[:] = [asks(**more)]
        (task,) = stage.submit("test.asking")
        once(stage, process)
        assert stage.state(task) == "failed_terminal"
        with pytest.raises(HarnessError, match=field):
            raise HarnessError(error(stage, task)["message"])
    odd: tuple[Any, ...] = ("", "  ", "x" * 4001, "a\0b", 5, None)
    for prompt in odd:
        script[:] = [lambda ctx, prompt=prompt: ctx.ask(prompt)]  # type: ignore[misc]
        (task,) = stage.submit("test.asking")
        once(stage, process)
        assert "prompt" in error(stage, task)["message"]
    task = asked(stage, process, publish)
    for choice in (None, "by fax"):
        with pytest.raises(Invalid, match="choice: must be one of 'by mail', 'on paper'"):
            say(stage, "approve", task, choice=choice)
    with pytest.raises(Invalid, match="reason"):
        say(stage, "approve", task, choice="by mail", reason="x" * 501)
    assert stage.state(task) == "waiting_approval" and row(stage, task).open


def test_a_kind_that_swallows_the_question_waits_all_the_same(stage: Stage, process: ProcessState) -> None:
    def swallows(ctx: Context) -> Any:
        try:
            return ctx.ask("Go on?")
        except BaseException:  # noqa: BLE001  # what a kind must not do
            return "went on"

    task = asked(stage, process, swallows)
    say(stage, "approve", task)
    once(stage, process)
    assert output(stage, task) == "approved"


def test_a_question_goes_alone_neither_in_a_step_nor_beside_one_nor_in_a_bundle(
    stage: Stage, process: ProcessState
) -> None:
    def inside(ctx: Context) -> Any:
        return ctx.step("outer", lambda: ctx.ask("Go on?"))

    def beside(ctx: Context) -> Any:
        began, end = threading.Event(), threading.Event()

        def slow() -> None:
            began.set()
            end.wait(30)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(ctx.step, "slow", slow, key="a")
            began.wait(30)
            try:
                return ctx.ask("Go on?")
            finally:
                end.set()

    for does, why in ((inside, "can't begin inside step"), (beside, "join their threads first")):
        script[:] = [does]
        (task,) = stage.submit("test.asking")
        once(stage, process)
        assert stage.state(task) == "failed_terminal" and why in error(stage, task)["message"]
    (task,) = stage.submit("test.bundled_asking")
    once(stage, process)
    assert "bundle=True" in error(stage, task)["message"]


def test_a_wish_that_came_while_it_asked_is_obeyed_and_it_asks_again_when_resumed(
    stage: Stage, process: ProcessState
) -> None:
    def pauses(ctx: Context) -> Any:
        operate.pause(stage.connection, uuid.UUID(ctx.task_id), tenant=None, actor="ops")
        return ctx.ask("Go on?")

    script[:] = [pauses, asks()]
    (task,) = stage.submit("test.asking")
    once(stage, process)
    assert stage.state(task) == "paused" and stage.row(task)["holds"] == ["operator"]
    with pytest.raises(Conflict, match="doesn't wait for a decision: it is paused"):
        say(stage, "approve", task)
    operate.resume(stage.connection, public(stage, task), tenant=None, actor="ops")
    once(stage, process)
    assert stage.state(task) == "waiting_approval"
    say(stage, "approve", task)
    once(stage, process)
    assert stage.state(task) == "succeeded"


def test_a_deadline_ends_what_nobody_decided_and_leaves_what_was_decided_and_released(
    stage: Stage, process: ProcessState
) -> None:
    undecided, released = asked(stage, process, asks()), asked(stage, process, asks())
    both = [undecided, released]
    say(stage, "approve", released)
    (message,) = stage.tick()
    stage.connection.execute("UPDATE task SET deadline = clock_timestamp() WHERE id = ANY(%s)", (both,))
    assert transitions.expire_due(stage.connection, actor="sweep") == 1
    assert stage.state(undecided) == "failed_terminal" and not row(stage, undecided).open
    assert stage.state(released) == "waiting_approval"
    execute.run_lease(process, message.lease, message.token)  # the claim looks
    assert stage.state(released) == "failed_terminal"
    assert stage.connection.execute(
        "SELECT from_state FROM event WHERE task_id = ANY(%s) AND event = 'expire'", (both,)
    ).fetchall() == [("waiting_approval",), ("waiting_approval",)]


def test_a_redrive_of_what_was_denied_asks_anew(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, publish)
    operate.cancel(stage.connection, public(stage, task), tenant=None, actor="ops")
    operate.VERBS["redrive"].run(stage.connection, public(stage, task), tenant=None, actor="ops")
    once(stage, process)
    assert stage.state(task) == "waiting_approval" and done == ["write"]
    say(stage, "approve", task, choice="by mail")
    once(stage, process)
    assert stage.state(task) == "succeeded"


def test_why_says_who_can_free_it_and_then_that_it_waits_for_a_slot(stage: Stage, process: ProcessState) -> None:
    stage.hold_lead()
    task = asked(stage, process, asks(timeout_s=60))

    def told() -> list[str]:
        found = queries.task(stage.connection, public(stage, task))
        assert found is not None
        return [f"{one.reason.code} {one.told.words}" for one in whys.why(stage.connection, found).bound]

    (words,) = told()
    assert words.startswith("approval It waits for a decision since ") and words.endswith(": “Go on?”.")
    say(stage, "approve", task)
    (words,) = told()
    assert "Approved, waiting for a slot." in words
    assert approvals.last(stage.connection, task).waited_s > 0  # type: ignore[union-attr]


def test_ten_thousand_waiting_questions_are_no_business_of_the_tick(stage: Stage, process: ProcessState) -> None:
    """Counted in rows of tasks that a tick reads, not in time."""
    stage.submit("noop.single", n=20)
    stage.submit("test.asking", n=10_000)
    stage.connection.execute("UPDATE task SET state = 'running', ready = false WHERE kind = 'test.asking'")
    stage.connection.execute("UPDATE task SET state = 'waiting_approval' WHERE kind = 'test.asking'")
    stage.connection.execute(
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at, "
        "deadline) SELECT id, tenant_id, 1, 'ask', 'Go on?', '{approved}', 'pause', 'cancel', now(), "
        "now() + interval '1 day' "
        "FROM task WHERE state = 'waiting_approval'"
    )
    stage.connection.execute("ANALYZE task")
    stage.fold()
    stage.fold()

    def read() -> int:
        stage.connection.execute("SELECT pg_stat_force_next_flush()")
        return int(stage.one("SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = 'task'"))

    before = read()
    for _ in range(4):
        stage.tick()
    assert transitions.time_out(stage.connection, actor="sweep") == 0
    assert read() - before < 1000
    assert len(approvals.page(stage.connection, stage.tenant, most=50)) == 50
    assert (
        stage.one("SELECT count(*) FROM lease_member m JOIN task t ON t.id = m.task_id WHERE kind <> 'noop.single'")
        == 0
    )


def test_what_ran_out_makes_nothing_ready(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, asks(timeout_s=60))
    overdue(stage, task)
    assert transitions.time_out(stage.connection, actor="sweep") == 1
    assert stage.events(task)[-1] == "approval_timeout" and stage.tick() == []


def test_the_database_knows_no_open_question_that_is_decided(stage: Stage, process: ProcessState) -> None:
    task = asked(stage, process, asks())
    with pytest.raises(psycopg.errors.CheckViolation):
        stage.connection.execute("UPDATE approval SET verdict = 'approve' WHERE task_id = %s", (task,))
