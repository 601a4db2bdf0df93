"""Tenants and their API keys: made and revoked by operators, looked up at the door.

A key is `hk_<prefix>_<secret>`; the secret has 256 random bits, so a plain SHA-256 is enough to keep, and the whole key
is never stored or logged. A revoked key is refused at once: nothing here is cached.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError
from django.db.models.functions import Now

from harness.policy import allowance
from harness.policy.admission import TenantFacts
from harness.policy.errors import Conflict, HarnessError, Invalid, NotFound
from harness.store import queries, sql
from harness.store.database import Connection
from harness.store.models import ApiKey, Tenant

SCOPES = ("read", "write")
ARTIFACT_QUOTA_BYTES = 10 * 1024**3
_KEY = re.compile(r"hk_([a-z0-9]{8})_[A-Za-z0-9_-]{43}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_PREFIX_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class Unauthenticated(HarnessError):
    """The caller shows no valid key. The message never says which part of it is wrong."""

    code = "unauthenticated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Who asks: the key's prefix and scopes, and the tenant that it acts for."""

    prefix: str
    scopes: frozenset[str]
    tenant: TenantFacts

    @property
    def actor(self) -> str:
        """The name in trace events."""
        return f"key:{self.prefix}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyView:
    """A key as lists show it; nothing of its secret."""

    prefix: str
    tenant: str
    scopes: tuple[str, ...]
    label: str
    created_at: datetime
    revoked_at: datetime | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantView:
    """A tenant with its limits."""

    id: int
    name: str
    weight: float
    cap: int
    backlog_quota: int
    top_priority: int
    artifact_quota_bytes: int
    degrade: bool


def authenticate(connection: Connection, key: str) -> Caller:
    """Return who shows this key. Raises: Unauthenticated, also when it was revoked."""
    shape = _KEY.fullmatch(key)
    if not shape:
        raise Unauthenticated("this is not a Harness API key (hk_..); `manage.py key create TENANT` makes one")
    prefix = shape[1]
    with connection.transaction():
        # The row of this prefix is all that role web sees before it knows the tenant.
        connection.execute("SELECT set_config('harness.key_prefix', %s, true)", (prefix,))
        row = connection.execute(sql.load("queries/key_shown"), {"prefix": prefix}).fetchone()
        known, scopes, revoked, tenant_id = row or ("", (), True, 0)
        if not hmac.compare_digest(known, digest(key)) or revoked:
            raise Unauthenticated("the API key is unknown or revoked")
        connection.execute("SELECT set_config('harness.tenant', %s, true)", (str(tenant_id),))
        tenant = queries.tenant_facts(connection, tenant_id)
    if tenant is None:
        raise Unauthenticated("the API key is unknown or revoked")
    return Caller(prefix=prefix, scopes=frozenset(scopes), tenant=tenant)


def digest(key: str) -> str:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_tenant(
    name: str,
    *,
    weight: float = 1.0,
    cap: int = 1000,
    backlog_quota: int = 100_000,
    top_priority: int = 1,
    artifact_quota_bytes: int = ARTIFACT_QUOTA_BYTES,
    degrade: bool = True,
) -> TenantView:
    """Make a tenant. Raises: Invalid naming the field; Conflict when the name is taken."""
    check_name(name)
    allowance.weight(weight)
    for field, value in (("cap", cap), ("backlog_quota", backlog_quota)):
        allowance.count(value, field)
    allowance.top_priority(top_priority)
    _check_artifact_quota(artifact_quota_bytes)
    try:
        tenant = Tenant.objects.create(
            name=name,
            weight=weight,
            cap=cap,
            backlog_quota=backlog_quota,
            top_priority=top_priority,
            artifact_quota_bytes=artifact_quota_bytes,
            degrade=degrade,
        )
    except IntegrityError:
        raise Conflict(
            f"name: there is a tenant {name!r} already; `manage.py tenant list` shows it", field="name"
        ) from None
    return _tenant_view(tenant)


def check_name(name: str) -> None:
    """Raises: Invalid when no tenant can have that name."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"name: {name!r} must be 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit",
            field="name",
        )


def set_artifact_quota(name: str, quota_bytes: int) -> None:
    """Change how much a tenant's artifacts may hold; what is there already stays. Raises: Invalid, NotFound."""
    _check_artifact_quota(quota_bytes)
    if not Tenant.objects.filter(name=name).update(artifact_quota_bytes=quota_bytes):
        raise NotFound(f"there is no tenant {name!r}; `manage.py tenant list` shows them", field="name")


def tenants() -> list[TenantView]:
    """Return all tenants, by name."""
    return [_tenant_view(tenant) for tenant in Tenant.objects.order_by("name")]


def create_key(tenant_name: str, *, scopes: Sequence[str] = SCOPES, label: str = "") -> str:
    """Make an API key and return it: the only time that it is seen. Raises: NotFound (tenant), Invalid."""
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise Invalid(
            f"scopes: {', '.join(map(repr, unknown)) or 'none given'}; choose from {', '.join(SCOPES)}", field="scopes"
        )
    if len(label) > 200 or "\x00" in label:
        raise Invalid("label: must be text of at most 200 characters", field="label")
    tenant = Tenant.objects.filter(name=tenant_name).first()
    if tenant is None:
        raise NotFound(
            f"there is no tenant {tenant_name!r}; `manage.py tenant list` shows them, "
            f"`manage.py tenant create {tenant_name}` makes it",
            field="tenant",
        )
    prefix = "".join(secrets.choice(_PREFIX_LETTERS) for _ in range(8))
    key = f"hk_{prefix}_{secrets.token_urlsafe(32)}"
    ApiKey.objects.create(tenant=tenant, prefix=prefix, hash=digest(key), scopes=sorted(set(scopes)), label=label)
    return key


def revoke_key(prefix: str) -> None:
    """Revoke a key, for good. Raises: NotFound; Conflict when it was revoked before."""
    bare = prefix.removeprefix("hk_").split("_", 1)[0]  # a whole key is understood too
    if ApiKey.objects.filter(prefix=bare, revoked_at__isnull=True).update(revoked_at=Now()):
        return
    if ApiKey.objects.filter(prefix=bare).exists():
        raise Conflict(f"the key {bare} is revoked already", field="prefix")
    raise NotFound(f"there is no key with the prefix {bare!r}; `manage.py key list` shows them", field="prefix")


def keys(tenant_name: str | None = None) -> list[KeyView]:
    """Return all keys, or those of one tenant, oldest first."""
    found = ApiKey.objects.select_related("tenant").order_by("id")
    if tenant_name is not None:
        found = found.filter(tenant__name=tenant_name)
    return [
        KeyView(
            prefix=key.prefix,
            tenant=key.tenant.name,
            scopes=tuple(key.scopes),
            label=key.label,
            created_at=key.created_at,
            revoked_at=key.revoked_at,
        )
        for key in found
    ]


def _tenant_view(tenant: Tenant) -> TenantView:
    return TenantView(
        id=tenant.id,
        name=tenant.name,
        weight=tenant.weight,
        cap=tenant.cap,
        backlog_quota=tenant.backlog_quota,
        top_priority=tenant.top_priority,
        artifact_quota_bytes=tenant.artifact_quota_bytes,
        degrade=tenant.degrade,
    )


def _check_artifact_quota(value: int) -> None:
    if not 0 <= value < 2**63:
        raise Invalid(
            f"artifact_quota_bytes: must be a whole number of bytes from 0, not {value}", field="artifact_quota_bytes"
        )
