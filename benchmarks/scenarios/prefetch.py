"""prefetch: how much a worker of each pool takes at once, and what becomes of it on cancel, kill and Redis restart.

All pools run side by side, one worker each, with work that only waits. Counted from LLEN, Celery's inspect and the
effect log (benchmarks.holdings). `stale_after_cancel` = tasks that began although they had been cancelled while queued;
`redelivered_on_kill` = of the tasks that ran when their worker was killed with SIGKILL, those that were run again.
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import effects, product
from benchmarks.bench import Bench
from benchmarks.holdings import Holding, Watch
from benchmarks.kinds.wait.kind import POOLS
from benchmarks.stage import Stage
from harness.policy.errors import Unavailable
from harness.store.sessions import DEAD_AFTER_S

QUICK_POOLS = ("db", "cpu")
WAVES = 3  # tasks per slot, so that there is always more waiting than fits
CANCEL_WAVES = 15  # so many that some still wait when a cancel comes late
DURATION_S, QUICK_DURATION_S = 2.0, 0.5
KILLED_S, QUICK_KILLED_S = 6.0, 3.0  # long enough to be still running when the kill comes
BUDGET = 140  # database connections: room for the killed workers' and the new ones'
LOST_S = 60.0  # the patience with a dead session (noticed after DEAD_AFTER_S) and a second run of its tasks


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolReport:
    """One pool. `waiting_max`: messages in its queues; `unacked_max`: of all pools together. None = not measured."""

    slots: int
    held_max: int
    held_max_after_redis_restart: int | None
    waiting_max: int
    unacked_max: int
    cancelled: int
    stale_after_cancel: int
    running_at_kill: int
    redelivered_on_kill: int
    done_after_redis_restart: str | None
    samples: int


def run(bench: Bench) -> dict[str, Any]:
    """Measure all pools and return the JSON, `pools` by name."""
    pools = QUICK_POOLS if bench.quick else POOLS
    duration_s = QUICK_DURATION_S if bench.quick else DURATION_S
    # Killed workers count against the budget until they are known to be dead; the new ones start at once, as under a
    # supervisor that needn't be waited for.
    arm = product.arm(
        "harness_prefetch", kind="bench.wait", pools=pools, environment={"HARNESS_BENCH_CONNECTIONS": str(BUDGET)}
    )
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        slots: dict[str, int] = stage.drive("slots_of", pools=list(pools))
        stage.drive("submit_to", numbers=slots, tag="warm", duration_s=0.01)
        for pool in pools:
            _require(stage, f"warm-{pool}", slots[pool])

        bench.say("held: more work than slots")
        full = _wave(stage, "full", slots, duration_s, restart=None)
        bench.say("cancel: what was cancelled while it waited must not begin")
        cancelled, stale = _cancel(stage, slots, duration_s)
        bench.say("kill: SIGKILL to every worker, then new ones")
        running, again = _kill(stage, slots, pass_time=bench.quick)
        after: dict[str, Holding] | None = None
        if bench.servers.restart_broker:
            bench.say("restart: the broker goes away in the middle and comes back")
            after = _wave(stage, "restart", slots, duration_s, restart=bench.servers.restart_broker)
        report = {
            pool: PoolReport(
                slots=slots[pool],
                held_max=full[pool].held_max,
                held_max_after_redis_restart=after[pool].held_max if after else None,
                waiting_max=full[pool].queued_max,
                unacked_max=full[pool].unacked_max,
                cancelled=cancelled[pool],
                stale_after_cancel=stale[pool],
                running_at_kill=running[pool],
                redelivered_on_kill=again[pool],
                done_after_redis_restart=f"{stage.log.count(f'restart-{pool}')}/{WAVES * slots[pool]}"
                if after
                else None,
                samples=full[pool].samples,
            )
            for pool in pools
        }
    bench.table(
        "What a worker holds",
        ["pool", "slots", "held", "held after Redis restart", "stale after cancel", "running at kill", "run again"],
        [
            [
                *(pool, one.slots, one.held_max, one.held_max_after_redis_restart),
                *(f"{one.stale_after_cancel} of {one.cancelled}", one.running_at_kill, one.redelivered_on_kill),
            ]
            for pool, one in report.items()
        ],
    )
    return {"pools": {pool: asdict(one) for pool, one in report.items()}}


def _waves(slots: dict[str, int], waves: int = WAVES) -> dict[str, int]:
    return {pool: waves * n for pool, n in slots.items()}


def _require(stage: Stage, tag: str, n: int, *, mark: str = effects.DONE, patience_s: float = 60.0) -> None:
    if not stage.wait(tag, n, patience_s, mark=mark):
        raise Unavailable(f"only {stage.log.count(tag, mark)} of {n} tasks of {tag} after {patience_s} s")


def _wave(stage: Stage, tag: str, slots: dict[str, int], duration_s: float, *, restart: Any) -> dict[str, Holding]:
    """Give each pool several times its slots, watch what is held, wait for the end."""
    tags = {pool: f"{tag}-{pool}" for pool in slots}
    with Watch(broker_url=stage.broker_url, log=stage.log, pools=tuple(slots), tags=tags) as watch:
        stage.drive("submit_to", numbers=_waves(slots), tag=tag, duration_s=duration_s)
        if restart:
            for pool in slots:
                _require(stage, tags[pool], 1, mark=effects.BEGUN)
            restart()
        for pool, n in slots.items():
            _require(stage, tags[pool], WAVES * n)
    return watch.found


def _cancel(stage: Stage, slots: dict[str, int], duration_s: float) -> tuple[dict[str, int], dict[str, int]]:
    """Cancel everything while the first wave runs; count what was cancelled while queued and began all the same."""
    stage.drive("submit_to", numbers=_waves(slots, CANCEL_WAVES), tag="cancel", duration_s=duration_s)
    for pool in slots:
        _require(stage, f"cancel-{pool}", 1, mark=effects.BEGUN)
    answer = stage.drive("cancel_waiting", tags=[f"cancel-{pool}" for pool in slots])
    for pool, n in slots.items():
        _require(stage, f"cancel-{pool}", CANCEL_WAVES * n - len(answer[f"cancel-{pool}"]))
    time.sleep(duration_s + 0.5)  # a stale message would begin in the slots that are free now
    began = {pool: {one.i for one in stage.log.read(f"cancel-{pool}", effects.BEGUN)} for pool in slots}
    return (
        {pool: len(answer[f"cancel-{pool}"]) for pool in slots},
        {pool: len(began[pool] & set(answer[f"cancel-{pool}"])) for pool in slots},
    )


def _kill(stage: Stage, slots: dict[str, int], *, pass_time: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Kill all workers with every slot busy, start new ones, and wait until what ran has been run again.

    `pass_time`: don't wait for the silence of the dead sessions, make it older.
    """
    stage.drive("submit_to", numbers=slots, tag="kill", duration_s=QUICK_KILLED_S if pass_time else KILLED_S)
    for pool, n in slots.items():
        _require(stage, f"kill-{pool}", n, mark=effects.BEGUN)
    stage.kill(stage.workers[1:])  # all but the dispatcher
    killed_s = time.time()
    done = {pool: {one.i for one in stage.log.read(f"kill-{pool}")} for pool in slots}
    running = {pool: {one.i for one in stage.log.read(f"kill-{pool}", effects.BEGUN)} - done[pool] for pool in slots}
    if pass_time:
        stage.drive("age_sessions", by_s=DEAD_AFTER_S)
    stage.start(stage.arm.workers[1:])
    for pool, n in slots.items():
        stage.wait(f"kill-{pool}", n, LOST_S)
    again = {
        pool: {one.i for one in stage.log.read(f"kill-{pool}", effects.BEGUN) if one.started_s > killed_s}
        for pool in slots
    }
    return {pool: len(running[pool]) for pool in slots}, {pool: len(running[pool] & again[pool]) for pool in slots}
