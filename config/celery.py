"""The Celery app: transport and process manager, nothing more (architecture, decision 9).

No result backend and no Django fixup here: agent tasks use neither, and every signal on a task costs each message.
`--resource-pool system` switches both on for its own process (harness.worker.option).
"""

import gc
import os
import sys
import warnings
from typing import Any

from celery import Celery, signals
from django.conf import settings
from kombu import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
if "worker" in sys.argv:
    gc.disable()  # until everything is imported (harness.worker.gate): nothing of it goes away again

from harness.worker import option, profile

# Celery takes the working directory off the path again once it has found the app; tasks/ is imported later.
sys.path.append(str(settings.BASE_DIR))
# It is about pickle, which accept_content excludes; the embedded stack may run as root.
warnings.filterwarnings("ignore", message="You're running the worker with superuser privileges")

TIDY_EVERY_S = 600.0  # partitions are made days ahead and expired keys are only disk space
FORESEE_EVERY_S = 10.0  # a pass takes up to 0.6 s of a core: 6 % of one
NOTIFY_EVERY_S = 5.0  # people decide in minutes; a round ends after 3 s
OBSERVE_EVERY_S = 5.0  # what is kept of limits and breakers is as old as that when Redis is emptied

app = Celery("harness", fixups=[])

_queues = [name for pool in settings.HARNESS_TOPOLOGY.pools.values() for name in profile.queues_of(pool)]
_redis = settings.BROKER_URL.startswith(("redis://", "rediss://", "unix://", "redis+socket://"))

_conf: dict[str, Any] = {
    "broker_url": settings.BROKER_URL,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    "broker_connection_timeout": 4.0,
    "broker_pool_limit": 2,
    # Redis only. socket_timeout bounds publishes and control, not the consumer's BRPOP, whose own check is
    # health_check_interval: a half-open connection is noticed within 1 + 2 x 10 s.
    "broker_transport_options": {
        "queue_order_strategy": "priority",
        "priority_steps": [0],  # no Celery priorities: one key a queue in each BRPOP, and not four
        "socket_timeout": 10.0,
        "socket_connect_timeout": 4.0,
        "socket_keepalive": True,
        "health_check_interval": 10,
    }
    if _redis
    else {},
    "accept_content": ["json"],
    "task_serializer": "json",
    "result_serializer": "json",
    "event_serializer": "json",
    # The default exchange: a queue is reached by its name, and no binding has to survive in the broker.
    "task_queues": [Queue(name, exchange=Exchange(""), routing_key=name) for name in _queues],
    "task_default_queue": profile.SYSTEM_QUEUE,
    "task_default_exchange": "",
    "task_default_routing_key": profile.SYSTEM_QUEUE,
    "task_create_missing_queues": False,
    "task_ignore_result": True,
    "task_acks_late": not _redis,
    "task_send_sent_event": False,
    "task_track_started": False,
    "worker_disable_prefetch": _redis,
    "worker_prefetch_multiplier": 1,
    # RabbitMQ, after a lost connection: Celery would raise a lowered prefetch count again from the thread that ends a
    # task, with a call that waits for an answer on the loop's own connection; the worker then takes nothing any more.
    "worker_enable_prefetch_count_reduction": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    "worker_eta_task_limit": 1,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    # A dead child's slot counts as taken until Celery gives it up (its lease is settled by lose_dead_children).
    "worker_lost_wait": 1.0,
    "worker_proc_alive_timeout": 30.0,
    "result_backend": None,
    "result_extended": True,
    "result_expires": 7 * 24 * 3600,
    "timezone": "UTC",
    "enable_utc": True,
    "include": ["harness.worker.tasks"],
    # In memory: entries are intervals of idempotent ticks, so beat has no file to lose or to lock.
    "beat_scheduler": "celery.beat:Scheduler",
    "beat_schedule": {
        "tidy": {
            "task": "harness.tidy",
            "schedule": TIDY_EVERY_S,
            "options": {"queue": profile.SYSTEM_QUEUE, "expires": TIDY_EVERY_S},
        },
        "foresee": {
            "task": "harness.foresee",
            "schedule": FORESEE_EVERY_S,
            "options": {"queue": profile.SYSTEM_QUEUE, "expires": FORESEE_EVERY_S},
        },
        "observe": {
            "task": "harness.observe",
            "schedule": OBSERVE_EVERY_S,
            "options": {"queue": profile.SYSTEM_QUEUE, "expires": OBSERVE_EVERY_S},
        },
        "notify": {
            "task": "harness.notify",
            "schedule": NOTIFY_EVERY_S,
            "options": {"queue": profile.SYSTEM_QUEUE, "expires": NOTIFY_EVERY_S},
        },
        "results": {
            "task": "celery.backend_cleanup",
            "schedule": 24 * 3600.0,
            "options": {"queue": profile.SYSTEM_QUEUE, "expires": 3600.0},
        },
    },
}
app.conf.update(_conf)

option.install(app, settings.HARNESS_TOPOLOGY)
if "flower" in sys.argv:
    from harness.worker import monitor

    app.conf.broker_pool_limit = monitor.BROKER_CONNECTIONS
    monitor.close_door()


@signals.setup_logging.connect(weak=False)
def _logs(**_: object) -> None:
    """Celery leaves logging alone when this signal has a receiver."""
    from harness.telemetry import logs, traces

    names = [word for word in ("worker", "beat", "flower") if word in sys.argv]
    logs.configure(settings.HARNESS_LOG_LEVEL, process=names[0] if names else "celery")
    if names == ["worker"]:
        traces.configure(process="worker")
