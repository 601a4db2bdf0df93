"""One storm on one stack, from the start of its servers to what it came to. Used by overload and pressure."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import kept, machine, readings
from benchmarks.bench import Bench
from benchmarks.effects import BEGUN, DONE, Effect
from benchmarks.limits import judge as provider_judge
from benchmarks.limits.judge import Row
from benchmarks.limits.provider import Provider
from benchmarks.scenarios.submit import Client
from benchmarks.stage import Stage
from benchmarks.storm import answers, arms
from benchmarks.storm.answers import TAG, Answer
from benchmarks.storm.arms import Weather
from harness.ops.local.ports import free_port

Step = tuple[float, Callable[[Provider], None]]  # so many seconds after the storm began, this happens to the provider
QUIET_STOP_S = 60.0  # that the level must have been normal until a stack is left alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Storm:
    """What is played: phases of (submissions a second, seconds), and the stretch in which it is judged."""

    phases: Sequence[tuple[float, float]]
    judged_s: tuple[float, float]
    seed: int
    steps: Sequence[Step] = ()
    calm_most_s: float = 0.0  # how long to wait for the level to be normal again, after the last phase

    @property
    def for_s(self) -> float:
        """Its length."""
        return sum(for_s for _, for_s in self.phases)


@dataclass(frozen=True, kw_only=True, slots=True)
class Came:
    """What was seen. Moments are epoch seconds; `rows` of the provider count from `began_s`."""

    began_s: float
    told: Sequence[Answer]
    begun: Sequence[Effect]
    done: Sequence[Effect]
    rows: Sequence[Row]
    every_s: float
    stats: dict[str, int]
    cpu_s: dict[str, float]
    samples: Sequence[dict[str, Any]] = ()
    changes: Sequence[dict[str, Any]] = ()
    states: Sequence[Any] = ()
    idle_before: float = 0.0
    restarts: int = 0
    levels: Sequence[tuple[float, str]] = field(default=())


def harness(bench: Bench, name: str, weather: Weather, storm: Storm, **behaviour: Any) -> Came:
    """Play it over HTTP on the whole product: web, dispatcher, beat, a worker of llm, one of system."""
    provider, port = Provider(), free_port()
    arm = arms.harness(f"harness_{name}", provider, weather, beat=bench.folder / f"beat-{name}")
    with bench.stage(arm) as stage:
        stage.drive("reset")
        samples = stage.folder / "samples.jsonl"
        left = stage.folder / "restarts"
        # A worker whose threads are stuck leaves; in daily use supervisor starts it again.
        ours = stage.start([f"{{python}} -m benchmarks.kept {left} {one}" for one in (*arm.workers, arms.web(port))])
        key: str = stage.drive("make_key")["key"]
        Client(port, key).wait_ready(stage)
        idle = machine.await_quiet(bench.patience_s)
        stage.start([arms.watch(samples)])
        provider.start(stage, seed=bench.seed, **weather.law(), **behaviour)
        came = _blow(bench, stage, provider, weather, storm, [one.pid for one in ours], {"port": port, "key": key})
        if storm.calm_most_s:
            _await_calm(stage, samples, storm.calm_most_s)
        seen = _lines(samples)
        return Came(
            **came,
            idle_before=idle,
            samples=seen,
            levels=[(one["at_s"], one["level"]) for one in seen],
            changes=stage.drive("level_changes")["changes"],
            states=stage.drive("states")["states"],
            restarts=kept.restarts(left),
        )


def celery(bench: Bench, name: str, weather: Weather, storm: Storm, *, turn: int = 0, **behaviour: Any) -> Came:
    """Play it on Celery as its expert has it."""
    provider = Provider()
    with bench.stage(arms.celery(f"celery_{name}", provider, weather, turn=turn)) as stage:
        stage.drive("reset")
        idle = machine.await_quiet(bench.patience_s)
        ours = stage.start()
        provider.start(stage, seed=bench.seed, **weather.law(), **behaviour)
        return Came(**_blow(bench, stage, provider, weather, storm, [one.pid for one in ours], None), idle_before=idle)


def capacity_per_s(bench: Bench, name: str, weather: Weather, warm_s: float, for_s: float) -> float:
    """Return what the provider answers a second to as many callers as it lets in, without any queue between."""
    provider = Provider()
    with bench.stage(arms.closed(f"closed_{name}", provider)) as stage:
        provider.start(stage, seed=bench.seed, **weather.law())
        stage.start([arms.callers(weather)])
        provider.await_calls(stage, weather.quota)
        _until(stage, time.monotonic() + warm_s + for_s)
        told = provider.timeline()
    rows = provider_judge.between(provider_judge.rows_of(told), warm_s, warm_s + for_s)
    return provider_judge.per_s(rows, told["every_s"], lambda row: row.answered)


def _blow(
    bench: Bench,
    stage: Stage,
    provider: Provider,
    weather: Weather,
    storm: Storm,
    ours: Sequence[int],
    http: dict[str, Any] | None,
) -> dict[str, Any]:
    path = stage.folder / "answers.jsonl"
    stage.start([arms.client(path, storm.phases, seed=storm.seed, weather=weather, http=http)])
    while not path.exists():  # it writes it when it begins
        stage.check_alive()
        time.sleep(0.01)
    provider.reset()
    began_s, from_s = time.time(), time.monotonic()
    cpu_s: dict[str, float] = {}
    marks: list[tuple[float, Callable[[], None]]] = [
        (at_s, lambda step=step: step(provider))  # type: ignore[misc]  # mypy knows no default of a lambda
        for at_s, step in storm.steps
    ]
    since_s, until_s = storm.judged_s
    before: dict[str, float] = {}
    marks.append((since_s, lambda: before.update(readings.cpu_by_role(ours, bench.processes))))
    marks.append((until_s, lambda: cpu_s.update(readings.cpu_by_role(ours, bench.processes))))
    for at_s, act in sorted(marks, key=lambda mark: mark[0]):
        _until(stage, from_s + at_s)
        act()
    _until(stage, from_s + storm.for_s)
    told = provider.timeline()
    return {
        "began_s": began_s,
        "told": answers.read(path),
        "begun": stage.log.read(TAG, BEGUN),
        "done": stage.log.read(TAG, DONE),
        "rows": provider_judge.rows_of(told),
        "every_s": told["every_s"],
        "stats": provider.stats(),
        "cpu_s": {role: round(cpu_s[role] - before[role], 2) for role in cpu_s},
    }


def _await_calm(stage: Stage, samples: Path, most_s: float) -> None:
    """Wait until the level has been normal for a while, or so long at most."""
    give_up_s = time.monotonic() + most_s
    while time.monotonic() < give_up_s:
        stage.check_alive()
        seen = _lines(samples)
        enough = [one for one in seen if one["at_s"] > time.time() - min(QUIET_STOP_S, most_s / 4)]
        if enough and all(one["level"] == "normal" for one in enough):
            return
        time.sleep(1.0)


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines so far."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _until(stage: Stage, at_s: float) -> None:
    while (left_s := at_s - time.monotonic()) > 0:
        stage.check_alive()
        time.sleep(min(left_s, 1.0))
