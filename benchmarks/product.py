"""The product's arms: the real dispatcher and real workers; benchmarks.product_client submits through the engine."""

from collections.abc import Mapping, Sequence

from benchmarks.arms import Arm

DATABASE = "bench_harness"
DISPATCHER = "{python} manage.py dispatcher"


def worker(pool: str, number: int = 0) -> str:
    """Return the command line of one worker process of a pool, as in the Procfile; `number` tells several apart."""
    return f"{{python}} -m celery -A config worker --resource-pool {pool} -n {pool}{number or ''}@bench"


def arm(
    name: str,
    *,
    kind: str,
    pools: Sequence[str] = ("db",),
    environment: Mapping[str, str] | None = None,
    drain: int = 5000,
) -> Arm:
    """Return an arm that submits tasks of a kind to a dispatcher and one worker for each pool named (twice: two)."""
    return Arm(
        name=name,
        module="benchmarks.product_client",
        needs=("celery",),
        workers=(DISPATCHER, *[worker(pool, pools[:number].count(pool)) for number, pool in enumerate(pools)]),
        broker=0,
        database=DATABASE,
        drain=drain,
        environment={
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "HARNESS_BENCH_KIND": kind,
            "SECRET_KEY": "benchmark",
            "HARNESS_LOG_LEVEL": "WARNING",
            **(environment or {}),
        },
    )


BUNDLED = arm("harness_bundled", kind="noop", drain=20_000)
UNBUNDLED = arm("harness_unbundled", kind="noop.single")
ARMS = (BUNDLED, UNBUNDLED)
