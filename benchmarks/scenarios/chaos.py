"""chaos: mixed work while processes are killed and stopped, servers restarted, messages doubled, statements cut.

    1 servers, schema, tenants   2 the Procfile's processes under supervisor   3 work and faults, both by the seed
    4 quiet: everybody goes on, what was accepted ends   5 a minute for the last lease   6 the checker

The clients' answers, the receiver of effects and the provider emulator stand outside of Harness and of the faults.
Every fault column of the report must be zero. Servers of its own only: they are killed.
"""

import json
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from benchmarks import product
from benchmarks.arms import Arm
from benchmarks.bench import Bench
from benchmarks.chaos import levels, pausing, recorder, sabotage, schedule
from benchmarks.chaos.cast import CONNECTIONS, Cast, programs
from benchmarks.chaos.checker import COLUMNS, check
from benchmarks.chaos.clients import Clients
from benchmarks.chaos.history import Caps, Fault, Finding, History, Provider
from benchmarks.chaos.mischief import Mischief
from benchmarks.chaos.receiver import Receiver
from benchmarks.chaos.view import recoveries, view
from benchmarks.kinds.effect.kind import VARIABLE
from benchmarks.stage import CHECKOUT, Stage
from benchmarks.statistics_of_runs import quantile
from harness.ops.local.ports import LOOPBACK, free_port
from harness.policy.errors import Unavailable
from harness.policy.heads import LOST_STARTS_QUARANTINE
from harness.policy.settings import Topology, parse
from harness.policy.steps import FINISHED, STARTED

MINUTES, QUICK_MINUTES = 10.0, 2.0
QUIET_S = 240.0  # the patience with what was accepted: a quarantine's one slot has the longest line
LEAK_S = 60.0
ANSWERED_S = 60.0  # for the last clients to be answered once nothing is broken any more
FINDINGS_SHOWN = 20
RECOVERY = ("recovery_p95_s", "given_up_p95_s", "paused_by_pressure", "unpaused_p95_s")
SLOWEST_SHOWN = 10
LEVELS_SHOWN = 40
PROVIDER_POOL, POOLS_OF = "llm", "--resource-pool "


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a run came to. `audit`: faults found by the product's own auditor, or why it didn't get to look.

    `broken`: what of the bench itself ended before the run did: a fault that nobody played, a sample that nobody took.
    """

    history: History
    findings: Sequence[Finding]
    answers: dict[int, int]
    refused: Sequence[str]
    all_answered: bool
    audit: Sequence[str]
    orders: Sequence[str]
    paused: int
    errors: dict[str, int]
    broken: Sequence[str]


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
        [[name, report[name]] for name in ("tasks", *COLUMNS, "audit_findings", *RECOVERY, "kills_total")],
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
        clients = Clients(f"http://{LOOPBACK}:{port}", keys, work)
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
            )
            errors = recorder.errors(connection)
            audit = _audit(stage, connection)
        sampler.stop()
        broken = broken_off(operator=pausings.exception(), sampler=sampler.error, **mischief.errors)
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


def summarise(outcome: Outcome) -> dict[str, Any]:
    """Return the figures of a run, keyed as the issue names them, and `failed`."""
    counted = Counter(finding.column for finding in outcome.findings)
    history = outcome.history
    recovered = recoveries(view(history))
    recovery_s = [one.claimed_s for one in recovered]
    unpaused_s = [one.claimed_s for one in recovered if not one.paused]
    quarantined_s = [one.claimed_s for one in recovered if one.losses >= LOST_STARTS_QUARANTINE]
    kills = Counter(_process(fault) for fault in history.faults if _kills(fault))
    columns = {column: counted[column] for column in COLUMNS}
    return {
        "tasks": len({one.task for one in history.accepted}),
        **columns,
        "audit_findings": len(outcome.audit),
        "audit_faults": list(outcome.audit)[:FINDINGS_SHOWN],
        "recovery_p95_s": round(quantile(recovery_s, 0.95), 1) if recovery_s else None,
        "recovery_max_s": recovery_s[-1] if recovery_s else None,
        "recovered": len(recovery_s),
        "given_up_p95_s": round(quantile(sorted(one.lost_s for one in recovered), 0.95), 1) if recovered else None,
        "paused_by_pressure": len(recovery_s) - len(unpaused_s),
        "unpaused_p95_s": round(quantile(unpaused_s, 0.95), 1) if unpaused_s else None,
        "quarantine_p95_s": round(quantile(quarantined_s, 0.95), 1) if quarantined_s else None,
        "quarantined": len(quarantined_s),
        "slowest": [asdict(one) for one in recovered[-SLOWEST_SHOWN:]],
        "levels": levels.seconds(history),
        "level_changes": [asdict(one) for one in history.levels[:LEVELS_SHOWN]],
        "retry_ratio": levels.retry_ratio(history),
        "kills": dict(sorted(kills.items())),
        "kills_total": kills.total(),
        "stops": dict(Counter(_process(fault) for fault in history.faults if fault.what == "stop")),
        "servers": dict(Counter(fault.role for fault in history.faults if fault.what == "server")),
        "messages": dict(Counter(fault.role for fault in history.faults if fault.what == "messages")),
        "sabotage": dict(Counter(fault.role for fault in history.faults if fault.what == "sabotage")),
        "paused": outcome.paused,
        "orders": dict(Counter(outcome.orders)),
        "states": dict(Counter(row.state for row in history.tasks)),
        "events": dict(Counter(event.event for event in history.trace)),
        "errors": outcome.errors,
        "executions": len(history.visits),
        "effects": len(history.effects),
        "steps": sum(event.event == FINISHED for event in history.trace),
        "step_effects": len({(effect.token, effect.n) for effect in history.effects if effect.step}),
        "steps_begun_again": sum(event.event == STARTED for event in history.trace)
        - len({(event.id, event.step) for event in history.trace if event.event == STARTED}),
        "effects_again": len(history.effects) - len({(effect.token, effect.n) for effect in history.effects}),
        "provider": asdict(history.provider) if history.provider else None,
        "answers": {str(status): n for status, n in sorted(outcome.answers.items())},
        "refused": list(outcome.refused)[:FINDINGS_SHOWN],
        "all_answered": outcome.all_answered,
        "broken": list(outcome.broken),
        "findings": [asdict(finding) for finding in outcome.findings[:FINDINGS_SHOWN]],
        "failed": any(columns.values())
        or bool(outcome.audit or outcome.refused or outcome.broken)
        or not outcome.all_answered,
    }


def broken_off(**errors: BaseException | None) -> list[str]:
    """Say which parts of the bench broke off, and of what."""
    return [f"{name}: {type(error).__name__}: {error}" for name, error in errors.items() if error is not None]


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


def _kills(fault: Fault) -> bool:
    return fault.what == "kill" or (fault.what == "sabotage" and fault.role.endswith(".exit"))


def _process(fault: Fault) -> str:
    """Name the process: one that the schedule hits; of orders to exit it is whoever was the one to obey."""
    if fault.what == "sabotage":
        return "dispatcher" if fault.role.startswith("release") else "at_a_statement"
    return fault.role
