"""What the dispatcher and the workers share: leases, worker sessions, flows, charges and estimates."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from harness.store.models.references import one, to


class Lease(models.Model):
    """One slot, taken. In flight = live lease rows, counted. `via`: the pool whose workers run it, if not its own."""

    id = models.BigAutoField(primary_key=True)
    token = models.BigIntegerField()
    pool = models.TextField()
    via = models.TextField(null=True)
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    priority = models.SmallIntegerField()
    kind = models.TextField()
    signature = models.TextField(db_default="")
    est_s = models.FloatField()
    n = models.IntegerField()
    timeout_s = models.FloatField()
    session = models.UUIDField(null=True)
    pid = models.IntegerField(null=True)
    released_at = models.DateTimeField(db_default=Now())
    claimed_at = models.DateTimeField(null=True)
    zombie_since = models.DateTimeField(null=True)

    class Meta:
        db_table = "lease"


class LeaseMember(models.Model):
    """A task on a lease. UNIQUE(task): a task is released once at a time."""

    task = one("store.Task")
    tenant = to("store.Tenant")
    lease = to("store.Lease")
    release_no = models.IntegerField()
    ordinal = models.SmallIntegerField()

    class Meta:
        db_table = "lease_member"
        indexes = (models.Index(fields=("lease",), name="lease_member_of_lease"),)


class WorkerSession(models.Model):
    """One life of one worker process. `pools` maps a pool to this process's slots in it.

    `place`: where its pid counts (engine.living), if nothing of it outlives that process; null: only its silence tells.
    """

    uuid = models.UUIDField(primary_key=True)
    host = models.TextField()
    pid = models.IntegerField()
    place = models.TextField(null=True)
    pools = models.JSONField()
    kinds = ArrayField(models.TextField())
    connections = models.IntegerField()
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    draining = models.BooleanField(db_default=False)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "worker_session"


class Flow(models.Model):
    """Where ready tasks are. Inserted by whatever makes one ready; changed and deleted by the dispatcher alone.

    `rank`: smaller goes first among flows of one pool and priority: when it was last served, in epoch seconds; a flow
    that never was comes before all that were, by age.
    """

    id = models.BigAutoField(primary_key=True)
    pool = models.TextField()
    priority = models.SmallIntegerField()
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    signature = models.TextField()
    rank = models.FloatField(db_default=RawSQL("extract(epoch from clock_timestamp()) - 1e9", ()))

    class Meta:
        db_table = "flow"
        constraints = (
            models.UniqueConstraint(fields=("pool", "priority", "tenant", "run_id", "signature"), name="flow_once"),
        )
        # Without the id: an index that ends in it would be taken for a look-up by id while the table is small.
        indexes = (models.Index(fields=("pool", "priority", "rank"), name="flow_in_order"),)


class Charge(models.Model):
    """What one flush of settles used; the leader folds it into estimates (and, later, clocks) and deletes it."""

    id = models.BigAutoField(primary_key=True)
    lease = to("store.Lease")
    pool = models.TextField()
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    kind = models.TextField()
    n = models.IntegerField()
    slot_s = models.FloatField()

    class Meta:
        db_table = "charge"


class Estimate(models.Model):
    """How long a task of a kind takes: an exponentially weighted mean of settled run times, in seconds."""

    kind = models.TextField(primary_key=True)
    mean_s = models.FloatField()

    class Meta:
        db_table = "estimate"
