"""The demo's tenants, made or found from an earlier demo, and their keys: new ones, which end the earlier ones."""

import contextlib

from harness.policy.errors import Conflict
from harness.store import keys

LABEL = "script/demo"
TENANTS = {"library": 1, "crowd": 3, "desk": 0}  # name -> the most urgent priority it may ask for


def tenants() -> dict[str, str]:
    """Make the tenants where they are missing, and a new key for each; revoke those of earlier demos.

    Returns name -> key.
    """
    return {name: key(f"demo-{name}", top_priority=top, label=LABEL) for name, top in TENANTS.items()}


def key(tenant: str, *, top_priority: int, label: str) -> str:
    """Make the tenant where it is missing, and a new key of this label; revoke its earlier ones. Returns the key."""
    with contextlib.suppress(Conflict):  # an earlier run made it
        keys.create_tenant(tenant, top_priority=top_priority)
    for old in keys.keys(tenant):
        if old.label == label and old.revoked_at is None:
            keys.revoke_key(old.prefix)
    return keys.create_key(tenant, label=label)
