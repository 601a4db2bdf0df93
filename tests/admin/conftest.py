"""The admin in this process, by Django's client, with people of every group and two tenants with rows of everything."""

import datetime
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from harness.store import keys, people
from tests.stage import Stage

PASSWORD = "correct horse battery"
BACKEND = "django.contrib.auth.backends.ModelBackend"


@dataclass
class House:
    """Two tenants, and who looks at them."""

    stage: Stage
    ours: int
    theirs: int
    rows: dict[str, dict[int, list[Any]]] = field(default_factory=dict)  # model -> tenant -> primary keys

    def login(self, name: str) -> Client:
        client = Client(HTTP_HOST="127.0.0.1", enforce_csrf_checks=False)
        client.force_login(User.objects.get(username=name), backend=BACKEND)
        return client

    def task(self, tenant: int | None = None) -> int:
        return self.stage.submit("noop.single", tenant=tenant or self.ours)[0]


@pytest.fixture
def house(stage: Stage) -> House:
    """`ours` and `theirs`, and the logins viewer, operator, admin (of ours), loose (of nothing), root."""
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018  (registers the admin, as serving would)
    ours, theirs = stage.add_tenant("ours-tenant"), stage.add_tenant("theirs-tenant")
    people.setup()
    people.add("viewer", PASSWORD, group="viewer")
    people.add("operator", PASSWORD, group="operator")
    people.add("ours-admin", PASSWORD, group="tenant admin", tenant="ours-tenant")
    User.objects.create_user("loose", password=PASSWORD, is_staff=True)
    User.objects.create_superuser("root", password=PASSWORD)
    return House(stage, ours, theirs)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def _insert(stage: Stage, statement: str, *parameters: object) -> Any:
    return stage.one(statement, *parameters)


Maker = Callable[[Stage, int, str], Any]

# A row of each model for one tenant, marked with a word to look for; returns its primary key.
MAKERS: dict[str, Maker] = {
    "tenant": lambda stage, tenant, word: tenant,
    "task": lambda stage, tenant, word: stage.submit("noop.single", tenant=tenant)[0],
    "run": lambda stage, tenant, word: _insert(
        stage, "INSERT INTO run (tenant_id, name, size) VALUES (%s, %s, 1) RETURNING id", tenant, word
    ),
    "attempt": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, message, traceback) "
        "VALUES (%s, %s, 1, now(), now(), 'fail', %s, 'Traceback of a secret') RETURNING id",
        stage.submit("noop.single", tenant=tenant)[0],
        tenant,
        word,
    ),
    "traceevent": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO event (task_id, tenant_id, seq, event, to_state, actor, data) "
        "VALUES (%s, %s, 2, 'postpone', 'queued', %s, NULL) RETURNING id",
        stage.submit("noop.single", tenant=tenant)[0],
        tenant,
        word,
    ),
    "lease": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO lease (token, pool, tenant_id, run_id, priority, kind, est_s, n, timeout_s) "
        "VALUES (1, 'llm', %s, 0, 2, %s, 1, 1, 1) RETURNING id",
        tenant,
        word,
    ),
    "approval": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at) "
        "VALUES (%s, %s, 1, 'ask', %s, '{approved}', 'pause', 'cancel', now()) RETURNING id",
        stage.submit("noop.single", tenant=tenant)[0],
        tenant,
        word,
    ),
    "quota": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', %s, 1) RETURNING id",
        tenant,
        word,
    ),
    "apikey": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO api_key (tenant_id, prefix, hash, scopes, label) VALUES (%s, %s, 'x', '{read}', %s) RETURNING id",
        tenant,
        uuid.uuid4().hex[:8],
        word,
    ),
    "schedule": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO schedule (tenant_id, name, kind, input, cron, enabled, author) "
        "VALUES (%s, %s, 'noop', '{}', '0 0 * * *', false, 'x') RETURNING id",
        tenant,
        word,
    ),
    "document": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO document (tenant_id, sha256, name, title, content_type, size_bytes, characters, words, chunks) "
        "VALUES (%s, %s, %s, '', 'text/plain', 1, 1, 1, 1) RETURNING id",
        tenant,
        uuid.uuid4().hex,
        word,
    ),
    "artifact": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO artifact (tenant_id, state, sha256, bytes, name, content_type, path, expires_at) "
        "VALUES (%s, 'stored', %s, 1, %s, 'text/plain', %s, now()) RETURNING id",
        tenant,
        uuid.uuid4().hex,
        word,
        uuid.uuid4().hex,
    ),
    "budget": lambda stage, tenant, word: _insert(
        stage, "INSERT INTO budget (tenant_id, day_usd, author) VALUES (%s, 1, %s) RETURNING tenant_id", tenant, word
    ),
    "usageday": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO usage_day (tenant_id, day, attempts, tokens, unpriced_tokens, usd) "
        "VALUES (%s, current_date, 1, 1, 1, 1) RETURNING id",
        tenant,
    ),
    "pause": lambda stage, tenant, word: _insert(
        stage,
        "INSERT INTO pause (scope, key, tenant_id, source, author, reason) "
        "VALUES ('tenant', %s, %s, %s, 'x', %s) RETURNING id",
        str(tenant),
        tenant,
        word,
        word,
    ),
}


def key_of(name: str) -> str:
    return keys.create_key(name)
