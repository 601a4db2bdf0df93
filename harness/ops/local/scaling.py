"""Bring the local stack's worker processes to what is advised: one round, as often as somebody likes.

    1 clear away what has ended   2 read the advice and the sessions   3 decide, pool by pool   4 start, tell to drain

Invariants: nothing is started while the advice holds or is stale; nothing that runs is stopped: who is to go drains.
"""

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.ops.local import more, supervision
from harness.ops.local.more import Worker
from harness.ops.local.places import Places
from harness.ops.local.supervision import Program
from harness.store import autoscale
from harness.store.autoscale import Session, Standing
from harness.store.database import Connection
from harness.store.sessions import start_drain

PROCFILE = "worker_"  # what the Procfile's workers are called
STARTS_S = 60.0  # that a worker may take from its start to its session


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What a round did for a pool. `failed`: processes that were added and could not start."""

    pool: str
    has: int
    desired: int
    started: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    stale: bool = False


def apply(
    connection: Connection, places: Places, base_dir: Path, *, only: Collection[str], not_now: Collection[str] = ()
) -> list[Done]:
    """Do one round for the pools `only` (none: for all). `not_now`: pools for which nothing is started.

    Raises: psycopg.Error, Unavailable, Refused.
    """
    ended = more.clear(places, base_dir)
    advice = autoscale.now(connection)
    sessions = autoscale.sessions(connection)
    added = more.there(places)
    unsettled = starting(supervision.ask(places), {one.pid for one in sessions})
    found = []
    for pool, standing in advice.items():
        if only and pool not in only:
            continue
        mine = [one for one in added if one.pool == pool]
        has, start, drain = decide(standing, sessions, mine, host=socket.gethostname())
        start = 0 if unsettled or pool in not_now else start
        names = more.add(places, base_dir, pool, start) if start else []
        for one in drain:
            start_drain(connection, one.session)
        by_pid = {one.pid: one.name for one in mine}
        gone = [one for one in ended if one.pool == pool]
        found.append(
            Done(
                pool=pool,
                has=has,
                desired=standing.advice.desired,
                started=tuple(names),
                drained=tuple(by_pid[one.pid] for one in drain),
                cleared=tuple(one.name for one in gone if not one.failed),
                failed=tuple(one.name for one in gone if one.failed),
                stale=standing.stale,
            )
        )
    return found


def starting(programs: Sequence[Program], pids: Collection[int]) -> bool:
    """Return whether a worker of the Procfile has just been started. `pids`: of workers that have a session.

    Nobody knows yet which pools it will serve.
    """
    return any(
        one.name.startswith(PROCFILE) and one.pid not in pids and (not one.pid or one.up_s < STARTS_S)
        for one in programs
    )


def decide(
    standing: Standing, sessions: Sequence[Session], mine: Sequence[Worker], *, host: str
) -> tuple[int, int, list[Session]]:
    """Return how many processes a pool has, how many to start, and whom to tell to drain: the emptiest first.

    A process that was added counts from its start on, also before its session is there.
    """
    advice = standing.advice
    of_pool = [one for one in sessions if advice.pool in one.pools]
    pids = {one.pid for one in mine if one.pid}
    own: Mapping[int, Session] = {one.pid: one for one in of_pool if one.host == host and one.pid in pids}
    others = sum(not one.draining and one.pid not in own for one in of_pool)
    staying = [one for one in mine if one.lives and not (one.pid in own and own[one.pid].draining)]
    has = others + len(staying)
    if standing.stale:
        return has, 0, []
    if advice.desired > has:
        return has, 0 if advice.holds else advice.desired - has, []
    idle_first = sorted((own[one.pid] for one in staying if one.pid in own), key=lambda one: (one.held, -one.pid))
    return has, 0, idle_first[: has - advice.desired]
