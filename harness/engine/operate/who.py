"""Who acts, and what they may: a tenant on its own tasks, an operator on all. Each has a hold of its own."""

from contextlib import AbstractContextManager, nullcontext

from harness.policy.admission import Forbidden, TenantFacts
from harness.policy.errors import Invalid
from harness.policy.holds import OPERATOR, TENANT
from harness.policy.settings import PRIORITIES
from harness.store import queries
from harness.store.database import Connection

REASON_MAX_CHARS = 500


def hold_of(tenant: int | None) -> str:
    """Return the hold that this person sets and lifts. `tenant` None: an operator.

    >>> hold_of(None), hold_of(7)
    ('operator', 'tenant')
    """
    return OPERATOR if tenant is None else TENANT


def held(connection: Connection, tenant: int | None) -> AbstractContextManager[None]:
    """Hold the connection to the tenant that acts, if one does."""
    return nullcontext() if tenant is None else queries.held_to_tenant(connection, tenant)


def check_reason(reason: str) -> None:
    """Raises: Invalid when it is too long, or can't be shown in one line."""
    if len(reason) > REASON_MAX_CHARS or not reason.isprintable():
        raise Invalid(f"reason: must be printable text of at most {REASON_MAX_CHARS} characters", field="reason")


def needed_reason(reason: str) -> str:
    """Return the reason of what isn't done without one. Raises: Invalid."""
    check_reason(reason)
    if not reason.strip():
        raise Invalid("reason: say why; it is kept in the audit, with your name", field="reason")
    return reason.strip()


def check_priority(priority: int, tenant: TenantFacts | None) -> None:
    """Raises: Invalid; Forbidden when it is more urgent than the tenant may ask for (None: an operator may all)."""
    if priority not in PRIORITIES:
        raise Invalid(f"priority: must be 0 (most urgent) to 3, not {priority}", field="priority")
    if tenant is not None and priority < tenant.top_priority:
        raise Forbidden(
            f"priority: {priority} is more urgent than this tenant may ask for: ask for {tenant.top_priority} or a "
            "larger number",
            field="priority",
        )
