"""The store and the simulator release the same: a thousand snapshots give the same plans, as lists, from both."""

import json
from collections import Counter
from pathlib import Path

import pytest
from django.conf import settings

from harness.engine import dispatch
from harness.kinds import registry
from harness.policy.dispatch import FlowFacts, Head, Plan
from harness.policy.look import Seen
from harness.policy.room import needs
from harness.sim.flows import Flow
from harness.sim.rows import Lease, Task, Tenant
from harness.sim.world import World
from harness.store.database import Connection, role_names
from tests.conformance.cases import Case, LeaseCase, make
from tests.stage import Stage

CASES = 1000
BATCHES = 10  # so that a failure is told early, and the database stays small

INSERT = (Path(__file__).parent / "snapshot.sql").read_text(encoding="utf-8")


def plans_of_the_store(connection: Connection, case: Case) -> list[tuple[str, list[Plan], list[int]]]:
    engine = role_names(str(connection.info.dbname))["engine"]
    with connection.transaction(force_rollback=True):
        connection.execute("RESET ROLE")
        connection.execute(INSERT, (json.dumps(case, default=vars),))
        connection.execute(f"SET ROLE {engine}")
        memory = dispatch.Memory(seen={pool: Seen(*seen) for pool, seen in case.seen.items()})
        return [
            (pool, decided.plans, decided.empty)
            for pool, decided in dispatch.decide(connection, settings.HARNESS_TOPOLOGY, memory)
        ]


def world_of(case: Case) -> World:
    topology = settings.HARNESS_TOPOLOGY
    world = World(
        {pool: case.slots[pool] for pool in topology.pools if pool in case.slots},
        {name: resource.capacity for name, resource in topology.resources.items()},
        registry.all_kinds(),
    )
    for number, cap in case.tenants.items():
        quotas = [(scope, name, n) for tenant, scope, name, n in case.quotas if tenant == number]
        world.add_tenant(Tenant(number, str(number), "all", cap=cap), quotas)
    for number, (owner, run_cap) in case.runs.items():
        world.add_run(world.tenants[owner], run_cap, number)
    world.estimates |= case.estimates
    world.pause([(scope, key, "operator", "test") for scope, key in case.pauses])
    world.stand(beyond=case.beyond)
    world.ramps = [(scope, key, -ago_s) for scope, key, ago_s in case.ramps]
    world.seen = {pool: Seen(*seen) for pool, seen in case.seen.items()}
    for lease in case.leases:
        world.hold(_lease(world, lease))
    for one in case.flows:
        run = world.runs.get(one.run)
        key = (one.priority, one.tenant, one.run, one.signature)
        flow = Flow(one.id, key, one.rank, case.tenants[one.tenant], run.fanout_cap if run else None)
        world.flows[one.pool].insert(flow)
        for task, kind, single, lost_starts in one.heads:
            tenant = world.tenants[one.tenant]
            world.tasks[task] = Task(task, tenant, run, kind, one.pool, one.priority, one.signature, 0.0, 0.0)
            flow.add(Head(task, kind, single, lost_starts))
    return world


def _lease(world: World, case: LeaseCase) -> Lease:
    tenant, run = world.tenants[case.tenant], world.runs.get(case.run)
    flow = FlowFacts(
        id=0,
        priority=2,
        tenant=case.tenant,
        run=case.run,
        signature=case.signature,
        rank=0.0,
        tenant_cap=tenant.cap,
        run_cap=run.fanout_cap if run else None,
        heads=(),
        needs=needs(case.signature),
    )
    members = [Task(task, tenant, run, "noop", case.pool, 2, case.signature, 0.0, 0.0) for task in case.members]
    return Lease(case.id, case.pool, case.via, tenant, run, 2, case.signature, members, len(members), flow, 0.0)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_store_and_simulator_make_the_same_plans(stage: Stage, batch: int) -> None:
    for number in range(batch * CASES // BATCHES, (batch + 1) * CASES // BATCHES):
        case = make(number)
        expected = plans_of_the_store(stage.connection, case)
        found = [(tick.pool, tick.decided.plans, tick.decided.empty) for tick in world_of(case).tick()]
        assert found == expected, f"snapshot {number}"


def test_the_snapshots_say_something() -> None:
    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    plans = [tick.decided.plans for number in range(CASES) for tick in world_of(make(number)).tick()]
    reasons = Counter(reason.partition(":")[0] for pages in plans for page in pages for reason in page.held.values())
    assert {"slots", "tenant_cap", "run_cap", "quota", "resource", "quarantine", "ramp"} <= set(reasons)
    assert sum(len(pages) > 1 for pages in plans) > 20
    assert sum(any(page.picks for page in pages) for pages in plans) > CASES / 2
    assert any(len(pick.tasks) > 1 for pages in plans for page in pages for pick in page.picks)
    assert any(pick.quarantine for pages in plans for page in pages for pick in page.picks)
