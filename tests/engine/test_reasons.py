"""Why tasks wait: each reason on real rows, in its words, and never another's figures."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.engine import operate
from harness.policy import money as policy_money
from harness.policy.lifecycle import Event
from harness.policy.reasons import Code, Who
from harness.store import leader, money, queries, transitions
from harness.store.transitions import Outcome
from tests.engine.test_scopes import a_run, act
from tests.engine.watch import Watch
from tests.stage import Stage


@pytest.fixture
def watch(stage: Stage) -> Watch:
    return Watch(stage)


def test_a_tenant_at_its_cap_is_told_its_cap_and_what_frees_it(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 8})
    stage.connection.execute("UPDATE tenant SET cap = 2 WHERE id = %s", (stage.tenant,))
    *_, last = stage.submit(n=3)
    stage.tick()
    watch.look()
    (bound,) = watch.why(last).bound
    assert (bound.reason.code, bound.reason.who) == (Code.TENANT_CAP, Who.YOU)
    assert bound.told.words == "You run 2 of your 2 tasks at once."
    assert bound.told.frees == "It starts when one of yours ends; an operator can give you more."
    assert bound.since is not None
    stage.connection.execute("UPDATE tenant SET cap = 0 WHERE id = %s", (stage.tenant,))
    watch.look()
    assert watch.told(last) == ("tenant_cap", "Your cap is 0: nothing of yours is started.")


def test_run_caps_and_quotas_are_told(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 8})
    run = stage.one(
        "INSERT INTO run (public_id, tenant_id, size, fanout_cap) VALUES (gen_random_uuid(), %s, 9, 1) RETURNING id",
        stage.tenant,
    )
    quota = stage.add_tenant("quota")
    stage.connection.execute("INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', 'db', 1)", (quota,))
    *_, of_run = stage.submit(n=2, run=run)
    *_, of_quota = stage.submit(n=2, tenant=quota)
    stage.tick()
    watch.look()
    assert watch.told(of_run) == ("run_cap", "This run works on 1 of its 1 tasks at once.")
    assert watch.told(of_quota) == ("quota", "You hold 1 of your 1 in db at once.")


def test_a_quota_on_a_resource_binds_before_the_resource(stage: Stage, watch: Watch) -> None:
    stage.add_session({"llm": 80})
    quota = stage.add_tenant("quota")
    stage.connection.execute(
        "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'resource', 'llm:default', 1)", (quota,)
    )
    *_, mine = stage.submit("llm.summarize", n=2, tenant=quota)
    stage.tick()
    *_, others = stage.submit("llm.summarize", n=60)
    stage.tick()
    watch.look()
    assert watch.told(mine) == ("quota", "You hold 1 of your 1 in llm:default at once.")
    assert watch.told(others) == ("resource", "llm:default is in full use: 50 of 50.")


def test_a_resources_own_cap_of_a_tenant_is_told_like_a_quota(stage: Stage, watch: Watch, settings: Any) -> None:
    resources = settings.HARNESS_TOPOLOGY.resources
    for cap, others in ((1, "You hold 1 of your 1 in llm:default at once."), (0, "Your quota on llm:default is 0.")):
        capped = {"llm:default": replace(resources["llm:default"], tenant_cap=cap)}
        settings.HARNESS_TOPOLOGY = replace(settings.HARNESS_TOPOLOGY, resources={**resources, **capped})
        stage.add_session({"llm": 8})
        *_, last = stage.submit("llm.summarize", n=2, tenant=stage.add_tenant(f"capped at {cap}"))
        stage.lead()
        stage.tick()
        watch.look()
        code, words = watch.told(last)
        assert code == "quota" and others in words


def test_a_pause_is_told_with_author_reason_and_end(stage: Stage, watch: Watch) -> None:
    stage.add_session()
    (task,) = stage.submit()
    until = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=400)
    with stage.open() as connection:
        operate.pause_scope(
            connection, "pool", "db", tenant=None, actor="jo", reason="it burns", until=until.replace(hour=6, minute=0)
        )
    watch.look()
    (bound,) = watch.why(task).bound
    assert bound.reason.code == Code.PAUSED and bound.reason.who == Who.PERSON
    assert bound.told.words.startswith(f"The pool db is paused until 06:00 UTC on {until.day} {until:%b} {until.year}")
    assert " by jo since " in bound.told.words and bound.told.words.endswith(": “it burns”.")
    assert "an operator resumes it" in bound.told.frees


@pytest.mark.parametrize(
    ("scope", "named", "words"),
    [
        ("priority", "p2", "Priority P2 is paused by someone since"),
        ("pool_priority", "db.p2", "Priority P2 in the pool db is paused by someone since"),
        ("tenant", "acme", "All your work is paused by someone since"),
    ],
)
def test_every_scope_that_is_paused_is_named(stage: Stage, watch: Watch, scope: Any, named: str, words: str) -> None:
    stage.add_session()
    (task,) = stage.submit()
    act(stage, "pause", scope, named)
    watch.look()
    code, told = watch.told(task)
    assert code == "paused" and told.startswith(words)


def test_a_paused_run_tells_nobody_elses_number_and_who_can_lift_it(stage: Stage, watch: Watch) -> None:
    stage.add_session()
    run, number = a_run(stage, size=1)
    (task,) = [row[0] for row in stage.connection.execute("SELECT id FROM task")]
    act(stage, "pause", "run", run, tenant=stage.tenant)
    watch.look()
    (bound,) = watch.why(task).bound
    assert bound.reason.who == Who.YOU and "when you resume it" in bound.told.frees
    assert bound.told.words.startswith("This run is paused") and str(number) not in str(bound.reason.subject)


def test_a_pool_without_workers_and_a_demand_beyond_all_capacity_are_told(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 1})
    (served,) = stage.submit("noop.sleep")
    (large,) = stage.submit(signature="telescope=1", pool="db")
    watch.look()
    assert watch.told(served) == ("no_worker", "No tool_read worker is running.")
    assert watch.told(large) == ("too_large", "It needs 1 of telescope, and telescope gives 0 at most.")


def test_a_spent_budget_holds_only_what_costs(stage: Stage, watch: Watch) -> None:
    stage.add_session({"llm": 4, "db": 1})
    money.set_budget("acme", policy_money.budget(day_usd=10.0, month_usd=None), author="me")
    stage.connection.execute(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, tokens, usd) "
        "VALUES (0, %s, 1, clock_timestamp(), 'succeed', 1, 20)",
        (stage.tenant,),
    )
    assert stage.epoch is not None
    money.count(stage.connection, epoch=stage.epoch, unpriced_usd=1.0)
    (costs,) = stage.submit("llm.summarize")
    (free,) = stage.submit()
    watch.look(2)
    assert watch.told(costs) == ("budget", "The day's budget of $10.00 is spent.")
    assert watch.told(free)[0] == "turn"


def test_who_holds_the_most_that_one_may_beside_others_is_told_so(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 10})
    other = stage.add_tenant("other")
    stage.submit(tenant=other)
    stage.tick()
    *_, last = stage.submit(n=12)
    stage.tick()
    watch.look()
    assert watch.told(last) == ("share", "You hold 9 of the 9 places of db that one tenant may hold beside others.")


def test_what_only_the_plan_knows_is_taken_from_what_it_said(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 4})
    run = stage.one(
        "INSERT INTO run (public_id, tenant_id, size) VALUES (gen_random_uuid(), %s, 9) RETURNING id", stage.tenant
    )
    (of_run,) = stage.submit(run=run)
    (needy,) = stage.submit("llm.summarize", pool="db")
    (plain,) = stage.submit()
    said = {0: "fan_out", 1: "reserved:llm:default", 2: "slots"}
    flows = [
        stage.one("SELECT f.id FROM flow f JOIN task t USING (run_id, signature) WHERE t.id = %s", task)
        for task in (of_run, needy, plain)
    ]
    watch.held = {flow: said[at] for at, flow in enumerate(flows)}
    watch.look(2)
    assert watch.told(of_run) == (
        "fan_out",
        "The long tasks of this run hold as many places of db as a run's may beside others.",
    )
    assert watch.told(needy) == (
        "reserved",
        "What is free of llm:default is kept for a task that needs more of it and has waited longer.",
    )
    assert watch.told(plain)[0] == "turn"


def test_a_scope_on_its_ramp_says_so(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 4})
    *_, last = stage.submit(n=3)
    act(stage, "pause", "tenant", "acme")
    act(stage, "resume", "tenant", "acme")
    stage.tick()
    watch.look()
    assert watch.told(last) == ("ramp", "All your work comes back from a pause, step by step.")


def test_a_task_that_lost_two_workers_waits_for_quarantine(stage: Stage, watch: Watch) -> None:
    stage.add_session({"tool_read": 2})
    (task,) = stage.submit("noop.sleep")
    stage.connection.execute("UPDATE task SET lost_starts = 2 WHERE id = %s", (task,))
    watch.look(2)
    assert watch.told(task) == ("quarantine", "It lost its worker 2 times, so it runs apart in quarantine.")
    stage.add_session({"quarantine": 1})
    watch.look()
    assert watch.told(task)[0] == "turn"


def test_of_others_a_tenant_is_told_only_how_many_wait(stage: Stage, watch: Watch) -> None:
    stage.add_session({"db": 1})
    other = stage.add_tenant("other-company")
    stage.submit(tenant=other)
    stage.tick()
    stage.submit(n=3, tenant=other)
    first, second = stage.submit(n=2)
    watch.look(2)
    found = watch.why(first)
    assert watch.told(first) == ("turn", "It is the next of yours in its line; 1 other tenant waits for db too.")
    assert watch.told(second)[1] == "1 of your own tasks comes before it."
    assert watch.why(second).ahead == 1
    assert "other-company" not in str(found) and "3" not in found.bound[0].told.words
    with stage.open("web") as web, queries.as_tenant(web, stage.tenant):
        tenants = {row[0] for row in web.execute("SELECT tenant_id FROM wait_reason")}
        assert tenants == {stage.tenant}
        assert web.execute("SELECT pool, slots, free, tenants FROM pool_now WHERE pool = 'db'").fetchall() == [
            ("db", 1, 0, 2)
        ]
    with stage.open("web") as web:
        assert web.execute("SELECT count(*) FROM wait_reason").fetchone() == (0,)


def test_states_outside_the_line_answer_from_the_task_itself(stage: Stage, watch: Watch) -> None:
    stage.add_session()
    planned = datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(days=800)
    (later,) = stage.submit(not_before=planned)
    assert watch.told(later) == (
        "not_before",
        f"Planned for {planned:%H:%M} UTC on {planned.day} {planned:%b} {planned.year}.",
    )
    (held,) = stage.submit()
    public = stage.one("SELECT public_id FROM task WHERE id = %s", held)
    with stage.open() as connection:
        operate.pause(connection, public, tenant=stage.tenant, actor="key of acme", reason="wrong input?")
        operate.pause(connection, public, tenant=None, actor="jo", reason="")
    found = watch.why(held).bound
    assert [bound.reason.subject for bound in found] == ["tenant", "operator"]
    assert "by key of acme since " in found[0].told.words and found[0].told.words.endswith(": “wrong input?”.")
    assert found[0].told.frees == "It goes on when you resume it." and found[0].reason.who == Who.YOU
    assert found[1].told.frees == "It goes on when an operator resumes it." and found[1].reason.who == Who.PERSON
    (released,) = stage.submit("noop.sleep")
    stage.tick()
    assert watch.told(released) == ("starting", "It has a place and starts now.")


def test_without_a_dispatcher_that_is_the_reason(stage: Stage, watch: Watch) -> None:
    (task,) = stage.submit()
    watch.look()
    stage.connection.execute("UPDATE leader SET until = clock_timestamp() - interval '1 minute'")
    code, words = watch.told(task)
    assert code == "no_dispatcher" and words.startswith("Nothing is started: no dispatcher leads since ")
    leader.resign(stage.connection, stage.epoch or 0)
    assert watch.told(task)[1] == "Nothing is started: no dispatcher leads."


def test_a_retry_a_postponement_and_a_version_nobody_knows_say_what_was_told_of_them(
    stage: Stage, watch: Watch
) -> None:
    session = stage.add_session()
    tasks = stage.submit("noop.sleep", n=3)
    outcomes: tuple[dict[str, Any], ...] = (
        {"event": Event.FAIL, "delay_s": 60.0, "spends": 1, "data": {"reason": "no answer within 30 s"}},
        {"event": Event.POSTPONE, "delay_s": 60.0, "data": {"reason": "429 from openai"}},
        {"event": Event.MISMATCH, "hold": "version", "data": {"reason": "the worker doesn't know it"}},
    )
    for message, ends in zip(stage.tick(), outcomes, strict=True):
        (claimed,) = stage.claim(message, session)
        outcome = Outcome(task=claimed.id, release_no=claimed.release_no, slot_s=1.0, **ends)
        transitions.settle(
            stage.connection, [outcome], lease=message.lease, token=message.token, session=session, actor="w"
        )
    told = [watch.told(task) for task in tasks]
    assert [code for code, _ in told] == ["retry", "postponed", "version"]
    assert told[0][1].startswith("It failed and is tried again at ") and told[0][1].endswith(": no answer within 30 s.")
    assert told[1][1] == "What it needs had no room: 429 from openai."
    assert told[2][1] == "No worker knows its kind in this version: the worker doesn't know it."
    assert {one.code for task in tasks for one in watch.why(task).spent} >= {
        Code.RETRY,
        Code.POSTPONED,
        Code.VERSION,
    }
