"""The line: its order is its clocks, charges are what was used, rows bring all of it back, and nothing idle is kept."""

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.accounts import Charge
from harness.policy.lanes import AGED, NO_LANE, P2
from harness.policy.line import Line
from harness.policy.owners import Owners
from harness.policy.plan import Pick, Plan
from tests.policy.facts import POOL, flow

COST_S = st.floats(-5, 50)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.integers(0, 3), st.integers(1, 4), st.integers(0, 2), st.sampled_from(["", "a=1"])
        ),
        st.tuples(st.just("forget"), st.integers(0, 40)),
        st.tuples(st.just("charge"), st.integers(0, 3), st.integers(1, 4), st.integers(0, 2), COST_S),
        st.tuples(st.just("away"), st.sets(st.integers(1, 4))),
        st.tuples(st.just("tidy")),
    ),
    max_size=40,
)


def charge(priority: int, tenant: int, run: int = 0, *, owed_s: float, lane: int = NO_LANE, **more: object) -> Charge:
    return Charge(priority=priority, tenant=tenant, run=run, lane=lane, owed_s=owed_s, **more)  # type: ignore[arg-type]


def picked(line: Line, *picks: Pick, now_s: float = 0.0, v: float | None = None) -> None:
    """Apply a plan of these picks. `v`: the clock of who had had least."""
    line.apply(
        Plan(
            pool=POOL,
            now_s=now_s,
            slots=10,
            picks=picks,
            held={},
            credits_s=(0.0,) * 5,
            waiting=(False,) * 5,
            lowest={} if v is None else {2: v},
        )
    )


def pick(tenant: int, run: int = 0, *, est_s: float = 4.0, cost: float = 1.0, lane: int = NO_LANE) -> Pick:
    of = flow(tenant * 100 + run, tenant, run=run)
    return Pick(flow=of, kind="long", tasks=(1,), lane=lane, est_s=est_s, cost=cost)


@given(STEPS)
def test_whoever_has_a_flow_stands_in_the_order_by_his_clock_and_nobody_else_does(
    steps: list[tuple[object, ...]],
) -> None:
    line = Line(POOL, Owners())
    known: dict[tuple[object, ...], int] = {}
    for number, (what, *more) in enumerate(steps, 1):
        match what:
            case "add" if tuple(more) not in known:
                priority, tenant, run, signature = more
                known[tuple(more)] = number
                line.add(flow(number, tenant, priority=priority, run=run, signature=signature), float(number))  # type: ignore[arg-type]
            case "forget":
                line.forget([more[0]])  # type: ignore[list-item]
                known = {key: one for key, one in known.items() if one != more[0]}
            case "charge":
                line.charge(charge(more[0], more[1], more[2], owed_s=more[3]))  # type: ignore[arg-type]
            case "away":
                line.away(more[0])  # type: ignore[arg-type]
            case "tidy":
                line.tidy()
    clocks = line.clocks()
    assert line.flows.keys() == set(known.values())
    for p, of_class in enumerate(line.classes):
        stands = {(s, t) for s, order in of_class.orders.items() for _, t in order}
        assert stands == {(key[3], key[1]) for key in known if key[0] == p}
        for order in of_class.orders.values():
            assert order == sorted(order)
            assert all(v == clocks[p, tenant, 0] for v, tenant in order)
        for tenant in of_class.tenants.values():
            runs = {(s, run) for s, order in tenant.orders.items() for _, run in order}
            assert runs == {(key[3], key[2]) for key in known if key[:2] == (p, tenant.id) and key[2]}
            for order in tenant.orders.values():
                assert order == sorted(order)
                assert all(v == clocks[p, tenant.id, run] for v, run in order)
        ages = {number for order in of_class.oldest.values() for _, number in order}
        assert ages == ({number for key, number in known.items() if key[0] == p} if p >= 2 else set())
        assert abs(of_class.weight(line.owners) - len(of_class.tenants)) < 1e-9


def test_a_tenant_that_comes_back_begins_at_the_virtual_time_and_keeps_its_debt() -> None:
    line = Line(POOL, Owners())
    line.add(flow(100, 1), 0.0)
    picked(line, pick(1, est_s=50.0))
    picked(line, pick(1, est_s=1.0), v=50.0)
    line.add(flow(200, 2), 0.0)
    assert line.clocks()[2, 2, 0] == 50.0, "no credit for what it didn't use"
    line.charge(charge(2, 2, owed_s=30.0))
    line.forget([200])
    line.add(flow(201, 2), 0.0)
    assert line.clocks()[2, 2, 0] == 80.0


def test_a_run_begins_no_earlier_than_the_others_of_its_tenant() -> None:
    line = Line(POOL, Owners())
    line.add(flow(101, 1, run=1), 0.0)
    picked(line, pick(1, 1, est_s=7.0))
    line.add(flow(102, 1, run=2), 0.0)
    assert line.clocks()[2, 1, 2] == 7.0
    line.forget([101, 102])
    line.add(flow(103, 1, run=3), 0.0)
    assert line.clocks()[2, 1, 3] == 0.0, "nobody to stand beside, and no floor was told"


def test_a_tenant_back_from_a_pause_has_no_credit_for_it() -> None:
    line = Line(POOL, Owners())
    line.add(flow(100, 1), 0.0)
    line.add(flow(200, 2), 0.0)
    line.away({2})
    picked(line, pick(1, est_s=50.0))
    picked(line, pick(1), v=50.0)
    assert line.clocks()[2, 2, 0] == 0.0
    line.away(set())
    assert line.clocks()[2, 2, 0] == 50.0


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.floats(0.01, 20), st.floats(0, 20)), max_size=20))
def test_estimates_and_what_was_beyond_them_add_up_to_what_was_used(tasks: list[tuple[int, int, float, float]]) -> None:
    owners = Owners()
    owners.set_tenant(1, weight=0.5)
    owners.set_tenant(2, weight=4.0)
    line = Line(POOL, owners)
    used: dict[int, float] = {}
    for tenant, run, est_s, actual_s in tasks:
        line.add(flow(tenant * 100 + run, tenant, run=run), 0.0)
        picked(line, pick(tenant, run, est_s=est_s))
        line.charge(charge(2, tenant, run, owed_s=actual_s - est_s, n=1, slot_s=actual_s, cost_s=actual_s))
        used[tenant] = used.get(tenant, 0.0) + actual_s
    for tenant, seconds in used.items():
        assert abs(line.clocks()[2, tenant, 0] * owners.weight(tenant) - seconds) < 1e-6


def test_a_refund_takes_back_what_a_pick_charged_the_lane_too() -> None:
    line = Line(POOL, Owners())
    line.add(flow(100, 1), 0.0)
    one = pick(1, est_s=4.0, cost=2.0, lane=P2)
    picked(line, one)
    assert (line.clocks()[2, 1, 0], line.accounts[P2].credit_s) == (8.0, -8.0)
    line.refund(one)
    assert (line.clocks()[2, 1, 0], line.accounts[P2].credit_s) == (0.0, 0.0)


def test_only_what_was_touched_is_written_and_another_leader_goes_on_from_it() -> None:
    owners = Owners()
    line = Line(POOL, owners)
    for tenant in range(1, 50):
        line.add(flow(tenant * 100, tenant), 0.0)
    line.changes()
    picked(line, pick(3), pick(4, lane=P2), now_s=10.0)
    changes = line.changes()
    assert [(row.priority, row.tenant, row.run, row.v) for row in changes.clocks] == [(2, 3, 0, 4.0), (2, 4, 0, 4.0)]
    assert [row.lane for row in changes.credits] == [P2]
    assert line.changes().clocks == ()
    line.charge(charge(2, 3, owed_s=1.0, n=1, slot_s=5.0, cost_s=5.0))
    assert [row.lane for row in line.changes().credits] == [2, AGED]
    other = Line(POOL, owners)
    other.load(*line.dump())
    for number, of in line.flows.items():
        other.add(of, line.since(number))
    assert other.dump() == line.dump()
    assert [c.orders for c in other.classes] == [c.orders for c in line.classes]


def test_the_clock_of_an_idle_tenant_is_forgotten_once_it_owes_nothing() -> None:
    line = Line(POOL, Owners())
    line.add(flow(100, 1), 0.0)
    line.add(flow(200, 2), 0.0)
    picked(line, pick(1, est_s=10.0))
    line.forget([100])
    assert line.changes().forgotten == ()
    assert (2, 1, 0) in line.clocks()
    picked(line, pick(2, est_s=1.0), v=10.0)
    assert line.changes().forgotten == ((2, 1, 0),)
    assert (2, 1, 0) not in line.clocks()


@given(st.floats(0.1, 10), st.floats(0.1, 10))
def test_a_weight_may_change_at_any_time_and_counts_from_then_on(first: float, second: float) -> None:
    owners = Owners()
    line = Line(POOL, owners)
    line.add(flow(100, 1), 0.0)
    owners.set_tenant(1, weight=first)
    picked(line, pick(1, est_s=6.0))
    owners.set_tenant(1, weight=second)
    assert line.classes[2].weight(owners) == second
    picked(line, pick(1, est_s=6.0))
    assert abs(line.clocks()[2, 1, 0] - 6.0 / first - 6.0 / second) < 1e-6
