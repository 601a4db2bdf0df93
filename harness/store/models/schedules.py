"""Recurring work, and the terms (tags, words) under which tasks are found."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID
from django.contrib.postgres.indexes import HashIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.policy.schedule import CATCH_UPS
from harness.store.models.references import to
from harness.store.models.tenancy import Tenant


class Schedule(models.Model):
    """A task again and again. `next_at`: the moment that is to fire next; firing is a compare-and-set on it.

    `look_at`: when the sweep is to look (later than next_at after a refusal for now). `stopped_because`: why it is not
    enabled, or why it didn't fire last time.
    """

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = models.ForeignKey(Tenant, models.CASCADE, db_index=False)
    name = models.TextField()
    kind = models.TextField()
    input = models.JSONField()
    priority = models.SmallIntegerField(null=True)
    ttl_s = models.FloatField(null=True)
    title = models.TextField(db_default="")
    tags = ArrayField(models.TextField(), db_default=[])
    cron = models.TextField()
    zone = models.TextField(db_default="UTC")
    catch_up = models.TextField(choices=[(one, one) for one in CATCH_UPS], db_default="one")
    enabled = models.BooleanField(db_default=True)
    stopped_because = models.TextField(null=True)
    next_at = models.DateTimeField(null=True)
    look_at = models.DateTimeField(null=True)
    last_fired_at = models.DateTimeField(null=True)
    last_task = models.UUIDField(null=True)
    fired = models.BigIntegerField(db_default=0)
    author = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "schedule"
        indexes = (
            models.Index(fields=("look_at",), name="schedule_due", condition=Q(enabled=True)),
            models.Index(fields=("tenant", "id"), name="schedule_of_tenant"),
        )
        constraints = (
            models.UniqueConstraint(fields=("tenant", "name"), name="schedule_once"),
            models.CheckConstraint(
                condition=Q(enabled=False) | Q(next_at__isnull=False, look_at__isnull=False),
                name="schedule_enabled_has_next",
            ),
            models.CheckConstraint(condition=Q(catch_up__in=CATCH_UPS), name="schedule_catch_up_known"),
        )

    def __str__(self) -> str:
        return self.name


class TaskTerm(models.Model):
    """A term of a task: `#tag`, `@schedule` or a word (policy.terms). The primary key is all that a search needs."""

    pk = models.CompositePrimaryKey("tenant_id", "term", "task_id")
    tenant = to("store.Tenant")
    term = models.TextField()
    task = to("store.Task")

    class Meta:
        db_table = "task_term"
        # For what deletes tasks. A hash has no order, so no search for the newest can take it for its own.
        indexes = (HashIndex(fields=("task",), name="task_term_of_task"),)
