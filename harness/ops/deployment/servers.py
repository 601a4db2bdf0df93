"""What Harness stands on: PostgreSQL with its schema and its connections, the broker, Redis, and their clocks."""

import time
from collections.abc import Callable, Iterator
from functools import partial

from django.db import connection as owner
from django.db.migrations.executor import MigrationExecutor

from harness.ops.deployment.finding import Finding, Level
from harness.policy.capacity import OTHER_CONNECTIONS
from harness.policy.errors import Unavailable
from harness.policy.settings import Topology
from harness.store import capacity, redis_facts, server_facts
from harness.store.broker import Broker
from harness.store.database import Connection

POSTGRESQL_LEAST, REDIS_LEAST = (15, 0), (6, 2)
# Deadlines and leases go by the database's clock; schedules, links and signatures of hooks by that of each machine.
SKEW_WARNING_S, SKEW_ERROR_S = 1.0, 5.0
OURS = ("store",)  # apps whose migrations only Harness makes


def database(connection: Connection) -> Iterator[Finding]:
    """Yield whether the database is one that keeps what it was told."""
    facts = server_facts.look(connection)
    named = f"PostgreSQL {facts.version[0]}.{facts.version[1]}"
    if facts.version < POSTGRESQL_LEAST:
        yield _found("database", "error", f"{named} is too old", f"PostgreSQL {POSTGRESQL_LEAST[0]} or newer")
        return
    for name, on in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        if not on:
            yield _found(
                "database", "error", f"{name} is off: a crash of its machine loses or breaks tasks", f"{name} = on"
            )
    if facts.standby:
        yield _found("database", "error", "this server is a standby: it takes no writes", "DATABASE_URL: the primary")
    yield _found("database", "ok", f"{named} answers")


def migrations() -> Iterator[Finding]:
    """Yield whether the schema is this code's. Raises: django.db.Error."""
    executor = MigrationExecutor(owner)
    loader = executor.loader
    planned = {(step.app_label, step.name) for step, _ in executor.migration_plan(loader.graph.leaf_nodes())}
    # Django plans none for a gap below one that was applied.
    gaps = {key for key in loader.disk_migrations if key[0] in OURS and key not in loader.applied_migrations}
    missing = [f"{app}.{name}" for app, name in sorted(planned | gaps)]
    newer = [
        f"{app}.{name}"
        for app, name in loader.applied_migrations
        if app in OURS and (app, name) not in loader.disk_migrations
    ]
    if missing:
        yield _found(
            "migrations", "error", f"not applied: {_some(missing)}", "manage.py migrate, before the new code runs"
        )
    if newer:
        yield _found(
            "migrations",
            "error",
            f"the database is newer than this code: {_some(sorted(newer))}",
            "deploy the newer code",
        )
    if not missing and not newer:
        yield _found("migrations", "ok", "all are applied")


def connections(connection: Connection, topology: Topology) -> Iterator[Finding]:
    """Yield whether the server takes the connections that Harness may open, and whether its workers keep to them."""
    server, budget = capacity.server(connection), topology.database_connections
    takes = server.most - server.reserved
    running = sum(one.connections for one in capacity.processes(connection))
    says = (
        f"budget {budget}, server {takes} ({server.most} - {server.reserved} for superusers), {server.connections} open"
    )
    if budget > takes:
        yield _found(
            "connections",
            "error",
            f"the budget is more than the server takes: {says}",
            "raise max_connections, or lower [database] connections in resources.toml",
        )
    elif running > budget - OTHER_CONNECTIONS:
        yield _found(
            "connections",
            "error",
            f"the workers that run may open {running} of {budget - OTHER_CONNECTIONS}: {says}",
            "stop some (`manage.py capacity` says which gain nothing), or raise [database] connections",
        )
    else:
        yield _found("connections", "ok", f"workers may open {running} of {budget - OTHER_CONNECTIONS}; {says}")


def broker(url: str, live_url: str) -> Iterator[Finding]:
    """Yield whether the broker answers, and whether each Redis keeps what it is given."""
    door = Broker(url)
    try:
        door.warm()
    except Unavailable as error:
        yield _found("broker", "error", error.message, "check BROKER_URL, its server and the network between")
        return
    finally:
        door.close()
    yield _found("broker", "ok", "it answers")
    for name, address in _redises(url, live_url).items():
        yield from _redis(name, address)


def clocks(connection: Connection, url: str, live_url: str) -> Iterator[Finding]:
    """Yield how far this machine's clock is from those of the servers; half the trip's time is in their favour."""
    skews = {"the database": _skew(lambda: server_facts.now_s(connection))}
    for name, address in _redises(url, live_url).items():
        try:
            skews[f"the Redis of {name}"] = _skew(partial(_redis_s, address))
        except Unavailable:
            continue  # `broker` says so
    for name, skew_s in skews.items():
        level: Level = "error" if skew_s > SKEW_ERROR_S else "warning" if skew_s > SKEW_WARNING_S else "ok"
        yield _found(
            "clock",
            level,
            f"this machine's clock is {skew_s:.1f} s or more from that of {name}"
            if level != "ok"
            else f"this machine's clock agrees with that of {name}",
            "" if level == "ok" else "let NTP (chrony, systemd-timesyncd) keep both",
        )


def _redis(name: str, url: str) -> Iterator[Finding]:
    try:
        facts = redis_facts.look(url)
    except Unavailable as error:
        yield _found("broker", "error", f"{name}: {error.message}", f"check {name}")
        return
    if facts.version < REDIS_LEAST:
        yield _found(
            "broker", "error", f"{name}: version {'.'.join(map(str, facts.version))} is too old", "Redis 6.2, Valkey 8"
        )
    if facts.evicts:
        yield _found(
            "broker",
            "error",
            f"{name}: maxmemory-policy {facts.policy} throws away messages and permits when memory is short",
            "maxmemory-policy noeviction",
        )


def _redises(*urls: str) -> dict[str, str]:
    """The servers that are a Redis, by the setting that names them first."""
    named = zip(("BROKER_URL", "HARNESS_LIVE_URL"), urls, strict=True)
    found: dict[str, str] = {}
    for name, url in named:
        if url.startswith(("redis", "unix", "valkey")) and url not in found.values():
            found[name] = url
    return found


def _redis_s(url: str) -> float:
    return redis_facts.look(url).now_s


def _skew(ask: Callable[[], float]) -> float:
    """Return by how many seconds a clock surely differs from this machine's: 0 when the trip may explain it."""
    before_s = time.time()
    there_s = ask()
    after_s = time.time()
    return max(0.0, before_s - there_s, there_s - after_s)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _found(check: str, level: Level, says: str, fix: str = "") -> Finding:
    return Finding(check=check, level=level, says=says, fix=fix)
