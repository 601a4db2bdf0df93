"""How many worker processes a pool should have: from what waits and comes, and from what its downstreams carry. Pure.

`size` says what would be enough now and what binds; `step` makes a steady number of it, with cooldowns. Rules of
policy.md 7. Who starts and ends processes goes by the number (ops, or any process manager by the metric).
"""

from harness.policy.autoscale.look import Look, Pool, Runs, Seen, learn, pools
from harness.policy.autoscale.size import Crew, Downstream, Size, Work, size
from harness.policy.autoscale.step import EVERY_S, Advice, Memory, step

__all__ = (
    "EVERY_S",
    "Advice",
    "Crew",
    "Downstream",
    "Look",
    "Memory",
    "Pool",
    "Runs",
    "Seen",
    "Size",
    "Work",
    "learn",
    "pools",
    "size",
    "step",
)
