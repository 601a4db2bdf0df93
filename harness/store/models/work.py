"""The work itself: runs, tasks with their bodies, attempts, and the trace.

Task state is written by store.transitions alone; the triggers refuse what the lifecycle table doesn't have.
"""

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.functions import RandomUUID, TransactionNow
from django.db import models
from django.db.models import Case, F, Q, When
from django.db.models.functions import Now

from harness.policy.holds import WISHES
from harness.policy.lifecycle import LIVE, RELEASABLE, TERMINAL, State, legal_changes
from harness.store import sql
from harness.store.models.references import one, to


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


class Run(models.Model):
    """A group of tasks submitted or spawned together. `fanout_cap`: most members of it in flight. Id 0 means none."""

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = to("store.Tenant")
    name = models.TextField(db_default="")
    size = models.IntegerField()
    fanout_cap = models.IntegerField(null=True)
    want = models.TextField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        db_table = "run"
        indexes = (models.Index(fields=("tenant", "id"), name="run_of_tenant"),)
        constraints = (
            models.CheckConstraint(
                condition=Q(fanout_cap__isnull=True) | Q(fanout_cap__gte=0), name="run_fanout_cap_from_0"
            ),
        )


class Task(models.Model):
    """One piece of work. `ready`: the dispatcher may release it now; `release_no`: the fence, +1 at each release.

    `token_epoch`: +1 when it is sent again with another input, and its idempotency token with it; `dead_at`: when it
    became a dead letter; `ready_at`: since when it may run, if not since it was submitted; `deferred`: by admission, so
    it is let in before its not_before when the line is short. `depends`: it waits for tasks of its run (`dependency`);
    `linked`: its end matters to others: it has a parent, children, or tasks that depend on it.
    """

    id = models.BigAutoField(primary_key=True)
    public_id = models.UUIDField(unique=True, db_default=RandomUUID())
    tenant = to("store.Tenant")
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
    degrade = models.BooleanField(db_default=True)
    created_at = models.DateTimeField(db_default=Now())
    ready_at = models.DateTimeField(null=True)
    first_claimed_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    token_epoch = models.IntegerField(db_default=0)
    deferred = models.BooleanField(db_default=False)
    depends = models.BooleanField(db_default=False)
    linked = models.BooleanField(db_default=False)
    # Made of `state`, so that a claim doesn't change it: an index on it leaves the claim a HOT update.
    dead_at = models.GeneratedField(
        expression=Case(When(state=State.FAILED_TERMINAL.value, then=F("finished_at")), default=None),
        output_field=models.DateTimeField(null=True),
        db_persist=True,
    )

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
            # Whoever lets a task in clears its not_before, so this holds only what still waits outside.
            models.Index(
                fields=("pool", "priority", "signature", "tenant", "id"),
                name="task_deferred",
                condition=Q(deferred=True, not_before__isnull=False),
            ),
            # Left at release, which moves the row in the indexes anyhow; so the claim need not clear start_by.
            models.Index(fields=("start_by",), name="task_start_by", condition=Q(ready=True, start_by__isnull=False)),
            models.Index(fields=("deadline",), name="task_deadline", condition=Q(deadline__isnull=False)),
            models.Index(fields=("id",), name="task_held", condition=~Q(holds=[])),
            # The dead letters, of one tenant and of all.
            models.Index(fields=("tenant", "dead_at", "id"), name="task_dead", condition=Q(dead_at__isnull=False)),
            models.Index(fields=("dead_at", "id"), name="task_dead_of_all", condition=Q(dead_at__isnull=False)),
            # The children of a task: those that live (finished_at IS NULL), those that ended, and all.
            models.Index(
                fields=("parent_id", "finished_at", "id"), name="task_of_parent", condition=Q(parent_id__isnull=False)
            ),
        )
        constraints = (
            models.CheckConstraint(condition=Q(state__in=[str(state) for state in State]), name="task_state_known"),
            models.CheckConstraint(condition=Q(priority__range=(0, 3)), name="task_priority_0_to_3"),
            models.CheckConstraint(
                condition=Q(ready=False) | Q(state__in=sorted(RELEASABLE)), name="task_ready_only_where_releasable"
            ),
            models.CheckConstraint(condition=Q(ready=False) | Q(depends=False), name="task_ready_depends_on_nothing"),
            models.CheckConstraint(
                condition=Q(holds=[]) | Q(state=State.PAUSED.value), name="task_holds_only_while_paused"
            ),
            models.CheckConstraint(condition=Q(want__isnull=True) | Q(want__in=WISHES), name="task_want_known"),
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
            # However a task ends, those that wait for it are to be looked at (store.transitions.notices). So is one
            # that parks: what it waits for may have ended while it did.
            pgtrigger.Trigger(
                name="task_told_to_others",
                when=pgtrigger.After,
                operation=pgtrigger.UpdateOf("state", "finished_at"),  # type: ignore[no-untyped-call]  # untyped library
                condition=pgtrigger.Condition(
                    "NEW.linked AND OLD.finished_at IS NULL AND (NEW.finished_at IS NOT NULL OR "
                    "OLD.state = 'running' AND NEW.state = 'paused')"
                ),
                func=sql.load("schema/told_to_others"),
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.public_id}"


class TaskBody(models.Model):
    """What goes in and what comes out, beside the task so that the hot row stays small.

    `schedule`, `scheduled_for`: the schedule (public id) that brought the task, and for which of its moments.
    """

    task = one("store.Task")
    tenant = to("store.Tenant")
    input = models.JSONField()
    output = models.JSONField(null=True)
    error = models.JSONField(null=True)
    title = models.TextField(null=True)
    tags = ArrayField(models.TextField(), null=True)
    schedule = models.UUIDField(null=True)
    scheduled_for = models.DateTimeField(null=True)

    class Meta:
        db_table = "task_body"


class Attempt(models.Model):
    """One execution, written when it ended. `verdict`: the event that ended it; `degraded`: its form, if not whole."""

    id = models.BigAutoField(primary_key=True)
    task = to("store.Task")
    tenant = to("store.Tenant")
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
    usd = models.FloatField(null=True, db_default=0.0)  # null: a model had no price
    degraded = models.TextField(null=True)

    class Meta:
        db_table = "attempt"
        indexes = (
            # What has been spent lately, by all tenants; rows without tokens cost nothing here.
            models.Index(
                fields=("ended",), include=("tenant", "tokens", "usd"), name="attempt_spent", condition=Q(tokens__gt=0)
            ),
        )
        constraints = (models.UniqueConstraint(fields=("task", "release_no"), name="attempt_once"),)


class Step(models.Model):
    """A checkpoint within a task, written by its attempts (policy.steps). `ordinal`: the order of their first begin.

    `release_no`: of the attempt that began it last; `begun`: how often it began; `result`: JSON as text, when finished;
    `differed_at`: when an attempt's code came to another step here.
    """

    pk = models.CompositePrimaryKey("task_id", "ordinal")
    task = to("store.Task")
    tenant = to("store.Tenant")
    ordinal = models.IntegerField()
    key = models.TextField()
    name = models.TextField()
    release_no = models.IntegerField()
    began_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True)
    begun = models.IntegerField(db_default=1)
    differed_at = models.DateTimeField(null=True)
    result = models.TextField(null=True)

    class Meta:
        db_table = "step"


class TraceEvent(models.Model):
    """What happened to a task, in order of `seq`. Partitioned by day of `at` in the migration, hence unmanaged."""

    id = models.BigAutoField(primary_key=True)
    task = to("store.Task")
    tenant = to("store.Tenant")
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
