"""What the author of a kind sees: `@kind`, `Context`, and the errors that work may end in."""

from harness.kinds.context import Context
from harness.kinds.errors import Cancelled, Permanent, RateLimited, StepMismatch, TimedOut, Transient
from harness.kinds.registry import Kind, OneOf, kind

__all__ = [
    "Cancelled",
    "Context",
    "Kind",
    "OneOf",
    "Permanent",
    "RateLimited",
    "StepMismatch",
    "TimedOut",
    "Transient",
    "kind",
]
