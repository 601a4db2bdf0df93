"""Store and simulator make the same plans, as lists, of the same snapshot: a thousand of them, generated."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from harness.engine import dispatch
from harness.engine.memory import Memory
from harness.kinds import models, registry
from harness.policy.accounts import ClockRow, CreditRow
from harness.policy.flow import FlowFacts, Head
from harness.policy.models import parse
from harness.policy.outlook import configured
from harness.policy.plan import Pick, Plan
from harness.policy.pressure import Level
from harness.sim.flows import Flow
from harness.sim.plans import Tick
from harness.sim.rows import Lease, Task, Tenant
from harness.sim.world import World
from harness.store import leader, snapshot
from harness.store.database import Connection, role_names
from tests.conformance.cases import Case, LeaseCase, make
from tests.stage import Stage

CASES = 1000
BATCHES = 10  # so that a failure is told early, and the database stays small

INSERT = (Path(__file__).parent / "snapshot.sql").read_text(encoding="utf-8")

Decided = tuple[str, tuple[Pick, ...], dict[int, str], tuple[int, ...]]


def decided(plan: Plan) -> Decided:
    """What a plan says to all others: who starts, who doesn't and why, which flows are empty."""
    return plan.pool, plan.picks, dict(plan.held), plan.empty


def plans_of_the_store(connection: Connection, case: Case) -> tuple[list[Decided], float, float]:
    """Return the plans, the moment that the case counts from, and the moment of the look."""
    engine = role_names(str(connection.info.dbname))["engine"]
    with connection.transaction(force_rollback=True):
        connection.execute("RESET ROLE")
        (at_s,) = connection.execute(INSERT, (json.dumps(case, default=vars),)).fetchone() or (0.0,)
        connection.execute(f"SET ROLE {engine}")
        connection.execute("INSERT INTO level VALUES (1, %s, now(), now(), '{}', '{}')", (case.level,))
        epoch = leader.take(connection, "conformance")
        assert epoch is not None
        memory = Memory()
        memory.begin(snapshot.line(connection, epoch=epoch))
        for pool, bundled in case.bundled.items():
            memory.line(pool).bundled = bundled
        for outlook in case.outlooks(time.monotonic()):
            if memory.outlook is not None:
                memory.course.follow(memory.outlook, [])
            memory.outlook = outlook
        plans = [decided(plan) for _, plan in dispatch.decide(connection, settings.HARNESS_TOPOLOGY, memory)]
        return plans, at_s, memory.now_s


def ticks_of_the_world(case: Case, at_s: float, now_s: float) -> list[Tick]:
    topology = settings.HARNESS_TOPOLOGY
    world = World(
        {pool: case.slots[pool] for pool in topology.pools if pool in case.slots},
        {name: resource.capacity for name, resource in topology.resources.items()},
        registry.all_kinds(),
    )
    for number, (cap, weight) in case.tenants.items():
        quotas = [(scope, name, n) for tenant, scope, name, n in case.quotas if tenant == number]
        degrade = number not in case.whole
        world.add_tenant(Tenant(number, str(number), "all", cap=cap, weight=weight, degrade=degrade), quotas)
    for number, (owner, run_cap) in case.runs.items():
        world.add_run(world.tenants[owner], run_cap, number)
    world.estimates |= case.estimates
    world.pause([(scope, key, "operator", "test") for scope, key in case.pauses])
    world.stand(beyond=case.beyond)
    world.press(Level(case.level))
    world.bounds.ramps = [(scope, key, now_s - ago_s) for scope, key, ago_s in case.ramps]
    remember(world, case, at_s - case.written_ago_s)
    for lease in case.leases:
        hold(world, lease, at_s)
    for one in sorted(case.flows, key=lambda flow: flow.id):
        run = world.runs.get(one.run)
        flow = Flow(one.id, (one.priority, one.tenant, one.run, one.signature))
        world.flows[one.pool].insert(flow)
        world.lines[one.pool].add(flow.facts, at_s - one.heads[0][-1] if one.heads else now_s)
        for task, kind, single, lost_starts, ago_s in one.heads:
            tenant = world.tenants[one.tenant]
            world.tasks[task] = Task(task, tenant, run, kind, one.pool, one.priority, one.signature, 0.0, 0.0)
            flow.add(Head(task, kind, single, lost_starts, at_s - ago_s))
    world.now_s = now_s
    outlooks = case.outlooks(now_s)
    for outlook in outlooks[:-1]:
        world.bounds.course.follow(outlook, [])
    world.see(outlooks[-1] if outlooks else configured(topology.resources.values()))
    return world.tick()


def remember(world: World, case: Case, at_s: float) -> None:
    for pool, line in world.lines.items():
        line.load(
            [ClockRow(*clock[1:], at_s) for clock in case.clocks if clock[0] == pool],
            [CreditRow(*credit[1:], at_s) for credit in case.credits if credit[0] == pool],
        )
        line.bundled = case.bundled.get(pool, False)


def hold(world: World, case: LeaseCase, at_s: float) -> None:
    tenant, run = world.tenants[case.tenant], world.runs.get(case.run)
    flow = FlowFacts(id=0, priority=case.priority, tenant=case.tenant, run=case.run, signature=case.signature)
    members = [
        Task(task, tenant, run, "noop", case.pool, case.priority, case.signature, 0.0, 0.0) for task in case.members
    ]
    n = max(1, len(members))
    world.now_s = at_s - case.ago_s
    lease = Lease(
        case.id,
        case.pool,
        case.via,
        tenant,
        run,
        case.priority,
        case.signature,
        members,
        n,
        flow,
        world.now_s,
        case.lane,
        n * case.est_s,
        case.cost,
    )
    world.hold(lease)
    world.claim(lease)


@pytest.fixture(autouse=True)
def cheaper_model() -> Iterator[None]:
    """A cheaper model whose calls take permits of another resource."""
    before = models.configured()
    provider = {"p": {"base_url": "http://127.0.0.1:1/v1"}}
    two = {name: {"provider": "p", "resource": held} for name, held in (("a", "llm:default"), ("b", "tool:http"))}
    file = {"default": "a", "cheaper": "b", "unpriced_usd_per_million_tokens": 1.0, "providers": provider}
    models.configure(parse(file | {"models": two}))
    yield
    models.configure(before)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_store_and_simulator_make_the_same_plans(stage: Stage, batch: int) -> None:
    stage.connection.execute("UPDATE leader SET until = 'epoch'")
    for number in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        case = make(number)
        expected, at_s, now_s = plans_of_the_store(stage.connection, case)
        found = [decided(tick.plan) for tick in ticks_of_the_world(case, at_s, now_s)]
        assert found == expected, f"snapshot {number}"


def test_the_snapshots_say_something() -> None:
    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    now_s = 1_800_000_000.0
    plans = [tick.plan for number in range(CASES) for tick in ticks_of_the_world(make(number), now_s, now_s + 1.0)]
    reasons = Counter(reason.partition(":")[0] for plan in plans for reason in plan.held.values())
    assert {"slots", "run_cap", "quota", "resource", "quarantine", "ramp"} <= set(reasons)
    picks = [pick for plan in plans for pick in plan.picks]
    assert sum(bool(plan.picks) for plan in plans) > CASES / 2
    assert sum(bool(plan.empty) for plan in plans) > CASES / 10
    assert {pick.lane for pick in picks} == {0, 1, 2, 3, 4}
    assert any(len(pick.tasks) > 1 for pick in picks)
    assert any(pick.quarantine for pick in picks)
    assert any(pick.cost > 1.0 for pick in picks)
    assert {pick.form.name for pick in picks} == {"", "brief", "small"}
    assert any(pick.signature == "tool:http=1" != pick.flow.signature for pick in picks)
