"""Who is measured in the scenarios about downstreams: the product with its own limits, and Celery as an expert has it.

Harness gets the ceiling alone and finds the quota itself; Celery's threads are the quota that its expert knows.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks import asking, product
from benchmarks.arms import Arm
from benchmarks.limits.provider import Provider

RESOURCE = "llm:default"
CEILING = 200  # of the adaptive limit: far above any quota here, so that nothing is told beforehand
SYSTEM = ("{python} -m celery -A config beat --pidfile= --schedule {bench_beat}", product.worker("system"))


def harness(
    name: str,
    provider: Provider | None = None,
    *,
    slots: Mapping[str, int],
    processes: int = 1,
    resource: Mapping[str, Any] | None = None,
    beat: str = "",
    environment: Mapping[str, str] | None = None,
    turn: int = 0,
    **wanted: float,
) -> Arm:
    """Return an arm of the product: `processes` workers of the pools in `slots`, which is what one of them has.

    `resource`: of llm:default, beside a ceiling and a time-out; `beat`: where the schedule of beat lies (with it, beat
    and a worker of the pool system run too); `turn` keeps arms that run at the same time apart; `wanted` as
    benchmarks.asking says.
    """
    table = {"limiter": "csl", "capacity": CEILING, "timeout_s": asking.TIMEOUT_S} | dict(resource or {})
    pools = list(slots) * processes
    arm = product.arm(
        name,
        kind="bench.call",
        pools=pools,
        environment={
            "HARNESS_BENCH_SLOTS": json.dumps(dict(slots)),
            "HARNESS_BENCH_RESOURCES": json.dumps({RESOURCE: table}),
            **(provider.environment(**wanted) if provider else {}),
            **(environment or {}),
        },
    )
    workers = arm.workers
    if beat:
        workers += tuple(one.replace("{bench_beat}", beat) for one in SYSTEM)
    return replace(
        arm,
        module="benchmarks.product_limits",
        workers=workers,
        broker=2 * turn,
        database=f"{product.DATABASE}_{turn}" if turn else product.DATABASE,
    )


def celery(
    name: str,
    provider: Provider | None = None,
    *,
    threads: Mapping[str, int],
    environment: Mapping[str, str] | None = None,
    turn: int = 0,
    **wanted: float,
) -> Arm:
    """Return an arm of Celery: a worker of so many threads for each queue named."""
    return Arm(
        name=name,
        module="benchmarks.peers.celery_expert",
        needs=("celery",),
        workers=tuple(celery_worker(queue, n) for queue, n in threads.items()),
        broker=2 * turn + 1,
        environment={**(provider.environment(**wanted) if provider else {}), **(environment or {})},
    )


def celery_worker(queue: str, threads: int, name: str = "") -> str:
    """Return the command line of one worker of Celery; `name` tells several of a queue apart."""
    return (
        "{python} -m celery -A benchmarks.peers.celery_expert worker -P threads -l ERROR --without-gossip "
        f"-c {threads} -Q {queue} -n {queue}{name}@bench"
    )
