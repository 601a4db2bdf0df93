"""The tables, as Django sees them: for migrations, admin and single rows.

Hot, set-based and locking statements are named files in sql/. Times are `timestamptz`; `_s` columns are seconds.
"""

from harness.store.models.operation import Leader, Override, Pause
from harness.store.models.slots import Charge, Estimate, Flow, Lease, LeaseMember, WorkerSession
from harness.store.models.tenancy import ApiKey, Idempotency, Quota, Tenant
from harness.store.models.work import Attempt, Run, Task, TaskBody, TraceEvent

__all__ = [
    "ApiKey",
    "Attempt",
    "Charge",
    "Estimate",
    "Flow",
    "Idempotency",
    "Leader",
    "Lease",
    "LeaseMember",
    "Override",
    "Pause",
    "Quota",
    "Run",
    "Task",
    "TaskBody",
    "Tenant",
    "TraceEvent",
    "WorkerSession",
]
__all__ = [
    "ApiKey",
    "Attempt",
    "Charge",
    "Estimate",
    "Flow",
    "Idempotency",
    "Leader",
    "Lease",
    "LeaseMember",
    "Override",
    "Pause",
    "Quota",
    "Run",
    "Task",
    "TaskBody",
    "Tenant",
    "TraceEvent",
    "WorkerSession",
]
