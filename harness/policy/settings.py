"""Pools and resources as frozen values, parsed from the tables of config/resources.toml.

`parse` takes the mapping that `tomllib` returns and does no I/O. A value that makes no sense is refused
with the path of the key, never repaired.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from harness.policy import pressure as pressures
from harness.policy.errors import Invalid
from harness.policy.resources import Resource
from harness.policy.resources import parse as parse_resource
from harness.policy.targets import Target
from harness.policy.targets import parse as parse_targets
from harness.policy.toml import TomlFile

QUARANTINE = "quarantine"
SYSTEM = "system"
PRIORITIES = (0, 1, 2, 3)
_FILE = TomlFile("resources.toml")
_table, _only, _refuse = _FILE.table, _FILE.only, _FILE.refuse


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Workers of one resource class; `slots` and `connections` are those of one worker process.

    `processes_least`, `processes_most`: between them the autoscaler advises.
    """

    name: str
    workers: Literal["threads", "prefork"]
    slots: int
    connections: int
    prefetch_multiplier: int
    events: bool
    processes_least: int = 1
    processes_most: int = 32

    def queues(self) -> tuple[str, ...]:
        """The pool's Celery queues, most urgent first.

        >>> Pool(name="db", workers="threads", slots=1, connections=1, prefetch_multiplier=1, events=False).queues()
        ('db.p0', 'db.p1', 'db.p2', 'db.p3')
        """
        return tuple(f"{self.name}.p{priority}" for priority in PRIORITIES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """All of resources.toml. `database_connections` is the budget of Harness's own database.

    `pressure`: the signals with their thresholds.
    """

    database_connections: int
    pools: Mapping[str, Pool]
    resources: Mapping[str, Resource]
    targets: Mapping[str, Target] = field(default_factory=dict)
    pressure: Mapping[str, pressures.Signal] = field(default_factory=lambda: pressures.SIGNALS)

    def pool(self, name: str) -> Pool:
        """Return one pool. Raises: Invalid naming the pools there are."""
        if name not in self.pools:
            raise Invalid(
                f"there is no pool {name!r}; the pools of resources.toml are {', '.join(sorted(self.pools))}",
                field="pool",
            )
        return self.pools[name]


def parse(raw: Mapping[str, object]) -> Topology:
    """Build the topology from parsed TOML. Raises: Invalid naming the key."""
    _only(raw, {"database", "pools", "resources", "targets", "pressure"}, "")
    database = _table(raw, "database", "")
    _only(database, {"connections"}, "database.")
    pools = {name: _pool(name, _table(_table(raw, "pools", ""), name, "pools.")) for name in _table(raw, "pools", "")}
    for needed in (SYSTEM, QUARANTINE):
        if needed not in pools:
            _refuse(f"pools.{needed}", "is missing: Harness needs this pool for itself")
        if pools[needed].workers != "prefork":
            _refuse(f"pools.{needed}.workers", 'must be "prefork"')
    rows = _table(raw, "resources", "") if "resources" in raw else {}
    resources = {name: parse_resource(name, _table(rows, name, "resources.")) for name in rows}
    return Topology(
        database_connections=_whole(database, "connections", "database.", least=10),
        pools=pools,
        resources=resources,
        targets=parse_targets(raw, resources),
        pressure=pressures.parse(_table(raw, "pressure", "") if "pressure" in raw else {}),
    )


def _pool(name: str, table: Mapping[str, object]) -> Pool:
    at = f"pools.{name}."
    if not name.replace("_", "").isalnum() or not name.isascii() or name != name.lower():
        _refuse(f"pools.{name}", "must be named in lower-case letters, digits and underscores")
    bounds = {"processes_least", "processes_most"}
    _only(table, {"workers", "slots", "connections", "prefetch_multiplier", "events", *bounds}, at)
    workers = table.get("workers")
    if workers != "threads" and workers != "prefork":
        _refuse(at + "workers", f'must be "threads" or "prefork", not {workers!r}')
    slots = _whole(table, "slots", at, least=1)
    connections = _whole(table, "connections", at, least=1)
    if workers == "prefork" and connections != slots:
        _refuse(at + "connections", f"must equal slots ({slots}): each prefork child holds one connection")
    if connections > slots:
        _refuse(at + "connections", f"must not exceed slots ({slots})")
    multiplier = _whole(table, "prefetch_multiplier", at, least=1)
    if multiplier != 1:
        _refuse(at + "prefetch_multiplier", "must be 1: a worker never holds more messages than slots")
    events = table.get("events")
    if not isinstance(events, bool):
        _refuse(at + "events", f"must be true or false, not {events!r}")
    least = _whole(table, "processes_least", at, least=0) if "processes_least" in table else 1
    most = _whole(table, "processes_most", at, least=1) if "processes_most" in table else max(32, least)
    if least > most:
        _refuse(at + "processes_least", f"must not exceed processes_most ({most}), not {least}")
    return Pool(
        name=name,
        workers=workers,
        slots=slots,
        connections=connections,
        prefetch_multiplier=multiplier,
        events=events,
        processes_least=least,
        processes_most=most,
    )


def _whole(table: Mapping[str, object], key: str, at: str, *, least: int) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        _refuse(at + key, f"must be a whole number of at least {least}, not {value!r}")
    return value
