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
    made = {}
    for name, top_priority in TENANTS.items():
        with contextlib.suppress(Conflict):  # an earlier demo made it
            keys.create_tenant(f"demo-{name}", top_priority=top_priority)
        for old in keys.keys(f"demo-{name}"):
            if old.label == LABEL and old.revoked_at is None:
                keys.revoke_key(old.prefix)
        made[name] = keys.create_key(f"demo-{name}", label=LABEL)
    return made
