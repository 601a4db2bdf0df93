"""Questions that tasks ask people, and where a tenant wants to hear of them."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from harness.store.models.references import one, to


class Approval(models.Model):
    """A question of a task, one row an ask (a step, by `ordinal`). `open`: it may be answered while the task waits.

    `asks`: how often it was asked; `verdict` approve or deny, `choice`: the answer that the kind gets; `waited_s`: its
    own clock, which stops at the decision and stands while nobody is asked (metric approval_wait_time). `notify_after`:
    when to tell the tenant's hook; null: there is nothing to tell.
    """

    id = models.BigAutoField(primary_key=True)
    task = to("store.Task")
    tenant = to("store.Tenant")
    ordinal = models.IntegerField()
    name = models.TextField()
    prompt = models.TextField()
    choices = ArrayField(models.TextField())
    timeout_s = models.FloatField(null=True)
    on_timeout = models.TextField()
    deny = models.TextField()
    asked_at = models.DateTimeField()
    deadline = models.DateTimeField(null=True)
    asks = models.IntegerField(db_default=1)
    open = models.BooleanField(db_default=True)
    verdict = models.TextField(null=True)
    choice = models.TextField(null=True)
    note = models.TextField(db_default="")
    decided_by = models.TextField(null=True)
    decided_at = models.DateTimeField(null=True)
    waited_s = models.FloatField(db_default=0.0)
    notify_after = models.DateTimeField(null=True)
    notify_tries = models.IntegerField(db_default=0)
    notified_at = models.DateTimeField(null=True)
    notify_error = models.TextField(null=True)

    class Meta:
        db_table = "approval"
        indexes = (
            models.Index(fields=("tenant", "id"), name="approval_open", condition=Q(open=True)),
            models.Index(fields=("deadline",), name="approval_due", condition=Q(open=True, deadline__isnull=False)),
            models.Index(
                fields=("tenant", "notify_after"), name="approval_notify", condition=Q(notify_after__isnull=False)
            ),
        )
        constraints = (
            models.UniqueConstraint(fields=("task", "ordinal"), name="approval_once"),
            models.CheckConstraint(
                condition=Q(verdict__isnull=True) | Q(verdict__in=("approve", "deny"), open=False),
                name="approval_decided_is_closed",
            ),
        )


class ApprovalHook(models.Model):
    """Where a tenant hears that a task of its waits for a decision: an address that gets a POST."""

    tenant = one("store.Tenant")
    url = models.TextField()
    set_by = models.TextField()
    set_at = models.DateTimeField()

    class Meta:
        db_table = "approval_hook"
