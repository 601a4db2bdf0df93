"""What the dispatcher and the workers share: leases, worker sessions, flows, clocks, charges and estimates."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from harness.store.models.references import one, to


class Lease(models.Model):
    """One slot, taken. In flight = live lease rows, counted. `via`: the pool whose workers run it, if not its own.

    `est_s`, of each member, times `cost` is what was charged for it at release; `lane`: which credit it was taken from
    (policy.lanes). `degraded`: the cheaper form that its tasks run in; null: whole.
    """

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
    lane = models.SmallIntegerField(db_default=1)
    cost = models.FloatField(db_default=1.0)
    n = models.IntegerField()
    timeout_s = models.FloatField()
    degraded = models.TextField(null=True)
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

    `waits`: how long its threads waited for connections in the minute before the last beat, by resource (engine.waits).
    `totals`: what each of its processes (by pid) has counted since it began, for the metrics (engine.counts).
    `place`: where its pid counts (engine.living), if nothing of it outlives that process; null: only its silence tells.
    """

    uuid = models.UUIDField(primary_key=True)
    host = models.TextField()
    pid = models.IntegerField()
    place = models.TextField(null=True)
    pools = models.JSONField()
    kinds = ArrayField(models.TextField())
    connections = models.IntegerField()
    waits = models.JSONField(db_default={})
    totals = models.JSONField(db_default={})
    started_at = models.DateTimeField(db_default=Now())
    beat_at = models.DateTimeField(db_default=Now())
    draining = models.BooleanField(db_default=False)
    ended_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "worker_session"


class Flow(models.Model):
    """Where ready tasks are. Inserted by whatever makes one ready; changed and deleted by the dispatcher alone.

    `known`: the leader has it in its line; a new one is found by the index that holds only the others.
    """

    id = models.BigAutoField(primary_key=True)
    pool = models.TextField()
    priority = models.SmallIntegerField()
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    signature = models.TextField()
    known = models.BooleanField(db_default=False)

    class Meta:
        db_table = "flow"
        constraints = (
            models.UniqueConstraint(fields=("pool", "priority", "tenant", "run_id", "signature"), name="flow_once"),
        )
        # Without the id: an index that ends in it would be taken for a look-up by id while the table is small.
        indexes = (models.Index(fields=("pool",), name="flow_unknown", condition=Q(known=False)),)


class Clock(models.Model):
    """How much service a tenant (run 0) or a run of it has had in a pool and priority: virtual time `v`.

    `g`: what its single tasks have had before its runs; `at_s`: when it was last charged (the server's epoch seconds).
    Only the leader writes it, with the commit that moves it.
    """

    pk = models.CompositePrimaryKey("pool", "priority", "tenant_id", "run_id")
    pool = models.TextField()
    priority = models.SmallIntegerField()
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    v = models.FloatField()
    g = models.FloatField(db_default=0.0)
    at_s = models.FloatField()

    class Meta:
        db_table = "clock"


class ClassCredit(models.Model):
    """What a lane of a pool may still take, in slot-seconds at `at_s`; `v`: the virtual time of the lane's class.

    `est_s` (of the class), `mean_s` and `square_s` (of the pool) are moving means of what tasks took. Only the leader
    writes it, with the commit that moves it.
    """

    pk = models.CompositePrimaryKey("pool", "lane")
    pool = models.TextField()
    lane = models.SmallIntegerField()
    credit_s = models.FloatField()
    est_s = models.FloatField(null=True)
    mean_s = models.FloatField(null=True)
    square_s = models.FloatField(null=True)
    v = models.FloatField(db_default=0.0)
    at_s = models.FloatField()

    class Meta:
        db_table = "class_credit"


class Charge(models.Model):
    """What ended, or was taken back, on a lease; the leader moves the clocks by it and deletes it, in one commit.

    `n`: tasks that ended with a measured time, `slot_s` in all. `owed_s`: cost beyond what was charged at release
    (below 0: less); `cost_s`: all that it cost.
    """

    id = models.BigAutoField(primary_key=True)
    lease = to("store.Lease")
    pool = models.TextField()
    priority = models.SmallIntegerField(db_default=2)
    lane = models.SmallIntegerField(db_default=1)
    tenant = to("store.Tenant")
    run_id = models.BigIntegerField()
    kind = models.TextField()
    n = models.IntegerField()
    slot_s = models.FloatField()
    owed_s = models.FloatField(db_default=0.0)
    cost_s = models.FloatField(db_default=0.0)

    class Meta:
        db_table = "charge"


class Estimate(models.Model):
    """How long a task of a kind takes: an exponentially weighted mean of settled run times, in seconds."""

    kind = models.TextField(primary_key=True)
    mean_s = models.FloatField()

    class Meta:
        db_table = "estimate"
