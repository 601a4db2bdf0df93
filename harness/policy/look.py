"""One tick of one pool: the plan, from what is in use, what stands, the line, and a look at the tasks.

Who holds the tasks (PostgreSQL or the simulator) only answers looks; all that is decided is decided here, so that both
release the same. Changes `room`: what is picked is taken. The line changes when the plan is applied to it.
"""

from harness.policy import dispatch, forms
from harness.policy.flow import Look
from harness.policy.known import Standing
from harness.policy.line import Line
from harness.policy.plan import Plan
from harness.policy.quota import Gate, stopped
from harness.policy.room import Room


def decide(pool: str, now_s: float, *, room: Room, standing: Standing, line: Line, look: Look) -> Plan:
    """Decide one tick of one pool that has a free slot. `now_s`: the time that `ready_s` and `ends_s` are told in."""
    kinds = standing.kinds
    stop = stopped(pool, standing.pauses, standing.beyond, kinds.costing_in.get(pool, ()))
    line.away(stop.tenants)
    degraded = forms.at(room.level, kinds.forms, kinds.also_in.get(pool, {}), line.owners)
    gate = Gate(pool, room, line, stop, now_s, degraded)
    plan = dispatch.plan(pool, now_s, room=room, line=line, gate=gate, kinds=kinds, look=look)
    room.reserved |= plan.reserved
    return plan
