"""crash: what becomes of running work when its process is killed, and of the flow when all workers restart in turn.

Everything is counted and timed from the effect log: an arm's own word that a task is done, or lost, is not asked for.
`recovered` = of the tasks that ran when the whole worker was killed, those that began again; `lost` = those that never
ended. `restart_gap_s` = the longest time between two beginnings in one pool while its only worker was restarted under
load. That no attempt was spent stands in the database alone (`attempts_spent`), and is read there.
"""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks import effects, product
from benchmarks.arms import CELERY, PEERS, Arm
from benchmarks.bench import Bench
from benchmarks.stage import Stage
from benchmarks.statistics_of_runs import spread
from harness.policy.errors import Unavailable
from harness.store.sessions import DEAD_AFTER_S

RUNNING = 10
DURATION_S = 4.0  # longer than the client needs to go away after its submit
CAP_S = 60.0  # how long what was killed is waited for
THREADS, PREFORK = "tool_read", "cpu"
CHILD_S = 20.0
DRAIN_S, QUICK_DRAIN_S = 8.0, 2.0
GAP_OVER_DRAIN_S = 5.0  # what a rolling restart may add to the drain: the end of a process and the start of the next
SHORT_S, LONG_S = 0.3, 100.0  # of the work that flows during the restart; the long work outlasts every drain
SHORT_A_SLOT, QUICK_SHORT_A_SLOT = 300, 100
BUDGET = 140  # database connections: killed workers count until they are known to be dead

OURS = product.arm(
    "harness",
    kind="noop.sleep",
    pools=(THREADS, PREFORK),
    environment={
        "HARNESS_BENCH_SLOTS": json.dumps({THREADS: RUNNING}),
        "HARNESS_BENCH_CONNECTIONS": str(BUDGET),
    },
)
_TASKIQ = "{python} -m taskiq worker benchmarks.peers.taskiq_queue:broker"
# One worker of ten slots each, with the peer's own settings; django-tasks-db runs one task a process.
_SHAPES: Mapping[str, tuple[str, ...]] = {
    "celery": tuple(command.replace("-c 2", f"-c {RUNNING}") for command in CELERY.workers),
    "procrastinate": (f"{{bin}}/procrastinate --app benchmarks.peers.procrastinate_queue.app worker -c {RUNNING}",),
    "django_tasks_db": ("{python} -m benchmarks.peers.django_tasks_db db_worker -v 0",) * RUNNING,
    "dramatiq": (f"{{python}} -m dramatiq benchmarks.peers.dramatiq_queue -p 1 -t {RUNNING}",),
    "huey": (f"{{bin}}/huey_consumer benchmarks.peers.huey_queue.huey -w {RUNNING} -k thread -q",),
    "taskiq": (f"{_TASKIQ} --log-level ERROR -w 1 --max-async-tasks {RUNNING}",),
    "pgqueuer": ("{python} -m benchmarks.peers.pgqueuer_queue",),
}
THEIRS = tuple(
    [replace(arm, workers=_SHAPES[arm.name]) for arm in PEERS if arm.name in _SHAPES]
    + [
        replace(
            CELERY,
            name="celery_late_ack",
            workers=_SHAPES["celery"],
            environment={"HARNESS_BENCH_ACKS_LATE": "1"},
        )
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Killed:
    """One kill of a whole worker. Times in seconds after the kill; None: nothing began again."""

    arm: str
    round: int
    running_at_kill: int
    recovered: int
    recovery_first_s: float | None
    recovery_max_s: float | None
    lost: int
    waited_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarted:
    """A rolling restart. `gap_s`: by pool, the longest time between two beginnings; `begun_twice` counts tasks."""

    drain_s: float
    ends_s: dict[str, float]
    gap_s: dict[str, float]
    begun: int
    begun_twice: int
    done_twice: int
    lost: int
    attempts_spent: int
    starts_lost: int
    interrupted: int


def run(bench: Bench) -> dict[str, Any]:
    """Kill a child, kill whole workers, restart all workers; then kill the peers' workers. Return the JSON."""
    ours, skipped_ours = bench.choose((OURS,))
    theirs, skipped = ([], []) if bench.quick else bench.choose(THEIRS)
    kills: list[Killed] = []
    report: dict[str, Any] = {"skipped": [asdict(one) for one in (*skipped_ours, *skipped)]}
    drain_s = QUICK_DRAIN_S if bench.quick else DRAIN_S
    for arm in ours:
        with bench.stage(replace(arm, environment={**arm.environment, "HARNESS_DRAIN_S": str(drain_s)})) as stage:
            slots = _warm(stage)
            children_s = [_kill_child(bench, stage, number) for number in range(bench.pairs)]
            kills += [_kill(bench, stage, number) for number in range(bench.pairs)]
            restarted = _restart_all(bench, stage, slots, drain_s)
            report["child_recovery_s"] = max(children_s)
            report["child_recovery_each_s"] = children_s
            mine = [one for one in kills if one.arm == arm.name]
            times = [one.recovery_max_s for one in mine if one.recovery_max_s is not None]
            report |= {
                "running_at_kill": sum(one.running_at_kill for one in mine),
                "recovered": sum(one.recovered for one in mine),
                "recovery_max_s": max(times, default=None),
                "recovery_max_spread": (summary := spread(times)) and summary.as_json(),
                "lost": sum(one.lost for one in mine),
                **judged_gap(max(restarted.gap_s.values()), drain_s, quick=bench.quick),
                "restart": asdict(restarted),
            }
    kills += [_kill_peer(bench, arm) for arm in theirs]
    report["kills"] = [asdict(one) for one in kills]
    _print(bench, kills, report)
    return report


def judged_gap(gap_s: float, drain_s: float, *, quick: bool) -> dict[str, Any]:
    """Return the gap, what it may be, and whether the run failed by it: never a quick one, machines of CI are slow."""
    allowed_s = drain_s + GAP_OVER_DRAIN_S
    return {"restart_gap_s": gap_s, "restart_gap_allowed_s": allowed_s, "failed": gap_s > allowed_s and not quick}


def _warm(stage: Stage) -> dict[str, int]:
    """Start everything and wait until each pool has worked; return the slots by pool."""
    stage.drive("reset")
    stage.start()
    slots: dict[str, int] = stage.drive("slots_of", pools=[THREADS, PREFORK])
    stage.drive("submit_to", numbers=slots, tag="warm", duration_s=0.01)
    for pool, n in slots.items():
        _require(stage, f"warm-{pool}", n)
    return slots


def _require(stage: Stage, tag: str, n: int, *, mark: str = effects.DONE, patience_s: float = 60.0) -> None:
    if not stage.wait(tag, n, patience_s, mark=mark, every_s=0.02):
        raise Unavailable(f"{stage.arm.name}: only {stage.log.count(tag, mark)} of {n} of {tag} after {patience_s} s")


def _kill_child(bench: Bench, stage: Stage, number: int) -> float:
    """Kill a prefork child in the middle of its task; return the seconds until the task begins again."""
    tag = f"child{number}-{PREFORK}"
    stage.drive("submit_to", numbers={PREFORK: 1}, tag=f"child{number}", duration_s=DURATION_S)
    _require(stage, tag, 1, mark=effects.BEGUN)
    (first,) = stage.log.read(tag, effects.BEGUN)
    os.kill(first.pid, signal.SIGKILL)
    killed_s = time.time()
    _require(stage, tag, 2, mark=effects.BEGUN, patience_s=CHILD_S)
    again_s = stage.log.read(tag, effects.BEGUN)[1].started_s - killed_s
    _require(stage, tag, 1)
    bench.say(f"{stage.arm.name}: a killed child's task began again after {again_s:.2f} s")
    return round(again_s, 2)


def _kill(bench: Bench, stage: Stage, number: int) -> Killed:
    """Kill our worker of ten threads with ten tasks running, and start another at once, as a supervisor does."""
    tag = f"crash{number}"
    stage.drive("submit_to", numbers={THREADS: RUNNING}, tag=tag, duration_s=DURATION_S)
    _require(stage, f"{tag}-{THREADS}", RUNNING, mark=effects.BEGUN)
    victim = stage.workers[OURS.workers.index(product.worker(THREADS))]
    before = stage.workers.index(victim)

    def start() -> None:
        (fresh,) = stage.start([product.worker(THREADS)])
        stage.workers.insert(before, stage.workers.pop(stage.workers.index(fresh)))
        if bench.quick:
            stage.drive("age_sessions_of", pids=[victim.pid], by_s=DEAD_AFTER_S)

    return _crash(bench, stage, f"{tag}-{THREADS}", [victim], start, number)


def _kill_peer(bench: Bench, arm: Arm) -> Killed:
    """The same for a peer."""
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        stage.drive("submit", tag="warm", n=2 * RUNNING, duration_s=0.01)
        _require(stage, "warm", 2 * RUNNING)
        time.sleep(1.0)  # acknowledgements of the warm-up may come in batches, and killing them isn't what is asked
        stage.drive("submit", tag="crash", n=RUNNING, duration_s=DURATION_S)
        with contextlib.suppress(Unavailable):  # a peer that doesn't get to ten is killed with what it has
            _require(stage, "crash", RUNNING, mark=effects.BEGUN, patience_s=5.0)
        return _crash(bench, stage, "crash", list(stage.workers), stage.start, 0)


def _crash(
    bench: Bench, stage: Stage, tag: str, victims: Sequence["subprocess.Popen[bytes]"], start: Any, number: int
) -> Killed:
    stage.kill(victims)
    killed_s = time.time()
    running = {one.i for one in stage.log.read(tag, effects.BEGUN)} - {one.i for one in stage.log.read(tag)}
    start()
    stage.wait(tag, RUNNING, CAP_S)
    again: dict[int, float] = {}
    for one in stage.log.read(tag, effects.BEGUN):
        if one.started_s > killed_s and one.i in running:
            again.setdefault(one.i, one.started_s - killed_s)
    ended = {one.i for one in stage.log.read(tag)}
    killed = Killed(
        arm=stage.arm.name,
        round=number,
        running_at_kill=len(running),
        recovered=len(again),
        recovery_first_s=round(min(again.values()), 1) if again else None,
        recovery_max_s=round(max(again.values()), 1) if again else None,
        lost=len(running - ended),
        waited_s=round(time.time() - killed_s, 1),
    )
    bench.say(
        f"{killed.arm}: {killed.recovered} of {killed.running_at_kill} began again, the last after "
        f"{killed.recovery_max_s} s; {killed.lost} had not ended after {killed.waited_s} s"
    )
    return killed


def _restart_all(bench: Bench, stage: Stage, slots: Mapping[str, int], drain_s: float) -> Restarted:
    """Restart every worker in turn (SIGTERM, wait, start) while work flows through each pool."""
    waves = QUICK_SHORT_A_SLOT if bench.quick else SHORT_A_SLOT
    before = stage.drive("spent")  # what the kills have cost
    stage.drive("submit_to", numbers=dict.fromkeys(slots, 1), tag="long", duration_s=LONG_S)
    for pool in slots:
        _require(stage, f"long-{pool}", 1, mark=effects.BEGUN)
    numbers = {pool: waves * n for pool, n in slots.items()}
    stage.drive("submit_to", numbers=numbers, tag="flow", duration_s=SHORT_S)
    for pool, n in slots.items():
        _require(stage, f"flow-{pool}", 2 * (n - 1), mark=effects.BEGUN)
    began_s, ends_s = time.time(), {}
    for pool, worker in zip((THREADS, PREFORK), list(stage.workers[1:]), strict=True):
        told_s = time.time()
        worker.send_signal(signal.SIGTERM)
        worker.wait(drain_s + 30.0)
        ends_s[pool] = round(time.time() - told_s, 1)
        stage.workers.remove(worker)
        up_s = time.time()
        stage.start([product.worker(pool)])
        _began_after(stage, f"flow-{pool}", up_s)
        bench.say(f"{pool}: its worker ended after {ends_s[pool]} s; work began {time.time() - up_s:.1f} s later")
    back_s = time.time()
    answer = stage.drive("cancel_waiting", tags=[f"flow-{pool}" for pool in slots])
    cancelled = {pool: set(answer[f"flow-{pool}"]) for pool in slots}
    for pool in slots:
        stage.wait(f"flow-{pool}", numbers[pool] - len(cancelled[pool]), 30.0)
    begun = {pool: stage.log.read(f"flow-{pool}", effects.BEGUN) for pool in slots}
    done = {pool: stage.log.read(f"flow-{pool}") for pool in slots}
    after = stage.drive("spent")
    return Restarted(
        drain_s=drain_s,
        ends_s=ends_s,
        gap_s={
            pool: round(_longest([one.started_s for one in found], began_s, back_s), 2) for pool, found in begun.items()
        },
        begun=sum(map(len, begun.values())),
        begun_twice=sum(len(found) - len({one.i for one in found}) for found in begun.values()),
        done_twice=sum(len(found) - len({one.i for one in found}) for found in done.values()),
        lost=sum(numbers[pool] - len({one.i for one in done[pool]} | cancelled[pool]) for pool in slots),
        attempts_spent=after["attempts_spent"] - before["attempts_spent"],
        starts_lost=after["starts_lost"] - before["starts_lost"],
        interrupted=after["interrupted"] - before["interrupted"],
    )


def _began_after(stage: Stage, tag: str, moment_s: float, patience_s: float = 60.0) -> None:
    give_up_s = time.monotonic() + patience_s
    while not any(one.started_s > moment_s for one in stage.log.read(tag, effects.BEGUN)):
        stage.check_alive()
        if time.monotonic() > give_up_s:
            raise Unavailable(f"{stage.arm.name}: nothing of {tag} began within {patience_s} s after the restart")
        time.sleep(0.05)


def _longest(starts_s: Sequence[float], from_s: float, to_s: float) -> float:
    """The longest time without a beginning within a period."""
    within = sorted([from_s, *(at for at in starts_s if from_s < at < to_s)])
    return max((later - earlier for earlier, later in itertools.pairwise(within)), default=to_s - from_s)


def _print(bench: Bench, kills: Sequence[Killed], report: Mapping[str, Any]) -> None:
    bench.table(
        f"SIGKILL of a worker with {RUNNING} tasks running; another is started at once",
        ["arm", "running", "again", "first s", "last s", "not ended", "watched s"],
        [
            [
                *(one.arm, one.running_at_kill, one.recovered, one.recovery_first_s, one.recovery_max_s),
                *(one.lost, one.waited_s),
            ]
            for one in kills
        ],
    )
    if "restart" in report:
        restart = report["restart"]
        bench.table(
            f"Rolling restart under load, drain {restart['drain_s']} s; a killed child: {report['child_recovery_s']} s",
            ["pool", "worker ended after s", "longest gap s"],
            [[pool, restart["ends_s"][pool], gap] for pool, gap in restart["gap_s"].items()],
        )
        bench.say(
            f"attempts spent: {restart['attempts_spent']}; starts lost: {restart['starts_lost']}; handed back: "
            f"{restart['interrupted']}; lost: {restart['lost']}; done twice: {restart['done_twice']}"
        )
        if report["restart_gap_s"] > report["restart_gap_allowed_s"]:
            bench.say(
                f"the longest gap, {report['restart_gap_s']} s, is more than the {report['restart_gap_allowed_s']:g} s "
                f"that a drain of {restart['drain_s']:g} s allows"
            )
