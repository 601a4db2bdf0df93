"""Celery on Redis with results in PostgreSQL by django-celery-results, connections reused between tasks.

Without CELERY_DB_REUSE_MAX Celery's Django fixup opens a connection for every task and the arm is 3 to 4 times
slower; the comparison is with the better form.
"""

import os

import django
from celery import Celery
from django.conf import settings
from django.core.management import call_command

from benchmarks import effects, servers
from benchmarks.submission import Item, Submitter

os.environ["DJANGO_SETTINGS_MODULE"] = "configured.in.code"  # its presence is what switches Celery's fixup on
settings.configure(
    SECRET_KEY="benchmark",
    USE_TZ=True,
    INSTALLED_APPS=["django_celery_results"],
    DATABASES={"default": servers.django_database(os.environ["DATABASE_URL"])},
)
django.setup()

app = Celery("bench", broker=os.environ["BROKER_URL"])
app.conf.update(
    result_backend="django-db",
    result_extended=True,
    broker_connection_retry_on_startup=True,
)
app.conf["CELERY_DB_REUSE_MAX"] = 1_000_000
run = app.task(name="bench.run")(effects.body)


class _Celery(Submitter):
    def one(self, item: Item) -> None:
        run.apply_async(item)


def reset() -> None:
    """Empty the broker and build the result tables afresh."""
    servers.flush_broker(os.environ["BROKER_URL"])
    servers.recreate_database(os.environ["DATABASE_URL"])
    call_command("migrate", verbosity=0)


def submitter() -> Submitter:
    """Return an open client."""
    return _Celery()
