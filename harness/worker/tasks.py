"""The Celery tasks. `harness.run` is the hot path: a message is a hint, the engine's claim decides.

Nothing is imported from the engine here: beat and flower load this module too.
"""

from typing import TYPE_CHECKING, Any

from celery import shared_task

from harness.worker import current

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.store.database import Connection


@shared_task(  # type: ignore[call-overload, untyped-decorator]  # the stubs don't know Strategy
    name="harness.run",
    typing=False,
    ignore_result=True,
    max_retries=0,
    trail=False,
    Strategy="harness.worker.strategy:receive_hints",
)
def run(lease_id: Any = None, token: Any = None, *_: Any) -> None:
    """Execute a lease, if it is still there and this token is its own. Anything else is nobody's work."""
    if type(lease_id) is int and type(token) is int:
        current.execute(lease_id, token)


@shared_task(name="harness.tidy", ignore_result=False, max_retries=0)
def tidy() -> Any:
    """Make event partitions ahead and purge what has expired. Nothing of recovery depends on it."""
    from django.conf import settings

    from harness.engine import sweep
    from harness.store.database import connect

    with connect(settings.DATABASE_URL, "engine", application_name="harness-system") as connection:
        return sweep.tidy(connection)


@shared_task(name="harness.foresee", ignore_result=True, max_retries=0)
def foresee() -> None:
    """Tell what is expected of what waits and runs. While it doesn't run the last forecasts stand, and get old."""
    from random import Random

    from django.conf import settings

    from harness.engine import foresee as stage
    from harness.kinds import registry

    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    _turn("foresee", lambda connection: stage.foresee(connection, settings.HARNESS_TOPOLOGY, Random()))


@shared_task(name="harness.observe", ignore_result=True, max_retries=0)
def observe() -> None:
    """Keep how resources stand, and evaluate the pressure. While it doesn't run the last hold, and that is told."""
    from django.conf import settings

    from harness.engine import observe as stage

    _turn(
        "observe",
        lambda connection: stage.observe(connection, settings.HARNESS_TOPOLOGY, settings.HARNESS_PERMITS_URL),
    )


@shared_task(name="harness.notify", ignore_result=True, max_retries=0)
def notify() -> None:
    """Tell tenants' hooks what waits for a decision. While it doesn't run, what is due stays due."""
    from harness.engine import approve

    _turn("notify", approve.notify)


def _turn(name: str, work: "Callable[[Connection], object]") -> None:
    """Take one turn. That the database is away is one line, not a traceback each time: the next turn comes anyway."""
    import psycopg
    from django.conf import settings

    from harness.store.database import connect
    from harness.telemetry import logs

    try:
        with connect(settings.DATABASE_URL, "engine", application_name=f"harness-{name}") as connection:
            work(connection)
    except psycopg.OperationalError as error:
        logs.get(__name__).warning("turn_left_out", turn=name, reason=str(error).strip())
