# mypy: disable-error-code="untyped-decorator"
# The decorator comes from one of two packages by name, so the checker can't know it.
"""django.tasks with django-tasks-db on PostgreSQL; a worker process runs one task at a time.

`python -m benchmarks.peers.django_tasks_db ARGUMENTS` is this peer's manage.py.
"""

import importlib
import os
import sys
from importlib.util import find_spec

import django
from django.conf import settings
from django.core.management import call_command, execute_from_command_line

from benchmarks import effects, servers
from benchmarks.submission import Item, Submitter

if not settings.configured:
    settings.configure(
        SECRET_KEY="benchmark",
        USE_TZ=True,
        INSTALLED_APPS=["django_tasks_db"],
        DATABASES={"default": servers.django_database(os.environ["DATABASE_URL"])},
        TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()

# Django has this decorator from 6.0 on; before that the backport has it. Importing either reads the settings.
task = importlib.import_module("django.tasks" if find_spec("django.tasks") else "django_tasks").task


@task()
def run(tag: str, i: int, submitted_s: float, duration_s: float) -> None:
    """Do one unit of work. (A worker finds the task by its function's module and name, so it has one of its own.)"""
    effects.body(tag, i, submitted_s, duration_s)


class _DjangoTasks(Submitter):
    def one(self, item: Item) -> None:
        run.enqueue(*item)


def reset() -> None:
    """Build the tables afresh."""
    servers.recreate_database(os.environ["DATABASE_URL"])
    call_command("migrate", verbosity=0)


def submitter() -> Submitter:
    """Return an open client."""
    return _DjangoTasks()


if __name__ == "__main__":
    execute_from_command_line(["manage.py", *sys.argv[1:]])
