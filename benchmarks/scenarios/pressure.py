"""pressure: a storm goes through the whole chain, and is drawn to one picture.

Calm, then several times what the provider can do, in the middle of which its quota falls to less than half for a while,
then calm again until the level is normal. Signals, level and pauses are sampled from the rows that everybody obeys,
answers are what the client was told, calls in flight what the provider saw.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.bench import Bench
from benchmarks.limits.provider import Provider
from benchmarks.storm import course, judge, picture, plays
from benchmarks.storm.arms import Weather
from benchmarks.storm.judge import Window
from benchmarks.storm.plays import Came, Storm

PAIRS = 1
WEATHER = Weather(quota=50, slots=64, mean_s=5.0, sigma=0.5, deadline_s=600.0)
CALM_RATIO, STORM_RATIO = 0.6, 6.0  # of what the provider can do
CALM_S, MINUTES, AFTER_S = 60.0, 4.0, 480.0
AFTER_SHORT_S = 330.0  # of a storm of less: critical, high and elevated dwell for 270 s
FALLEN_RATIO = 0.4  # of the quota, in the third quarter of the storm
LEVELS = ("normal", "elevated", "high", "critical")
CALM_MOST_S = 180.0  # that the level may take beyond the last phase; then it hasn't come back


def run(bench: Bench) -> dict[str, Any]:
    """Play it and return the JSON; with --json the picture lies beside the file."""
    weather, storm = _weather(bench), _storm(bench)
    bench.say(f"{storm.for_s:.0f} s, and until the level is normal")
    came = plays.harness(bench, "pressure", weather, storm, retry_after_s=1.0)
    report = _figures(came, weather, storm)
    drawn = picture.chain(
        report["course"],
        capacity_per_s=weather.capacity_per_s,
        p0_allowed_s=report["p0_wait_allowed_s"],
        title="{:g} times what the provider can do, from {:.0f} to {:.0f} s".format(STORM_RATIO, *storm.judged_s),
    )
    report["drawn"] = len(drawn)
    if bench.history_path:
        path = bench.history_path.with_name(bench.history_path.name.replace(".history.json", ".svg"))
        path.write_text(drawn, encoding="utf-8")
        bench.say(f"picture: {path}")
    _print(bench, report)
    return report


def _figures(came: Came, weather: Weather, storm: Storm) -> dict[str, Any]:
    since_s, until_s = storm.judged_s
    window = Window(since_s=came.began_s + since_s, until_s=came.began_s + until_s, deadline_s=weather.deadline_s)
    after = Window(since_s=window.until_s, until_s=came.began_s + storm.for_s, deadline_s=weather.deadline_s)
    first: dict[int, float] = {}
    for one in came.begun:
        first[one.i] = min(first.get(one.i, one.started_s), one.started_s)
    seen = course.of(
        began_s=came.began_s,
        for_s=storm.for_s,
        told=came.told,
        first_call_s=first,
        samples=came.samples,
        rows=came.rows,
        every_s=came.every_s,
    )
    return {
        "level_max": max((level for _, level in came.levels), key=LEVELS.index, default="normal"),
        "level_last": came.levels[-1][1] if came.levels else None,
        "normal_again_s": judge.normal_again_s(came.levels, window.until_s),
        "transitions": [
            {**one, "at_s": round(one["at_s"] - came.began_s, 1)} for one in came.changes if one["at_s"] >= came.began_s
        ],
        "signals_seen": sorted(seen["signals"]),
        "pauses": seen["pauses"],
        "door": judge.door(came.told, window),
        "door_afterwards": judge.door(came.told, after),
        "reject_p95_ms": judge.door(came.told, window)["reject_p95_ms"],
        **judge.p0(came.told, came.begun, window),
        "p0_wait_allowed_s": round(2 * weather.mean_s / weather.quota + 1, 2),
        "rate_429": round(came.stats["rejected_429"] / max(1, came.stats["calls"]), 5),
        "in_flight_max": came.stats["in_flight_max"],
        "restarts": came.restarts,
        "states": came.states,
        "idle_before": came.idle_before,
        "course": seen,
    }


def _weather(bench: Bench) -> Weather:
    return Weather(quota=6, slots=9, mean_s=0.6, sigma=0.3, deadline_s=60.0) if bench.quick else WEATHER


def _storm(bench: Bench) -> Storm:
    minutes = bench.minutes or MINUTES
    calm_s, storm_s, after_s = min(CALM_S, 20 * minutes), 60 * minutes, AFTER_S if minutes >= MINUTES else AFTER_SHORT_S
    if bench.quick:
        calm_s, storm_s, after_s = 3.0, 16.0, 6.0
    weather = _weather(bench)
    most_per_s = weather.capacity_per_s

    def quota(n: int) -> Any:
        def change(provider: Provider) -> None:
            provider.change(quota=n)

        return change

    return Storm(
        phases=[
            (CALM_RATIO * most_per_s, calm_s),
            (STORM_RATIO * most_per_s, storm_s),
            (CALM_RATIO * most_per_s, after_s),
        ],
        judged_s=(calm_s, calm_s + storm_s),
        seed=bench.seed,
        steps=(
            (calm_s + storm_s / 2, quota(round(FALLEN_RATIO * weather.quota))),
            (calm_s + 3 * storm_s / 4, quota(weather.quota)),
        ),
        calm_most_s=0.0 if bench.quick else CALM_MOST_S,
    )


def _print(bench: Bench, report: Mapping[str, Any]) -> None:
    rows = [
        (f"{one['at_s']:.0f}", f"{one['from']} -> {one['to']}", ", ".join(one["signals"]), one["done"])
        for one in report["transitions"]
    ]
    bench.table("changes of the level", ("s", "level", "by", "done"), rows)
    keys = ("level_max", "normal_again_s", "p0_wait_p95_s", "reject_p95_ms", "rate_429", "restarts")
    bench.table("the storm", keys, [[report[key] for key in keys]])
    bench.table("the door", ("outcome", "n"), sorted(report["door"]["by_outcome"].items()))
