"""The Celery tasks. `harness.run` is the hot path: a message is a hint, the engine's claim decides.

Nothing is imported from the engine here: beat and flower load this module too.
"""

from typing import Any

from celery import shared_task

from harness.worker import current


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
    from harness.store.database import connect

    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    with connect(settings.DATABASE_URL, "engine", application_name="harness-foresee") as connection:
        stage.foresee(connection, settings.HARNESS_TOPOLOGY, Random())


@shared_task(name="harness.observe", ignore_result=True, max_retries=0)
def observe() -> None:
    """Keep how resources stand, and evaluate the pressure. While it doesn't run the last hold, and that is told."""
    from django.conf import settings

    from harness.engine import observe as stage
    from harness.store.database import connect

    with connect(settings.DATABASE_URL, "engine", application_name="harness-observe") as connection:
        stage.observe(connection, settings.HARNESS_TOPOLOGY, settings.HARNESS_PERMITS_URL)


@shared_task(name="harness.notify", ignore_result=True, max_retries=0)
def notify() -> None:
    """Tell tenants' hooks what waits for a decision. While it doesn't run, what is due stays due."""
    from django.conf import settings

    from harness.engine import approve
    from harness.store.database import connect

    with connect(settings.DATABASE_URL, "engine", application_name="harness-notify") as connection:
        approve.notify(connection)
