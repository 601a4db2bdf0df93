"""chaos: mixed work while processes are killed and stopped, servers restarted, messages doubled, statements cut.

    1 servers, schema, tenants   2 the Procfile's processes under supervisor   3 work and faults, both by the seed
    4 quiet: everybody goes on, what was accepted ends   5 a minute for the last lease   6 the checker

The clients' answers, what people decided, the streams that were watched, the receiver of effects and the provider
emulator stand outside of Harness and of the faults.
Every fault column of the report must be zero. Servers of its own only: they are killed.
"""

import json
import sys
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks import product
from benchmarks.arms import Arm
from benchmarks.bench import Bench
from benchmarks.chaos import pausing, recorder, sabotage, schedule
from benchmarks.chaos.cast import CONNECTIONS, Cast, programs
from benchmarks.chaos.checker import COLUMNS, check
from benchmarks.chaos.clients import Clients
from benchmarks.chaos.followers import Followers
from benchmarks.chaos.history import Caps, History, Provider
from benchmarks.chaos.mischief import Mischief
from benchmarks.chaos.people import People
from benchmarks.chaos.receiver import Receiver
from benchmarks.chaos.summary import FINDINGS_SHOWN, Outcome, broken_off, summarise
from benchmarks.kinds.effect.kind import VARIABLE
from benchmarks.stage import CHECKOUT, Stage
from harness.ops.local.ports import LOOPBACK, free_port
from harness.policy.errors import Unavailable
from harness.policy.settings import Topology, parse

MINUTES, QUICK_MINUTES = 10.0, 2.0
QUIET_S = 240.0  # the patience with what was accepted: a quarantine's one slot has the longest line
LEAK_S = 60.0
STREAMS_S = 20.0  # for the streams to tell of the end: one of a task that is held has none
ANSWERED_S = 60.0  # for the last clients to be answered once nothing is broken any more
RECOVERY = ("recovery_p95_s", "given_up_p95_s", "paused_by_pressure", "unpaused_p95_s")
SHAPES = ("write_steps", "parents", "children", "approvals", "approvals_timed_out", "streams", "stream_connections")
PROVIDER_POOL, POOLS_OF = "llm", "--resource-pool "


def run(bench: Bench) -> dict[str, Any]:
    """Play one run and return the JSON; `failed` says whether a fault column isn't zero."""
    if bench.servers.restart_database is None or bench.servers.restart_broker is None:
        raise Unavailable("chaos restarts its servers: unset DATABASE_URL and BROKER_URL, so that it starts its own")
    minutes = bench.minutes or (QUICK_MINUTES if bench.quick else MINUTES)
    outcome = play(bench, 60.0 * minutes)
    report = summarise(outcome) | {"seed": bench.seed, "minutes": minutes}
    bench.table(
        f"Chaos, seed {bench.seed}, {minutes:g} min",
        ["figure", "value"],
        [[name, report[name]] for name in ("tasks", *SHAPES, *COLUMNS, "audit_findings", *RECOVERY, "kills_total")],
    )
    bench.table("Kills", ["process", "times"], list(report["kills"].items()))
    bench.table("Levels of pressure", ["level", "s"], list(report["levels"].items()))
    for finding in outcome.findings[:FINDINGS_SHOWN]:
        bench.say(f"{finding.column}: {finding.subject} {finding.what}")
    for text in outcome.broken:
        bench.say(f"the bench itself broke off: {text}")
    if bench.history_path:
        bench.history_path.write_text(json.dumps(outcome.history.as_json()) + "\n")
        bench.say(f"the history is in {bench.history_path}")
    return report


def play(bench: Bench, length_s: float) -> Outcome:
    """Play work and faults for `length_s` seconds, let everything end, and check what came of it."""
    orders = bench.folder / "orders"
    (orders / sabotage.TAKEN).mkdir(parents=True)
    port, provider_port = free_port(), free_port()
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        stage = stack.enter_context(bench.stage(_arm(receiver, orders, provider_port)))
        pausing.open_operator(stage.database_url)
        stage.drive("reset")
        tenants = stage.drive("make_tenants")
        stage.start([f"{{python}} -m harness.ops.emulator --port {provider_port} --latency-s 0.4 --sigma 0.3"])
        cast = stack.enter_context(Cast(bench.folder / "stack", stage.environment(), port=port))
        bench.say("starting the processes of the Procfile")
        cast.wait_running(lambda: _answers(f"http://{LOOPBACK}:{port}/health/ready"))
        sampler = stack.enter_context(recorder.Sampler(stage.database_url))
        work = schedule.work(bench.seed, length_s, verbs=stage.drive("verbs")["verbs"])
        keys = {name: str(one["key"]) for name, one in tenants.items()}
        url = f"http://{LOOPBACK}:{port}"
        followers = Followers(url, keys)
        clients = Clients(url, keys, work, followers.follow)
        people = stack.enter_context(People(url, keys, bench.seed))
        mischief = Mischief(cast, bench.servers, stage.broker_url, orders, _queues(_topology()))
        faults = schedule.faults(bench.seed, length_s)
        bench.say(f"{len(work)} pieces of work and {len(faults)} faults")
        began_s = time.time()
        clients.start(began_s)
        paused: list[schedule.Pausing] = []
        planned = schedule.pauses(bench.seed, length_s)
        operator = stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix="operator"))
        pausings = operator.submit(pausing.play, stage.database_url, planned, began_s, paused)
        mischief.play(faults, began_s)
        time.sleep(max(0.0, began_s + length_s - time.time()))
        mischief.end()
        pausings.exception()  # once it is over
        bench.say("quiet: what was accepted must end")
        answered = clients.finish(ANSWERED_S)
        with recorder.connect(stage.database_url) as connection:
            _wait(lambda: recorder.unfinished(connection) == 0, QUIET_S)
            ended_s = time.time()
            people.stop()
            followers.finish(STREAMS_S)
            _wait(lambda: recorder.leases_left(connection) == 0, LEAK_S)
            history = History(
                ended_s=ended_s,
                accepted=tuple(clients.accepted),
                tasks=recorder.tasks(connection),
                trace=recorder.trace(connection),
                visits=receiver.visits(),
                effects=receiver.effects(),
                samples=tuple(sampler.samples),
                faults=tuple(mischief.done),
                caps=_caps(_topology(), recorder.run_caps(connection)),
                leases_left=recorder.leases_left(connection),
                provider=_provider(provider_port, connection),
                levels=recorder.levels(connection),
                told=receiver.told(),
                questions=recorder.questions(connection),
                said=tuple(people.said),
                frames=tuple(followers.frames),
                followed=tuple(followers.followed),
                edges=tuple(clients.edges),
            )
            errors = recorder.errors(connection)
            audit = _audit(stage, connection)
        sampler.stop()
        broken = broken_off(
            operator=pausings.exception(),
            sampler=sampler.error,
            people=people.error,
            **{f"stream {n}": error for n, error in enumerate(followers.errors)},
            **mischief.errors,
        )
        if bench.history_path:
            cast.keep_logs(bench.history_path.with_suffix(".logs"))
    return Outcome(
        history=history,
        findings=check(history),
        answers=dict(clients.answers),
        refused=clients.refused,
        all_answered=answered,
        audit=audit,
        paused=len(paused),
        orders=[plan.role for plan in faults if plan.what == "sabotage"],
        errors=errors,
        broken=broken,
    )


def _arm(receiver: Receiver, orders: Path, provider_port: int) -> Arm:
    arm = product.arm(
        "harness_chaos",
        kind="bench.brief",
        environment={
            VARIABLE: receiver.address,
            sabotage.VARIABLE: str(orders),
            "LLM_BASE_URL": f"http://{LOOPBACK}:{provider_port}/v1",
            "LLM_API_KEY": "chaos",
            "LLM_MODEL": "emulator-1",
            "HARNESS_LOG_LEVEL": "INFO",
            "HARNESS_DRAIN_S": "3",
            "HARNESS_BENCH_CONNECTIONS": str(CONNECTIONS),
        },
    )
    return replace(arm, module="benchmarks.product_chaos")


def _topology() -> Topology:
    with (CHECKOUT / "config" / "resources.toml").open("rb") as file:
        return parse(tomllib.load(file))


def _queues(topology: Topology) -> list[str]:
    return [queue for pool in topology.pools.values() if pool.name != "system" for queue in pool.queues()]


def _caps(topology: Topology, runs: Any) -> Caps:
    tenants = dict(schedule.TENANTS) | {f"{name}/{pool}": cap for (name, pool), cap in schedule.QUOTAS.items()}
    return Caps(
        tenants=tenants,
        runs=dict(runs),
        resources={name: one.capacity for name, one in topology.resources.items() if one.held == "task"},
    )


def _wait(done: Any, patience_s: float) -> None:
    until_s = time.monotonic() + patience_s
    while not done() and time.monotonic() < until_s:
        time.sleep(0.25)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5.0).status_code == 200
    except httpx.TransportError:
        return False


def _provider(port: int, connection: Any) -> Provider:
    stats = httpx.get(f"http://{LOOPBACK}:{port}/admin/stats", timeout=10.0).json()
    ends = ("answered", "models", "rejected_429", "errors", "hung", "dropped", "cut", "abandoned")
    row = connection.execute(
        "SELECT count(*) FILTER (WHERE event = 'claim'), count(*) FILTER (WHERE event = 'succeed') "
        "FROM event JOIN task ON task.id = task_id WHERE kind = %s",
        (schedule.CHAT,),
    ).fetchone()
    return Provider(
        calls=stats["calls"],
        ends=sum(stats[name] for name in ends),
        in_flight=stats["in_flight"],
        in_flight_max=stats["in_flight_max"],
        answered=stats["answered"],
        attempts=row[0],
        succeeded=row[1],
        slots=provider_slots(_topology()),
    )


def provider_slots(topology: Topology) -> int:
    """Return how many calls to the provider there may be at a time: the slots of its pool in all workers.

    The emulator's own quota is larger on purpose: it would never admit what this is to find.
    """
    commands = [words for words in programs().values() if POOLS_OF in words]
    named = [words.partition(POOLS_OF)[2].split()[0].split(",") for words in commands]
    return sum(PROVIDER_POOL in pools for pools in named) * topology.pools[PROVIDER_POOL].slots


def _audit(stage: Stage, connection: Any) -> Sequence[str]:
    """Ask the product's own auditor, and what it has found during the run."""
    try:
        text = stage.run([sys.executable, "manage.py", "audit", "--json"], may_end_with=(1,))
    except Unavailable as error:
        return (f"manage.py audit: {error.message}",)
    return read_audit(text, recorder.audit_faults(connection))


def read_audit(text: str, written: Sequence[str]) -> Sequence[str]:
    """Return every fault: those that the audit wrote down, those of its report, and that it gave none."""
    try:
        report = json.loads(text)
        told = [f"{one['rule']}: {one['subject']} (told)" for one in report["findings"] if one["level"] == "fault"]
        looks = len(report["looks"])
    except (ValueError, KeyError, TypeError):
        return (*written, f"manage.py audit gave no report: {text[-300:]!r}")
    if not looks:
        return (*written, "manage.py audit looked at nothing")
    return written or told
