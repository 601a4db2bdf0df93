"""What tenants may spend and have spent. Attempts hold what each cost; the leader alone adds them up here."""

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.store.models.references import to
from harness.store.models.tenancy import Tenant


class Budget(models.Model):
    """A tenant's budget in USD (null: no limit), and what the leader last counted against it.

    `counted_at` says which UTC day and month the two sums are of; null: not counted yet.
    """

    tenant = models.OneToOneField(Tenant, on_delete=models.CASCADE, primary_key=True)
    day_usd = models.FloatField(null=True)
    month_usd = models.FloatField(null=True)
    soft_ratio = models.FloatField(db_default=0.8)
    author = models.TextField(db_default="")
    updated_at = models.DateTimeField(db_default=Now())
    spent_day_usd = models.FloatField(db_default=0.0)
    spent_month_usd = models.FloatField(db_default=0.0)
    counted_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "budget"
        constraints = (
            models.CheckConstraint(
                condition=Q(day_usd__isnull=False) | Q(month_usd__isnull=False), name="budget_of_some_period"
            ),
            models.CheckConstraint(condition=Q(day_usd__isnull=True) | Q(day_usd__gte=0), name="budget_day_from_0"),
            models.CheckConstraint(
                condition=Q(month_usd__isnull=True) | Q(month_usd__gte=0), name="budget_month_from_0"
            ),
            models.CheckConstraint(condition=Q(soft_ratio__gt=0, soft_ratio__lte=1), name="budget_soft_0_to_1"),
        )


class UsageDay(models.Model):
    """What a tenant's attempts used in one day (UTC), as far as UsageMark says. It outlives the attempts themselves.

    `usd` leaves out `unpriced_tokens`: those of models without a price.
    """

    id = models.BigAutoField(primary_key=True)
    tenant = to("store.Tenant")
    day = models.DateField()
    attempts = models.BigIntegerField()
    tokens = models.BigIntegerField()
    unpriced_tokens = models.BigIntegerField()
    usd = models.FloatField()

    class Meta:
        db_table = "usage_day"
        constraints = (models.UniqueConstraint(fields=("tenant", "day"), name="usage_day_once"),)


class UsageMark(models.Model):
    """One row: attempts that ended before `until` are in UsageDay; the later ones are added up where they stand."""

    id = models.SmallIntegerField(primary_key=True)
    until = models.DateTimeField()

    class Meta:
        db_table = "usage_mark"
