"""Whose work it is: tenants, their quotas and keys, and what a key of theirs once made."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.policy.allowance import WEIGHT_LEAST, WEIGHT_MOST
from harness.store.models.references import to


class Tenant(models.Model):
    """Whose work it is. `cap`: most members in flight; `top_priority`: the most urgent it may ask for (0 is P0).

    `artifact_quota_bytes`: most that its artifacts may hold together. `degrade`: its work may be done in cheaper forms.
    """

    id = models.AutoField(primary_key=True)
    name = models.TextField(unique=True)
    weight = models.FloatField(db_default=1.0)
    cap = models.IntegerField(db_default=1000)
    backlog_quota = models.IntegerField(db_default=100_000)
    top_priority = models.SmallIntegerField(db_default=1)
    artifact_quota_bytes = models.BigIntegerField(db_default=10 * 1024**3)
    degrade = models.BooleanField(db_default=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "tenant"
        constraints = (
            # NaN is above every number in PostgreSQL, so the upper bound refuses it, and infinity.
            models.CheckConstraint(
                condition=Q(weight__gte=WEIGHT_LEAST, weight__lte=WEIGHT_MOST), name="tenant_weight_in_bounds"
            ),
            models.CheckConstraint(condition=Q(cap__gte=0), name="tenant_cap_from_0"),
            models.CheckConstraint(condition=Q(top_priority__range=(0, 3)), name="tenant_top_priority_0_to_3"),
            models.CheckConstraint(condition=Q(artifact_quota_bytes__gte=0), name="tenant_artifact_quota_from_0"),
        )

    def __str__(self) -> str:
        return self.name


class Quota(models.Model):
    """A tenant's cap on one pool or one resource."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    scope = models.TextField(choices=[("pool", "pool"), ("resource", "resource")])
    name = models.TextField()
    cap = models.IntegerField()

    class Meta:
        db_table = "quota"
        constraints = (
            models.UniqueConstraint(fields=("tenant", "scope", "name"), name="quota_once"),
            models.CheckConstraint(condition=Q(cap__gte=0), name="quota_cap_from_0"),
            models.CheckConstraint(condition=Q(scope__in=("pool", "resource")), name="quota_scope_known"),
        )


class ApiKey(models.Model):
    """A bearer key: `prefix` is shown, of the whole key only the SHA-256 is kept (it has 256 random bits)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE)
    prefix = models.TextField(unique=True)
    hash = models.TextField()
    scopes = ArrayField(models.TextField())
    label = models.TextField(db_default="")
    created_at = models.DateTimeField(db_default=Now())
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "api_key"


class Idempotency(models.Model):
    """What a key of a tenant once made. `fields` holds a hash per field of the body, to name the one that differs."""

    tenant = to("store.Tenant")
    route = models.TextField()
    key = models.TextField()
    body_hash = models.TextField()
    fields = models.JSONField()
    made = models.UUIDField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "idempotency"
        constraints = (models.UniqueConstraint(fields=("tenant", "route", "key"), name="idempotency_once"),)
