"""The tables, as Django sees them: for migrations, admin and single rows.

Hot, set-based and locking statements are named files in sql/. References to hot tables carry no foreign key
constraint (ADR 0004); the auditor looks for orphans. Times are `timestamptz`; `_s` columns are seconds.
Task state is written by store.transitions alone; the triggers below refuse what the lifecycle table doesn't have.
"""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID, TransactionNow
from django.db import models
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from harness.policy.lifecycle import LIVE, RELEASABLE, TERMINAL, State, legal_changes


def _quoted(states: "frozenset[State]") -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


def _illegal_change() -> str:
    """SQL over OLD and NEW: the state changes in a way that the lifecycle table doesn't have."""
    targets: dict[State, list[State]] = {}
    for source, target in sorted(legal_changes()):
        targets.setdefault(source, []).append(target)
    cases = " ".join(
        f"WHEN '{source}' THEN NEW.state IN ({_quoted(frozenset(allowed))})"
        for source, allowed in sorted(targets.items())
    )
    return f"(OLD.state IS DISTINCT FROM NEW.state AND NOT (CASE OLD.state {cases} ELSE false END))"


def _refuse(what: str) -> str:
    return f"RAISE EXCEPTION '{what}' USING ERRCODE = 'check_violation';"


def _to(model: str) -> "models.ForeignKey[models.Model, models.Model]":
    """A reference to a hot table: no constraint, no index of its own."""
    return models.ForeignKey(model, models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+")


def _one(model: str) -> "models.OneToOneField[models.Model, models.Model]":
    """The row beside a row of a hot table, under the same id; no constraint."""
    return models.OneToOneField(model, models.DO_NOTHING, db_constraint=False, related_name="+", primary_key=True)


class Tenant(models.Model):
    """Whose work it is. `cap`: most members in flight; `top_priority`: the most urgent it may ask for (0 is P0)."""

    id = models.AutoField(primary_key=True)
    name = models.TextField(unique=True)
    weight = models.FloatField(db_default=1.0)
    cap = models.IntegerField(db_default=1000)
    backlog_quota = models.IntegerField(db_default=100_000)
    top_priority = models.SmallIntegerField(db_default=1)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "tenant"
        constraints = (
            models.CheckConstraint(condition=Q(weight__gt=0), name="tenant_weight_above_0"),
            models.CheckConstraint(condition=Q(cap__gte=0), name="tenant_cap_from_0"),
            models.CheckConstraint(condition=Q(top_priority__range=(0, 3)), name="tenant_top_priority_0_to_3"),
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
        constraints = (models.UniqueConstraint(fields=("tenant", "scope", "name"), name="quota_once"),)


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

    tenant = _to("store.Tenant")
    route = models.TextField()
    key = models.TextField()
    body_hash = models.TextField()
    fields = models.JSONField()
    made = models.UUIDField()
    expires_at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "idempotency"
        constraints = (models.UniqueConstraint(fields=("tenant", "route", "key"), name="idempotency_once"),)


class Run(models.Model):
    """A group of tasks submitted or spawned together. `fanout_cap`: most members of it in flight. Id 0 means none."""

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = _to("store.Tenant")
    name = models.TextField(db_default="")
    size = models.IntegerField()
    fanout_cap = models.IntegerField(null=True)
    want = models.TextField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "run"
        indexes = (models.Index(fields=("tenant", "id"), name="run_of_tenant"),)


class Task(models.Model):
    """One piece of work. `ready`: the dispatcher may release it now; `release_no`: the fence, +1 at each release."""

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = _to("store.Tenant")
    run_id = models.BigIntegerField(db_default=0)
    parent_id = models.BigIntegerField(null=True)
    kind = models.TextField()
    version = models.IntegerField()
    pool = models.TextField()
    priority = models.SmallIntegerField()
    signature = models.TextField(db_default="")
    state = models.TextField(choices=[(state.value, state.value) for state in State])
    ready = models.BooleanField()
    holds = ArrayField(models.TextField(), db_default=[])
    want = models.TextField(null=True)
    single = models.BooleanField(db_default=False)
    release_no = models.IntegerField(db_default=0)
    attempts_used = models.IntegerField(db_default=0)
    lost_starts = models.IntegerField(db_default=0)
    postponements = models.IntegerField(db_default=0)
    not_before = models.DateTimeField(null=True)
    start_by = models.DateTimeField(null=True)
    deadline = models.DateTimeField(null=True)
    event_no = models.IntegerField(db_default=1)
    created_at = models.DateTimeField(db_default=Now())
    first_claimed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "task"
        indexes = (
            # The head of a flow. `state` is in no index, so that claiming a task is a HOT update.
            models.Index(
                fields=("pool", "priority", "tenant", "run_id", "signature", "id"),
                name="task_head",
                condition=Q(ready=True),
            ),
            models.Index(fields=("tenant", "id"), name="task_of_tenant"),
            models.Index(fields=("tenant", "priority"), name="task_live", condition=Q(finished_at__isnull=True)),
            models.Index(fields=("run_id", "id"), name="task_of_run", condition=~Q(run_id=0)),
            # Cleared when it is due, so each holds only what the sweep must still look at.
            models.Index(fields=("not_before",), name="task_not_before", condition=Q(not_before__isnull=False)),
            models.Index(fields=("start_by",), name="task_start_by", condition=Q(start_by__isnull=False)),
            models.Index(fields=("deadline",), name="task_deadline", condition=Q(deadline__isnull=False)),
            models.Index(fields=("id",), name="task_held", condition=~Q(holds=[])),
        )
        constraints = (
            models.CheckConstraint(condition=Q(state__in=[str(state) for state in State]), name="task_state_known"),
            models.CheckConstraint(condition=Q(priority__range=(0, 3)), name="task_priority_0_to_3"),
            models.CheckConstraint(
                condition=Q(ready=False) | Q(state__in=sorted(RELEASABLE)), name="task_ready_only_where_releasable"
            ),
            models.CheckConstraint(
                condition=Q(holds=[]) | Q(state=State.PAUSED.value), name="task_holds_only_while_paused"
            ),
            models.CheckConstraint(
                condition=Q(want__isnull=True) | Q(want__in=["cancel", "pause"]), name="task_want_known"
            ),
            models.CheckConstraint(
                condition=Q(finished_at__isnull=True, state__in=sorted(LIVE))
                | Q(finished_at__isnull=False, state__in=sorted(TERMINAL)),
                name="task_finished_at_the_end",
            ),
        )
        triggers = (
            pgtrigger.Trigger(
                name="task_born_queued",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert,
                condition=pgtrigger.Condition("NEW.state IS DISTINCT FROM 'queued' OR NEW.release_no <> 0"),
                func=_refuse("a task begins as queued, never released"),
            ),
            pgtrigger.Trigger(
                name="task_lifecycle",
                when=pgtrigger.Before,
                operation=pgtrigger.UpdateOf("state", "release_no"),  # type: ignore[no-untyped-call]  # untyped library
                condition=pgtrigger.Condition(f"NEW.release_no < OLD.release_no OR {_illegal_change()}"),
                func="RAISE EXCEPTION 'task %: % -> % (release % -> %) is not in the lifecycle table', OLD.id, "
                "OLD.state, NEW.state, OLD.release_no, NEW.release_no USING ERRCODE = 'check_violation';",
            ),
            pgtrigger.Trigger(
                name="task_live_stays",
                when=pgtrigger.Before,
                operation=pgtrigger.Delete,
                condition=pgtrigger.Condition(f"OLD.state IN ({_quoted(LIVE)})"),
                func=_refuse("a live task is not deleted; cancel it first"),
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.public_id}"


class TaskBody(models.Model):
    """What goes in and what comes out, beside the task so that the hot row stays small."""

    task = _one("store.Task")
    tenant = _to("store.Tenant")
    input = models.JSONField()
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)

    class Meta:
        db_table = "task_body"


class Attempt(models.Model):
    """One execution, written when it ended. `verdict` is the event that ended it."""

    id = models.BigAutoField(primary_key=True)
    task = _to("store.Task")
    tenant = _to("store.Tenant")
    release_no = models.IntegerField()
    session = models.UUIDField(null=True)
    started = models.DateTimeField(null=True)
    ended = models.DateTimeField()
    verdict = models.TextField()
    error_class = models.TextField(null=True)
    message = models.TextField(null=True)
    traceback = models.TextField(null=True)
    slot_s = models.FloatField(db_default=0.0)
    tokens = models.BigIntegerField(db_default=0)
    usd = models.FloatField(db_default=0.0)
    degraded = models.TextField(null=True)

    class Meta:
        db_table = "attempt"
        constraints = (models.UniqueConstraint(fields=("task", "release_no"), name="attempt_once"),)


class Lease(models.Model):
    """One slot, taken. In flight = live lease rows, counted. `via`: the pool whose workers run it, if not its own."""

    id = models.BigAutoField(primary_key=True)
    token = models.BigIntegerField()
    pool = models.TextField()
    via = models.TextField(null=True)
    tenant = _to("store.Tenant")
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

    task = _one("store.Task")
    tenant = _to("store.Tenant")
    lease = _to("store.Lease")
    release_no = models.IntegerField()
    ordinal = models.SmallIntegerField()

    class Meta:
        db_table = "lease_member"
        indexes = (models.Index(fields=("lease",), name="lease_member_of_lease"),)


class WorkerSession(models.Model):
    """One life of one worker process. `pools` maps a pool to this process's slots in it."""

    uuid = models.UUIDField(primary_key=True)
    host = models.TextField()
    pid = models.IntegerField()
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
    tenant = _to("store.Tenant")
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
    lease = _to("store.Lease")
    pool = models.TextField()
    tenant = _to("store.Tenant")
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
    """A pause of a scope, obeyed by the dispatcher; it rewrites no task. `key`: pool, pool.pN, pN, tenant or run id."""

    scope = models.TextField(choices=[(s, s) for s in ("pool", "priority", "pool_priority", "tenant", "run")])
    key = models.TextField()
    source = models.TextField()
    author = models.TextField()
    reason = models.TextField()
    until = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "pause"
        constraints = (models.UniqueConstraint(fields=("scope", "key", "source"), name="pause_once"),)


class Override(models.Model):
    """An operator's change of a setting: with reason, author and expiry."""

    name = models.TextField(unique=True)
    value = models.JSONField()
    author = models.TextField()
    reason = models.TextField()
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "setting_override"


class TraceEvent(models.Model):
    """What happened to a task, in order of `seq`. Partitioned by day of `at` in the migration, hence unmanaged."""

    id = models.BigAutoField(primary_key=True)
    task = _to("store.Task")
    tenant = _to("store.Tenant")
    seq = models.IntegerField()
    at = models.DateTimeField(db_default=TransactionNow())
    event = models.TextField()
    from_state = models.TextField(null=True)
    to_state = models.TextField()
    actor = models.TextField()
    data = models.JSONField(null=True)

    class Meta:
        managed = False
        db_table = "event"
