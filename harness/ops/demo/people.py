"""The demo's tenants and their keys; made anew or found from an earlier demo."""

import contextlib

from harness.policy.errors import Conflict
from harness.store import keys

TENANTS = {"library": 1, "crowd": 3, "desk": 0}  # name -> the most urgent priority it may ask for


def tenants() -> dict[str, str]:
    """Make the tenants where they are missing, and a new key for each. Returns name -> key."""
    made = {}
    for name, top_priority in TENANTS.items():
        with contextlib.suppress(Conflict):  # an earlier demo made it
            keys.create_tenant(f"demo-{name}", top_priority=top_priority)
        made[name] = keys.create_key(f"demo-{name}", label="script/demo")
    return made
