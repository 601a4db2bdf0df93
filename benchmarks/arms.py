"""The table of arms: what is measured beside what, and the command lines of its workers.

`{python}` stands for this interpreter, `{bin}` for the folder of its scripts; the worker shapes are those that
../shared/peerbench found to suit each peer on two cores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One contestant. `drain` = how many tasks a full drain submits (about 3 s of work or more)."""

    name: str
    module: str
    needs: tuple[str, ...]
    workers: tuple[str, ...]
    broker: int
    database: str | None = None
    drain: int = 5000
    environment: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str | None:
        """Return why this arm can't run in this interpreter; None when it can."""
        absent = [package for package in self.needs if find_spec(package) is None]
        return f"not installed: {', '.join(absent)} (requirements-bench.txt)" if absent else None


_TASKIQ = "{python} -m taskiq worker"


def _celery(module: str, pool: str, concurrency: int) -> tuple[str, ...]:
    return (f"{{python}} -m celery -A benchmarks.peers.{module} worker -P {pool} -c {concurrency} -l ERROR",)


CELERY = Arm(
    name="celery",
    module="benchmarks.peers.celery_bare",
    needs=("celery",),
    workers=_celery("celery_bare", "prefork", 2),
    broker=1,
)
CELERY_RESULTS = Arm(
    name="celery_results",
    module="benchmarks.peers.celery_results",
    needs=("celery", "django_celery_results"),
    workers=_celery("celery_results", "prefork", 2),
    broker=2,
    database="bench_celery_results",
    drain=3000,
)
CELERY_THREADS = Arm(
    name="celery_threads",
    module="benchmarks.peers.celery_bare",
    needs=("celery",),
    workers=_celery("celery_bare", "threads", 10),
    broker=1,
)
PEERS = (
    CELERY,
    CELERY_RESULTS,
    CELERY_THREADS,
    Arm(
        name="procrastinate",
        module="benchmarks.peers.procrastinate_queue",
        needs=("procrastinate",),
        workers=("{bin}/procrastinate --app benchmarks.peers.procrastinate_queue.app worker -c 10",) * 2,
        broker=3,
        database="bench_procrastinate",
        drain=3000,
    ),
    Arm(
        name="django_tasks_db",
        module="benchmarks.peers.django_tasks_db",
        needs=("django_tasks_db", "django_tasks"),
        workers=("{python} -m benchmarks.peers.django_tasks_db db_worker -v 0",) * 2,
        broker=3,
        database="bench_django_tasks_db",
        drain=2000,
    ),
    Arm(
        name="dramatiq",
        module="benchmarks.peers.dramatiq_queue",
        needs=("dramatiq",),
        workers=("{python} -m dramatiq benchmarks.peers.dramatiq_queue -p 2 -t 8",),
        broker=4,
        drain=15_000,
    ),
    Arm(
        name="huey",
        module="benchmarks.peers.huey_queue",
        needs=("huey",),
        workers=("{bin}/huey_consumer benchmarks.peers.huey_queue.huey -w 2 -k process -q",),
        broker=5,
        drain=15_000,
    ),
    Arm(
        name="taskiq",
        module="benchmarks.peers.taskiq_queue",
        needs=("taskiq", "taskiq_redis"),
        workers=(
            # Its default level writes a line for each task, which no other arm does.
            f"{_TASKIQ} benchmarks.peers.taskiq_queue:broker --log-level ERROR -w 2 --max-async-tasks 100",
        ),
        broker=6,
        drain=15_000,
    ),
    Arm(
        name="pgqueuer",
        module="benchmarks.peers.pgqueuer_queue",
        needs=("pgqueuer",),
        workers=("{python} -m benchmarks.peers.pgqueuer_queue",) * 2,
        broker=3,
        database="bench_pgqueuer",
        drain=20_000,
    ),
)
