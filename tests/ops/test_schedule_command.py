"""`manage.py schedule list`."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from harness.engine import schedules
from harness.engine.schedules import ScheduleRequest
from harness.store import queries
from tests.stage import Stage


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("schedule", *arguments, stdout=out)
    return out.getvalue()


def test_the_schedules_are_listed_by_tenant_with_their_state(stage: Stage) -> None:
    assert "no schedules" in run("list")
    for name in ("acme", "beta"):
        tenant = queries.tenant_facts(stage.connection, stage.tenant if name == "acme" else stage.add_tenant("beta"))
        assert tenant is not None
        asked = ScheduleRequest(name=f"of {name}", kind="noop", input={}, cron="0 6 * * *", zone="Asia/Tokyo")
        made = schedules.create(stage.connection, tenant, asked, body_max_bytes=1000, author="test")
    assert tenant is not None
    schedules.pause(stage.connection, tenant, made, reason="holidays")
    text = run("list")
    assert "of acme" in text and "Asia/Tokyo" in text and "holidays" in text
    (only,) = json.loads(run("list", "--tenant", "acme", "--json"))
    assert (only["name"], only["enabled"], only["cron"]) == ("of acme", True, "0 6 * * *")
    with pytest.raises(CommandError, match="no tenant 'nobody'"):
        run("list", "--tenant", "nobody")
