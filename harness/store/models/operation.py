"""What people and the leader set: the lead and pauses."""

from django.db import models
from django.db.models.functions import Now


class Leader(models.Model):
    """One row: who plans now. `epoch` is the fence of every plan commit; `sleeping` asks for the doorbell."""

    id = models.SmallIntegerField(primary_key=True)
    epoch = models.BigIntegerField()
    owner = models.TextField()
    until = models.DateTimeField()
    sleeping = models.BooleanField()

    class Meta:
        db_table = "leader"


class Pause(models.Model):
    """A pause of a scope, obeyed by the dispatcher; it rewrites no task. `key`: pool, pool.pN, pN, tenant or run id.

    `source`: whose it is, `operator`, `tenant` or `pressure`. In force until `until` or `resumed_at`. `tenant`: whose
    work a pause of a tenant or run stops.
    """

    scope = models.TextField(choices=[(s, s) for s in ("pool", "priority", "pool_priority", "tenant", "run")])
    key = models.TextField()
    source = models.TextField()
    author = models.TextField()
    reason = models.TextField()
    until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    tenant = models.ForeignKey("store.Tenant", models.DO_NOTHING, null=True, db_constraint=False, related_name="+")
    resumed_at = models.DateTimeField(null=True)
    resumed_by = models.TextField(null=True)

    class Meta:
        db_table = "pause"
        constraints = (models.UniqueConstraint(fields=("scope", "key", "source"), name="pause_once"),)
