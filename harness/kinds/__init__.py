"""What the author of a kind sees: `@kind`, `Context`, and the errors that work may end in."""

from harness.kinds.calling import Calling
from harness.kinds.children import Child, Children
from harness.kinds.context import Context
from harness.kinds.errors import (
    Asked,
    Cancelled,
    NoPermit,
    Parked,
    Permanent,
    RateLimited,
    StepMismatch,
    TimedOut,
    Transient,
    Unfit,
)
from harness.kinds.forms import Form
from harness.kinds.registry import Kind, OneOf, kind
from harness.policy.approvals import DENIED
from harness.policy.retry import Rule

__all__ = [
    "DENIED",
    "Asked",
    "Calling",
    "Cancelled",
    "Child",
    "Children",
    "Context",
    "Form",
    "Kind",
    "NoPermit",
    "OneOf",
    "Parked",
    "Permanent",
    "RateLimited",
    "Rule",
    "StepMismatch",
    "TimedOut",
    "Transient",
    "Unfit",
    "kind",
]
