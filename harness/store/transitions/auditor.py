"""What the auditor may do to a task or a lease that is at odds with the rest: put it back on a legal way.

Each function takes the locks (lease, then task), asks `still_so` under them, and only then writes; False: it is no
longer so, or it changed hands meanwhile. Nothing here ends work that is under way on a live lease.
"""

from collections.abc import Callable

from harness.store import sql
from harness.store.database import Connection
from harness.store.transitions.work import hand_back_unclaimed

StillSo = Callable[[], bool]


def back_on_the_way(connection: Connection, task: int, still_so: StillSo, *, actor: str, reason: str) -> bool:
    """Take a task off a lease that doesn't fit it, and give what then waits or runs without one a way out."""
    with connection.transaction():
        if not _lock(connection, task) or not still_so():
            return False
        connection.execute(sql.load("transitions/drop_member"), {"task": task})
        _free(connection, task, actor=actor, reason=reason)
        return True


def give_up_lease(connection: Connection, lease: int, still_so: StillSo, *, actor: str, reason: str) -> bool:
    """Take a lease away that nobody holds, and its tasks back."""
    with connection.transaction():
        rows = connection.execute(sql.load("transitions/lock_lease"), {"lease": lease}).fetchall()
        if not rows or not still_so():
            return False
        for (task,) in rows:
            if task is not None:
                connection.execute(sql.load("transitions/lock_one"), {"task": task})
                connection.execute(sql.load("transitions/drop_member"), {"task": task})
                _free(connection, task, actor=actor, reason=reason)
        connection.execute(sql.load("transitions/drop_lease"), {"lease": lease})
        return True


def take_back_unclaimed(connection: Connection, lease: int, still_so: StillSo) -> bool:
    """Take an unclaimed lease back, as the sweep does. False also when someone has it locked, or a task of it."""
    with connection.transaction():
        locked = connection.execute(sql.load("transitions/lock_unclaimed"), {"lease": lease}).fetchone()
        if locked is None or not still_so():
            return False
        hand_back_unclaimed(connection, older_than_s=0, leases=[lease])
        return connection.execute(sql.load("transitions/lock_unclaimed"), {"lease": lease}).fetchone() is None


def unready(connection: Connection, task: int, still_so: StillSo) -> bool:
    """Say of a task that is on a lease that it isn't ready."""
    with connection.transaction():
        if not _lock(connection, task) or not still_so():
            return False
        return connection.execute(sql.load("transitions/unready"), {"task": task}).rowcount > 0


def _lock(connection: Connection, task: int) -> bool:
    """Lock the task's lease, then the task (either may be missing). False: it has changed leases between the two.

    A lease that came where none was isn't locked here: that is no longer what was found, and `still_so` says so.
    """
    leased = connection.execute(sql.load("transitions/lock_lease_of_one"), {"task": task}).fetchone()
    connection.execute(sql.load("transitions/lock_one"), {"task": task})
    if leased is None:
        return True
    now = connection.execute(sql.load("transitions/lease_of_one"), {"task": task}).fetchone()
    return now is not None and now[0] == leased[0]


def _free(connection: Connection, task: int, *, actor: str, reason: str) -> None:
    parameters = {"task": task, "actor": actor, "reason": reason}
    if connection.execute(sql.load("transitions/lose_stray"), parameters).fetchone() is None:
        connection.execute(sql.load("transitions/give_way_out"), parameters)
