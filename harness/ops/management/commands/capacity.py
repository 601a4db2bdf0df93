"""`manage.py capacity`: which downstream binds each pool, what follows for worker processes, and what is too much."""

import argparse
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from harness.engine.capacity import Capacity, PoolNow, Resource, capacity, judge
from harness.kinds import registry
from harness.ops.operators import table, told
from harness.policy.capacity import OTHER_CONNECTIONS, Objection, Wish, process_connections
from harness.policy.settings import Topology
from harness.store.database import connect

_WISH = re.compile(r"([a-z0-9_]{1,63})=([0-9]{1,4})(?:x([0-9]{1,4}))?")


class Command(BaseCommand):
    """Say what the downstreams carry, and judge what runs or is wished for."""

    help = (
        "Say which downstream binds each pool, how many slots and worker processes that makes, the connections used, "
        "and what is over-provisioned. --workers judges processes that you think of starting; 1 is the exit code when "
        "they are refused."
    )
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument(
            "--workers",
            action="append",
            default=[],
            type=_wish,
            metavar="POOL=N[xSLOTS]",
            help="judge so many worker processes of a pool: db=40, llm=40x20; several times for several pools",
        )
        parser.add_argument("--json", action="store_true", help="as JSON alone")

    def handle(self, *args: object, **options: Any) -> None:
        """Say it. Raises: CommandError, also when wished processes are refused."""
        topology: Topology = settings.HARNESS_TOPOLOGY
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        wishes = dict(options["workers"])
        with told(), connect(settings.DATABASE_URL, "staff", application_name="harness-command") as connection:
            found = capacity(connection, topology)
            against = judge(found, topology, wishes)
        if options["json"]:
            self.stdout.write(json.dumps(_facts(found, wishes, against), default=str))
        else:
            self.stdout.write(_words(found) if not wishes else _judged(wishes, against))
        if any(one.error for one in against):
            raise SystemExit(1)


def _wish(text: str) -> tuple[str, Wish]:
    fits = _WISH.fullmatch(text)
    if not fits or not int(fits[2]) or fits[3] == "0":
        raise argparse.ArgumentTypeError(f"must be POOL=N or POOL=NxSLOTS (db=40, llm=40x20), not {text!r}")
    if fits[1] not in settings.HARNESS_TOPOLOGY.pools:
        raise argparse.ArgumentTypeError(
            f"there is no pool {fits[1]!r}; there are {', '.join(sorted(settings.HARNESS_TOPOLOGY.pools))}"
        )
    return fits[1], Wish(int(fits[2]), int(fits[3]) if fits[3] else None)


def _judged(wishes: Mapping[str, Wish], against: tuple[Objection, ...]) -> str:
    if not against:
        return "nothing is against it: " + ", ".join(f"{name} {wish.processes}" for name, wish in wishes.items())
    lines = ["refused" if any(one.error for one in against) else "possible, but"]
    for one in against:
        lines += [one.message, f"  {one.hint}"]
    return "\n".join(lines)


def _words(found: Capacity) -> str:
    rows = [
        (
            name,
            one.bound.derivation() + _shared(one),
            "-" if one.bound.slots is None else str(one.bound.slots),
            str(one.pool.slots),
            "-" if one.bound.slots is None else str(one.bound.processes),
            str(one.processes),
            f"{one.at_work}/{one.slots}",
            one.verdict,
        )
        for name, one in found.pools.items()
    ]
    lines = [
        table(("pool", "what binds it", "carries", "slots each", "processes", "running", "at work", "verdict"), rows),
        "",
        table(
            ("downstream", "held by", "capacity", "limit now", "since", "in use", "wait p95"),
            [_row(found, one) for one in found.resources.values()],
        ),
        "",
        *_connections(found),
    ]
    for objection in found.objections:
        lines += ["", objection.message, f"  {objection.hint}"]
    return "\n".join(lines)


def _shared(one: PoolNow) -> str:
    others = sorted({name for binding in one.bound.bindings for name in binding.shared_with})
    return f" (shared with {', '.join(others)})" if others else ""


def _row(found: Capacity, one: Resource) -> tuple[str, ...]:
    since = one.now.mode if one.now and one.now.mode else ""
    if one.change is not None and one.change.at_s is not None:
        at = datetime.fromtimestamp(one.change.at_s, UTC)
        since = f"{at:%H:%M:%S} ({one.change.reason})"
    in_use = one.held if one.live.resource.held == "task" or one.now is None else one.now.in_flight
    worst = _worst_wait(found, one.name)
    return (
        one.name,
        one.live.resource.held,
        str(one.live.resource.capacity),
        str(one.live.limit),
        since,
        str(in_use),
        "" if worst is None else f"{worst * 1000:.1f} ms",
    )


def _worst_wait(found: Capacity, name: str) -> float | None:
    """The p95 of the process that waits longest; None: nobody waited in the last minute."""
    waits = [float(one.waits[name]["p95_s"]) for one in found.processes if name in one.waits]
    return max(waits, default=None)


def _connections(found: Capacity) -> list[str]:
    kept = f"budget {found.budget} - {OTHER_CONNECTIONS} kept for web, dispatchers and commands"
    server, room = found.server, found.budget - OTHER_CONNECTIONS
    takes = server.most - server.reserved
    lines = [f"connections to Harness's own database: {len(found.processes)} worker processes may open"]
    lines[0] += f" {found.connections} of {room} ({kept})"
    lines.append(f"its server has {server.connections} of {takes} ({server.most} - {server.reserved} for superusers)")
    if found.budget > takes:
        lines.append(
            f"the budget ({found.budget}) is more than the server takes: lower [database] connections in "
            "resources.toml, or raise max_connections"
        )
    return lines


def _facts(found: Capacity, wishes: Mapping[str, Wish], against: tuple[Objection, ...]) -> dict[str, Any]:
    return {
        "pools": {
            name: {
                "slots": one.bound.slots,
                "derivation": one.bound.derivation(),
                "bindings": [
                    {
                        "resource": binding.resource,
                        "limit": binding.carries.limit,
                        "held": binding.carries.held,
                        "each": binding.each,
                        "phi": binding.carries.phi,
                        "slots": binding.slots,
                        "shared_with": binding.shared_with,
                    }
                    for binding in one.bound.bindings
                ],
                "kinds_without_downstream": one.bound.free,
                "slots_each": one.pool.slots,
                "connections_each": process_connections([one.pool]),
                "processes": one.bound.processes if one.bound.slots is not None else None,
                "running": {"processes": one.processes, "slots": one.slots, "at_work": one.at_work},
                "beyond": one.beyond,
                "verdict": one.verdict,
            }
            for name, one in found.pools.items()
        },
        "resources": {
            name: {
                "held": one.live.resource.held,
                "capacity": one.live.resource.capacity,
                "limit_now": one.live.limit,
                "proven": one.live.proven,
                "mode": one.now.mode if one.now else None,
                "changed": None
                if one.change is None
                else {"at_s": one.change.at_s, "old": one.change.old, "reason": one.change.reason},
                "tasks": one.held,
                "in_flight": one.now.in_flight if one.now else None,
                "waiting": one.now.waiting if one.now else None,
                "phi_measured": one.measured,
            }
            for name, one in found.resources.items()
        },
        "processes": [
            {"host": one.host, "pid": one.pid, "pools": one.pools, "connections": one.connections, "waits": one.waits}
            for one in found.processes
        ],
        "connections": {
            "workers": found.connections,
            "workers_wanted": found.connections_wanted,
            "budget": found.budget,
            "kept": OTHER_CONNECTIONS,
            "server": found.server.connections,
            "server_most": found.server.most - found.server.reserved,
        },
        "objections": [_objection(one) for one in found.objections],
        "wished": {
            name: {
                "processes": wish.processes,
                "slots": wish.slots or found.pools[name].pool.slots if name in found.pools else None,
            }
            for name, wish in wishes.items()
        },
        "refused": any(one.error for one in against),
        "against": [_objection(one) for one in against],
    }


def _objection(one: Objection) -> dict[str, Any]:
    return {"id": one.id, "message": one.message, "hint": one.hint, "error": one.error}
