"""Why flows wait, as the leading dispatcher notes it, and how each pool stands. Written by store.reasons alone."""

from django.db import models
from django.db.models import F, Q

from harness.store.models.references import to


class WaitReason(models.Model):
    """What bound a flow from `since` on; `until` null: it still does. One open row a flow.

    `before`: the seconds by "code:subject" that this flow's earlier rows add up to, so that the time per reason between
    two moments is the difference of two rows.
    """

    id = models.BigAutoField(primary_key=True)
    pool = models.TextField()
    priority = models.SmallIntegerField()
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    signature = models.TextField()
    code = models.TextField()
    subject = models.TextField()
    facts = models.JSONField()
    before = models.JSONField()
    since = models.DateTimeField()
    until = models.DateTimeField(null=True)

    class Meta:
        db_table = "wait_reason"
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "run_id", "pool", "priority", "signature"),
                name="wait_reason_open",
                condition=Q(until=None),
            ),
            models.CheckConstraint(
                condition=Q(until=None) | Q(until__gte=F("since")), name="wait_reason_until_from_since"
            ),
        )
        indexes = (
            models.Index(
                fields=("tenant", "run_id", "pool", "priority", "signature", "since"), name="wait_reason_of_flow"
            ),
            models.Index(fields=("until",), name="wait_reason_over", condition=Q(until__isnull=False)),
        )


class PoolNow(models.Model):
    """How a pool stands: places of live workers, free ones, and how many tenants have work waiting. For everyone."""

    pool = models.TextField(primary_key=True)
    slots = models.IntegerField()
    free = models.IntegerField()
    tenants = models.IntegerField()
    at = models.DateTimeField()

    class Meta:
        db_table = "pool_now"
