"""What ties tasks to each other: what a parked parent waits for, dependencies in a run, and notices of ends."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from harness.store.models.references import one, to


class Gathering(models.Model):
    """What a parked parent waits for: children by ranges of ids (first and how many), and how many must succeed.

    `need` of `total`; whatever `need` is, the wait is over when all have ended.
    """

    task = one("store.Task")
    tenant = to("store.Tenant")
    need = models.IntegerField()
    total = models.IntegerField()
    firsts = ArrayField(models.BigIntegerField())
    counts = ArrayField(models.IntegerField())

    class Meta:
        db_table = "gathering"


class Dependency(models.Model):
    """A task of a run that waits for another of it. `met`: that one has succeeded."""

    pk = models.CompositePrimaryKey("task_id", "on_id")
    task = to("store.Task")
    on_id = models.BigIntegerField()
    tenant = to("store.Tenant")
    met = models.BooleanField(db_default=False)

    class Meta:
        db_table = "dependency"
        indexes = (
            models.Index(fields=("on_id",), name="dependency_on"),
            models.Index(fields=("task",), name="dependency_unmet", condition=Q(met=False)),
        )


class Notice(models.Model):
    """A task to look at again, since one that it waits for has ended (or it has, itself).

    Written by a trigger of `task`, in the transaction of that end. `down`: something may have to be cancelled.
    """

    id = models.BigAutoField(primary_key=True)
    task = to("store.Task")
    tenant = to("store.Tenant")
    down = models.BooleanField()

    class Meta:
        db_table = "notice"
