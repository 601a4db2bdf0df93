"""Which tasks have waited so long that they may take the aged lane, the oldest first (rule 5). Pure.

Only P2 and P3 age. Flows stand by since when their first task may run, as far as the line knows: the plan looks at the
task itself before it gives it a slot.
"""

from collections.abc import Iterator
from heapq import merge

from harness.policy.flow import FlowFacts
from harness.policy.line import Line
from harness.policy.quota import Gate

AGED_S = {2: 300.0, 3: 600.0}  # seconds after which a task of a class may take the aged lane
LOOKED_THROUGH = 400  # flows in order of age that one search goes through


def aged(line: Line, now_s: float) -> list[int]:
    """Return the classes in which some task has waited so long, held or not."""
    found = []
    for p, aged_s in AGED_S.items():
        for order in line.classes[p].oldest.values():
            if now_s - order[0][0] > aged_s:
                found.append(p)
                break
    return found


def by_age(line: Line, gate: Gate, p: int, now_s: float) -> Iterator[FlowFacts]:
    """Yield the flows of a class whose first task is that old, the oldest first, without those that lack the room."""
    aged_s = AGED_S[p]
    orders = [
        order[:LOOKED_THROUGH]
        for signature, order in line.classes[p].oldest.items()
        if now_s - order[0][0] > aged_s and not (signature and gate.signature(signature, p))
    ]
    for since_s, number in merge(*orders):
        if now_s - since_s <= aged_s:
            return
        yield line.flows[number]
