"""Steps: done once over all attempts, refused where they would be done wrong, and fenced like every effect."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel

from harness.engine import execute, operate
from harness.engine.process import DRAIN, Fence, LeaseLost, ProcessState
from harness.kinds import Context, Permanent, RateLimited, Transient, kind
from harness.store import steps, transitions
from harness.store.steps import Beginning, Finishing
from tests.stage import Stage, wait_until

done: list[str] = []  # what steps really did, with the token that they had
script: list[Callable[[Context], Any]] = []  # what the kind does, an attempt each; the last one from then on


class Nothing(BaseModel):
    """Any input."""

    n: int = 0


@kind("test.steps", pool="db", input=Nothing)
def stepping(ctx: Context, payload: Nothing) -> Any:
    return (script.pop(0) if len(script) > 1 else script[0])(ctx)


@kind("test.bundled_steps", pool="db", input=Nothing, bundle=True, est_s=0.001)
def bundled(ctx: Context, payload: Nothing) -> Any:
    return ctx.step("short", lambda: 1)


@pytest.fixture(autouse=True)
def fresh() -> None:
    done.clear()
    script.clear()


def act(ctx: Context, name: str, result: Any = None, *, key: str = "") -> Any:
    """A step that says what it does, and under which token."""

    def fn() -> Any:
        done.append(f"{name} {ctx.token}")
        return name if result is None else result

    return ctx.step(name, fn, key=key)


def names() -> list[str]:
    return [one.split()[0] for one in done]


def tokens() -> list[str]:
    return [one.split()[1] for one in done]


def once(stage: Stage, process: ProcessState) -> None:
    """Release and run what is ready, once."""
    for message in list(stage.tick()):
        execute.run_lease(process, message.lease, message.token)


def due(stage: Stage, task: int) -> None:
    """As if the time of its next attempt had come."""
    stage.connection.execute(
        "UPDATE task SET not_before = clock_timestamp() WHERE id = %s AND not_before IS NOT NULL", (task,)
    )
    transitions.wake_due(stage.connection, actor="sweep")


def rows(stage: Stage, task: int) -> list[tuple[Any, ...]]:
    return stage.connection.execute(
        "SELECT ordinal, key, name, finished_at IS NOT NULL, result FROM step WHERE task_id = %s ORDER BY ordinal",
        (task,),
    ).fetchall()


def message_of(stage: Stage, task: int) -> str:
    return str(stage.one("SELECT error ->> 'message' FROM task_body WHERE task_id = %s", task))


def intact(stage: Stage, task: int) -> bool:
    """Whether the trace is numbered without a gap, as the auditor wants it."""
    seqs = [
        row[0] for row in stage.connection.execute("SELECT seq FROM event WHERE task_id = %s ORDER BY seq", (task,))
    ]
    return seqs == list(range(1, stage.row(task)["event_no"] + 1))


@pytest.fixture
def process(stage: Stage) -> Iterator[ProcessState]:
    with stage.process(stage.add_session(), connections=4) as process:
        yield process


def test_a_finished_step_is_replayed_and_not_redone_and_the_trace_says_so(stage: Stage, process: ProcessState) -> None:
    def first(ctx: Context) -> Any:
        act(ctx, "search", {"hits": [1, 2.5, None, "ä"]})
        act(ctx, "read", [True])
        raise Transient("down for a moment")

    def again(ctx: Context) -> Any:
        return [act(ctx, "search"), act(ctx, "read"), act(ctx, "write", "text")]

    script[:] = [first, again]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert stage.state(task) == "succeeded"
    assert names() == ["search", "read", "write"]
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == [
        {"hits": [1, 2.5, None, "ä"]},
        [True],
        "text",
    ]
    began, ended = "step_started", "step_finished"
    assert stage.events(task) == [
        "submit", "claim", began, ended, began, ended, "fail", "requeue",
        "claim", "steps_replayed", began, ended, "succeed",
    ]  # fmt: skip
    assert stage.one("SELECT data FROM event WHERE task_id = %s AND event = 'steps_replayed'", task) == {"steps": 2}
    told = stage.one("SELECT data FROM event WHERE task_id = %s AND seq = 6", task)
    assert (told["step"], told["ordinal"]) == ("read", 2) and told["seconds"] >= 0
    assert intact(stage, task)


def test_an_attempt_that_dies_within_a_step_repeats_it_under_the_same_token(
    stage: Stage, process: ProcessState
) -> None:
    def dies(ctx: Context) -> Any:
        act(ctx, "fetch")

        def post() -> None:
            done.append(f"post {ctx.token}")
            raise Transient("the answer was lost")

        return ctx.step("post", post)

    script[:] = [dies, dies, lambda ctx: [act(ctx, "fetch"), act(ctx, "post")]]
    (task,) = stage.submit("test.steps")
    for _ in range(3):
        once(stage, process)
        due(stage, task)
    assert stage.state(task) == "succeeded"
    assert names() == ["fetch", "post", "post", "post"]
    assert len(set(tokens())) == 2  # one for each step, and none is the task's own
    public = stage.row(task)["public_id"]
    assert all(one.startswith(f"harness-{public}-s") for one in tokens())
    assert stage.one("SELECT begun FROM step WHERE task_id = %s AND name = 'post'", task) == 3


@pytest.mark.parametrize(
    ("recorded", "now", "words"),
    [
        (["search", "write"], ["find"], "step 1 is 'find', but it was recorded as 'search'"),
        (["search", "write"], ["write"], "step 1 is 'write', but it was recorded as 'search'"),
        (["search", "write"], ["search", "check"], "step 2 is 'check', but it was recorded as 'write'"),
    ],
    ids=["renamed", "reordered", "replaced"],
)
def test_other_steps_than_recorded_hold_the_task_before_they_run(
    stage: Stage, process: ProcessState, recorded: list[str], now: list[str], words: str
) -> None:
    def first(ctx: Context) -> Any:
        for name in recorded:
            act(ctx, name)
        raise Transient("once")

    def deployed(ctx: Context) -> Any:
        try:
            for name in now:
                act(ctx, name)
        except Exception:  # noqa: BLE001  # what a careless kind does
            done.append("swallowed x")

    script[:] = [first, deployed]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert (stage.state(task), stage.row(task)["holds"]) == ("paused", ["version"])
    assert names() == recorded  # nothing of the other code was done
    assert stage.events(task)[-2:] == ["steps_replayed", "mismatch"]
    assert words in stage.one("SELECT data ->> 'reason' FROM event WHERE task_id = %s ORDER BY seq DESC LIMIT 1", task)
    assert stage.row(task)["attempts_used"] == 1  # of the error before; a mismatch costs nothing


def test_a_mismatch_that_the_kind_never_looks_at_in_its_thread_holds_the_task_all_the_same(
    stage: Stage, process: ProcessState
) -> None:
    def first(ctx: Context) -> Any:
        act(ctx, "analyse", key="a")
        raise Transient("once")

    def deployed(ctx: Context) -> Any:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(act, ctx, "judge", key="a")
        return "done"

    script[:] = [first, deployed]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert (stage.state(task), stage.row(task)["holds"]) == ("paused", ["version"])
    assert names() == ["analyse"]


def test_a_mismatched_task_waits_for_a_worker_that_started_later_and_then_goes_on(
    stage: Stage, process: ProcessState
) -> None:
    def first(ctx: Context) -> Any:
        act(ctx, "search")
        raise Transient("once")

    script[:] = [first, lambda ctx: act(ctx, "find"), lambda ctx: [act(ctx, "search"), act(ctx, "write")]]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert stage.state(task) == "paused"
    # Every worker that lives lists the kind and version, and has the code that doesn't match.
    assert transitions.resume_version(stage.connection, actor="sweep") == 0
    stage.add_session({"db": 1}, kinds=["another.kind@1"])
    assert transitions.resume_version(stage.connection, actor="sweep") == 0
    stage.add_session({"db": 1})
    assert transitions.resume_version(stage.connection, actor="sweep") == 1
    once(stage, process)
    assert stage.state(task) == "succeeded"
    assert names() == ["search", "write"]


def test_a_step_that_nobody_recorded_is_refused_while_parallel_ones_are_missing(
    stage: Stage, process: ProcessState
) -> None:
    def first(ctx: Context) -> Any:
        for key in ("a", "b"):
            act(ctx, "analyse", key=key)
        raise Transient("once")

    script[:] = [first, lambda ctx: act(ctx, "merge")]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert stage.state(task) == "paused"
    assert names() == ["analyse", "analyse"]
    reason = stage.one("SELECT data ->> 'reason' FROM event WHERE task_id = %s ORDER BY seq DESC LIMIT 1", task)
    assert "'merge', which isn't recorded, and 'analyse' of 'a', which is, never came" in reason


def test_parallel_steps_with_keys_run_at_once_and_may_come_in_another_order(
    stage: Stage, process: ProcessState
) -> None:
    meeting = threading.Barrier(3)

    def fan_out(ctx: Context, keys: list[str], *, meet: bool) -> list[Any]:
        def one(key: str) -> Any:
            def fn() -> str:
                if meet:
                    meeting.wait(10)  # all three are inside at the same time
                done.append(f"analyse-{key} {ctx.token}")
                return key

            found = ctx.step("analyse", fn, key=key)
            return found + act(ctx, "judge", "!", key=key)

        with ThreadPoolExecutor(len(keys)) as pool:
            return list(pool.map(one, keys))

    def first(ctx: Context) -> Any:
        fan_out(ctx, ["a", "b", "c"], meet=True)
        raise Transient("once")

    def again(ctx: Context) -> Any:
        found = fan_out(ctx, ["d", "c", "b", "a"], meet=False)
        return [*found, act(ctx, "merge")]

    script[:] = [first, again]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == ["d!", "c!", "b!", "a!", "merge"]
    assert sorted(names()) == [
        "analyse-a", "analyse-b", "analyse-c", "analyse-d", "judge", "judge", "judge", "judge", "merge",
    ]  # fmt: skip
    assert len(set(tokens())) == len(done)
    assert intact(stage, task)


def test_steps_at_the_same_time_without_keys_and_steps_inside_steps_are_refused(
    stage: Stage, process: ProcessState
) -> None:
    def nested(ctx: Context) -> Any:
        return ctx.step("outer", lambda: act(ctx, "inner", key="k"))

    def at_once(ctx: Context) -> Any:
        inside = threading.Event()
        with ThreadPoolExecutor(1) as pool:

            def outer() -> None:
                inside.set()
                with pytest.raises(Permanent, match="can't begin while 'outer' is under way"):
                    pool.submit(act, ctx, "second").result(10)

            ctx.step("outer", outer)
        raise Permanent("as expected")

    for attempt, words in (
        (nested, "step 'inner' can't begin inside step 'outer'"),
        (at_once, "as expected"),
    ):
        script[:] = [attempt]
        (task,) = stage.submit("test.steps")
        once(stage, process)
        assert stage.state(task) == "failed_terminal"
        assert words in message_of(stage, task)
    assert done == []


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (object(), "step 'made': its result can't be stored as JSON"),
        ({"a": [1, (2, 3)]}, "result.a[1] is of type tuple"),
        ({"a": {1: 2}}, "result.a has the key 1"),
        (Nothing(), "result is of type Nothing"),
        ({"a": b"x"}, "result.a is of type bytes"),
        ({"a": float("nan")}, "result.a: must be a finite number"),
        ({"a": "x\0y"}, "result.a: holds a NUL character"),
        ("\ud800", "half of a surrogate pair"),
        (
            "x" * 300_000,
            "step 'made': its result is larger than 262,144 bytes as JSON: keep it with `ctx.artifacts.put`",
        ),
    ],
    ids=["object", "tuple", "key", "model", "bytes", "nan", "nul", "surrogate", "large"],
)
def test_a_result_that_is_no_plain_json_fails_at_once_naming_the_step(
    stage: Stage, process: ProcessState, result: Any, words: str
) -> None:
    script[:] = [lambda ctx: ctx.step("made", lambda: result)]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert stage.state(task) == "failed_terminal"
    assert words in message_of(stage, task)
    assert rows(stage, task) == [(1, "", "made", False, None)]


@pytest.mark.parametrize(
    ("name", "key"), [("", ""), ("a\0b", ""), ("a\nb", ""), ("x" * 101, ""), ("\ud800", ""), ("a", "b\0")], ids=ascii
)
def test_a_name_or_key_that_cannot_be_stored_is_refused(
    stage: Stage, process: ProcessState, name: str, key: str
) -> None:
    script[:] = [lambda ctx: ctx.step(name, lambda: 1, key=key)]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert stage.state(task) == "failed_terminal"
    assert "1 to 100 printable characters" in message_of(stage, task)
    assert rows(stage, task) == []


def test_a_bundled_kind_has_no_steps(stage: Stage, process: ProcessState) -> None:
    (task,) = stage.submit("test.bundled_steps")
    once(stage, process)
    assert stage.state(task) == "failed_terminal"
    assert "bundle=True has no steps" in message_of(stage, task)


def test_an_error_that_the_kind_swallows_outside_of_the_step_lets_no_other_step_begin(
    stage: Stage, process: ProcessState
) -> None:
    def failing() -> None:
        raise Transient("down")

    def swallows(ctx: Context) -> Any:
        with pytest.raises(Transient):
            ctx.step("search", failing)
        return act(ctx, "fallback")

    def tries_again(ctx: Context) -> Any:
        with pytest.raises(Transient):
            ctx.step("search", failing)
        return act(ctx, "search")

    script[:] = [swallows]
    (refused,) = stage.submit("test.steps")
    once(stage, process)
    assert "'fallback' can't begin after 'search', which raised" in message_of(stage, refused)
    script[:] = [tries_again]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert stage.state(task) == "succeeded"
    assert rows(stage, task) == [(1, "", "search", True, '"search"')]


def test_a_postponement_inside_a_step_leaves_it_unfinished_and_spends_nothing(
    stage: Stage, process: ProcessState
) -> None:
    def limited() -> None:
        raise RateLimited("slow down", retry_after_s=1.0)

    def first(ctx: Context) -> Any:
        act(ctx, "search")
        return ctx.step("ask", limited)

    script[:] = [first, lambda ctx: [act(ctx, "search"), act(ctx, "ask")]]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert (stage.state(task), stage.row(task)["attempts_used"]) == ("queued", 0)
    assert [row[3] for row in rows(stage, task)] == [True, False]
    due(stage, task)
    once(stage, process)
    assert stage.state(task) == "succeeded" and names() == ["search", "ask"]


def test_a_drain_is_seen_between_steps_and_what_was_finished_is_replayed_by_the_next_worker(
    stage: Stage, process: ProcessState
) -> None:
    def drained(ctx: Context) -> Any:
        def asked_to_end() -> str:
            (running,) = process.running.values()
            running.ask_to_stop(DRAIN)
            done.append(f"first {ctx.token}")
            return "first"  # the step that is under way ends, and its result counts

        ctx.step("first", asked_to_end)
        return act(ctx, "second")

    script[:] = [drained, lambda ctx: [act(ctx, "first"), act(ctx, "second")]]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert (stage.state(task), stage.events(task)[-1]) == ("queued", "interrupt")
    assert names() == ["first"]
    with stage.process(stage.add_session()) as next_one:
        once(stage, next_one)
    assert stage.state(task) == "succeeded" and names() == ["first", "second"]


def test_a_cancel_in_the_middle_is_seen_before_the_next_step_begins(stage: Stage, process: ProcessState) -> None:
    (task,) = stage.submit("test.steps")

    def cancelled(ctx: Context) -> Any:
        def fn() -> str:
            operate.VERBS["cancel"].run(
                stage.connection, stage.row(task)["public_id"], tenant=None, actor="test", reason="enough"
            )
            (running,) = process.running.values()
            running.ask_to_stop("cancel")
            return "made"

        ctx.step("first", fn)
        return act(ctx, "second")

    script[:] = [cancelled]
    once(stage, process)
    assert stage.state(task) == "cancelled" and done == []
    assert rows(stage, task) == [(1, "", "first", True, '"made"')]
    assert stage.events(task)[-3:] == ["wish", "step_finished", "abort"]


def test_a_fenced_worker_begins_no_step_and_records_none(stage: Stage, process: ProcessState) -> None:
    def fenced(ctx: Context) -> Any:
        act(ctx, "first")

        def fn() -> str:
            process.fence.close()
            return "made"

        with pytest.raises(LeaseLost):
            ctx.step("second", fn)
        with pytest.raises(LeaseLost):
            act(ctx, "third")
        raise LeaseLost("seen")

    script[:] = [fenced]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert names() == ["first"]
    assert [row[2:4] for row in rows(stage, task)] == [("first", True), ("second", False)]
    assert stage.state(task) == "running"  # the sweep's


def test_of_two_attempts_that_race_only_the_later_one_writes(stage: Stage, process: ProcessState) -> None:
    """A stopped worker goes on inside its step after its task was taken back and claimed again."""
    session = stage.add_session()

    def stopped(ctx: Context) -> Any:
        def fn() -> str:
            done.append(f"late {ctx.token}")
            stage.connection.execute(
                "UPDATE worker_session SET ended_at = clock_timestamp() WHERE uuid = %s", (process.session,)
            )
            transitions.lose(stage.connection, max_attempts={}, retry_delay_s=1.0, actor="sweep")
            with stage.process(session) as successor:
                once(stage, successor)
            return "stale"

        with pytest.raises(LeaseLost, match="taken back"):
            ctx.step("write", fn)
        with pytest.raises(LeaseLost):
            act(ctx, "more")
        raise LeaseLost("seen")

    script[:] = [stopped, lambda ctx: act(ctx, "write", "fresh")]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    assert stage.state(task) == "succeeded"
    assert rows(stage, task) == [(1, "", "write", True, '"fresh"')]
    assert names() == ["late", "write"] and len(set(tokens())) == 1
    assert intact(stage, task)


def test_the_database_fences_every_step_by_release_and_keeps_what_is_finished(stage: Stage) -> None:
    session = stage.add_session()
    stage.submit("noop.single", n=2)
    for message in list(stage.tick()):
        stage.claim(message, session)
    first, second = (row[0] for row in stage.connection.execute("SELECT id FROM task ORDER BY id").fetchall())

    def beginning(task: int, ordinal: int, name: str, release_no: int = 1) -> Beginning:
        return Beginning(task=task, release_no=release_no, ordinal=ordinal, key="", name=name)

    def finishing(task: int, ordinal: int, release_no: int = 1) -> Finishing:
        return Finishing(task=task, release_no=release_no, ordinal=ordinal, result="1")

    # Several at once, of several tasks and releases: each by itself.
    some = [beginning(second, 1, "b"), beginning(first, 1, "a"), beginning(first, 2, "c"), beginning(first, 3, "d", 2)]
    assert steps.begin(stage.connection, some, actor="t") == [True, True, True, False]
    assert steps.begin(stage.connection, [beginning(first, 1, "other")], actor="t") == [False]
    ended = [finishing(first, 2), finishing(second, 1), finishing(first, 1, 2), finishing(first, 9)]
    assert steps.finish(stage.connection, ended, actor="t") == [True, True, False, False]
    # The answer was lost, so it is said again: with one that is still open.
    before = stage.row(first)["event_no"]
    assert steps.finish(stage.connection, [finishing(first, 1), finishing(first, 2)], actor="t") == [True, True]
    assert stage.row(first)["event_no"] == before + 1
    assert steps.begin(stage.connection, [beginning(first, 1, "a")], actor="t") == [False]  # never redone
    assert intact(stage, first) and intact(stage, second)
    assert stage.events(first) == ["submit", "claim", *["step_started"] * 2, *["step_finished"] * 2]


def test_a_step_waits_while_the_database_is_away_and_the_fence_ends_it(stage: Stage) -> None:
    began_s = [0.0]
    with stage.process(stage.add_session()) as process:

        def away(ctx: Context) -> Any:
            def fn() -> str:
                process.db.close()
                return "made"

            with pytest.raises(LeaseLost):
                ctx.step("first", fn)
            raise LeaseLost("seen")

        script[:] = [away]
        (task,) = stage.submit("test.steps")
        process.fence = Fence(lambda: began_s[0])
        began_s[0] = float("inf")
        looks = [0]
        plain = process.finish_step

        def finish(one: Finishing, *, alone: bool = False) -> bool | None:
            looks[0] += 1
            if looks[0] == 3:
                began_s[0] = 0.0  # no beat has committed for long
            return plain(one, alone=alone)

        process.finish_step = finish  # type: ignore[method-assign]  # counts tries, then does the same
        once(stage, process)
        assert looks[0] == 3
    assert stage.state(task) == "running"
    assert rows(stage, task) == [(1, "", "first", False, None)]


def test_a_locked_task_keeps_its_own_step_waiting_and_no_other(stage: Stage, process: ProcessState) -> None:
    locked, free = stage.submit("test.steps", n=2)
    inside = threading.Event()
    holder = stage.open()

    def works(ctx: Context) -> Any:
        def fn() -> str:
            if ctx.task_id == str(stage_ids[locked]):
                holder.execute("BEGIN")
                holder.execute("SELECT id FROM task WHERE id = %s FOR UPDATE", (locked,))
                inside.set()
            return "made"

        if ctx.task_id == str(stage_ids[free]):
            assert inside.wait(10)
        return ctx.step("write", fn)

    script[:] = [works]
    stage_ids = {task: stage.row(task)["public_id"] for task in (locked, free)}
    with holder:
        messages = list(stage.tick())
        threads = [threading.Thread(target=execute.run_lease, args=(process, one.lease, one.token)) for one in messages]
        for thread in threads:
            thread.start()
        wait_until(lambda: stage.state(free) == "succeeded", within_s=15)
        assert (stage.state(locked), [row[3] for row in rows(stage, locked)]) == ("running", [False])
        holder.execute("ROLLBACK")
        for thread in threads:
            thread.join(15)
    assert stage.state(locked) == "succeeded" and len(messages) == 2
    assert intact(stage, locked) and intact(stage, free)


def test_results_beyond_what_comes_along_are_read_one_by_one(stage: Stage, process: ProcessState) -> None:
    count = steps.PREFETCHED_BYTES // 200_000 + 3

    def first(ctx: Context) -> Any:
        for n in range(count):
            act(ctx, f"part-{n}", f"{n}" + "x" * 200_000)
        raise Transient("once")

    script[:] = [first, lambda ctx: [act(ctx, f"part-{n}")[:3].rstrip("x") for n in range(count)]]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    due(stage, task)
    once(stage, process)
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == [str(n) for n in range(count)]
    assert len(done) == count


def test_a_task_may_ask_for_its_token_but_not_beside_its_steps(stage: Stage, process: ProcessState) -> None:
    def asks(ctx: Context) -> Any:
        own = ctx.token

        def fn() -> str:
            with ThreadPoolExecutor(1) as pool, pytest.raises(RuntimeError, match="this thread is in none of them"):
                pool.submit(lambda: ctx.token).result(10)
            return ctx.token

        return [own, ctx.step("write", fn), ctx.token]

    script[:] = [asks]
    (task,) = stage.submit("test.steps")
    once(stage, process)
    own, of_step, after = stage.one("SELECT output FROM task_body WHERE task_id = %s", task)
    assert own == after == f"harness-{stage.row(task)['public_id']}" and of_step.startswith(f"{own}-s1-")
