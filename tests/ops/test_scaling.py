"""The local stack brought to what is advised: real supervisor, real workers; and what is decided for one pool."""

import io
import json
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from harness.ops.local import more, processes, scaling, supervision
from harness.ops.local.more import Worker
from harness.ops.local.places import open_places
from harness.ops.local.stack import Stack
from harness.ops.local.supervision import Program
from harness.policy.autoscale import Advice, Memory
from harness.policy.errors import Conflict
from harness.store import autoscale
from harness.store.autoscale import Session, Standing
from tests.stage import Stage, wait_until

STARTS_S = 60.0


def standing(desired: int, *, holds: bool = False, old_s: float = 0.0) -> Standing:
    advice = Advice(pool="llm", workers=1, desired=desired, wanted=desired, binds="work", reason="why", holds=holds)
    return Standing(advice=advice, since_s=0.0, seen_s=1000.0 - old_s, now_s=1000.0)


def session(pid: int, *, held: int = 0, draining: bool = False, host: str = "here", pool: str = "llm") -> Session:
    return Session(session=uuid.uuid4(), host=host, pid=pid, pools=(pool,), draining=draining, held=held)


def added(number: int, pid: int, state: str = "RUNNING") -> Worker:
    return Worker(name=f"more_llm_{number}", pool="llm", pid=pid, state=state)


def decided(one: Standing, sessions: list[Session], mine: list[Worker]) -> tuple[int, int, list[int]]:
    has, start, drain = scaling.decide(one, sessions, mine, host="here")
    return has, start, [each.pid for each in drain]


# -- what is decided for a pool


def test_what_is_missing_is_started_and_a_process_counts_from_its_start_on() -> None:
    base = [session(1), session(2, pool="db")]
    assert decided(standing(3), base, []) == (1, 2, [])
    assert decided(standing(3), base, [added(1, 50, "STARTING"), added(2, 51, "BACKOFF")]) == (3, 0, [])
    assert decided(standing(3), [*base, session(9, host="there")], []) == (2, 1, [])


def test_while_it_is_held_or_nobody_judges_nothing_is_started() -> None:
    assert decided(standing(3, holds=True), [session(1)], []) == (1, 0, [])
    assert decided(standing(3, old_s=31), [session(1)], []) == (1, 0, [])
    assert decided(standing(1, old_s=31), [session(1), session(50)], [added(1, 50)]) == (2, 0, [])


def test_who_is_too_many_is_drained_the_emptiest_first_and_never_one_that_was_not_added() -> None:
    sessions = [session(1), session(50, held=4), session(51, held=0), session(52, held=2)]
    mine = [added(1, 50), added(2, 51), added(3, 52)]
    assert decided(standing(2), sessions, mine) == (4, 0, [51, 52])
    assert decided(standing(0), sessions, mine) == (4, 0, [51, 52, 50])
    assert decided(standing(0), [session(1)], []) == (1, 0, [])
    draining = [session(1), session(50, held=4, draining=True), session(51)]
    assert decided(standing(2), draining, mine[:2]) == (2, 0, [])
    assert decided(standing(3), draining, mine[:2]) == (2, 1, [])
    assert decided(standing(1), [session(1), session(50, host="there")], [added(1, 50)]) == (3, 0, [])


def test_while_a_worker_of_the_procfile_starts_nobody_is_added() -> None:
    def program(up_s: float, pid: int = 7) -> Program:
        return Program(name="worker_net", state="RUNNING", pid=pid, up_s=up_s, detail="", code=0)

    assert scaling.starting([program(3.0)], pids=[]), "nobody knows yet which pools it will serve"
    assert not scaling.starting([program(3.0)], pids=[7])
    assert scaling.starting([program(0.0, pid=0)], pids=[7])
    assert not scaling.starting([program(61.0)], pids=[]), "it will not come any more"


# -- on the real stack


@pytest.fixture
def stack(process_environment: dict[str, str], root: Path, tmp_path: Path) -> Iterator[Stack]:
    """One worker of the pool tool_read, as the Procfile would start it."""
    home = tmp_path / ".harness"
    environment = process_environment | {"HARNESS_DRAIN_S": "2"}
    command = "celery -A config worker --resource-pool tool_read -n base@%h"
    one = Stack(root, home=home, programs=[], extra={"worker_base": command}, environment=environment)
    try:
        one.start()
        yield one
    finally:
        one.stop()
        processes.end(processes.marked(home / "stack"), first=signal.SIGKILL, patience_s=5.0)


def advised(stage: Stage, desired: int, *, holds: bool = False) -> None:
    advice = Advice(
        pool="tool_read", workers=1, desired=desired, wanted=desired, binds="work", reason="why", holds=holds
    )
    autoscale.keep(stage.connection, [(advice, Memory(), {})])


def live(stage: Stage) -> list[Session]:
    return [one for one in autoscale.sessions(stage.connection) if "tool_read" in one.pools and not one.draining]


def test_processes_are_started_and_drained_and_no_running_task_is_ended(
    stage: Stage, stack: Stack, root: Path, tmp_path: Path
) -> None:
    places = open_places(tmp_path / ".harness")
    base = {one.name: one.pid for one in supervision.ask(places)}["worker_base"]

    def round_() -> scaling.Done:
        (done,) = scaling.apply(stage.connection, places, root, only=["tool_read"])
        return done

    wait_until(lambda: len(live(stage)) == 1, within_s=STARTS_S)
    advised(stage, 3, holds=True)
    assert round_().started == ()
    advised(stage, 3)
    assert round_().started == ("more_tool_read_1", "more_tool_read_2")
    assert round_().started == (), "who is starting counts"
    wait_until(lambda: len(live(stage)) == 3, within_s=STARTS_S)

    (long,) = stage.submit("noop.sleep", input=json.dumps({"sleep_s": 8.0}))
    (message,) = stage.tick()
    mine = {one.pid for one in more.there(places)}
    (runner, *_) = [one for one in live(stage) if one.pid in mine]
    # As if the worker had taken it from the broker: its lease is claimed under its session.
    stage.claim(message, runner.session, pid=runner.pid)
    advised(stage, 1)
    assert len(round_().drained) == 2
    names = {one.pid: one.name for one in more.there(places)}
    busy = names[runner.pid]
    wait_until(lambda: {one.state for one in more.there(places) if one.name != busy} == {"EXITED"}, within_s=20)
    assert [one.state for one in more.there(places) if one.name == busy] == ["RUNNING"]
    assert stage.state(long) == "running"
    stage.connection.execute("DELETE FROM lease_member")  # it ends
    stage.connection.execute("DELETE FROM lease")
    wait_until(lambda: {one.state for one in more.there(places)} == {"EXITED"}, within_s=20)
    assert sorted(round_().cleared) == ["more_tool_read_1", "more_tool_read_2"]
    assert more.there(places) == [] and [one.pid for one in live(stage)] == [base]


def test_one_that_can_not_start_is_given_up_and_told(stage: Stage, stack: Stack, root: Path, tmp_path: Path) -> None:
    places = open_places(tmp_path / ".harness")
    wait_until(lambda: len(live(stage)) == 1, within_s=STARTS_S)
    stage.connection.execute("UPDATE worker_session SET connections = 60")
    advised(stage, 2)
    scaling.apply(stage.connection, places, root, only=[])
    # Supervisor calls it fatal when it ends within a second of its start, and exited after that.
    wait_until(lambda: [one.lives for one in more.there(places)] == [False], within_s=STARTS_S)
    assert [one.failed for one in more.there(places)] == [True]
    (done,) = scaling.apply(stage.connection, places, root, only=[], not_now=["tool_read"])
    assert (done.failed, done.started) == (("more_tool_read_1",), ())
    assert more.there(places) == []


# -- the command


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("autoscale", *arguments, stdout=out)
    return out.getvalue()


def test_the_command_tells_what_binds_and_what_changed(stage: Stage) -> None:
    assert "nobody has judged it yet" in run()
    advised(stage, 1)
    advised(stage, 3)
    (found,) = json.loads(run("--once", "--json"))["pools"]
    assert (found["pool"], found["binds"], found["reason"]) == ("tool_read", "work", "why")
    assert (found["workers"], found["desired"], found["stale"]) == (1, 3, False)
    assert "tool_read  1        3" in run()
    (change,) = json.loads(run("--history", "--json"))
    assert (change["before"], change["after"]) == (1, 3)
    assert "tool_read  1     3   1        why" in run("--history")
    stage.connection.execute("UPDATE advice SET seen_at = now() - interval '1 minute'")
    assert "nobody acts on it" in run()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--history", "--apply"), "--history: shows what was advised"),
        (("--pool", "llm,nope,system"), "--pool: nope, system can't be scaled"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_their_names(arguments: tuple[str, ...], says: str) -> None:
    with pytest.raises(CommandError, match=says):
        run(*arguments)


def test_without_a_stack_there_is_nothing_to_apply_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_LOCAL_DIR", str(tmp_path))
    with pytest.raises(CommandError, match="no stack was started here"):
        run("--apply", "--once")


def test_two_that_apply_at_once_are_one_too_many(tmp_path: Path) -> None:
    places = open_places(tmp_path)
    with more.alone(places), pytest.raises(Conflict, match="at work for this stack"), more.alone(places):
        pass
