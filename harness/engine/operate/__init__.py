"""People's verbs: on one task, on many by a filter, on scopes, limits, resources and workers.

Admin, API and command line list those on tasks from VERBS. Nothing here decides what a verb does to a task as
it stands (policy.verbs) or writes a state (store.transitions).
"""

from harness.engine.operate.batches import BATCH, MANY_MOST
from harness.engine.operate.limits import Changed, check_quota, clear_quota, set_quota, set_tenant
from harness.engine.operate.many import PREVIEW_MOST, Filter, Preview, bulk, preview
from harness.engine.operate.one import cancel, pause, priority, requeue, resume
from harness.engine.operate.readmit import KEEP
from harness.engine.operate.redrive import Forecast, forecast, forecast_one
from harness.engine.operate.registry import VERBS, Done, Verb, offered
from harness.engine.operate.resources import Overridden, check_resource, clear_resource, set_resource, value_shown
from harness.engine.operate.scopes import pause_scope, resume_scope
from harness.engine.operate.tally import Tally
from harness.engine.operate.who import REASON_MAX_CHARS, hold_of
from harness.engine.operate.workers import drain_worker

__all__ = (
    "BATCH",
    "KEEP",
    "MANY_MOST",
    "PREVIEW_MOST",
    "REASON_MAX_CHARS",
    "VERBS",
    "Changed",
    "Done",
    "Filter",
    "Forecast",
    "Overridden",
    "Preview",
    "Tally",
    "Verb",
    "bulk",
    "cancel",
    "check_quota",
    "check_resource",
    "clear_quota",
    "clear_resource",
    "drain_worker",
    "forecast",
    "forecast_one",
    "hold_of",
    "offered",
    "pause",
    "pause_scope",
    "preview",
    "priority",
    "requeue",
    "resume",
    "resume_scope",
    "set_quota",
    "set_resource",
    "set_tenant",
    "value_shown",
)
