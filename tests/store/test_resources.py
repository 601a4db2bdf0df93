"""What the database adds to resources.toml: overrides in force, quotas, the last state of each, changes of limits."""

from dataclasses import replace
from datetime import timedelta

from django.conf import settings

from harness.policy.resources import Resource
from harness.store import housekeeping, resources
from harness.store.resources import Change, ResourceNow
from tests.stage import Stage
from tests.store.plans import plan_of

LLM = Resource(name="llm:default", held="call", capacity=50, limiter="csl", floor=5, p0_reserve=1)
BROWSER = Resource(name="browser", held="task", capacity=3, breaker=False)
CONFIGURED = {one.name: one for one in (LLM, BROWSER)}


def override(stage: Stage, resource: str, field: str, value: str, ends: str = "NULL, NULL") -> None:
    stage.connection.execute(
        "INSERT INTO override (resource, field, value, author, reason, until, ended_at) "
        f"VALUES (%s, %s, %s::jsonb, 'test', 'test', {ends})",
        (resource, field, value),
    )


def test_nothing_set_is_what_is_configured(stage: Stage) -> None:
    found = resources.effective(stage.connection, settings.HARNESS_TOPOLOGY.resources)
    assert {name: live.resource for name, live in found.items()} == settings.HARNESS_TOPOLOGY.resources
    assert all(
        live.proven is live.limit_now is None and live.limit == live.resource.capacity for live in found.values()
    )


def test_overrides_hold_until_they_are_over_or_ended(stage: Stage) -> None:
    override(stage, "llm:default", "capacity", "20", "now() + interval '1 h', NULL")
    override(stage, "llm:default", "rpm", "600", "now() - interval '1 s', NULL")
    override(stage, "llm:default", "tpm", "5000", "NULL, now()")
    override(stage, "llm:default", "timeout_s", "5")
    found = resources.effective(stage.connection, CONFIGURED)
    assert found["llm:default"].resource == replace(LLM, capacity=20, timeout_s=5.0)
    assert found["browser"].resource == BROWSER


def test_overrides_that_no_longer_fit_the_file_harm_nothing(stage: Stage) -> None:
    override(stage, "gone", "capacity", "20")
    override(stage, "llm:default", "colour", '"red"')
    override(stage, "llm:default", "rpm", "-1")
    override(stage, "browser", "rpm", "60")
    override(stage, "llm:default", "capacity", "3")
    found = resources.effective(stage.connection, CONFIGURED)
    assert set(found) == set(CONFIGURED)
    assert found["llm:default"].resource == replace(LLM, capacity=3, floor=3)
    assert found["browser"].resource == BROWSER


def test_a_tenants_quota_goes_before_the_resources_own_cap(stage: Stage) -> None:
    other = stage.add_tenant("other")
    stage.connection.execute(
        "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'resource', 'llm:default', 2), "
        "(%s, 'pool', 'llm', 9)",
        (stage.tenant, other),
    )
    override(stage, "llm:default", "tenant_cap", "7")
    live = resources.effective(stage.connection, CONFIGURED)["llm:default"]
    assert (live.tenant_cap(stage.tenant), live.tenant_cap(other)) == (2, 7)
    assert resources.effective(stage.connection, CONFIGURED)["browser"].tenant_cap(stage.tenant) is None


def test_what_is_kept_is_read_again_and_a_proven_ceiling_outlives_those_who_know_none(stage: Stage) -> None:
    seen = ResourceNow(
        resource="llm:default",
        limit_now=31,
        proven=30,
        mode="hold",
        breaker="open",
        breaker_until_s=1e9,
        blocked_until_s=1e9 + 5,
        in_flight=29,
        waiting=4,
        seen_s=1000.0,
    )
    change = Change(resource="llm:default", at_s=999.0, old=30, new=31, reason="probe", mode="ramp")
    assert resources.keep(stage.connection, [seen], [change]) == (1, 1)
    assert resources.kept(stage.connection) == {"llm:default": seen}
    later = replace(seen, proven=None, limit_now=7, seen_s=1001.0)
    assert resources.keep(stage.connection, [later, replace(later, resource="browser")], []) == (2, 0)
    live = resources.effective(stage.connection, CONFIGURED)["llm:default"]
    assert (live.proven, live.limit_now, live.limit) == (30, 7, 7)


def test_a_state_seen_earlier_puts_nothing_back(stage: Stage) -> None:
    now = ResourceNow(resource="llm:default", limit_now=9, seen_s=1000.0)
    resources.keep(stage.connection, [now], [])
    assert resources.keep(stage.connection, [replace(now, limit_now=50, seen_s=999.0)], []) == (0, 0)
    assert resources.kept(stage.connection)["llm:default"].limit_now == 9


def test_a_limit_kept_above_a_capacity_that_was_lowered_counts_no_longer(stage: Stage) -> None:
    resources.keep(stage.connection, [ResourceNow(resource="llm:default", limit_now=45)], [])
    override(stage, "llm:default", "capacity", "20")
    assert resources.effective(stage.connection, CONFIGURED)["llm:default"].limit == 20


def test_changes_are_found_by_their_indexes_however_many_there_are(stage: Stage) -> None:
    stage.connection.execute(
        "INSERT INTO limit_change (resource, at, old, new, reason, mode) "
        "SELECT 'llm:' || i % 3, now() - make_interval(secs => i), i, i + 1, 'probe', 'ramp' "
        "FROM generate_series(1, 20000) i"
    )
    for name in ("changes", "changes_of", "last_changes"):
        plan = plan_of(stage, f"resources/{name}")
        assert "limit_change_" in plan and "Seq Scan on limit_change" not in plan, plan
    newest = resources.last_changes(stage.connection, ["llm:0", "llm:1", "none"])
    assert {name: one.old for name, one in newest.items()} == {"llm:0": 3, "llm:1": 1}
    assert [one.old for one in resources.changes(stage.connection, "llm:2", most=2)] == [2, 5]
    assert [one.old for one in resources.changes(stage.connection, most=3)] == [1, 2, 3]


def test_old_changes_and_overrides_that_ended_long_ago_go_with_the_retention(stage: Stage) -> None:
    override(stage, "llm:default", "capacity", "20", "NULL, now() - interval '40 d'")
    override(stage, "llm:default", "rpm", "60", "now() - interval '40 d', NULL")
    override(stage, "llm:default", "tpm", "60", "NULL, now() - interval '5 d'")
    old, young = (Change(resource="x", at_s=None, old=1, new=n, reason="x", mode="ramp") for n in (2, 3))
    resources.keep(stage.connection, [], [old])
    stage.connection.execute("UPDATE limit_change SET at = now() - interval '40 d'")
    resources.keep(stage.connection, [], [young])
    before = stage.one("SELECT now()") - timedelta(days=30)
    assert list(housekeeping.delete_old_limits(stage.connection, before=before)) == [1, 1]
    assert [one.new for one in resources.changes(stage.connection, most=9)] == [3]
    left = stage.connection.execute("SELECT field FROM override ORDER BY 1").fetchall()
    assert left == [("rpm",), ("tpm",)], "one that nobody has ended yet stays"
