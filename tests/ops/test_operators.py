"""The commands that make tenants and keys: what they print, and what they say when it can't be done."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from harness.policy.errors import HarnessError
from harness.store import keys
from harness.store.database import connect


def run(*words: str) -> str:
    out = io.StringIO()
    call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_a_key_is_printed_once_works_and_stops_working_when_revoked(database_url: str) -> None:
    run("tenant", "create", "acme", "--weight", "2", "--cap", "7", "--backlog-quota", "9", "--top-priority", "0")
    (tenant,) = json.loads(run("tenant", "list", "--json"))
    assert tenant | {"id": 0} == {
        "id": 0, "name": "acme", "weight": 2.0, "cap": 7, "backlog_quota": 9, "top_priority": 0,
        "artifact_quota_bytes": 10 * 1024**3, "degrade": True,
    }  # fmt: skip
    key = run("key", "create", "acme", "--scopes", "read", "--label", "demo").strip()
    with connect(database_url, "web", application_name="test") as web:
        caller = keys.authenticate(web, key)
        assert (caller.tenant.name, caller.scopes) == ("acme", frozenset({"read"}))
        listed = run("key", "list")
        assert caller.prefix in listed and "demo" in listed and key not in listed
        with connect(database_url, "engine", application_name="test") as engine:
            assert key.split("_", 2)[2] not in str(engine.execute("SELECT * FROM api_key").fetchall())
        run("key", "revoke", caller.prefix)
        with pytest.raises(HarnessError, match="revoked"):
            keys.authenticate(web, key)
    assert "revoked" in run("key", "list")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("tenant", "create", "acme"), "tenant list"),
        (("tenant", "create", "Acme Corp"), "a-z"),
        (("tenant", "create", "b", "--weight", "0"), "weight: must be above 0"),
        (("tenant", "create", "b", "--weight", "nan"), "weight: must be above 0"),
        (("tenant", "create", "b", "--cap", "-1"), "cap: must be"),
        (("tenant", "create", "b", "--backlog-quota", "99999999999"), "backlog_quota: must be"),
        (("tenant", "create", "b", "--top-priority", "4"), "top_priority: must be 0"),
        (("key", "create", "nobody"), "manage.py tenant create nobody"),
        (("key", "create", "acme", "--scopes", "admin"), "read, write"),
        (("key", "create", "acme", "--scopes", ""), "read, write"),
        (("key", "revoke", "zzzzzzzz"), "key list"),
    ],
)
def test_a_command_that_cannot_do_it_names_the_fix(database_url: str, words: tuple[str, ...], says: str) -> None:
    keys.create_tenant("acme")
    with pytest.raises(CommandError, match=says):
        run(*words)


def test_revoking_twice_says_so(database_url: str) -> None:
    keys.create_tenant("acme")
    prefix = keys.create_key("acme").split("_")[1]
    run("key", "revoke", prefix)
    with pytest.raises(CommandError, match="already"):
        run("key", "revoke", prefix)


def test_the_kinds_are_listed_without_a_database() -> None:
    kinds: dict[str, Any] = {kind["name"]: kind for kind in json.loads(run("kinds", "--json"))}
    assert kinds["ingest.document"]["pool"] == "ingest" and "noop" in run("kinds")
