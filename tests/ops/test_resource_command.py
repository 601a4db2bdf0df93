"""`manage.py resource`: overrides by operators, and what it says to those that make no sense."""

import argparse
import getpass
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.core.management import CommandError

from harness.ops.operators import moment
from harness.store import overrides, resources
from harness.store.database import connect
from harness.store.resources import Change, ResourceNow
from tests.ops.test_operators import run

WHY = ("--reason", "the key is shared")


def test_an_override_is_set_listed_and_cleared(database_url: str) -> None:
    told = run("resource", "set", "llm:default", "capacity=20", "rpm=600", "breaker=off", "--until", "1h", *WHY)
    assert "llm:default: capacity 50 -> 20, rpm none -> 600, breaker on -> off, until 20" in told
    assert "as it was" in run("resource", "set", "tool:http", "capacity=7", *WHY) + run(
        "resource", "set", "tool:http", "capacity=7", *WHY
    )
    listed = run("resource", "list")
    assert "capacity=20 until" in listed and "breaker=off until" in listed and "capacity=7" in listed
    found = {one["resource"]: one for one in json.loads(run("resource", "list", "--json"))["resources"]}
    assert set(found) == set(settings.HARNESS_TOPOLOGY.resources)
    assert (found["llm:default"]["limit"], found["llm:default"]["rpm"]) == (20, 600.0)
    set_by = found["llm:default"]["overrides"]["capacity"]
    assert set_by["author"] == f"operator:{getpass.getuser()}" and set_by["reason"] == WHY[1]
    end = datetime.fromisoformat(set_by["until"])
    assert timedelta(minutes=59) < end - datetime.now(UTC) <= timedelta(hours=1)
    assert "rpm 600 -> none" in run("resource", "clear", "llm:default", "rpm", *WHY)
    cleared = json.loads(run("resource", "clear", "llm:default", *WHY, "--json"))
    assert cleared["before"] == {"breaker": False, "capacity": 20}
    assert cleared["after"] == {"breaker": True, "capacity": 50}


def test_changes_of_limits_are_listed_with_their_reasons(database_url: str) -> None:
    assert run("resource", "changes") == "no limit has changed\n"
    run("resource", "set", "tool:http", "capacity=7", *WHY)
    run("resource", "set", "rag:search", "capacity=2", *WHY)
    assert "the key is shared" in run("resource", "changes", "tool:http")
    changes = json.loads(run("resource", "changes", "--json", "--most", "1"))
    assert [(one["resource"], one["old"], one["new"], one["mode"]) for one in changes] == [
        ("rag:search", 8, 2, "override")
    ]


def test_what_was_seen_is_listed_with_its_age(database_url: str) -> None:
    with connect(database_url, "engine", application_name="test") as connection:
        seen = ResourceNow(resource="llm:default", limit_now=50, breaker="open", in_flight=17, waiting=23)
        resources.keep(connection, [seen], [Change(resource="x", at_s=None, old=None, new=1, reason="x", mode="x")])
    line = next(line for line in run("resource", "list").splitlines() if line.startswith("llm:default"))
    assert line.split()[:8] == ["llm:default", "call", "csl", "50", "of", "50", "17", "23"] and " s ago" in line
    assert "never" in run("resource", "list"), "the others weren't seen yet"


def test_an_override_of_a_resource_that_is_gone_is_told_and_can_be_cleared(database_url: str) -> None:
    with connect(database_url, "staff", application_name="test") as connection:
        overrides.put(connection, resource="gone", changes={"rpm": 5.0}, author="jo", reason="x", until=None)
    assert "gone isn't in resources.toml any more, but rpm of it is overridden" in run("resource", "list")
    assert json.loads(run("resource", "list", "--json"))["not_configured"] == [
        {"resource": "gone", "field": "rpm", "value": 5.0}
    ]
    assert "rpm 5 -> none" in run("resource", "clear", "gone", *WHY)
    with pytest.raises(CommandError, match="there is no resource 'gone'; choose from"):
        run("resource", "clear", "gone", *WHY)


REFUSED = (
    (("set", "gpu", "capacity=1", *WHY), "there is no resource 'gpu'; choose from browser, db:main, llm:default"),
    (("set", "llm:default", "capacity", *WHY), "must be FIELD=VALUE"),
    (("set", "llm:default", "capacity=", *WHY), "must be FIELD=VALUE"),
    (("set", "llm:default", "capacity=1", "capacity=2", *WHY), "capacity: is given twice"),
    (("set", "llm:default", "colour=1", *WHY), "llm:default: colour can't be set"),
    (("set", "llm:default", "capacity=1", "--reason", " "), "reason: say why"),
    (
        ("set", "llm:default", "capacity=1", "--until", "2020-01-01T00:00+00:00", *WHY),
        "until: must be a moment to come",
    ),
    (("set", "llm:default", "capacity=1", "--until", "0s", *WHY), "until: must be a moment to come"),
    (("set", "llm:default", "capacity=1", "--until", "9999d", *WHY), "until: must be within 366 days"),
    (("clear", "llm:default", *WHY), "nothing of it is overridden"),
    (("changes", "--most", "0"), "--most: must be from 1"),
    *(
        (("set", "llm:default", f"{field}={value}", *WHY), f"llm:default: {field} must be")
        for field, values in {
            "capacity": ("-1", "nan", "inf", "1.5", "many", "none", "9999999999", "on"),
            "rpm": ("0", "-1", "nan", "inf", "much", "1e300"),
            "tpm": ("0", "-60", "nan", "on"),
            "limiter": ("vegas", "5", "none"),
            "breaker": ("maybe", "1"),
            "timeout_s": ("0", "-1", "nan", "none"),
            "tenant_cap": ("-1", "0.5"),
        }.items()
        for value in values
    ),
)


def test_what_makes_no_sense_is_refused_with_the_field_and_the_fix(database_url: str) -> None:
    for words, says in REFUSED:
        with pytest.raises(CommandError) as raised:
            run("resource", *words)
        assert says in str(raised.value), words
    assert json.loads(run("resource", "changes", "--json")) == []


@pytest.mark.parametrize("text", ["", "1", "1w", "-1h", "h", "soon", "2026-01-31", "2026-01-31T18:00", "9" * 30 + "d"])
def test_an_end_without_unit_or_zone_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be a time from now"):
        moment(text)
