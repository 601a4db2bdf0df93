"""Resources as they are now: operators' overrides, the last known state of each, and every change of a limit.

Written by store.overrides (what people set) and store.resources (what was observed) alone.
"""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Override(models.Model):
    """An operator's change of one field of a resource: in force until `until` or `ended_at`, the earlier.

    `value` null: no such limit. A row is never changed but for its end, so the table tells who changed what, when, why.
    """

    id = models.BigAutoField(primary_key=True)
    resource = models.TextField()
    field = models.TextField()
    value = models.JSONField()
    author = models.TextField()
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    until = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "override"
        constraints = (
            models.UniqueConstraint(fields=("resource", "field"), name="override_open", condition=Q(ended_at=None)),
        )
        indexes = (models.Index(fields=("ended_at",), name="override_over", condition=Q(ended_at__isnull=False)),)

    def __str__(self) -> str:
        return f"{self.field} of {self.resource}"


class ResourceState(models.Model):
    """What was last seen of a resource at `seen_at`. `proven`: the last ceiling that held, for a new beginning.

    Of a resource held by tasks only `limit_now` and `in_flight` are known. Moments are of the clock of Redis.
    """

    resource = models.TextField(primary_key=True)
    limit_now = models.IntegerField()
    proven = models.IntegerField(null=True)
    mode = models.TextField(default="")
    breaker = models.TextField(default="")
    breaker_until = models.DateTimeField(null=True)
    blocked_until = models.DateTimeField(null=True)
    in_flight = models.IntegerField()
    waiting = models.IntegerField()
    seen_at = models.DateTimeField()

    class Meta:
        db_table = "resource_state"


class LimitChange(models.Model):
    """One change of a resource's limit, with why. `mode`: of the limiter, or `override`. `old` null: it began."""

    id = models.BigAutoField(primary_key=True)
    resource = models.TextField()
    at = models.DateTimeField()
    old = models.IntegerField(null=True)
    new = models.IntegerField()
    reason = models.TextField()
    mode = models.TextField()

    class Meta:
        db_table = "limit_change"
        indexes = (
            models.Index(fields=("resource", "at"), name="limit_change_of_resource"),
            models.Index(fields=("at",), name="limit_change_at"),
        )
