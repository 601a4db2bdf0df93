"""What Harness's own database is for a server: its version, whether it keeps what it commits, its clock. Reads only."""

from dataclasses import dataclass

from harness.store import sql
from harness.store.database import Connection


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerFacts:
    """`version`: (major, minor). `standby`: it only follows another server."""

    version: tuple[int, int]
    fsync: bool
    full_page_writes: bool
    standby: bool


def look(connection: Connection) -> ServerFacts:
    """Return what the server says of itself."""
    row = connection.execute(sql.load("capacity/server_facts")).fetchone()
    assert row is not None
    number, fsync, full_page_writes, standby = row
    return ServerFacts(
        version=(number // 10_000, number % 10_000), fsync=fsync, full_page_writes=full_page_writes, standby=standby
    )


def now_s(connection: Connection) -> float:
    """Return the database's clock, in epoch seconds."""
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone()
    assert row is not None
    return float(row[0])
