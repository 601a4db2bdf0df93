"""limiter: how well a quota that moves is used, and at what price in refusals, by strategy. In the simulator.

Six providers (service times of 1, 5 and 20 s, latency that doubles near the quota, Retry-After, a noisy quota) whose
quota goes 50, 20, 50; phases of 600 s and of 180 s; five seeds; and what else a limiter meets. Needs no server.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.bench import Bench
from harness.sim import limiter_scenarios as scenarios
from harness.sim.calls import ORACLE, Play
from harness.sim.limiter_figures import Figures, bounds_s, mean, missed, played, probing_floor_per_s

PAIRS = 1
QUICK_SEEDS = (1,)
QUICK = ("S=5", "noise")
NOISY_USE, NOISY_REFUSED = 0.90, 0.015  # the noise column, and phases of 180 s
USE, REFUSED = 0.95, 0.01


def run(bench: Bench) -> dict[str, Any]:
    """Play everything and return the JSON: figures by strategy and column, and what csl missed."""
    seeds = QUICK_SEEDS if bench.quick else tuple(100 * (bench.seed - 1) + seed for seed in scenarios.SEEDS)
    strategies = ("csl", ORACLE) if bench.quick else scenarios.STRATEGIES
    lines: list[str] = []
    report: dict[str, Any] = {"seeds": list(seeds)}
    for seconds in (scenarios.PHASE_S, scenarios.SHORT_PHASE_S):
        plays = {name: play for name, play in scenarios.columns(seconds).items() if not bench.quick or name in QUICK}
        found = {
            strategy: {
                name: [played(scenarios.of(play, strategy), seed) for seed in seeds] for name, play in plays.items()
            }
            for strategy in strategies
            if not bench.only or strategy in bench.only
        }
        _tell(bench, f"quota 50, 20, 50, {seconds:.0f} s each; used / refused", plays, found)
        if "csl" in found:
            lines += _missed(plays, found["csl"], short=seconds < scenarios.PHASE_S)
        report[f"phases_{seconds:.0f}_s"] = {
            strategy: {name: _summary(every) for name, every in columns.items()} for strategy, columns in found.items()
        }
    if not bench.quick and not bench.only:
        report["others"] = _others(bench, seeds)
    report["special"] = special = _special(seeds)
    lines += special["missed"]
    bench.say("csl misses: " + ("; ".join(lines) or "nothing"))
    return report | {"missed": lines, "failed": bool(lines)}


def _missed(plays: Mapping[str, Play], found: Mapping[str, list[Figures]], *, short: bool) -> list[str]:
    """The figures to reach: every column with phases of 600 s, S = 5 s with phases of 180 s."""
    lines = []
    for name, every in found.items():
        if short and name != "S=5":
            continue
        lenient = short or name == "noise"
        lines += missed(
            plays[name], every, use=NOISY_USE if lenient else USE, refused=NOISY_REFUSED if lenient else REFUSED
        )
    return lines


def _tell(
    bench: Bench, title: str, plays: Mapping[str, Play], found: Mapping[str, Mapping[str, list[Figures]]]
) -> None:
    rows = [
        (
            strategy,
            *(
                f"{mean(every, 'utilisation'):.3f} / {100 * mean(every, 'rate_429'):.2f} %"
                for every in columns.values()
            ),
        )
        for strategy, columns in found.items()
    ]
    bench.table(title, ("strategy", *plays), rows)
    rows = []
    for strategy in ("csl", ORACLE):
        for name, every in found.get(strategy, {}).items():
            down_s, up_s = bounds_s(plays[name])
            rows.append((
                strategy, name, f"{mean(every, 't95_start_s'):.0f}", _spread(every, "t95_down_s"), f"{down_s:.0f}",
                _spread(every, "t95_up_s"), f"{up_s:.0f}",
            ))  # fmt: skip
    head = ("strategy", "column", "start", "step down", "at most", "step up", "at most")
    bench.table("seconds until the quota is used, mean [most]", head, rows)


def _spread(every: list[Figures], figure: str) -> str:
    return f"{mean(every, figure):.0f} [{max(one.get(figure, 0.0) for one in every):.0f}]"


def _summary(every: list[Figures]) -> dict[str, float]:
    names = ("utilisation", "rate_429", "t95_start_s", "t95_down_s", "t95_up_s", "calls")
    return {name: round(mean(every, name), 5) for name in names} | {
        "utilisation_min": round(min(one["utilisation"] for one in every), 5),
        "rate_429_max": round(max(one["rate_429"] for one in every), 5),
    }


def _others(bench: Bench, seeds: tuple[int, ...]) -> dict[str, Any]:
    found = {name: _summary([played(play, seed) for seed in seeds]) for name, play in scenarios.others().items()}
    rows = [
        (
            name,
            f"{one['utilisation']:.3f}",
            f"{100 * one['rate_429']:.2f} %",
            f"{one['t95_down_s']:.0f}",
            f"{one['t95_up_s']:.0f}",
        )
        for name, one in found.items()
    ]
    bench.table("csl elsewhere", ("provider", "used", "refused", "step down, s", "step up, s"), rows)
    return found


def _special(seeds: tuple[int, ...]) -> dict[str, Any]:
    """P0 beside an endless backlog, a provider that refuses everything, one that only slows down, an outage."""
    p0 = [played(scenarios.with_p0(), seed) for seed in seeds]
    refusing = [played(scenarios.sustained(), seed) for seed in seeds]
    out = [played(scenarios.outage(), seed) for seed in seeds]
    found: dict[str, Any] = {
        "p0_utilisation": mean(p0, "utilisation"),
        "p0_rate_429": mean(p0, "rate_429"),
        "p0_wait_p95_s": mean(p0, "p0_wait_p95_s"),
        "probing_floor_per_s": probing_floor_per_s(),
        "calls_per_s_under_429": mean(refusing, "calls_per_s_under_429"),
        "recovery_s": max(one["recovery_s"] for one in out),
        "retry_ratio": mean(out, "retry_ratio"),
        "sends_in_outage": mean(out, "sends_in_outage"),
        "sent_while_open": sum(one["sent_while_open"] for one in out),
    }
    lines = []
    for figure, most in (
        ("calls_per_s_under_429", 1.2 * probing_floor_per_s()),
        ("recovery_s", 60.0 + 48.0),  # 60 s and the longest open time that a minute of outage leads to
        ("retry_ratio", 0.1),
        ("sent_while_open", 0.0),
    ):
        if found[figure] > most:
            lines.append(f"{figure} is {found[figure]:.4g}, above {most:.4g}")
    return found | {"missed": lines}
