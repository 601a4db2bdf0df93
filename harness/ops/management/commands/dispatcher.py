"""`manage.py dispatcher`: releases tasks into Celery while every limit has room. Any number run; one leads."""

import gc
import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from harness.engine.auditor import Alerts
from harness.engine.dispatcher import Dispatcher
from harness.engine.schedules import Firing
from harness.engine.upkeep import Upkeep
from harness.kinds import registry
from harness.policy.capacity import objections
from harness.store.broker import Broker
from harness.store.permits import Permits
from harness.telemetry import logs, traces

log = logs.get(__name__)


class Command(BaseCommand):
    """Runs until SIGTERM or SIGINT."""

    requires_system_checks = ()  # they load the web ring: 20 MB
    help = "Release waiting tasks to the workers, in order, while every limit has room."

    def handle(self, *args: Any, **options: Any) -> None:
        for name in ("DATABASE_URL", "BROKER_URL"):
            if not getattr(settings, name):
                raise CommandError(
                    f"{name} is not set, and no stack of this checkout runs: {name}=.., or `manage.py stack up`"
                )
        logs.configure(settings.HARNESS_LOG_LEVEL, process="dispatcher")
        traces.configure(process="dispatcher")
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        registry.check_against(settings.HARNESS_TOPOLOGY)
        for objection in objections(settings.HARNESS_TOPOLOGY, registry.needs()):
            log.warning("capacity", message=objection.message, hint=objection.hint)
        gc.collect()
        gc.freeze()  # a full collection walks through all modules, and a tick waits for it
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        Dispatcher(
            database_url=settings.DATABASE_URL,
            broker=Broker(settings.BROKER_URL),
            topology=settings.HARNESS_TOPOLOGY,
            stop=stop,
            firing=Firing(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES, ttl_s=settings.HARNESS_TTL_S),
            upkeep=Upkeep(
                audit_every_s=settings.HARNESS_AUDIT_EVERY_S,
                repair=settings.HARNESS_AUDIT_REPAIR,
                alerts=Alerts(
                    transaction_s=settings.HARNESS_ALERT_TRANSACTION_S, dead_rows=settings.HARNESS_ALERT_DEAD_ROWS
                ),
                depths=Broker(settings.BROKER_URL).depths,  # a connection of its own: it is asked from another thread
                keep_days=settings.HARNESS_KEEP_DAYS if settings.HARNESS_RETENTION else 0.0,
                dead_keep_days=settings.HARNESS_DEAD_KEEP_DAYS,
            ),
            permits=lambda effective: Permits(settings.HARNESS_PERMITS_URL, effective),
        ).run()
