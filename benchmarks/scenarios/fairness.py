"""fairness: who goes next on the real stack, counted from the effect log, the trace and the provider emulator.

One tenant fans out 1,000 tasks and twenty others submit now and then, Celery beside it; two tenants of
../shared/peerbench (e), all peers beside it; unequal weights and costs; P1 to P3 in full backlog; single tasks beside a
run; a blocked resource; caps of every kind. C = 10 and C = 2 at the same time, each in a pool of its own.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import httpx

from benchmarks import machine, product
from benchmarks.arms import CELERY, CELERY_THREADS, PEERS, Arm
from benchmarks.bench import Bench
from benchmarks.effects import EffectLog
from benchmarks.fairness import judge, scenes, score
from benchmarks.fairness.scenes import POOLS, Scene
from benchmarks.stage import Skipped, Stage
from harness.ops.local.ports import free_port
from harness.policy.errors import HarnessError

PATIENCE_S = 5.0  # for a quiet machine before an arm, so that a whole run stays within its time
END_S = 90.0  # beyond its own length that a scene may take to end
WARM_TASKS = 10
PEER_SLOTS = 10
PAIRS = 1  # a round takes ten minutes

# Ten slots each, in the shapes of ../shared/peerbench (e).
_SHAPES: Mapping[str, tuple[str, ...]] = {
    "celery": tuple(word.replace("-c 2", "-c 10") for word in CELERY.workers),
    "celery_threads": CELERY_THREADS.workers,
    "procrastinate": ("{bin}/procrastinate --app benchmarks.peers.procrastinate_queue.app worker -c 10",),
    "django_tasks_db": ("{python} -m benchmarks.peers.django_tasks_db db_worker -v 0",) * PEER_SLOTS,
    "dramatiq": ("{python} -m dramatiq benchmarks.peers.dramatiq_queue -p 1 -t 10",),
    "huey": ("{bin}/huey_consumer benchmarks.peers.huey_queue.huey -w 10 -k thread -q",),
    "taskiq": (
        "{python} -m taskiq worker benchmarks.peers.taskiq_queue:broker --log-level ERROR -w 1 --max-async-tasks 10",
    ),
    "pgqueuer": ("{python} -m benchmarks.peers.pgqueuer_queue",),
}
NEIGHBOURS = tuple(
    replace(
        arm,
        workers=_SHAPES[arm.name],
        environment={**arm.environment, "HARNESS_BENCH_CONCURRENT": str(PEER_SLOTS)},
    )
    for arm in PEERS
    if arm.name in _SHAPES
)
CELERIES = {
    slots: replace(
        CELERY_THREADS,
        name=f"celery_c{slots}",
        broker=1 if slots == PEER_SLOTS else 2,
        workers=tuple(word.replace("-c 10", f"-c {slots}") for word in CELERY_THREADS.workers),
    )
    for slots in POOLS
}


@dataclass(slots=True)
class Found:
    """What was measured so far. `ends`: how many tasks of each tag were done, of how many."""

    ours: dict[int, dict[str, Any]] = field(default_factory=lambda: {slots: {} for slots in POOLS})
    theirs: dict[int, dict[str, Any]] = field(default_factory=lambda: {slots: {} for slots in POOLS})
    neighbours: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    over: dict[str, list[str]] = field(default_factory=lambda: {"trace": [], "emulator": [], "effects": []})
    ends: dict[str, str] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def run(bench: Bench) -> dict[str, Any]:
    """Measure every arm in turn and return the JSON."""
    rounds = []
    skipped: list[Skipped] = []
    for number in range(bench.pairs):
        found = Found()
        turns = [lambda found=found: _celery(bench, found), lambda found=found: _ours(bench, found)]
        for turn in turns if number % 2 == 0 else reversed(turns):
            turn()
        peers, skipped = bench.choose(NEIGHBOURS[1:2] if bench.quick else NEIGHBOURS)
        for arm in peers:
            try:
                _peer(bench, found, arm)
            except HarnessError as error:  # what the others showed is not lost with one of them
                found.failures.append(error.message)
        rounds.append(found)
    report = _report(rounds)
    report["skipped"] = [asdict(one) for one in skipped]
    _print(bench, report)
    return report


def _ours(bench: Bench, found: Found) -> None:
    """Let one stack play the whole programme; then judge each scene."""
    port = free_port()
    arm = _arm(port)
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        stage.start([f"{{python}} -m harness.ops.emulator --port {port} --latency-s {scenes.CALL_S} --quota 1000"])
        found.idle[arm.name] = machine.await_quiet(min(PATIENCE_S, bench.patience_s))
        bench.say("harness: playing the programme")
        played = stage.drive("perform", quick=bench.quick)
        stage.check_alive()
        stats = httpx.get(f"http://127.0.0.1:{port}/admin/stats", timeout=10.0).json()
    _complete(stage.log, bench.quick, found)
    found.others["late_s"] = played["late_s"]
    _judge(stage.log, bench.quick, played["began_s"], found)
    _caps(played["caps"], stats, found)
    found.neighbours[arm.name] = judge.waits(stage.log, "B")


def _complete(log: EffectLog, quick: bool, found: Found) -> None:
    """Note what was not done, done twice, or ran beyond the slots."""
    for scene in scenes.programme(quick):
        for tag, n in scene.tasks().items():
            if tag == scenes.CHAT_TAG:  # leaves no line: the emulator counts it
                continue
            effects = log.read(tag)
            done = len({one.i for one in effects})
            found.ends[tag] = f"{done}/{n}"
            if len(effects) > done:
                found.failures.append(f"{tag}: {len(effects) - done} were done twice")
            if scene.to_the_end and done < n:
                found.failures.append(f"{tag}: only {done} of {n} were done")
        for slots, most in judge.at_once(log, scene).items():
            if most > slots:
                found.over["effects"].append(f"{scene.name}: {most} bodies at once in a pool of {slots}")


def _judge(log: EffectLog, quick: bool, began_s: Mapping[str, float], found: Found) -> None:
    by_name = {scene.name: scene for scene in scenes.programme(quick)}
    for slots, mine in found.ours.items():
        mine.update(judge.elephant(log, slots))
        mine["makespan_vs_alone"] = judge.alone_ratio(log, slots, mine)
        mine["weights"] = judge.weights(log, by_name["weights"], began_s["weights"], slots)
        if mine["weights"]["dry"]:
            found.failures.append(f"weights, C = {slots}: out of work were {', '.join(mine['weights']['dry'])}")
        for name in ("classes", "urgent"):
            mine[name] = judge.classes(log, by_name[name], began_s[name], slots)
    found.others["singles_wait"] = judge.waits(log, "singles")
    for name in ("open", "blocked"):
        found.others[f"{name}_slots_used"] = judge.busy(log, by_name[name], began_s[name])


def _arm(port: int) -> Arm:
    pools = [*POOLS.values(), scenes.CALLING]
    arm = product.arm(
        "harness_fair",
        kind="bench.wait.tool_read",
        pools=pools,
        environment={
            "HARNESS_BENCH_SLOTS": json.dumps(dict(scenes.SLOTS)),
            "LLM_BASE_URL": f"http://127.0.0.1:{port}/v1",
            "LLM_API_KEY": "fairness",
            "LLM_MODEL": "emulator-1",
        },
    )
    return replace(arm, module="benchmarks.product_fair")


def _caps(told: Mapping[str, Any], stats: Mapping[str, Any], found: Found) -> None:
    """Note every cap that was exceeded: by the trace, and by the provider's own count."""
    found.over["trace"] += told["exceeded"]
    allowed = sum(cap for _, cap, _ in scenes.CAPPED.values())
    if stats["in_flight_max"] > allowed:
        found.over["emulator"].append(f"{stats['in_flight_max']} calls at once, of {allowed}")
    asked = sum(n for _, _, n in scenes.CAPPED.values())
    if stats["answered"] != asked:
        found.failures.append(f"{scenes.CHAT_TAG}: the emulator answered {stats['answered']} of {asked}")
    found.others["caps"] = {key: told[key] for key in ("looked_at", "reached", "claims")} | {
        "emulator_in_flight_max": stats["in_flight_max"],
        "emulator_allowed": allowed,
        "emulator_calls": stats["calls"],
    }


def _celery(bench: Bench, found: Found) -> None:
    """Play the elephant on bare Celery: both sizes at once, as on the product's stack."""
    scene = scenes.elephant(bench.quick)
    with ExitStack() as stack:
        stages = {slots: stack.enter_context(bench.stage(arm)) for slots, arm in CELERIES.items()}
        for stage in stages.values():
            stage.drive("reset")
            stage.start()
            stage.drive("submit", tag="warm", n=WARM_TASKS, duration_s=0.01)
            stage.wait("warm", WARM_TASKS, 30.0)
        found.idle["celery"] = machine.await_quiet(min(PATIENCE_S, bench.patience_s))
        with ThreadPoolExecutor(len(stages)) as both:
            plays = [both.submit(_drive_pool, stage, scene, POOLS[slots]) for slots, stage in stages.items()]
        for played in plays:
            played.result()
        for slots, stage in stages.items():
            tasks = _of_pool(scene, POOLS[slots]).tasks()
            for tag, n in tasks.items():
                if not stage.wait(tag, n, END_S):
                    found.failures.append(f"celery, {tag}: only {stage.log.count(tag)} of {n} were done")
            found.theirs[slots] = judge.elephant(stage.log, slots)
    bench.say("celery: played")


def _drive_pool(stage: Stage, scene: Scene, pool: str) -> None:
    stage.drive("play", arrivals=score.as_json(_of_pool(scene, pool).arrivals))


def _of_pool(scene: Scene, pool: str) -> Scene:
    kind = score.waiting(pool)
    return replace(scene, arrivals=tuple(one for one in scene.arrivals if all(p.kind == kind for p in one.parts)))


def _peer(bench: Bench, found: Found, arm: Arm) -> None:
    scene = scenes.neighbour(bench.quick)
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        stage.drive("submit", tag="warm", n=WARM_TASKS, duration_s=0.01)
        if not stage.wait("warm", WARM_TASKS, 30.0):
            found.failures.append(f"{arm.name}: it does not work off its first tasks")
            return
        found.idle[arm.name] = machine.idle_ratio()
        stage.drive("play", arrivals=score.as_json(scene.arrivals))
        for tag, n in scene.tasks().items():
            if not stage.wait(tag, n, END_S):
                found.failures.append(f"{arm.name}, {tag}: only {stage.log.count(tag)} of {n} were done")
        found.neighbours[arm.name] = judge.waits(stage.log, "B")
    bench.say(f"{arm.name}: B waited {found.neighbours[arm.name]['p50_s']} s")


def _report(rounds: Sequence[Found]) -> dict[str, Any]:
    """Return the figures by capacity, and those of C = 10 under the names of the issue; medians over rounds."""
    by_capacity = {
        str(slots): _of_capacity([(one.ours[slots], one.theirs[slots]) for one in rounds]) for slots in POOLS
    }
    over = {where: [line for one in rounds for line in one.over[where]] for where in ("trace", "emulator", "effects")}
    others: dict[str, Any] = dict(rounds[-1].others)
    open_used, used = others["open_slots_used"]["open"], others["blocked_slots_used"]
    return {
        **by_capacity[str(PEER_SLOTS)],
        "caps_exceeded": sum(len(lines) for lines in over.values()),
        "caps_exceeded_from": {where: len(lines) for where, lines in over.items()},
        "caps_exceeded_lines": [line for lines in over.values() for line in lines],
        "by_capacity": by_capacity,
        "neighbour_wait_s": rounds[-1].neighbours,
        "blocked_speed": round(sum(used.values()) / open_used, 3) if open_used else None,
        **others,
        "done": rounds[-1].ends,
        "failures": [line for one in rounds for line in one.failures],
        "idle_before": rounds[-1].idle,
        "rounds": [{"ours": one.ours, "theirs": one.theirs} for one in rounds],
    }


def _of_capacity(rounds: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    ours, theirs = [mine for mine, _ in rounds], [peer for _, peer in rounds]
    ratios = [
        mine["makespan_s"] / peer["makespan_s"] for mine, peer in rounds if mine["makespan_s"] and peer["makespan_s"]
    ]
    gains = [
        peer["victims"]["p50_s"] / mine["victims"]["p50_s"]
        for mine, peer in rounds
        if mine["victims"]["p50_s"] and peer["victims"]["p50_s"]
    ]
    return {
        "victim_wait_p50_s": _median([mine["victims"]["p50_s"] for mine in ours]),
        "victim_wait_p99_s": _median([mine["victims"]["p99_s"] for mine in ours]),
        "celery_victim_wait_p50_s": _median([peer["victims"]["p50_s"] for peer in theirs]),
        "victim_p50_gain": _median(gains),
        "jain_min_window": _median([mine["weights"]["jain_min_window"] for mine in ours]),
        "jain_whole": _median([mine["weights"]["jain_whole"] for mine in ours]),
        "makespan_vs_alone": _median([mine["makespan_vs_alone"] for mine in ours]),
        "makespan_vs_celery": _median(ratios),
        "p1_share_of_slot_s": _median([mine["classes"]["shares"]["p1"] for mine in ours]),
        "p2_share_of_slot_s": _median([mine["classes"]["shares"]["p2"] for mine in ours]),
        "p3_share_of_slot_s": _median([mine["classes"]["shares"]["p3"] for mine in ours]),
        "p0_wait_p95_s": _median([mine["urgent"]["p0"]["p95_s"] for mine in ours]),
    }


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None


def _print(bench: Bench, report: Mapping[str, Any]) -> None:
    names = list(report["by_capacity"][str(PEER_SLOTS)])
    bench.table(
        "Fairness",
        ["figure", *[f"C = {slots}" for slots in POOLS]],
        [[name, *[report["by_capacity"][str(slots)][name] for slots in POOLS]] for name in names],
    )
    bench.table(
        "Two tenants: how long B's tasks waited behind A's, C = 10",
        ["arm", "p50 s", "p95 s"],
        [[arm, one["p50_s"], one["p95_s"]] for arm, one in report["neighbour_wait_s"].items()],
    )
    bench.say(
        f"caps exceeded: {report['caps_exceeded_from']}; {report['caps']['reached']} of {report['caps']['looked_at']} "
        f"caps were reached. Singles beside their tenant's run: p95 {report['singles_wait']['p95_s']} s. With one "
        f"resource blocked, slots in use against none blocked: {report['blocked_speed']}"
    )
    for line in [*report["caps_exceeded_lines"], *report["failures"]]:
        bench.say(f"! {line}")
