"""The checker of chaos finds each fault that is planted in a sound history, and nothing in the sound one."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.chaos import levels, sabotage, schedule
from benchmarks.chaos.checker import check
from benchmarks.chaos.history import (
    Accepted,
    Caps,
    Effect,
    Fault,
    History,
    LeaseSeen,
    LevelChange,
    Provider,
    Sample,
    TaskRow,
    TraceEvent,
    Visit,
)
from benchmarks.chaos.receiver import Receiver
from benchmarks.chaos.view import recoveries, view
from harness.store import sql

ROOT = Path(__file__).resolve().parents[2]
A, B, C = "task-a", "task-b", "task-c"  # succeeded after a kill; cancelled before it ran; due in a year
WORKER, NEXT = 100, 200


def row(id: int, task: str, state: str, events: int, **more: object) -> TaskRow:
    usual = TaskRow(
        id=id,
        task=task,
        tenant="gamma",
        kind="bench.effect.cpu",
        pool="cpu",
        priority=3,
        i=id,
        effects=1,
        state=state,
        event_no=events,
        holds=(),
        due_in_s=None,
        leased=False,
    )
    return replace(usual, **more)  # type: ignore[arg-type]  # each name is a field's


def trace(id: int, *events: tuple[float, str, str | None, str]) -> tuple[TraceEvent, ...]:
    return tuple(
        TraceEvent(id=id, seq=n, at_s=at_s, event=event, source=source, target=target)
        for n, (at_s, event, source, target) in enumerate(events, start=1)
    )


def lease(id: int, *tasks: int, pid: int | None = WORKER, tenant: str = "gamma", run: int = 0) -> LeaseSeen:
    return LeaseSeen(
        id=id,
        pool="cpu",
        via=None,
        tenant=tenant,
        run=run,
        signature="tool:webhook=1",
        pid=pid,
        claimed=pid is not None,
        tasks=tasks,
    )


def sample(at_s: float, *leases: LeaseSeen, slots: int = 2) -> Sample:
    return Sample(at_s=at_s, slots={"cpu": slots}, leases=leases)


def visit(began_s: float, ended_s: float, *, pid: int = WORKER, task: str = A, number: int = 1, i: int = 1) -> Visit:
    return Visit(token=f"harness-{task}", i=i, pool="cpu", pid=pid, number=number, began_s=began_s, ended_s=ended_s)


def effect(sent_s: float, *, pid: int = WORKER, task: str = A, i: int = 1) -> Effect:
    return Effect(token=f"harness-{task}", i=i, n=0, pid=pid, sent_s=sent_s, came_s=sent_s + 0.001)


def of_step(sent_s: float, n: int, *, pid: int = WORKER) -> Effect:
    """An effect of task D, which does each in a step."""
    return replace(effect(sent_s, pid=pid, task="task-d", i=4), n=n, step=f"harness-task-d-s{n + 1}")


def stepped(id: int, *events: tuple[tuple[float, str, str | None, str], int | None]) -> tuple[TraceEvent, ...]:
    found = trace(id, *(event for event, _ in events))
    return tuple(replace(event, step=step) for event, (_, step) in zip(found, events, strict=True))


SOUND = History(
    ended_s=100.0,
    accepted=(
        Accepted(i=1, task=A, tenant="gamma"),
        Accepted(i=1, task=A, tenant="gamma"),  # a double click
        Accepted(i=2, task=B, tenant="gamma"),
        Accepted(i=3, task=C, tenant="gamma"),
    ),
    tasks=(
        row(1, A, "succeeded", 5),
        row(2, B, "cancelled", 2),
        row(3, C, "queued", 1, due_in_s=3e7),
    ),
    trace=(
        *trace(
            1,
            (1.0, "submit", None, "queued"),
            (2.0, "claim", "queued", "running"),
            (22.5, "lose", "running", "queued"),
            (24.0, "claim", "queued", "running"),
            (26.0, "succeed", "running", "succeeded"),
        ),
        *trace(2, (1.0, "submit", None, "queued"), (3.0, "cancel", "queued", "cancelled")),
        *trace(3, (1.0, "submit", None, "queued")),
    ),
    visits=(visit(2.1, 5.0), visit(24.1, 25.9, pid=NEXT, number=2)),
    effects=(effect(3.0), effect(25.0, pid=NEXT)),  # twice, under one token: the work is done at least once
    samples=(sample(1.5), sample(4.9, lease(1, 1)), sample(25.0, lease(2, 1, pid=NEXT)), sample(99.0)),
    faults=(Fault(what="kill", role="worker_cpu", pid=99, at_s=5.0, family=(WORKER,)),),
    caps=Caps(tenants={"gamma": 3, "gamma/cpu": 2}, runs={7: 1}, resources={"tool:webhook": 2}),
    leases_left=0,
    provider=Provider(calls=5, ends=5, in_flight=0, in_flight_max=2, answered=4, attempts=6, succeeded=4, slots=16),
)


CAPS_OF_TENANT = Caps(tenants={"gamma": 3}, runs={}, resources={})


def columns(history: History) -> list[str]:
    return [finding.column for finding in check(history)]


def retraced(id: int, *events: tuple[float, str, str | None, str]) -> tuple[TraceEvent, ...]:
    """The sound trace with another one for this task."""
    return tuple(event for event in SOUND.trace if event.id != id) + trace(id, *events)


def with_task(changed: TaskRow) -> tuple[TaskRow, ...]:
    return tuple(changed if one.id == changed.id else one for one in SOUND.tasks)


def test_a_sound_history_has_nothing_wrong_and_says_how_long_the_recovery_took() -> None:
    assert check(SOUND) == []
    (recovery,) = recoveries(view(SOUND))
    assert (recovery.task, recovery.lost_s, recovery.claimed_s, recovery.losses) == (A, 17.5, 19.0, 1)


def test_the_seconds_at_each_level_of_pressure_are_those_between_its_changes() -> None:
    changes = (
        LevelChange(at_s=11.5, before="normal", after="high", why="retry_storm 0.2"),
        LevelChange(at_s=41.5, before="high", after="normal", why=""),
    )
    told = levels.seconds(replace(SOUND, levels=changes))  # the first sample is at 1.5, and it ended at 100
    assert told == {"normal": 68.5, "elevated": 0.0, "high": 30.0, "critical": 0.0}
    assert levels.retry_ratio(SOUND) == 0.0


def test_a_recovery_that_waited_for_a_pause_by_pressure_says_so() -> None:
    (recovery,) = recoveries(view(SOUND))
    assert not recovery.paused
    last = SOUND.samples[-1]
    for at_s, queue, waited in ((23.0, "cpu.p3", True), (23.0, "cpu.p2", False), (20.0, "cpu.p3", False)):
        seen = replace(last, at_s=at_s, leases=(), paused=(queue,))
        samples = tuple(sorted((*SOUND.samples, seen), key=lambda one: one.at_s))
        (recovery,) = recoveries(view(replace(SOUND, samples=samples)))
        assert recovery.paused is waited, (at_s, queue)


def test_a_history_survives_being_written_and_read() -> None:
    assert History.from_json(json.loads(json.dumps(SOUND.as_json()))) == SOUND


PLANTED: dict[str, tuple[str, Callable[[], History]]] = {
    "an accepted task that isn't there": (
        "lost",
        lambda: replace(SOUND, accepted=(*SOUND.accepted, Accepted(i=9, task="gone", tenant="gamma"))),
    ),
    "a task that waits for nothing": (
        "lost",
        lambda: replace(SOUND, tasks=with_task(row(3, C, "queued", 1))),
    ),
    "a task that waits for a year, but has a lease": (
        "lost",
        lambda: replace(SOUND, tasks=with_task(row(3, C, "queued", 1, due_in_s=3e7, leased=True))),
    ),
    "a paused task that nothing holds": (
        "lost",
        lambda: replace(
            SOUND,
            tasks=with_task(row(2, B, "paused", 2)),
            trace=retraced(2, (1.0, "submit", None, "queued"), (3.0, "pause", "queued", "paused")),
        ),
    ),
    "a success without its effect": ("lost", lambda: replace(SOUND, effects=())),
    "a provider that answered less than succeeded": (
        "lost",
        lambda: replace(SOUND, provider=replace(SOUND.provider, answered=3)),  # type: ignore[type-var]  # it's there
    ),
    "two tasks for one key": (
        "duplicated_effects",
        lambda: replace(
            SOUND,
            accepted=(*SOUND.accepted, Accepted(i=1, task="other", tenant="gamma")),
            tasks=(*SOUND.tasks, row(4, "other", "cancelled", 2, i=1)),
            trace=(
                *SOUND.trace,
                *trace(4, (1.0, "submit", None, "queued"), (2.0, "cancel", "queued", "cancelled")),
            ),
        ),
    ),
    "an effect before its task was claimed": (
        "duplicated_effects",
        lambda: replace(SOUND, effects=(*SOUND.effects, effect(1.9))),
    ),
    "an effect after its task was taken back": (
        "duplicated_effects",
        lambda: replace(SOUND, effects=(*SOUND.effects, effect(23.0))),
    ),
    "an effect of a task that never ran": (
        "duplicated_effects",
        lambda: replace(SOUND, effects=(*SOUND.effects, effect(2.5, task=B, i=2))),
    ),
    "an execution of a task that was cancelled": (
        "duplicated_effects",
        lambda: replace(SOUND, visits=(*SOUND.visits, visit(4.0, 4.1, task=B, i=2))),
    ),
    "two executions under one claim": (
        "duplicated_effects",
        lambda: replace(SOUND, visits=(*SOUND.visits, visit(24.5, 24.6, number=3))),
    ),
    "a provider that was called twice in an attempt": (
        "duplicated_effects",
        lambda: replace(SOUND, provider=replace(SOUND.provider, calls=7, ends=7)),  # type: ignore[type-var]
    ),
    "a change that the table doesn't have": (
        "illegal_transitions",
        lambda: replace(
            SOUND,
            tasks=with_task(row(2, B, "succeeded", 2, effects=0)),
            trace=retraced(2, (1.0, "submit", None, "queued"), (3.0, "succeed", "queued", "succeeded")),
        ),
    ),
    "an event that the table doesn't have": (
        "illegal_transitions",
        lambda: replace(
            SOUND, trace=retraced(2, (1.0, "submit", None, "queued"), (3.0, "vanish", "queued", "cancelled"))
        ),
    ),
    "a jump between two events": (
        "illegal_transitions",
        lambda: replace(
            SOUND, trace=retraced(2, (1.0, "submit", None, "queued"), (3.0, "cancel", "paused", "cancelled"))
        ),
    ),
    "a gap in the trace": (
        "illegal_transitions",
        lambda: replace(SOUND, trace=tuple(replace(e, seq=3) if (e.id, e.seq) == (2, 2) else e for e in SOUND.trace)),
    ),
    "a state that its trace doesn't tell of": (
        "illegal_transitions",
        lambda: replace(SOUND, tasks=with_task(row(2, B, "failed_terminal", 2))),
    ),
    "a tenant over its cap in the leases": (
        "caps_exceeded",
        lambda: replace(SOUND, caps=CAPS_OF_TENANT, samples=(sample(4.0, lease(1, 1, 2, 3, 4)),)),
    ),
    "a tenant over its quota of a pool": (
        "caps_exceeded",
        lambda: replace(SOUND, samples=(sample(4.0, lease(1, 1, 2, 3)),)),
    ),
    "a zombie that isn't counted": (
        "caps_exceeded",
        lambda: replace(SOUND, caps=CAPS_OF_TENANT, samples=(sample(4.0, *map(lease, range(4))),)),
    ),
    "a run over its fan-out": (
        "caps_exceeded",
        lambda: replace(SOUND, samples=(sample(4.0, lease(1, 1, run=7), lease(2, 2, run=7)),)),
    ),
    "a resource over its capacity": (
        "caps_exceeded",
        lambda: replace(SOUND, samples=(sample(4.0, *(lease(n, n, tenant=f"t{n}") for n in range(3))),)),
    ),
    "a release beyond the slots": (
        "caps_exceeded",
        lambda: replace(
            SOUND, samples=(sample(4.0, lease(1, 1), slots=1), sample(4.1, lease(1, 1), lease(2, 2), slots=1))
        ),
    ),
    "more executions than slots at one instant": (
        "caps_exceeded",
        lambda: replace(
            SOUND,
            tasks=(*SOUND.tasks, row(4, "d", "succeeded", 3, tenant="other"), row(5, "e", "succeeded", 3, tenant="o")),
            trace=(
                *SOUND.trace,
                *(
                    event
                    for id in (4, 5)
                    for event in trace(
                        id,
                        (1.0, "submit", None, "queued"),
                        (2.0, "claim", "queued", "running"),
                        (9.0, "succeed", "running", "succeeded"),
                    )
                ),
            ),
            visits=(*SOUND.visits, visit(3.0, 8.0, task="d", i=4), visit(4.0, 8.0, task="e", i=5)),
            effects=(*SOUND.effects, effect(5.0, task="d", i=4), effect(5.0, task="e", i=5)),
        ),
    ),
    "a provider called from more slots than there are": (
        "caps_exceeded",
        lambda: replace(SOUND, provider=replace(SOUND.provider, in_flight_max=17)),  # type: ignore[type-var]
    ),
    "a lease that nobody gave back": ("leaked_leases", lambda: replace(SOUND, leases_left=1)),
}


D = "task-d"  # two steps, the second of them again after a kill
STEPPED = replace(
    SOUND,
    accepted=(*SOUND.accepted, Accepted(i=4, task=D, tenant="gamma")),
    tasks=(*SOUND.tasks, row(4, D, "succeeded", 11, kind="bench.steps.cpu", effects=2)),
    trace=(
        *SOUND.trace,
        *stepped(
            4,
            ((1.0, "submit", None, "queued"), None),
            ((30.0, "claim", "queued", "running"), None),
            ((30.1, "step_started", "running", "running"), 1),
            ((30.3, "step_finished", "running", "running"), 1),
            ((30.4, "step_started", "running", "running"), 2),
            ((50.0, "lose", "running", "queued"), None),
            ((51.0, "claim", "queued", "running"), None),
            ((51.1, "steps_replayed", "running", "running"), None),
            ((51.2, "step_started", "running", "running"), 2),
            ((51.4, "step_finished", "running", "running"), 2),
            ((51.5, "succeed", "running", "succeeded"), None),
        ),
    ),
    visits=(*SOUND.visits, visit(30.05, 31.0, task=D, i=4), visit(51.05, 51.45, task=D, i=4, number=2, pid=NEXT)),
    effects=(*SOUND.effects, of_step(30.2, 0), of_step(30.5, 1), of_step(51.3, 1)),
)
STEP_PLANTED: dict[str, tuple[str, Callable[[], History]]] = {
    "an effect of a step under another token": (
        "duplicated_effects",
        lambda: replace(STEPPED, effects=(*STEPPED.effects, replace(of_step(51.3, 1), step="other"))),
    ),
    "one token for the effects of two steps": (
        "duplicated_effects",
        lambda: replace(
            STEPPED, effects=tuple(replace(one, step="same") if one.step else one for one in STEPPED.effects)
        ),
    ),
    "an effect of a step that had finished": (
        "duplicated_effects",
        lambda: replace(STEPPED, effects=(*STEPPED.effects, of_step(51.25, 0))),
    ),
    "a step that began again after it had finished": (
        "duplicated_effects",
        lambda: replace(
            STEPPED, trace=tuple(replace(e, step=1) if (e.id, e.seq) == (4, 9) else e for e in STEPPED.trace)
        ),
    ),
    "a success without one of its steps": (
        "lost",
        lambda: replace(
            STEPPED,
            trace=tuple(replace(e, event="wish", step=None) if (e.id, e.seq) == (4, 10) else e for e in STEPPED.trace),
        ),
    ),
}


def test_steps_that_were_begun_again_but_never_redone_are_sound() -> None:
    assert check(STEPPED) == []
    assert History.from_json(json.loads(json.dumps(STEPPED.as_json()))) == STEPPED


@pytest.mark.parametrize("fault", STEP_PLANTED)
def test_each_fault_of_steps_is_found(fault: str) -> None:
    column, plant = STEP_PLANTED[fault]
    assert columns(plant()) == [column]


@pytest.mark.parametrize("fault", PLANTED)
def test_each_planted_fault_is_found_once_and_nothing_else(fault: str) -> None:
    column, plant = PLANTED[fault]
    assert columns(plant()) == [column]


def test_what_a_stopped_process_began_is_over_when_its_fence_closes() -> None:
    stopped = Fault(what="stop", role="worker_cpu", pid=WORKER, at_s=4.0, until_s=30.0)
    history = replace(SOUND, faults=(stopped,), visits=(visit(2.1, 30.1), SOUND.visits[1]))
    (first, _) = view(history).visits()
    assert first.ended_s == 4.0 + 15.0
    assert check(history) == []
    assert columns(replace(history, effects=(*history.effects, effect(30.05)))) == ["duplicated_effects"]


def test_an_effect_that_was_under_way_may_come_in_late() -> None:
    late = replace(effect(3.0), came_s=40.0)
    assert check(replace(SOUND, effects=(*SOUND.effects, late))) == []


def test_the_seed_decides_everything_and_each_kind_of_process_is_killed_often_enough_in_ten_minutes() -> None:
    assert schedule.faults(5, 600.0) == schedule.faults(5, 600.0) != schedule.faults(6, 600.0)
    assert schedule.work(5, 60.0, verbs={"cancel"}) == schedule.work(5, 60.0, verbs={"cancel"})
    assert schedule.pauses(5, 60.0) == schedule.pauses(5, 60.0)
    for seed in range(5):
        killed = [plan.role for plan in schedule.faults(seed, 600.0) if plan.what == "kill"]
        assert len(killed) >= 60
        workers = sum(killed.count(role) for role in schedule.KILLED if role.startswith("worker"))
        assert min(workers, *(killed.count(role) for role in ("child", "dispatcher", "beat", "web"))) >= 5
        done = {plan.role for plan in schedule.faults(seed, 600.0)}
        assert {*sabotage.orders(), *schedule.SERVERS, *schedule.MESSAGES} <= done


def test_a_process_that_is_ordered_to_dies_or_loses_its_connection_at_a_statement(
    tmp_path: Path, database_url: str
) -> None:
    program = (
        "import os, psycopg, sys\n"
        "from benchmarks.chaos import sabotage\n"
        "from harness.store import sql\n"
        f"sabotage.install({str(tmp_path)!r})\n"
        "text = sql.load('transitions/claim')\n"
        "values = {'leases': [], 'tokens': [], 'session': None, 'pid': 1, 'actor': 'x'}\n"
        "with psycopg.connect(os.environ['DATABASE_URL'], autocommit=True) as connection:\n"
        "    connection.execute('SELECT 1')\n"
        "    try:\n"
        "        connection.execute(text, values)\n"
        "        connection.execute(sql.load('transitions/tell_expired'), {'tasks': []})\n"
        "    except psycopg.OperationalError as error:\n"
        "        print(error)\n"
    )

    def run() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout

    assert run() == (0, "")
    sabotage.order(tmp_path, "claim.before.exit")
    assert run()[0] == sabotage.EXIT_CODE
    sabotage.order(tmp_path, "claim.after.cut")
    assert run() == (0, "the connection was cut by an order: claim.after\n")
    sabotage.order(tmp_path, "tell_expired.before.cut")  # the claim is committed, what it expired isn't told yet
    assert run() == (0, "the connection was cut by an order: tell_expired.before\n")
    obeyed = ["claim.after.cut", "claim.before.exit", "tell_expired.before.cut"]
    assert [name for name, _, _ in sabotage.taken(tmp_path)] == obeyed
    assert run() == (0, "")
    assert {sql.load(file) for file in sabotage.STATEMENTS.values()}  # each names a file that is there


def test_the_receiver_ends_an_execution_when_its_process_is_killed() -> None:
    with Receiver() as receiver:
        host, _, port = receiver.address.rpartition(":")
        program = (
            "import socket, sys, time\n"
            f"c = socket.create_connection(({host!r}, {port}))\n"
            "f = c.makefile('rw')\n"
            "f.write('begin t 7 cpu 1 5.5\\n'); f.flush(); f.readline()\n"
            "f.write('effect 0 6.5\\n'); f.flush(); f.readline()\n"
            "print('ready', flush=True); time.sleep(60)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            (open_,) = receiver.visits()
            assert (open_.token, open_.i, open_.began_s, open_.number) == ("t", 7, 5.5, 1)
            process.send_signal(signal.SIGKILL)
        with socket.create_connection((host, int(port))) as other:
            other.sendall(b"begin t 7 cpu 2 8.5\n")
            assert other.recv(10) == b"2\n"  # the loop has gone round since the first one's end
        first = next(one for one in receiver.visits() if one.number == 1)
        assert first.ended_s < 4e9
        assert [(one.token, one.n, one.sent_s) for one in receiver.effects()] == [("t", 0, 6.5)]
