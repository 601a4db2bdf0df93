"""How many worker processes pools should have, as it was last judged, and its changes. Nothing is decided here."""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from harness.policy.autoscale import Advice, Memory, Runs
from harness.store import sql
from harness.store.database import Connection
from harness.store.sessions import DEAD_AFTER_S

STALE_S = 30.0  # advice that was judged longer ago isn't acted on


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """What the steps know of a pool. `phi`: of its downstreams; `seen_s`, `now_s`: by the database's clock."""

    memory: Memory
    phi: Mapping[str, float]
    seen_s: float
    now_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """A pool's advice as it stands; moments in epoch seconds."""

    advice: Advice
    since_s: float
    seen_s: float
    now_s: float

    @property
    def stale(self) -> bool:
        """Whether nobody has judged for so long that nobody should act on it."""
        return self.now_s - self.seen_s > STALE_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Turned:
    """A change of what a pool should have."""

    at_s: float
    pool: str
    before: int
    after: int
    workers: int
    binds: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A worker process that lives. `held`: leases that it runs."""

    session: uuid.UUID
    host: str
    pid: int
    pools: tuple[str, ...]
    draining: bool
    held: int


_MOMENTS = (
    "extract(epoch FROM since)::double precision, extract(epoch FROM seen_at)::double precision, "
    "extract(epoch FROM clock_timestamp())::double precision"
)


def known(connection: Connection) -> dict[str, Known]:
    """Return what the steps know, by pool."""
    cursor = connection.execute(f"SELECT pool, state, {_MOMENTS} FROM advice")
    return {
        pool: Known(memory=_memory(state["memory"]), phi=state["phi"], seen_s=seen_s, now_s=now_s)
        for pool, state, _, seen_s, now_s in cursor
    }


def keep(connection: Connection, found: Sequence[tuple[Advice, Memory, Mapping[str, float]]]) -> int:
    """Keep what was judged of all pools. Returns how many pools should have another number from now on."""
    rows = [{**asdict(advice), "state": {"memory": asdict(memory), "phi": phi}} for advice, memory, phi in found]
    row = connection.execute(sql.load("autoscale/keep"), {"rows": json.dumps(rows)}).fetchone()
    return row[0] if row else 0


def now(connection: Connection) -> dict[str, Standing]:
    """Return the advice by pool. Under role staff or engine."""
    cursor = connection.execute(
        f"SELECT pool, workers, desired, wanted, binds, reason, holds, {_MOMENTS} FROM advice ORDER BY pool"
    )
    return {row[0]: _standing(row) for row in cursor}


def counted(connection: Connection) -> dict[str, Standing]:
    """Return the advice by pool without its reasons: what role web may read."""
    cursor = connection.execute(
        f"SELECT pool, workers, desired, wanted, binds, '', holds, {_MOMENTS} FROM advice ORDER BY pool"
    )
    return {row[0]: _standing(row) for row in cursor}


def changes(connection: Connection, *, most: int) -> list[Turned]:
    """Return the newest changes, the newest first."""
    cursor = connection.execute(
        "SELECT extract(epoch FROM at)::double precision, pool, before, after, workers, binds, reason "
        "FROM advice_change ORDER BY at DESC, id DESC LIMIT %s",
        (most,),
    )
    return [
        Turned(at_s=row[0], pool=row[1], before=row[2], after=row[3], workers=row[4], binds=row[5], reason=row[6])
        for row in cursor
    ]


def runs(connection: Connection) -> list[Runs]:
    """Return the worker processes that live."""
    cursor = connection.execute(sql.load("capacity/processes"), {"dead_after_s": DEAD_AFTER_S})
    return [Runs(pools=row[2], connections=row[3], draining=row[5]) for row in cursor]


def sessions(connection: Connection) -> list[Session]:
    """Return the worker processes that live, with how much each runs."""
    cursor = connection.execute(
        "SELECT uuid, host, pid, ARRAY(SELECT jsonb_object_keys(pools)), draining, "
        "(SELECT count(*) FROM lease WHERE lease.session = worker_session.uuid) FROM worker_session "
        "WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %s) "
        "ORDER BY started_at, uuid",
        (DEAD_AFTER_S,),
    )
    return [
        Session(session=row[0], host=row[1], pid=row[2], pools=tuple(sorted(row[3])), draining=row[4], held=row[5])
        for row in cursor
    ]


def _standing(row: Sequence[Any]) -> Standing:
    advice = Advice(
        pool=row[0], workers=row[1], desired=row[2], wanted=row[3], binds=row[4], reason=row[5], holds=row[6]
    )
    return Standing(advice=advice, since_s=row[7], seen_s=row[8], now_s=row[9])


def _memory(found: Mapping[str, Any]) -> Memory:
    pairs = {key: tuple((at_s, n) for at_s, n in found[key]) for key in ("peaks", "caps")}
    return Memory(**{**found, **pairs})
