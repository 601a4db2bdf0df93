"""Who is next is who the definition says, found without looking at everybody."""

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.policy.accounts import Charge
from harness.policy.fairness import AHEAD_TASKS, Runs, Tenants, singles_first
from harness.policy.flight import Flight
from harness.policy.lanes import NO_LANE
from harness.policy.line import Line
from harness.policy.owners import Owners
from harness.policy.quota import NOTHING_STOPPED, Gate
from harness.policy.room import Room, measure
from tests.policy.facts import NOW_S, POOL, flow

SIGNATURES = ("", "llm=1", "browser=1")


def room_of(flight: Flight) -> Room:
    room = measure({POOL: 50}, pauses=(), capacities={"llm": 5, "browser": 0}, quotas=(), flight=())
    room.flight[POOL] = flight
    return room


@st.composite
def standings(draw: st.DrawFn) -> tuple[Line, Flight]:
    owners = Owners()
    line = Line(POOL, owners)
    flight = Flight()
    number = 0
    for tenant in range(1, draw(st.integers(1, 8)) + 1):
        owners.set_tenant(tenant, weight=draw(st.sampled_from([0.5, 1.0, 4.0])))
        for signature in draw(st.sets(st.sampled_from(SIGNATURES))):
            number += 1
            line.add(flow(number, tenant, signature=signature), NOW_S)
        clock = draw(st.sampled_from([0.0, 1.0, 2.5, 50.0]))
        line.charge(Charge(priority=2, tenant=tenant, run=0, lane=NO_LANE, owed_s=clock * owners.weight(tenant)))
        for _ in range(draw(st.integers(0, 3))):
            cost = draw(st.sampled_from([1.0, 3.0]))
            flight.count(2, tenant, 0, NO_LANE, leases=1, cost=cost, overrun_s=draw(st.sampled_from([0.0, 0.5, 9.0])))
    line.accounts[2].est_s = 2.0
    return line, flight


@given(standings(), st.sets(st.integers(1, 8)))
@settings(max_examples=200, deadline=None)
def test_the_next_tenant_is_the_least_of_all_by_band_clock_and_id(facts: tuple[Line, Flight], dead: set[int]) -> None:
    line, flight = facts
    of_class, owners = line.classes[2], line.owners
    assume(of_class.tenants)
    tenants = Tenants(2, line, Gate(POOL, room_of(flight), line, NOTHING_STOPPED, NOW_S), flight, NOW_S)
    tenants.dead |= dead
    weights = sum(owners.weight(t) for t in of_class.tenants.keys() | flight.classes[2].keys())

    def had(tenant: int) -> float:
        held = flight.classes[2].get(tenant)
        return line.clocks()[2, tenant, 0] + (held.overrun_s / owners.weight(tenant) if held else 0.0)

    may = [t.id for t in of_class.tenants.values() if t.id not in dead and t.signatures.keys() - {"browser=1"}]
    v_least = max([line.accounts[2].v, *([min(had(tenant) for tenant in may)] if may else [])])  # V, as it is now

    def rank(tenant: int) -> tuple[bool, float, int]:
        held, weight = flight.classes[2].get(tenant), owners.weight(tenant)
        full = held is not None and held.cost >= weight * (flight.costs[2] + 1.0) / weights
        ahead = (had(tenant) - v_least) * weight > AHEAD_TASKS * line.accounts[2].est_s
        return full or ahead, had(tenant), tenant

    assert tenants.best() == (min(may, key=rank) if may else None)


def test_singles_go_first_until_they_have_had_b_more_than_the_runs_beside_them() -> None:
    line = Line(POOL, Owners())
    line.add(flow(1, 1), NOW_S)
    line.add(flow(2, 1, run=7), NOW_S)
    gate = Gate(POOL, room_of(Flight()), line, NOTHING_STOPPED, NOW_S)
    runs = Runs(2, line.classes[2].tenants[1], gate, NOW_S)
    b = singles_first(10, 2.0)
    assert b == 100.0
    picked = []
    for _ in range(100):
        run = runs.best(None, b)
        assert run is not None
        picked.append(run.id)
        runs.charge(run, 2.0)
    assert picked[:51] == [0] * 51
    assert abs(picked[51:].count(0) - picked[51:].count(7)) <= 1, "then they take turns"


def test_the_run_with_fewer_than_its_part_in_flight_goes_first_then_the_one_that_had_less() -> None:
    line = Line(POOL, Owners())
    line.add(flow(1, 1, run=7), NOW_S)
    line.add(flow(2, 1, run=8), NOW_S)
    flight = Flight()
    flight.count(2, 1, 7, NO_LANE, leases=1, cost=1.0)
    gate = Gate(POOL, room_of(flight), line, NOTHING_STOPPED, NOW_S)
    runs = Runs(2, line.classes[2].tenants[1], gate, NOW_S)
    first = runs.best(flight.classes[2][1], 0.0)
    assert first is not None
    assert first.id == 8
    flight.count(2, 1, 8, NO_LANE, leases=1, cost=1.0)
    runs.charge(first, 5.0)
    second = runs.best(flight.classes[2][1], 0.0)
    assert second is not None
    assert second.id == 7
