"""What operators set of a tenant: weight, caps, and its quotas on pools and resources. Called inside a transaction.

Nothing here judges a value (policy.allowance) or notes who set it (engine.operate.limits). The dispatcher looks at
both at least once a second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from psycopg import sql

from harness.store.database import Connection

QuotaScope = Literal["pool", "resource"]
FIELDS = ("weight", "cap", "backlog_quota", "top_priority", "degrade")


@dataclass(frozen=True, slots=True)
class QuotaView:
    """A tenant's cap on one pool or resource."""

    tenant: str
    scope: str
    name: str
    cap: int


def lock_tenant(connection: Connection, name: str) -> tuple[int, dict[str, float]] | None:
    """Lock a tenant; return its id and its limits by field. None: there is none of that name."""
    row = connection.execute(
        "SELECT id, weight, cap, backlog_quota, top_priority, degrade FROM tenant WHERE name = %s FOR UPDATE", (name,)
    ).fetchone()
    return None if row is None else (row[0], dict(zip(FIELDS, row[1:], strict=True)))


def change_tenant(connection: Connection, tenant: int, changes: Mapping[str, float]) -> None:
    """Give a locked tenant other limits; `changes` holds some of FIELDS."""
    columns = sql.SQL(", ").join(
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in FIELDS if name in changes
    )
    statement = sql.SQL("UPDATE tenant SET {} WHERE id = {}").format(columns, sql.Placeholder("tenant"))
    connection.execute(statement, {**changes, "tenant": tenant})


def put_quota(connection: Connection, tenant: int, scope: QuotaScope, name: str, cap: int) -> int | None:
    """Set a quota of a locked tenant; return the cap that it had, if it had one."""
    before = _quota(connection, tenant, scope, name)
    connection.execute(
        "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (tenant_id, scope, name) DO UPDATE SET cap = excluded.cap",
        (tenant, scope, name, cap),
    )
    return before


def drop_quota(connection: Connection, tenant: int, scope: QuotaScope, name: str) -> int | None:
    """Take a quota of a locked tenant away; return the cap that it had. None: there was none."""
    row = connection.execute(
        "DELETE FROM quota WHERE tenant_id = %s AND scope = %s AND name = %s RETURNING cap", (tenant, scope, name)
    ).fetchone()
    return None if row is None else int(row[0])


def quotas(connection: Connection, tenant: str | None = None) -> list[QuotaView]:
    """Return the quotas of one tenant, or all."""
    cursor = connection.execute(
        "SELECT tenant.name, scope, quota.name, quota.cap FROM quota JOIN tenant ON tenant.id = tenant_id "
        "WHERE %(tenant)s::text IS NULL OR tenant.name = %(tenant)s ORDER BY 1, 2, 3",
        {"tenant": tenant},
    )
    return [QuotaView(*row) for row in cursor]


def _quota(connection: Connection, tenant: int, scope: QuotaScope, name: str) -> int | None:
    row = connection.execute(
        "SELECT cap FROM quota WHERE tenant_id = %s AND scope = %s AND name = %s", (tenant, scope, name)
    ).fetchone()
    return None if row is None else int(row[0])
