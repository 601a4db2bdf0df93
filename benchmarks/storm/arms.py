"""Who stands in a storm: the product with its web process, beat and the pool `system`; Celery with queues by priority.

Harness gets a ceiling of 200 and finds the quota itself, with more slots than it has; Celery's threads are the quota,
which its expert knows. A task of Celery's expires two mean calls before its deadline: what begins later is of no use.
"""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.arms import Arm
from benchmarks.limits import arms
from benchmarks.limits.provider import Provider
from harness.ops.local.ports import LOOPBACK

QUEUES = "p0,p1,p2,p3"
WATCH_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Weather:
    """The provider, the slots beside it, and how long a task is of use. `mean_s`, `sigma`: of its lognormal latency."""

    quota: int
    slots: int
    mean_s: float
    sigma: float
    deadline_s: float

    @property
    def capacity_per_s(self) -> float:
        """What the provider can do by its own law; a benchmark measures it."""
        return self.quota / self.mean_s

    def law(self) -> dict[str, Any]:
        """Return the emulator's settings."""
        return {
            "quota": self.quota,
            "latency_s": self.mean_s / math.exp(self.sigma**2 / 2),
            "sigma": self.sigma,
            "refusal_latency_s": 0.2,
        }


def harness(name: str, provider: Provider, weather: Weather, *, beat: Path, turn: int = 0) -> Arm:
    """Return the product's arm."""
    arm = arms.harness(name, provider, slots={"llm": weather.slots}, beat=str(beat), turn=turn)
    return replace(arm, module="benchmarks.product_storm")


def web(port: int) -> str:
    """Return the command line of its web process, as in the Procfile."""
    return f"{{python}} -m uvicorn config.asgi:application --host {LOOPBACK} --port {port} --no-access-log"


def celery(name: str, provider: Provider, weather: Weather, *, turn: int = 0) -> Arm:
    """Return Celery's arm."""
    arm = arms.celery(name, provider, threads={}, turn=turn)
    worker = arms.celery_worker("storm", weather.quota).replace("-Q storm", f"-Q {QUEUES}")
    return replace(arm, workers=(worker,))


def closed(name: str, provider: Provider) -> Arm:
    """Return callers without a queue, which tell what the provider can do."""
    return Arm(
        name=name, module="benchmarks.storm.closed", needs=(), workers=(), broker=0, environment=provider.environment()
    )


def client(
    path: Path, phases: Sequence[tuple[float, float]], *, seed: int, weather: Weather, http: Mapping[str, Any] | None
) -> str:
    """Return the command line of the storm's client. `http`: port and key of Harness; None: Celery."""
    wanted: dict[str, Any] = {"path": str(path), "phases": [list(one) for one in phases], "seed": seed}
    if http:
        wanted |= {"http": dict(http), "deadline_s": weather.deadline_s}
    else:
        wanted |= {"expires_s": weather.deadline_s - 2 * weather.mean_s}
    return _command("benchmarks.storm.client", wanted)


def callers(weather: Weather) -> str:
    """Return the command line of as many callers as the quota lets in."""
    return _command("benchmarks.storm.closed", {"callers": weather.quota})


def watch(path: Path) -> str:
    """Return the command line that samples the product."""
    return _command("benchmarks.drive benchmarks.product_storm watch", {"path": str(path), "every_s": WATCH_EVERY_S})


def _command(module: str, wanted: Mapping[str, Any]) -> str:
    text = shlex.quote(json.dumps(wanted)).replace("{", "{{").replace("}", "}}")
    return f"{{python}} -m {module} {text}"
