"""overload: 2, 5 and 10 times what a provider can do is submitted, each task of use for 60 s; then the door is judged.

Columns: 2x, 5x, 10x without a penalty for calls within Retry-After; penalty, which is 10x with one of PENALTY_S; small,
which is 10x on a pool of 8 slots beside a quota of 5, and then nothing until the level is normal again. Beside it
Celery as an expert has it: as many threads as the quota, a queue for each priority, `expires`. Goodput is what ended
within its deadline a second, over what the provider answers to as many callers as its quota, without any queue.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.bench import Bench
from benchmarks.limits import judge as provider_judge
from benchmarks.storm import judge, plays
from benchmarks.storm.arms import Weather
from benchmarks.storm.judge import Window
from benchmarks.storm.plays import Came, Storm

PAIRS = 1
LARGE = Weather(quota=50, slots=64, mean_s=5.0, sigma=0.5, deadline_s=60.0)
SMALL = Weather(quota=5, slots=8, mean_s=5.0, sigma=0.5, deadline_s=60.0)
FACTORS = {"2x": 2.0, "5x": 5.0, "10x": 10.0, "penalty": 10.0, "small": 10.0}
HEADLINE = ("2x", "5x", "10x")
MINUTES = 4.0  # of one storm
WARM_RATIO = 0.25  # of it, until it is judged
SMALL_LONGER = 2.5  # a call of the small provider is worth ten: it is watched for longer
CALM_MOST_S = 600.0
PENALTY_S = 5.0
KEYS = ("goodput_ratio", "rate_429", "p0_wait_p95_s", "given_up", "cpu_s_per_1000")


def run(bench: Bench) -> dict[str, Any]:
    """Play the storms and return the JSON."""
    names = [name for name in FACTORS if not bench.columns or name in bench.columns]
    report: dict[str, Any] = {"weather": _told(bench), "penalty_s": PENALTY_S, "capacity_per_s": {}}
    found: dict[str, dict[str, Any]] = {}
    theirs = [name for name in names if name != "small"] if not bench.only or "celery" in bench.only else []
    bench.say(f"capacity, in a closed loop; at the same time celery: {', '.join(theirs) or 'not wanted'}")
    with ThreadPoolExecutor(3) as pool:
        sizes = sorted({_size(name) for name in names})
        measured = {size: pool.submit(_capacity_per_s, bench, size) for size in sizes}
        played = pool.submit(_celery, bench, theirs)
        report["capacity_per_s"] = capacity = {size: future.result() for size, future in measured.items()}
        celery = played.result()
    if theirs:
        found["celery"] = {n: _figures(bench, n, one, capacity[_size(n)]) for n, one in celery.items()}
    if not bench.only or "harness" in bench.only:
        for name in names:
            bench.say(f"harness: {name}, {_storm(bench, name).for_s:.0f} s")
            came = plays.harness(bench, name, _weather(bench, name), _storm(bench, name), **_behaviour(name))
            found.setdefault("harness", {})[name] = _figures(bench, name, came, capacity[_size(name)])
    report["arms"] = found
    for who, prefix in (("harness", ""), ("celery", "celery_")):
        plain = {name: one for name, one in found.get(who, {}).items() if name in HEADLINE}
        report |= judge.headline(plain, KEYS, prefix)
        for key in KEYS:
            report[f"{prefix}penalty_{key}"] = found.get(who, {}).get("penalty", {}).get(key)
    small = found.get("harness", {}).get("small", {})
    report |= {f"small_{key}": small.get(key) for key in (*KEYS, "normal_again_s", "level_last")}
    report["reject_p95_ms"] = {name: one["door"]["reject_p95_ms"] for name, one in found.get("harness", {}).items()}
    _print(bench, found)
    return report


def _celery(bench: Bench, names: Sequence[str]) -> dict[str, Came]:
    """Play all of Celery's at the same time, as its workers wait nearly always; the CPU is theirs, without Redis."""

    def play(turn: int, name: str) -> Came:
        return plays.celery(bench, name, _weather(bench, name), _storm(bench, name), turn=turn, **_behaviour(name))

    with ThreadPoolExecutor(max(1, len(names))) as pool:
        futures = {name: pool.submit(play, turn, name) for turn, name in enumerate(names)}
        came = {name: future.result() for name, future in futures.items()}
    return {name: replace(one, cpu_s={"workers": one.cpu_s["workers"]}) for name, one in came.items()}


def _figures(bench: Bench, name: str, came: Came, capacity_per_s: float) -> dict[str, Any]:
    storm, weather = _storm(bench, name), _weather(bench, name)
    since_s, until_s = storm.judged_s
    window = Window(since_s=came.began_s + since_s, until_s=came.began_s + until_s, deadline_s=weather.deadline_s)
    rows = provider_judge.between(came.rows, since_s, until_s)
    useful_per_s = judge.useful_per_s(came.done, window)
    useful = useful_per_s * window.for_s
    door = judge.door(came.told, window)
    cpu_s = sum(came.cpu_s.values())
    found = {
        "goodput_ratio": round(useful_per_s / capacity_per_s, 4) if capacity_per_s else None,
        "useful_per_s": useful_per_s,
        "rate_429": provider_judge.rate_429(rows),
        "utilisation": provider_judge.utilisation(rows),
        **judge.p0(came.told, came.begun, window),
        "p0_wait_allowed_s": round(2 * weather.mean_s / weather.quota + 1, 2),
        "given_up": judge.given_up(came.told, came.done, window),
        "done_late": judge.late(came.done, window),
        "cpu_s_per_1000": round(1000 * cpu_s / useful, 2) if useful else None,
        "cpu_s_per_1000_submitted": round(1000 * cpu_s / door["submitted"], 2) if door["submitted"] else None,
        "cpu_s": came.cpu_s,
        "door": door,
        "in_flight_max": came.stats["in_flight_max"],
        "idle_before": came.idle_before,
    }
    if came.levels:
        end_s = came.began_s + storm.for_s
        found |= {
            "levels": [[round(at_s - came.began_s, 1), level] for at_s, level in judge.transitions(came.levels)],
            "level_last": came.levels[-1][1],
            "normal_again_s": judge.normal_again_s(came.levels, end_s) if storm.calm_most_s else None,
            "states": came.states,
            "restarts": came.restarts,
        }
    return found


def _size(name: str) -> str:
    return "small" if name == "small" else "large"


def _weather(bench: Bench, name: str) -> Weather:
    if not bench.quick:
        return SMALL if name == "small" else LARGE
    quota, slots = (2, 4) if name == "small" else (6, 9)
    return Weather(quota=quota, slots=slots, mean_s=0.6, sigma=0.3, deadline_s=6.0)


def _storm(bench: Bench, name: str) -> Storm:
    for_s = 16.0 if bench.quick else 60.0 * (bench.minutes or MINUTES) * (SMALL_LONGER if name == "small" else 1.0)
    rate_per_s = FACTORS[name] * _weather(bench, name).capacity_per_s
    calm_s = (30.0 if bench.quick else CALM_MOST_S) if name == "small" else 0.0
    # The last second is left out: what was sent then has no answer yet.
    judged_s = (for_s * WARM_RATIO, for_s - 1.0)
    return Storm(phases=[(rate_per_s, for_s)], judged_s=judged_s, seed=bench.seed, calm_most_s=calm_s)


def _behaviour(name: str) -> dict[str, Any]:
    return {"retry_after_s": 1.0, "penalty_s": PENALTY_S if name == "penalty" else 0.0}


def _capacity_per_s(bench: Bench, size: str) -> float:
    warm_s, for_s = (1.0, 4.0) if bench.quick else (10.0, min(120.0, 30 * (bench.minutes or MINUTES)))
    return plays.capacity_per_s(bench, size, _weather(bench, size), warm_s, for_s)


def _told(bench: Bench) -> dict[str, Any]:
    return {
        size: {
            "quota": weather.quota,
            "slots": weather.slots,
            "mean_s": weather.mean_s,
            "sigma": weather.sigma,
            "deadline_s": weather.deadline_s,
        }
        for size, weather in ((size, _weather(bench, size)) for size in ("large", "small"))
    }


def _print(bench: Bench, found: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    rows = [
        (f"{name} {who}", *[one[key] for key in KEYS], one["door"]["by_outcome"].get("rejected", 0), one["done_late"])
        for who, by_name in found.items()
        for name, one in by_name.items()
    ]
    bench.table("more than can be done", ("storm", *KEYS, "rejected", "done late"), rows)
    levels = [
        (name, one["level_last"], one["normal_again_s"], " ".join(f"{at_s:g}:{to}" for at_s, to in one["levels"]))
        for name, one in found.get("harness", {}).items()
        if "levels" in one
    ]
    bench.table("levels", ("storm", "last", "normal again s", "changes (s: to)"), levels)
