"""`manage.py deploy_check`: what it finds wrong with a deployment, and its exit code."""

import io
import json
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import redis
from django.conf import settings as configured
from django.core.management import CommandError, call_command

from harness.kinds import registry
from harness.store import sessions
from tests.stage import Stage

GOOD = {
    "SECRET_KEY": "0123456789" * 6,
    "HARNESS_PUBLIC_URL": "https://harness.example",
}


@pytest.fixture(autouse=True)
def _shipped_kinds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kinds that other tests have made."""
    registry.discover(*configured.HARNESS_TASK_PACKAGES)
    shipped = {name: one for name, one in registry._KINDS.items() if one.run.__module__.startswith("tasks.")}
    monkeypatch.setattr(registry, "_KINDS", shipped)


@pytest.fixture
def good(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Settings of a deployment that is fit, as far as settings go."""
    for name, value in GOOD.items():
        monkeypatch.setenv(name, value)
        setattr(settings, name, value)
    settings.ALLOWED_HOSTS = ["harness.example"]
    settings.HARNESS_HTTPS = settings.SESSION_COOKIE_SECURE = settings.CSRF_COOKIE_SECURE = True
    settings.HARNESS_METRICS_TOKEN = "0123456789abcdef"
    return settings


def run(*words: str) -> tuple[str, int]:
    out = io.StringIO()
    try:
        call_command("deploy_check", *words, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(str(end.code))
    return out.getvalue(), 0


def wrong(*words: str) -> tuple[dict[str, list[str]], int]:
    """What isn't ok, by check; the exit code."""
    text, code = run("--json", *words)
    report = json.loads(text)
    assert report["fit"] == (code == 0)
    found: dict[str, list[str]] = {}
    for one in report["findings"]:
        if one["level"] != "ok":
            found.setdefault(one["check"], []).append(f"{one['level']}: {one['says']}")
            assert one["fix"], one
    return found, code


def start_all(stage: Stage) -> None:
    """A worker for each pool, and somebody who has just judged pressure."""
    for pool in configured.HARNESS_TOPOLOGY.pools.values():
        stage.add_session({pool.name: pool.slots})
    stage.connection.execute("DELETE FROM level")
    stage.connection.execute(
        "INSERT INTO level (id, level, since, seen_at, state, readings) VALUES (1, 0, now(), now(), '{}', '{}')"
    )


def test_a_whole_deployment_is_fit(stage: Stage, broker_url: str, good: Any) -> None:
    start_all(stage)
    found, code = wrong("--only", "settings,migrations,broker,connections,clock,dispatcher,beat,workers,kinds")
    assert (found, code) == ({}, 0)
    text, _ = run("--only", "workers,clock")
    assert text.splitlines()[-1] == "fit"
    assert "llm 1" in text and "this machine's clock agrees with that of the database" in text


def test_a_server_that_may_forget_what_it_committed_is_not_fit(stage: Stage) -> None:
    with psycopg.connect(stage.url) as owner:
        row = owner.execute("SELECT current_setting('fsync')").fetchone()
    assert row is not None
    found, code = wrong("--only", "database")
    if row[0] == "off":  # a server for tests
        assert "error: fsync is off: a crash of its machine loses or breaks tasks" in found["database"] and code == 1
    else:
        assert (found, code) == ({}, 0)


def test_nothing_that_runs_is_told_by_part_and_pool(stage: Stage, broker_url: str) -> None:
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    stage.add_session({"llm": 16})
    draining = stage.add_session({"db": 16})
    sessions.start_drain(stage.connection, draining)
    found, code = wrong("--only", "dispatcher,beat,workers")
    assert code == 1
    assert found["dispatcher"] == ["error: none leads: no task is released"]
    assert found["beat"] == ["error: nobody has ever judged pressure"]
    missing = configured.HARNESS_TOPOLOGY.pools.keys() - {"llm"}
    assert found["workers"] == [
        f"error: no live worker serves the pool {pool}: its tasks wait" for pool in sorted(missing)
    ]
    stage.connection.execute(
        "INSERT INTO level (id, level, since, seen_at, state, readings) "
        "VALUES (1, 0, now(), now() - interval '2 m', '{}', '{}')"
    )
    assert wrong("--only", "beat")[0]["beat"] == ["error: pressure was last judged 120 s ago"]


def test_workers_of_other_code_are_told_from_none(stage: Stage) -> None:
    everything = [f"{kind.name}@{kind.version}" for kind in registry.all_kinds()]
    old = [f"{name}@0" if name == "rag.search" else whole for whole in everything for name in [whole.split("@")[0]]]
    stage.add_session({"db": 16}, kinds=old)
    found, code = wrong("--only", "kinds")
    assert code == 1
    (said,) = found["kinds"]
    assert said.startswith("error: no live worker knows rag.search@")
    assert "llm.chat" not in said  # its pool has no worker at all: another check says so
    stage.add_session({"db": 16}, kinds=everything)
    assert wrong("--only", "kinds") == ({}, 0)


def test_each_setting_that_serves_only_at_home_is_named(
    stage: Stage, good: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    good.ALLOWED_HOSTS = ["localhost"]
    good.HARNESS_HTTPS = False
    good.HARNESS_METRICS_TOKEN = "short"
    with monkeypatch.context() as environment:
        environment.delenv("SECRET_KEY")
        environment.delenv("BROKER_URL")
        found, code = wrong("--only", "settings")
    assert code == 1
    said = "\n".join(found["settings"])
    for part in (
        "warning: BROKER_URL is not set; these are the addresses of this checkout's own stack",
        "error: SECRET_KEY is not set: each process makes its own",
        "error: ALLOWED_HOSTS doesn't have harness.example",
        "error: HARNESS_HTTPS is not 1 although people come over https",
        "error: HARNESS_METRICS_TOKEN has fewer than 16 characters",
    ):
        assert part in said
    assert "short" not in said and GOOD["SECRET_KEY"] not in said


def test_warnings_count_only_when_asked(stage: Stage, good: Any) -> None:
    good.HARNESS_METRICS_TOKEN = ""
    found, code = wrong("--only", "settings")
    assert found == {"settings": ["warning: HARNESS_METRICS_TOKEN is not set: there are no metrics, so nothing alarms"]}
    assert (code, wrong("--only", "settings", "--strict")[1]) == (0, 1)


def test_an_artifact_store_that_takes_nothing_is_told_with_its_cause(stage: Stage, good: Any, tmp_path: Any) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    good.HARNESS_ARTIFACTS_DIR = str(blocked / "artifacts")
    found, code = wrong("--only", "settings")
    assert code == 1 and "artifacts can't be kept: [Errno 20] Not a directory" in found["settings"][0]


def test_migrations_of_older_and_newer_code_are_told_apart(stage: Stage) -> None:
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("DELETE FROM django_migrations WHERE app = 'store' AND name = '0003_artifacts'")
        owner.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('store', '9999_later', now())")
        try:
            found, code = wrong("--only", "migrations")
        finally:
            owner.execute("DELETE FROM django_migrations WHERE app = 'store' AND name = '9999_later'")
            owner.execute(
                "INSERT INTO django_migrations (app, name, applied) VALUES ('store', '0003_artifacts', now())"
            )
    assert code == 1
    assert found["migrations"] == [
        "error: not applied: store.0003_artifacts",
        "error: the database is newer than this code: store.9999_later",
    ]


def test_a_budget_that_the_server_does_not_take_is_refused(stage: Stage, good: Any) -> None:
    good.HARNESS_TOPOLOGY = replace(configured.HARNESS_TOPOLOGY, database_connections=100_000)
    found, code = wrong("--only", "connections")
    assert code == 1 and "the budget is more than the server takes: budget 100000, server" in found["connections"][0]


def test_a_redis_that_evicts_and_a_clock_that_is_off_are_named(
    stage: Stage, broker_url: str, good: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.Redis.from_url(broker_url) as client:
        client.config_set("maxmemory", "1gb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found, code = wrong("--only", "broker")
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "0")
    assert code == 1 and "BROKER_URL: maxmemory-policy allkeys-lru throws away messages" in found["broker"][0]

    import time

    real = time.time
    monkeypatch.setattr("harness.ops.deployment.servers.time.time", lambda: real() - 60.0)
    found, code = wrong("--only", "clock")
    assert code == 1 and len(found["clock"]) == 2
    assert "s or more from that of the database" in found["clock"][0]
    monkeypatch.undo()


def test_servers_that_are_away_are_an_answer_and_no_traceback(good: Any, stage: Stage) -> None:
    good.BROKER_URL = good.HARNESS_LIVE_URL = "redis://127.0.0.1:1/0"
    good.DATABASE_URL = "postgresql://nobody@127.0.0.1:1/nothing"
    found, code = wrong("--only", "broker,database,workers")
    assert code == 1
    assert "the broker doesn't answer" in found["broker"][0]
    assert "the database doesn't answer" in found["database"][0] and "workers" not in found


def test_an_unknown_check_is_refused_with_those_there_are(stage: Stage) -> None:
    with pytest.raises(CommandError, match="there is no check nonsense; there are settings, migrations"):
        call_command("deploy_check", "--only", "nonsense")
