"""Who plans: one row with an epoch. A process leads while it renews; each plan commit checks the epoch under a lock."""

from harness.store.database import Connection

TTL_S = 4.0
RENEW_EVERY_S = 1.0


def take(connection: Connection, owner: str) -> int | None:
    """Take the lead if nobody holds it. Returns the new epoch, or None."""
    row = connection.execute(
        "INSERT INTO leader (id, epoch, owner, until, sleeping) "
        "VALUES (1, 1, %s, clock_timestamp() + make_interval(secs => %s), false) "
        "ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, owner = excluded.owner, until = excluded.until, "
        "sleeping = false WHERE leader.until < clock_timestamp() RETURNING epoch",
        (owner, TTL_S),
    ).fetchone()
    return row[0] if row else None


def renew(connection: Connection, epoch: int) -> bool:
    """Keep the lead. False: another process has taken it."""
    row = connection.execute(
        "UPDATE leader SET until = clock_timestamp() + make_interval(secs => %s) "
        "WHERE id = 1 AND epoch = %s RETURNING true",
        (TTL_S, epoch),
    ).fetchone()
    return row is not None


def holds(connection: Connection, epoch: int) -> bool:
    """Whether this epoch still leads, by a plain look that waits for nobody."""
    return connection.execute("SELECT FROM leader WHERE id = 1 AND epoch = %s", (epoch,)).fetchone() is not None


def set_sleeping(connection: Connection, epoch: int, sleeping: bool) -> None:
    """Ask for the doorbell, or say that it isn't needed."""
    connection.execute("UPDATE leader SET sleeping = %s WHERE id = 1 AND epoch = %s", (sleeping, epoch))


def resign(connection: Connection, epoch: int) -> None:
    """Give the lead up at once, so that another need not wait for the TTL."""
    connection.execute("UPDATE leader SET until = 'epoch', sleeping = false WHERE id = 1 AND epoch = %s", (epoch,))
