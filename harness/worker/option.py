"""`--resource-pool`: the one option from which a worker's pool class, slots, queues, prefetch and events follow.

It fills the command line's defaults; an explicit option still wins, and then `gate` refuses to start.
Imported by every process that loads the app (beat, flower), so it imports nothing heavy.
"""

from typing import Any

import click
from celery import Celery
from celery.fixups.django import fixup as django_fixup

from harness.policy.errors import Invalid
from harness.policy.settings import Topology
from harness.worker import profile as profiles

# sysexits.h, for the supervisor and the person who reads its log.
EX_UNAVAILABLE, EX_TEMPFAIL, EX_CONFIG = 69, 75, 78


class WillNotStart(click.ClickException):
    """A worker refuses to start, and says why in one sentence, without a traceback."""

    exit_code = EX_CONFIG

    def __init__(self, message: str) -> None:
        super().__init__(f"this worker will not start: {message}")


class NoRoom(WillNotStart):
    """The budget of database connections is used up; later there may be room."""

    exit_code = EX_TEMPFAIL


class NoDatabase(WillNotStart):
    """The database doesn't answer, doesn't let this worker in, or has no tables yet."""

    exit_code = EX_UNAVAILABLE


def install(app: Celery, topology: Topology) -> None:
    """Add the option and the boot steps to the app. Call once, from the composition root."""

    def fill(ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
        if ctx.resilient_parsing:
            return value
        profile = resolve(topology, value)
        ctx.default_map = {**(ctx.default_map or {}), **defaults(profile)}
        if profile.is_system:
            _keep_results(app)
        return value

    app.user_options["worker"].add(
        click.Option(
            ["--resource-pool"],
            is_eager=True,
            callback=fill,
            metavar="NAME[,NAME...]",
            help="Pools of resources.toml that this worker serves; all of one worker type. "
            "Sets pool class, concurrency, queues, prefetch and events.",
        )
    )
    app.steps["worker"].update(("harness.worker.gate:Gate", "harness.worker.refill:Refill"))
    app.steps["consumer"].update(
        (
            "harness.worker.events:Events",
            "harness.worker.hints:Hints",
            "harness.worker.intake:Intake",
            "harness.worker.pauses:Pauses",
            "harness.worker.unreadable:Unreadable",
        )
    )


def resolve(topology: Topology, text: str | None) -> profiles.Profile:
    """Return the profile of the option's value. Raises: WillNotStart."""
    if not text:
        known = ", ".join(sorted(topology.pools))
        raise WillNotStart(f"--resource-pool is missing; name one or more pools of resources.toml ({known})")
    try:
        return profiles.resolve(topology, text)
    except Invalid as error:
        raise WillNotStart(error.message) from None


def defaults(profile: profiles.Profile) -> dict[str, Any]:
    """Return the defaults of `celery worker`'s own options that a profile stands for."""
    return {
        "pool": profile.workers,
        "concurrency": str(profile.concurrency),
        "queues": ",".join(profile.queues),
        "prefetch_multiplier": profile.prefetch_multiplier,
        "max_tasks_per_child": profile.max_tasks_per_child,
        "task_events": profile.events,
        "without_gossip": True,
        "without_mingle": True,
    }


def _keep_results(app: Celery) -> None:
    """Keep system tasks' results with django-celery-results.

    The fixup calls django.setup() and closes the ORM's connection around each task, so it never goes stale.
    """
    app.conf.update(result_backend="django-db")
    django_fixup(app)
