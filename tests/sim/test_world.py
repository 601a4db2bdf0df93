"""A world keeps its invariants whatever happens in it."""

from random import Random

import pytest

from harness.policy import room as policy_room
from harness.policy.flow import needs
from harness.policy.lifecycle import Event
from harness.policy.quota import soft_cap
from harness.sim.flows import Flow
from harness.sim.rows import Lease, Tenant, use_of
from harness.sim.scenario import Kind, Law
from harness.sim.world import World

LAW = Law(name="fixed", mean_s=1.0)
KINDS = [
    Kind(name="step", pool="llm", law=LAW, est_s=1.0),
    Kind(name="call", pool="llm", signature="model=2", law=LAW, est_s=1.0),
    Kind(name="tiny", pool="db", law=LAW, est_s=0.01, bundle=True),
]


def make(dice: Random) -> World:
    world = World({"llm": 4, "db": 3, "quarantine": 1}, {"model": 5}, KINDS)
    for number in range(1, 5):
        quotas = [("resource", "model", 2), ("pool", "db", 9)] if number == 1 else []
        world.add_tenant(Tenant(number, f"t{number}", "all", cap=dice.choice((1, 3, 30))), quotas)
        world.add_run(world.tenants[number], dice.choice((None, 1, 2)))
    world.stand()
    return world


def happen(world: World, dice: Random) -> None:
    world.now_s += dice.random()
    for _ in range(dice.choice((0, 1, 6))):
        kind, tenant = dice.choice(KINDS), world.tenants[dice.randint(1, 4)]
        run = world.runs[tenant.id] if dice.random() < 0.3 else None
        world.submit(tenant, run, kind.name, kind.pool, dice.choice((0, 1, 2, 3)), kind.signature)
    leases = list(world.leases.values())
    for lease in dice.sample(leases, min(len(leases), dice.choice((0, 1, 3)))):
        end(world, lease, dice)
    if dice.random() < 0.2 and world.tasks:
        world.withdraw(dice.choice(list(world.tasks.values())))
    if dice.random() < 0.1:
        world.fold_charges()


def end(world: World, lease: Lease, dice: Random) -> None:
    if lease.zombie_since_s is not None:
        world.end_zombie(lease)
    elif lease.claimed_s is None:
        world.hand_back(lease)
    elif dice.random() < 0.2:
        world.lose(lease)
    else:
        event = dice.choice((Event.SUCCEED, Event.SUCCEED, Event.INTERRUPT, Event.BURY))
        world.settle(lease, lease.members[0], event, 1.0, keep=len(lease.members) == 1 and dice.random() < 0.1)


def fresh(world: World) -> policy_room.Room:
    """The room as a look at all leases finds it."""
    quotas = [(1, "resource", "model", 2), (1, "pool", "db", 9)]
    return policy_room.measure(
        world.slots,
        pauses=(),
        capacities=world.capacities,
        quotas=quotas,
        flight=[use_of(lease) for lease in world.leases.values()],
    )


def counts(room: policy_room.Room) -> object:
    """What of a room is counted in whole numbers."""
    flight = [
        (pool, one.tenants, one.lanes, [{t: (h.leases, sorted(h.runs)) for t, h in c.items()} for c in one.classes])
        for pool, one in sorted(room.flight.items())
    ]
    ends = sorted((round(end_s, 6), signature) for end_s, signature in room.ends)
    return room.free, room.resources, room.quotas, room.tenants, room.runs, flight, ends


@pytest.mark.parametrize("seed", range(20))
def test_the_room_that_is_kept_is_the_room_that_leases_leave_and_no_slot_idles_for_nothing(seed: int) -> None:
    dice = Random(seed)
    world = make(dice)
    for _ in range(150):
        happen(world, dice)
        for tick in world.tick():
            for lease in tick.leases:
                if dice.random() < 0.9:
                    world.claim(lease)
        room = fresh(world)
        assert counts(world.room) == counts(room)
        for pool, flight in world.room.flight.items():
            for now_s in (world.now_s, world.now_s + 7.0):
                assert flight.overruns_s(now_s) == pytest.approx(room.flight[pool].overruns_s(now_s), abs=1e-6)
            assert flight.costs == pytest.approx(room.flight[pool].costs)
        assert all(free >= 0 for free in room.free.values())
        assert all(left >= 0 for left in (*room.resources.values(), *room.quotas.values()))
        for tenant in world.tenants.values():
            assert tenant.most_in_flight <= tenant.cap
        for run in world.runs.values():
            assert run.fanout_cap is None or run.most_in_flight <= run.fanout_cap
        for pool, flows in world.flows.items():
            if room.free[pool] > 0:
                # Work conservation: whatever is left waiting is held by a limit that can be named.
                assert all(not flow.ready or held(world, pool, flow) for flow in flows)
    assert world.tick() is not None


def held(world: World, pool: str, flow: Flow) -> bool:
    _, tenant, run, signature = flow.key
    room, owners = world.room, world.owners
    cap = owners.runs.get(run)
    return (
        room.tenants.get(tenant, 0) >= owners.cap(tenant)
        or (cap is not None and room.runs.get(run, 0) >= cap)
        or any(room.resources[name] < n or name in room.reserved for name, n in needs(signature))
        or any(room.quotas.get((tenant, "resource", name), n) < n for name, n in needs(signature))
        or room.quotas.get((tenant, "pool", pool), 1) <= 0
        or (room.free["quarantine"] <= 0 and all(head.lost_starts >= 2 for head in flow.ready))
        or room.flight[pool].tenants.get(tenant, 0) >= soft_cap(room.slots[pool])
    )


def test_estimates_move_as_the_database_moves_them() -> None:
    world = make(Random(1))
    task = world.submit(world.tenants[2], None, "step", "llm", 2, "")
    (tick,) = world.tick()
    world.claim(tick.leases[0])
    world.settle(tick.leases[0], task, Event.SUCCEED, 4.0)
    world.fold_charges()
    assert world.estimates == {"step": 4.0}  # the first is taken as it is
    task = world.submit(world.tenants[2], None, "step", "llm", 2, "")
    (lease,) = [lease for tick in world.tick() for lease in tick.leases]
    world.claim(lease)
    world.settle(lease, task, Event.SUCCEED, 14.0)
    world.fold_charges()
    assert world.estimates["step"] == pytest.approx(5.0)  # then a tenth of the way
    assert world.standing.kinds.estimates["step"] == pytest.approx(5.0)
