"""Worker sessions: one row a worker process, its life shown by a beat, and what is wished of its tasks."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.policy.capacity import OTHER_CONNECTIONS
from harness.policy.errors import Refused
from harness.policy.holds import wished
from harness.store import sql
from harness.store.database import Connection

BEAT_EVERY_S = 5.0
DEAD_AFTER_S = 20.0  # four beats missed
QUIET_S = 7.0  # a beat is overdue: perhaps it was killed
FENCE_AFTER_S = 15.0  # a worker stops beginning effects this long before anyone may think it dead


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """A session that was told to drain. `name`: its host and process; `fresh`: it wasn't told before."""

    name: str
    fresh: bool


def register(
    connection: Connection,
    *,
    session: uuid.UUID,
    host: str,
    pid: int,
    pools: Mapping[str, int],
    kinds: Sequence[str],
    connections: int,
    budget: int,
    place: str | None = None,
) -> str:
    """Make the session of a worker process that will open `connections`. Returns the derivation, one line.

    `place`: where its pid counts; only for a process that leaves nothing behind when it is gone (no children).

    Raises: Refused with the derivation when all live sessions together would exceed the budget; its fact `soon` says
    whether there will be room once those are given up that are silent now.
    """
    room = budget - OTHER_CONNECTIONS
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('harness_sessions'))")
        row = connection.execute(
            sql.load("leases/register_session"),
            {
                "session": session,
                "host": host,
                "pid": pid,
                "place": place,
                "pools": json.dumps(dict(pools)),
                "kinds": list(kinds),
                "connections": connections,
                "room": room,
                "dead_after_s": DEAD_AFTER_S,
                "quiet_s": QUIET_S,
            },
        ).fetchone()
    others, made, silent = row if row else (0, False, 0)
    derivation = (
        f"database connections: budget {budget} - {OTHER_CONNECTIONS} kept for web, dispatchers and commands = {room}; "
        f"{others} in use by other workers, {connections} for this one"
    )
    if not made:
        raise Refused(
            f"{derivation}: {others + connections} > {room}. Stop a worker, lower `connections` of its pools, or raise "
            "[database] connections in resources.toml (and max_connections of the server). Workers that were killed "
            f"count until {DEAD_AFTER_S:.0f} s after their last heartbeat",
            field="database.connections",
            soon=others - silent + connections <= room,
        )
    return derivation


def sharing(connection: Connection, session: uuid.UUID) -> int:
    """Return how many worker processes may call what this one calls: the live sessions of its pools, at least itself.

    A prefork session is as many processes as it has slots there.
    """
    row = connection.execute(sql.load("leases/sharing"), {"session": session, "dead_after_s": DEAD_AFTER_S}).fetchone()
    return max(1, row[0] if row else 1)


def beat(
    connection: Connection,
    session: uuid.UUID,
    *,
    waits: Mapping[str, object] | None = None,
    totals: Mapping[int, object] | None = None,
) -> bool:
    """Show that the session lives, and how long it waited for connections of late, by resource (None: as before).

    `totals`: what its processes have counted since they began, by pid; of those that aren't named what they told last.
    False: it was declared dead; the process must fence itself and exit.
    """
    row = connection.execute(
        "UPDATE worker_session SET beat_at = clock_timestamp(), waits = coalesce(%s::jsonb, waits), "
        "totals = totals || %s::jsonb WHERE uuid = %s AND ended_at IS NULL RETURNING true",
        (None if waits is None else json.dumps(waits), json.dumps(totals or {}), session),
    ).fetchone()
    return row is not None


def tell(connection: Connection, session: uuid.UUID, pid: int, totals: object) -> None:
    """Tell what a process of the session has counted since it began: a prefork child, whose parent beats for it."""
    connection.execute(
        "UPDATE worker_session SET totals = totals || %s::jsonb WHERE uuid = %s", (json.dumps({pid: totals}), session)
    )


def standing(connection: Connection, pools: Sequence[str]) -> list[tuple[str, str, int, bool]]:
    """Return (pool, session, slots, whether work of the pool runs elsewhere) of those that may run them, oldest first.

    Who drains, or has been silent for QUIET_S, isn't among them.
    """
    cursor = connection.execute(sql.load("sessions/standing"), {"pools": list(pools), "quiet_s": QUIET_S})
    return [(row[0], row[1], row[2], row[3]) for row in cursor]


def serves(connection: Connection, *, host: str, pool: str) -> bool:
    """Return whether a live session of this host serves the pool, draining or not."""
    row = connection.execute(
        "SELECT EXISTS (SELECT FROM worker_session WHERE ended_at IS NULL AND host = %s AND pools ? %s "
        "AND beat_at > clock_timestamp() - make_interval(secs => %s))",
        (host, pool, DEAD_AFTER_S),
    ).fetchone()
    return bool(row and row[0])


def kinds(connection: Connection) -> set[str]:
    """Return the kinds (`name@version`) that live sessions know which take work."""
    cursor = connection.execute(
        "SELECT DISTINCT unnest(kinds) FROM worker_session WHERE ended_at IS NULL AND NOT draining "
        "AND beat_at > clock_timestamp() - make_interval(secs => %s)",
        (DEAD_AFTER_S,),
    )
    return {row[0] for row in cursor}


def start_drain(connection: Connection, session: uuid.UUID) -> None:
    """Give the session no new work; what it holds goes on."""
    connection.execute("UPDATE worker_session SET draining = true WHERE uuid = %s", (session,))


def tell_to_drain(connection: Connection, session: uuid.UUID) -> Told | None:
    """Give a session that lives no new work. None: it doesn't live. In a transaction."""
    row = connection.execute(
        "SELECT host, pid, draining FROM worker_session WHERE uuid = %s AND ended_at IS NULL "
        "AND beat_at > clock_timestamp() - make_interval(secs => %s) FOR UPDATE",
        (session, DEAD_AFTER_S),
    ).fetchone()
    if row is None:
        return None
    if not row[2]:
        start_drain(connection, session)
    return Told(name=f"{row[0]}:{row[1]}", fresh=not row[2])


def retired(connection: Connection, session: uuid.UUID) -> int | None:
    """Return how many leases a session still holds that was told to drain, by itself or by others. None: it wasn't."""
    row = connection.execute(
        "SELECT (SELECT count(*) FROM lease WHERE lease.session = worker_session.uuid) FROM worker_session "
        "WHERE uuid = %s AND draining",
        (session,),
    ).fetchone()
    return None if row is None else row[0]


def end(connection: Connection, session: uuid.UUID) -> None:
    """End the session. What it still holds is lost with it, at the next sweep."""
    connection.execute(
        "UPDATE worker_session SET draining = true, ended_at = clock_timestamp() WHERE uuid = %s AND ended_at IS NULL",
        (session,),
    )


def end_dead(connection: Connection) -> list[tuple[uuid.UUID, str]]:
    """End the sessions that have not beaten for DEAD_AFTER_S. Returns (session, host) of each."""
    # Not one that somebody has locked: that may be its own beat, and if it isn't, the others must not wait for it.
    cursor = connection.execute(
        "UPDATE worker_session w SET ended_at = clock_timestamp() FROM (SELECT uuid FROM worker_session "
        "WHERE ended_at IS NULL AND beat_at < clock_timestamp() - make_interval(secs => %s) "
        "FOR UPDATE SKIP LOCKED) silent WHERE w.uuid = silent.uuid RETURNING w.uuid, w.host",
        (DEAD_AFTER_S,),
    )
    return [(row[0], row[1]) for row in cursor]


def end_gone(connection: Connection, place: str, is_gone: Callable[[int], bool]) -> list[tuple[uuid.UUID, str]]:
    """End the sessions of this place that are silent, and whose process is gone for certain. Returns as `end_dead`.

    Both: a copy of a running machine takes itself for the same place, but what lives there beats.
    """
    cursor = connection.execute(
        "SELECT uuid, pid FROM worker_session WHERE ended_at IS NULL AND place = %s "
        "AND beat_at < clock_timestamp() - make_interval(secs => %s)",
        (place, QUIET_S),
    )
    gone = [session for session, pid in cursor.fetchall() if is_gone(pid)]
    if not gone:
        return []
    cursor = connection.execute(
        "UPDATE worker_session w SET ended_at = clock_timestamp() FROM (SELECT uuid FROM worker_session "
        "WHERE uuid = ANY(%s) AND ended_at IS NULL FOR UPDATE SKIP LOCKED) gone WHERE w.uuid = gone.uuid "
        "RETURNING w.uuid, w.host",
        (gone,),
    )
    return [(row[0], row[1]) for row in cursor]


def claiming_pids(connection: Connection, session: uuid.UUID) -> set[int]:
    """Return the processes of a session that hold a claimed lease."""
    cursor = connection.execute(
        "SELECT DISTINCT pid FROM lease WHERE session = %s AND claimed_at IS NOT NULL", (session,)
    )
    return {row[0] for row in cursor}


def unheld(
    connection: Connection, session: uuid.UUID, pid: int, *, known: Sequence[int], older_than_s: float
) -> list[tuple[int, int, list[int], list[int]]]:
    """Return (lease, token, tasks, release numbers) of leases claimed by this process that it doesn't know."""
    parameters = {"session": session, "pid": pid, "known": list(known), "older_than_s": older_than_s}
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(sql.load("leases/unheld"), parameters)]


def wished_leases(connection: Connection, session: uuid.UUID) -> list[tuple[int, int]]:
    """Return (lease, pid) of a session's leases with a task that someone wants stopped."""
    cursor = connection.execute(sql.load("leases/wished"), {"session": session})
    return [(row[0], row[1]) for row in cursor]


def lock_wished(connection: Connection, session: uuid.UUID, lease: int, pid: int) -> bool:
    """Lock a lease that this process of the session still holds; in a transaction. False: it doesn't."""
    row = connection.execute(
        "SELECT true FROM lease WHERE id = %s AND session = %s AND pid = %s "
        "AND EXISTS (SELECT FROM lease_member m WHERE m.lease_id = lease.id) FOR UPDATE",
        (lease, session, pid),
    ).fetchone()
    return row is not None


def hold(connection: Connection, session: uuid.UUID, *, lease: int, token: int, task: int, release_no: int) -> bool:
    """Keep a task this session's until the caller's transaction ends. False: it was taken back."""
    parameters = {"session": session, "lease": lease, "token": token, "task": task, "release_no": release_no}
    return connection.execute(sql.load("leases/hold"), parameters).fetchone() is not None


def wishes(connection: Connection, tasks: Sequence[int]) -> dict[int, Literal["cancel", "pause"]]:
    """Return {task id: "cancel" | "pause"} of those tasks that someone wants stopped."""
    if not tasks:
        return {}
    rows = connection.execute(sql.load("leases/wishes"), {"tasks": list(tasks)})
    return {task: what for task, want in rows if (what := wished(want)) is not None}
