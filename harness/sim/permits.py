"""What permits would say in a simulation of resources whose breakers open: each task calls for all of its time.

Limits are as large as the capacities, so what is told is who calls, and what is shut until when. Nothing is decided.
"""

from collections.abc import Sequence

from harness.policy.calls import Assumed
from harness.policy.flow import needs
from harness.policy.outlook import Outlook
from harness.sim.scenario import Breaker
from harness.sim.world import World

READ_EVERY_S = 0.25  # as the leader does


def outlook(world: World, breakers: Sequence[Breaker]) -> Outlook:
    """Return how the resources stand that these breakers are of."""
    now_s = world.now_s
    held = dict.fromkeys([one.resource for one in breakers], 0)
    for lease in world.leases.values():
        for name, _ in needs(lease.signature):
            if name in held:
                held[name] += 1
    readings = {}
    for name, n in held.items():
        limit = world.capacities[name]
        until_s = max((one.until_s for one in breakers if one.resource == name and one.from_s <= now_s), default=0.0)
        readings[name] = Assumed(
            at_s=now_s,
            limit=limit,
            proven=limit,
            ceiling=limit,
            in_flight=min(n, limit),
            waiting=max(0, n - limit),
            asked=n,
            breaker="open" if until_s > now_s else "closed",
            breaker_until_s=until_s,
        )
    return Outlook(by_task={}, readings=readings, at_s=now_s, taken_s=now_s)
