"""What the end of a task does to others: its children are cancelled, and so is what depends on it when it failed.

Part of the sweep. Level-triggered: a notice says where to look, and goes when nothing is left to do there. A child that
runs is asked to stop (want = cancel); one that somebody has locked is for the next round. Each cancel tells the next
ones: children of children follow, and what depends on what was cancelled.
"""

from harness.policy import verbs
from harness.policy.verbs import Asked
from harness.store import children, transitions
from harness.store.children import EndedAbove
from harness.store.database import Connection
from harness.store.transitions import By

AT_ONCE = 200  # tasks whose locks are held together
MOST = 2000  # of one round; the next one follows at once

PARENT_ENDED = "parent_ended"  # classes of the error that a task carries which was cancelled because of another
DEPENDENCY_FAILED = "dependency_failed"
_DEPENDS = "it depends on task "


def carry(connection: Connection, *, actor: str) -> int:
    """Cancel what ended tasks leave behind. Returns how many were cancelled or asked to stop; MOST: come again."""
    done = after = 0
    while done < MOST and (above := children.ended_above(connection, after=after, most=AT_ONCE)):
        for one in above:
            done += _below(connection, one, actor=actor) if one.state else _dependent(connection, one, actor=actor)
            after = one.last
            if done >= MOST:
                break
    return done


def _below(connection: Connection, parent: EndedAbove, *, actor: str) -> int:
    """Cancel the children of a task that has ended."""
    reason = f"the task that spawned it, {parent.public_id}, has ended ({parent.state})"
    done = 0
    while done < MOST:
        orphans = children.orphans(connection, parent.task, most=AT_ONCE)
        if not orphans:
            children.forget(connection, parent.task, last=parent.last)
            break
        acted = transitions.act(
            connection, orphans, verbs.cancel, Asked(), By(actor=actor, reason=reason), pass_over=True
        )
        did = [task for task, decision in acted.items() if decision.step is not None]
        children.tell(connection, did, error_class=PARENT_ENDED, message=reason)
        done += len(did)
        if not did:
            break
    return done


def _dependent(connection: Connection, one: EndedAbove, *, actor: str) -> int:
    """Cancel a task that depends on one which won't succeed."""
    failed = children.failed(connection, one.task) if one.public_id else None
    if failed is None:
        children.forget(connection, one.task, last=one.last)
        return 0
    public_id, state, message = failed
    if message and message.startswith(_DEPENDS):  # only where it began: a chain of thousands would tell them all
        message = message[message.rindex(_DEPENDS) :]
    reason = f"{_DEPENDS}{public_id}, which is {state}" + (f": {message}" if message else "")
    by = By(actor=actor, reason=reason)
    decision = transitions.act(connection, [one.task], verbs.cancel, Asked(), by, pass_over=True).get(one.task)
    if decision is None or decision is transitions.BUSY:
        return 0
    if decision.step is not None:
        children.tell(connection, [one.task], error_class=DEPENDENCY_FAILED, message=reason)
    children.forget(connection, one.task, last=one.last)
    return 1
