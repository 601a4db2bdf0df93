"""The tables, as Django sees them: for migrations, admin and single rows.

Hot, set-based and locking statements are named files in sql/. Times are `timestamptz`; `_s` columns are seconds.
"""

from harness.store.models.admission import DoorAnswer, DoorNow
from harness.store.models.approvals import Approval, ApprovalHook
from harness.store.models.artifacts import Artifact
from harness.store.models.audit import AuditEntry, AuditFinding
from harness.store.models.autoscale import AdviceChange, AdviceNow
from harness.store.models.children import Dependency, Gathering, Notice
from harness.store.models.documents import Chunk, Document
from harness.store.models.forecasts import Forecast, ForecastBorne, ForecastPass, RunForecast
from harness.store.models.money import Budget, UsageDay, UsageMark
from harness.store.models.operation import Leader, Pause
from harness.store.models.people import Person, SentForm
from harness.store.models.pressure import Evaluation, LevelChange, LevelNow
from harness.store.models.reasons import PoolNow, WaitReason
from harness.store.models.resources import LimitChange, Override, ResourceState
from harness.store.models.schedules import Schedule, TaskTerm
from harness.store.models.slots import (
    Charge,
    ClassCredit,
    Clock,
    Estimate,
    Flow,
    Lease,
    LeaseMember,
    WorkerSession,
)
from harness.store.models.tally import Tally
from harness.store.models.tenancy import ApiKey, Idempotency, Quota, Tenant
from harness.store.models.work import Attempt, Run, Step, Task, TaskBody, TraceEvent

__all__ = [
    "AdviceChange",
    "AdviceNow",
    "ApiKey",
    "Approval",
    "ApprovalHook",
    "Artifact",
    "Attempt",
    "AuditEntry",
    "AuditFinding",
    "Budget",
    "Charge",
    "Chunk",
    "ClassCredit",
    "Clock",
    "Dependency",
    "Document",
    "DoorAnswer",
    "DoorNow",
    "Estimate",
    "Evaluation",
    "Flow",
    "Forecast",
    "ForecastBorne",
    "ForecastPass",
    "Gathering",
    "Idempotency",
    "Leader",
    "Lease",
    "LeaseMember",
    "LevelChange",
    "LevelNow",
    "LimitChange",
    "Notice",
    "Override",
    "Pause",
    "Person",
    "PoolNow",
    "Quota",
    "ResourceState",
    "Run",
    "RunForecast",
    "Schedule",
    "SentForm",
    "Step",
    "Tally",
    "Task",
    "TaskBody",
    "TaskTerm",
    "Tenant",
    "TraceEvent",
    "UsageDay",
    "UsageMark",
    "WaitReason",
    "WorkerSession",
]
