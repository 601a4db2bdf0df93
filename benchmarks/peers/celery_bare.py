"""Celery on Redis, results ignored: what Celery costs by itself. Early ack, default prefetch.

HARNESS_BENCH_ACKS_LATE: late ack and reject_on_worker_lost, which is what Celery offers against a dying worker.
"""

import os

from celery import Celery

from benchmarks import effects, servers
from benchmarks.submission import Item, Submitter

app = Celery("bench", broker=os.environ["BROKER_URL"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
if os.environ.get("HARNESS_BENCH_ACKS_LATE"):
    app.conf.update(task_acks_late=True, task_reject_on_worker_lost=True)
run = app.task(name="bench.run")(effects.body)


class _Celery(Submitter):
    def one(self, item: Item) -> None:
        run.apply_async(item)


def reset() -> None:
    """Empty the broker."""
    servers.flush_broker(os.environ["BROKER_URL"])


def submitter() -> Submitter:
    """Return an open client."""
    return _Celery()
