"""Readings of cost: CPU-seconds of an arm and its servers, and PostgreSQL's own count of commits and row writes.

PostgreSQL hands its counters on about once a second and when a session ends, so read the database's before the first
process starts and after the last one has stopped. CPU can be read at any moment.
"""

from collections.abc import Collection
from dataclasses import dataclass

import redis

from benchmarks import machine, servers
from benchmarks.servers import Servers

_COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"
_WRITES = "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables"
_DERIVABLE = """
SELECT current_setting('pg_stat_statements.track', true) = 'all' AND pg_has_role('pg_read_all_stats', 'USAGE')
   AND EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_stat_statements')
"""
_NOTIFIES = """
SELECT coalesce(sum(calls), 0)
  FROM pg_stat_statements JOIN pg_database ON pg_database.oid = dbid
 WHERE datname = %s AND (query ILIKE '%%pg_notify(%%' OR query ILIKE 'notify %%')
   AND query NOT ILIKE 'create %%'
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatabaseCounts:
    """PostgreSQL's counters of one database. `notifies` is None where it can't be derived."""

    commits: int
    row_writes: int
    notifies: int | None


def database_counts(database_url: str) -> DatabaseCounts:
    """Read the counters of a database; costs it one commit, no row."""
    name = servers.database_name(database_url)
    with servers.maintenance(database_url, name) as inside:
        writes = inside.execute(_WRITES).fetchone()
    with servers.maintenance(database_url) as outside:
        commits = outside.execute(_COMMITS, (name,)).fetchone()
        tracked = outside.execute("SELECT current_setting('pg_stat_statements.track', true)").fetchone()
        # Some peers notify from a trigger, which only track = all counts; a zero without it would be a lie.
        notifies = outside.execute(_NOTIFIES, (name,)).fetchone() if tracked == ("all",) else None
    return DatabaseCounts(
        commits=int(commits[0]) if commits else 0,
        row_writes=int(writes[0]) if writes else 0,
        notifies=int(notifies[0]) if notifies else None,
    )


def difference(before: DatabaseCounts | None, after: DatabaseCounts | None) -> DatabaseCounts | None:
    """Return what was counted between two readings; None without a database."""
    if before is None or after is None:
        return None
    known = before.notifies is not None and after.notifies is not None
    return DatabaseCounts(
        commits=after.commits - before.commits,
        row_writes=after.row_writes - before.row_writes,
        notifies=(after.notifies or 0) - (before.notifies or 0) if known else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerProcesses:
    """The server processes on this machine; None for one that runs elsewhere (its CPU can't be read)."""

    postgres: int | None
    redis: int | None

    def roots(self) -> set[int]:
        """Return the ids that are known."""
        return {pid for pid in (self.postgres, self.redis) if pid is not None}

    def complete(self) -> bool:
        """Whether both servers' CPU can be read."""
        return self.postgres is not None and self.redis is not None


def find_servers(where: Servers) -> ServerProcesses:
    """Find the processes behind the addresses: PostgreSQL's postmaster and Redis."""
    with servers.maintenance(where.database_url) as connection:
        postmaster = machine.parent_of(connection.info.backend_pid)
    with redis.Redis.from_url(where.broker_url) as client:
        broker = int(client.info("server")["process_id"])
    return ServerProcesses(
        postgres=postmaster if postmaster and machine.name_of(postmaster) == "postgres" else None,
        redis=broker if machine.name_of(broker).startswith(("redis", "valkey")) else None,
    )


def cpu_by_role(workers: Collection[int], server: ServerProcesses) -> dict[str, float]:
    """Return CPU-seconds so far: `workers` (all processes of the arm), `postgres`, `redis`."""
    return {
        "workers": machine.cpu_s(workers),
        "postgres": machine.cpu_s({server.postgres}) if server.postgres else 0.0,
        "redis": machine.cpu_s({server.redis}) if server.redis else 0.0,
    }
