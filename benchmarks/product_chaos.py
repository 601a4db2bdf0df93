"""The product's side of `chaos`: tenants with caps and quotas, their keys, and numbers for their names. See drive."""

from benchmarks import product_client
from benchmarks.chaos.schedule import QUOTAS, TENANTS
from benchmarks.product_client import open_connection
from harness.engine import operate
from harness.store import keys

reset = product_client.reset


def make_tenants() -> dict[str, dict[str, object]]:
    """Make the tenants of the schedule. Returns by name: number and API key."""
    found: dict[str, dict[str, object]] = {}
    for name, cap in TENANTS.items():
        made = keys.create_tenant(name, cap=cap, top_priority=0)
        found[name] = {"id": made.id, "key": keys.create_key(name)}
    with open_connection("staff") as connection:
        for (name, pool), cap in QUOTAS.items():
            connection.execute(
                "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', %s, %s)",
                (found[name]["id"], pool, cap),
            )
    return found


def verbs() -> dict[str, list[str]]:
    """Return what people can do to a task in this version."""
    return {"verbs": sorted({*operate.VERBS, "priority"})}
