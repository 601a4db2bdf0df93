"""The boot step that lets a worker start only as its profile wants it, and ties its life to Celery's.

Everything is checked while the worker is built: before a child is forked, before a message is taken.
"""

import gc
import os
import socket
import time
from typing import Any

import click
import psycopg
from celery import bootsteps, signals
from django.conf import settings

from harness.kinds import registry
from harness.policy.errors import HarnessError, Refused
from harness.policy.settings import QUARANTINE
from harness.store.sessions import DEAD_AFTER_S
from harness.worker import fixed, option
from harness.worker import profile as profiles
from harness.worker.process import ZOMBIE_MAX_AGE_S, Life

DATABASE_WAIT_S = 20.0  # servers and workers are often started together
CHILDREN_CHECK_S = 0.5
COLLECT_AFTER = 10_000  # new containers; by default 700, of which one message makes a hundred
DRAIN_S = 8.0  # a supervisor's usual patience before SIGKILL is 10 s


class Gate(bootsteps.StartStopStep):
    """Check the profile, register the session, start the side threads; end them when the pool has stopped."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, resource_pool: str | None = None, autoscale: Any = None, **options: Any) -> None:
        profile = option.resolve(settings.HARNESS_TOPOLOGY, resource_pool)
        for name in ("DATABASE_URL", "BROKER_URL"):
            if not getattr(settings, name):  # without a broker Celery would think of RabbitMQ
                raise option.WillNotStart(
                    f"{name} is not set, and no stack of this checkout runs: {name}=.., or `manage.py stack up`"
                )
        kinds = _kinds(profile)
        longest_s = max((kind.timeout_s for kind in kinds), default=0.0) + ZOMBIE_MAX_AGE_S
        objection = profiles.objection(profile, _effective(worker, autoscale), longest_held_s=longest_s)
        if objection is not None:
            raise option.WillNotStart(objection)
        fixed.install()
        _spare_collector()
        self.life = Life(
            profile,
            database_url=settings.DATABASE_URL,
            hostname=socket.gethostname(),
            drain_s=_seconds("HARNESS_DRAIN_S", DRAIN_S),
            zombie_max_age_s=_seconds("HARNESS_ZOMBIE_MAX_AGE_S", ZOMBIE_MAX_AGE_S),
        )
        _register(self.life, [f"{kind.name}@{kind.version}" for kind in kinds])
        worker.harness_life = self.life
        self._connect_signals()
        super().__init__(worker, **options)

    def start(self, parent: Any) -> None:
        """Celery starts this step after the pool, hence after the fork."""
        self.life.start(lambda: _live_pids(parent))

    def register_with_event_loop(self, parent: Any, hub: Any) -> None:
        """Look for dead children twice a second; by itself billiard often takes 5 s, and their slots wait as long."""
        if self.life.profile.workers == "prefork":
            hub.call_repeatedly(CHILDREN_CHECK_S, parent.pool.maintain_pool)

    def stop(self, parent: Any) -> None:
        """The consumer has stopped; the pool now waits for its tasks, while the watch counts down the drain.

        A signal has asked for the drain already; a remote `shutdown` or an error of Celery's own has not.
        """
        self.life.request_drain()

    def terminate(self, parent: Any) -> None:
        """Like `stop`, without patience."""
        self.life.request_drain(at_once=True)

    def _connect_signals(self) -> None:
        life = self.life

        def drain(how: str = "Warm", **_: Any) -> None:
            life.request_drain(at_once=how == "Cold")

        def child(**_: Any) -> None:
            life.begin_child()

        def finish(**_: Any) -> None:
            life.finish()

        def leave_out_paused(instance: Any, **_: Any) -> None:
            if not life.profile.is_system:
                instance.app.amqp.queues.deselect([q for q in life.profile.queues if q in life.paused])

        signals.worker_shutting_down.connect(drain, weak=False)
        signals.worker_process_init.connect(child, weak=False)
        signals.worker_shutdown.connect(finish, weak=False)
        signals.celeryd_after_setup.connect(leave_out_paused, weak=False)


def _effective(worker: Any, autoscale: Any) -> profiles.Effective:
    conf = worker.app.conf
    module = worker.pool_cls.__module__.rpartition(".")[2]
    return profiles.Effective(
        workers="threads" if module == "thread" else module,
        queues=tuple(worker.app.amqp.queues.consume_from),
        concurrency=worker.concurrency,
        prefetch_multiplier=worker.prefetch_multiplier,
        disable_prefetch=bool(conf.worker_disable_prefetch),
        acks_late=bool(conf.task_acks_late) or bool(worker.app.tasks["harness.run"].acks_late),
        autoscale=bool(autoscale),
        max_tasks_per_child=worker.max_tasks_per_child,
        transport=worker.app.connection_for_read().transport.driver_type,
        consumer_timeout_s=_seconds("HARNESS_CONSUMER_TIMEOUT_S", profiles.CONSUMER_TIMEOUT_S),
    )


def _seconds(name: str, otherwise: float) -> float:
    text = os.environ.get(name) or str(otherwise)
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 86_400 * 365:
        raise option.WillNotStart(f"{name} is {text!r}; it must be a number of seconds")
    return seconds


def _kinds(profile: profiles.Profile) -> list[registry.Kind]:
    """Import the kinds (in prefork before the fork, so that children share them) and pick this worker's."""
    if profile.is_system:
        return []
    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    try:
        registry.check_against(settings.HARNESS_TOPOLOGY)
    except HarnessError as error:
        raise option.WillNotStart(error.message) from None
    everything = QUARANTINE in profile.slots
    return [kind for kind in registry.all_kinds() if everything or kind.pool in profile.slots]


def _register(life: Life, kinds: list[str]) -> None:
    """Enter the session; wait a while for a database that is just starting, and for killed workers to be given up.

    When a whole host was killed, all its workers come back at once, and the dead ones count for 20 s still: one that
    exited and was started again would only begin anew with its imports.
    """
    give_up_s = time.monotonic() + DATABASE_WAIT_S
    room_by_s: float | None = None
    while True:
        try:
            derivation = life.register(kinds, budget=settings.HARNESS_TOPOLOGY.database_connections)
        except Refused as error:
            if room_by_s is None and error.facts["soon"]:
                click.echo(f"waiting for killed workers to be given up: {error.message}")
                room_by_s = time.monotonic() + DEAD_AFTER_S
            if room_by_s is not None and time.monotonic() < room_by_s:
                time.sleep(0.5)
                continue
            raise option.NoRoom(f"{error.message} ({life.profile.derivation()})") from None
        except psycopg.OperationalError as error:
            if not settings.DATABASE_URL or time.monotonic() >= give_up_s or _is_final(error):
                raise option.NoDatabase(f"the database of DATABASE_URL can't be used: {_first_line(error)}") from None
            time.sleep(0.5)
        except psycopg.Error as error:
            raise option.NoDatabase(
                f"the database of DATABASE_URL lacks something: {_first_line(error)}; run `manage.py migrate`"
            ) from None
        else:
            click.echo(f"{derivation} ({life.profile.derivation()})")
            return


def _is_final(error: psycopg.OperationalError) -> bool:
    """Whether waiting can't help: the server answered, and doesn't know this user or database."""
    return any(sign in str(error) for sign in ("does not exist", "authentication failed", "no pg_hba.conf entry"))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _spare_collector() -> None:
    """Move what is imported by now out of the collector's sight, and let it look from here on, but less often.

    Prefork: its pages stay shared after the fork. Threads: a full collection walks through all modules while nobody
    else runs; with fifty slots of short work an eighth of the interpreter's time went there. Not collected before: in
    a start that takes 60 ms, and finds some hundred objects.
    """
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()


def _live_pids(worker: Any) -> set[int]:
    """The children that have not ended, without reaping any: that is billiard's."""
    pool = getattr(worker.pool, "_pool", None)
    if worker.pool is None or pool is None:
        return set()
    return {process.pid for process in list(pool._pool) if process.pid and _runs(process.pid)}


def _runs(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False
