"""throughput: a drain of no-ops, beside the peers.

Tasks are submitted first; then the workers start. Rate = (n - 1) / (last end - first start), as the bodies wrote
them, so starting a worker doesn't count. CPU is that of all processes between the first body seen and the last.
Connections to the arm's database are sampled by application_name from the start of the processes to their end.
"""

import time
import tomllib
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import connections, machine, product, readings
from benchmarks.arms import CELERY, PEERS, Arm
from benchmarks.bench import Bench, in_turn
from benchmarks.stage import CHECKOUT
from benchmarks.statistics_of_runs import Spread, pairwise, spread
from harness.policy.errors import HarnessError
from harness.policy.settings import parse

QUICK_TASKS = 1_000
DRAIN_S = 120.0  # the patience with one drain


@dataclass(frozen=True, kw_only=True, slots=True)
class Drain:
    """One drain of one arm. Per-task figures cover the drain, not the submit; `submit_` ones the submit."""

    arm: str
    round: int
    n: int
    done: int
    done_twice: int
    per_s: float
    submit_per_s: float
    cpu_s_per_1000: float | None
    cpu_s_by_role: dict[str, float]
    commits_per_task: float | None
    row_writes_per_task: float | None
    notify_commits_per_task: float | None
    submit_commits_per_task: float | None
    submit_row_writes_per_task: float | None
    submit_notify_commits_per_task: float | None
    connections_max: int
    connections_by_name: dict[str, int]
    idle_before: float
    boot_s: float


def run(bench: Bench) -> dict[str, Any]:
    """Measure all arms, print where Harness wins and loses, and return the JSON."""
    peers = () if bench.quick and not bench.only else PEERS[1:]
    arms, skipped = bench.choose((CELERY, *product.ARMS, *peers))
    drains: list[Drain] = []
    failures: dict[str, str] = {}
    for number in range(bench.pairs):
        for arm in in_turn(arms, number):
            try:
                one = drain(bench, arm, number, QUICK_TASKS if bench.quick else arm.drain)
                drains.append(one)
                if (one.done, one.done_twice) != (one.n, 0):
                    failures[arm.name] = f"round {number}: {one.done} of {one.n} done, {one.done_twice} of them twice"
            except HarnessError as error:
                failures[arm.name] = str(error)
                bench.say(f"{arm.name}: failed: {error}")
    report = summarise(drains)
    report["skipped"] = [asdict(one) for one in skipped]
    report["failures"] = failures
    _print(bench, drains, report)
    return report


def drain(bench: Bench, arm: Arm, number: int, n: int) -> Drain:
    """Measure one drain of n no-ops."""
    with bench.stage(arm) as stage:
        stage.drive("reset")
        before_submit = readings.database_counts(stage.database_url) if arm.database else None
        submitted = stage.drive("submit", tag="drain", n=n, many=True)
        before = readings.database_counts(stage.database_url) if arm.database else None
        idle = machine.await_quiet(bench.patience_s)
        started_s = time.time()
        with connections.Sampler(stage.database_url if arm.database else None) as sampler:
            stage.start()
            stage.wait("drain", 1, DRAIN_S, every_s=0.01)
            seen, cpu_before = (
                stage.log.count("drain"),
                readings.cpu_by_role(stage.pids(), bench.processes),
            )
            stage.wait("drain", n, DRAIN_S)
            cpu_after = readings.cpu_by_role(stage.pids(), bench.processes)
            settle(stage.pids())
            stage.stop()
        after = readings.database_counts(stage.database_url) if arm.database else None
        found = stage.log.read("drain")
    submitting, draining = (
        readings.difference(before_submit, before),
        readings.difference(before, after),
    )
    by_role = {role: round(cpu_after[role] - cpu_before[role], 3) for role in cpu_after}
    span_s = max(effect.ended_s for effect in found) - found[0].started_s if len(found) > 1 else 0.0
    measured = Drain(
        arm=arm.name,
        round=number,
        n=n,
        done=len({effect.i for effect in found}),
        done_twice=len(found) - len({effect.i for effect in found}),
        per_s=round((len(found) - 1) / span_s, 1) if span_s else 0.0,
        submit_per_s=round(n / submitted["took_s"], 1),
        cpu_s_per_1000=round(1000 * sum(by_role.values()) / (n - seen), 3)
        if n > seen and bench.processes.complete()
        else None,
        cpu_s_by_role=by_role,
        commits_per_task=_per(draining.commits if draining else None, n),
        row_writes_per_task=_per(draining.row_writes if draining else None, n),
        notify_commits_per_task=_per(draining.notifies if draining else None, n),
        submit_commits_per_task=_per(submitting.commits if submitting else None, n),
        submit_row_writes_per_task=_per(submitting.row_writes if submitting else None, n),
        submit_notify_commits_per_task=_per(submitting.notifies if submitting else None, n),
        connections_max=sampler.seen.most,
        connections_by_name=sampler.seen.by_name,
        idle_before=idle,
        boot_s=round(found[0].started_s - started_s, 2) if found else 0.0,
    )
    bench.say(f"{arm.name}: {measured.done}/{n} done, {measured.per_s:,.0f}/s, idle before {idle}")
    return measured


def settle(pids: list[int], patience_s: float = 3.0) -> None:
    """Wait until the arm rests: what it still writes after the last body (completions) belongs to the drain."""
    give_up_s = time.monotonic() + patience_s
    used_s = machine.cpu_s(pids)
    while time.monotonic() < give_up_s:
        time.sleep(0.3)
        now_s = machine.cpu_s(pids)
        if now_s - used_s < 0.02:
            return
        used_s = now_s


def summarise(drains: list[Drain]) -> dict[str, Any]:
    """Return medians per arm and the pair-wise ratios, keyed as the issue names them."""
    rates: dict[str, dict[int, float]] = defaultdict(dict)
    for one in drains:
        if one.done == one.n:
            rates[one.arm][one.round] = one.per_s
    report: dict[str, Any] = {
        "drains": [asdict(one) for one in drains],
        "arms": {},
        "ratios": {},
    }
    for name in rates:
        mine = [one for one in drains if one.arm == name]
        report["arms"][name] = {
            "per_s": _json(spread([one.per_s for one in mine])),
            "submit_per_s": _json(spread([one.submit_per_s for one in mine])),
            **{
                key: _median([value for one in mine if (value := getattr(one, key)) is not None])
                for key in (
                    "cpu_s_per_1000",
                    "commits_per_task",
                    "row_writes_per_task",
                    "notify_commits_per_task",
                    "submit_commits_per_task",
                    "submit_row_writes_per_task",
                    "submit_notify_commits_per_task",
                )
            },
            "idle_before_min": min(one.idle_before for one in mine),
        }
    ours = {name: by_round for name, by_round in rates.items() if name.startswith("harness_")}
    for form in product.ARMS:
        label = form.name.removeprefix("harness_")
        for name, theirs in rates.items():
            if name in {arm.name for arm in product.ARMS}:
                continue
            ratio = pairwise(ours.get(form.name, {}), theirs)
            report[f"{label}_vs_{name}"] = round(ratio.median, 2) if ratio else None
            report["ratios"][f"{label}_vs_{name}"] = _json(ratio)
    for key in ("cpu_s_per_1000", "commits_per_task", "row_writes_per_task"):
        report[key] = {name: figures[key] for name, figures in report["arms"].items()}
    return report | _connections(drains)


def _connections(drains: list[Drain]) -> dict[str, Any]:
    """Return the most connections of Harness's own at once, beside the budget of resources.toml."""
    ours = [one for one in drains if one.arm in {arm.name for arm in product.ARMS}]
    by_name: dict[str, int] = {}
    for one in ours:
        for name, number in one.connections_by_name.items():
            by_name[name] = max(number, by_name.get(name, 0))
    with (CHECKOUT / "config" / "resources.toml").open("rb") as file:
        budget = parse(tomllib.load(file)).database_connections
    return {
        "connections_max": max((one.connections_max for one in ours), default=0),
        "connections_by_name": by_name,
        "connections_budget": budget,
    }


def _print(bench: Bench, drains: list[Drain], report: dict[str, Any]) -> None:
    rows = []
    for name, figures in sorted(report["arms"].items(), key=lambda pair: -pair[1]["per_s"]["median"]):
        per_s = spread([one.per_s for one in drains if one.arm == name])
        rows.append(
            [
                name,
                per_s,
                report.get(f"bundled_vs_{name}"),
                report.get(f"unbundled_vs_{name}"),
                figures["cpu_s_per_1000"],
                figures["commits_per_task"],
                figures["row_writes_per_task"],
                figures["notify_commits_per_task"],
                round(figures["submit_per_s"]["median"]),
                figures["idle_before_min"],
            ]
        )
    bench.table(
        "No-op drain: median [min-max] xN; bundled x: times this arm's rate; commits, writes, NOTIFY: per task",
        [
            "arm", "tasks/s", "bundled x", "unbundled x", "CPU s/1k", "commits", "writes", "NOTIFY", "submit/s", "idle",
        ],
        rows,
    )  # fmt: skip
    losses = sorted(key for key, ratio in report["ratios"].items() if ratio and ratio["median"] < 1)
    bench.say(
        f"Connections of Harness at once: {report['connections_max']} of {report['connections_budget']} "
        f"({', '.join(f'{name} {number}' for name, number in sorted(report['connections_by_name'].items()))})"
    )
    bench.say("We lose: " + ("; ".join(f"{key} = {report[key]}" for key in losses) or "nowhere"))


def _json(value: Spread | None) -> dict[str, float | int] | None:
    return value.as_json() if value else None


def _per(count: int | None, n: int) -> float | None:
    return None if count is None else round(count / n, 3)


def _median(values: list[float]) -> float | None:
    summary = spread(values)
    return round(summary.median, 3) if summary else None
