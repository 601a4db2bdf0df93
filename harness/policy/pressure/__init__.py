"""Backpressure: signals, and the level that they come to. Pure: facts -> `measure` -> `step` -> level -> actions.

`SIGNALS` is the one table of what is watched. A signal is added by a row there, its reading in `measure`, and facts of
the store (store.pressure) and the simulator (sim.pressure); a test demands all of them.
"""

from harness.policy.pressure.actions import ACTIONS, DOORS, RELEASES, Action, done, fanout, most, of, retry_ratio
from harness.policy.pressure.facts import Facts
from harness.policy.pressure.machine import EVERY_S, STEP_MOST_S, Change, Known, Reading, State, read, step
from harness.policy.pressure.measure import READS, Memory, depth_told, learn, measure
from harness.policy.pressure.pauses import Pauses, decide_pauses
from harness.policy.pressure.signals import SIGNALS, Level, Signal, parse

__all__ = (
    "ACTIONS",
    "DOORS",
    "EVERY_S",
    "READS",
    "RELEASES",
    "SIGNALS",
    "STEP_MOST_S",
    "Action",
    "Change",
    "Facts",
    "Known",
    "Level",
    "Memory",
    "Pauses",
    "Reading",
    "Signal",
    "State",
    "decide_pauses",
    "depth_told",
    "done",
    "fanout",
    "learn",
    "measure",
    "most",
    "of",
    "parse",
    "read",
    "retry_ratio",
    "step",
)
