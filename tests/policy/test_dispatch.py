"""The plan of a tick: invariants as properties, for pools of 1 to 50 slots, and rule 7's order."""

from hypothesis import given, settings

from harness.policy.dispatch import BUNDLE_S
from harness.policy.flow import FlowFacts, Head
from harness.policy.heads import BUNDLE_MAX, LOST_STARTS_QUARANTINE
from harness.policy.lanes import AGED, NO_LANE, P0, P2, P3
from harness.policy.line import Line
from harness.policy.plan import Plan
from harness.policy.room import InFlight
from tests.policy.facts import BUNDLING, KINDS, NOW_S, POOL, Given, flow, given_facts, heads, held, uses


@given(given_facts())
@settings(max_examples=200, deadline=None)
def test_no_cap_is_exceeded_by_a_plan(facts: Given) -> None:
    room = facts.room()
    free, quarantine = room.free[POOL], room.free["quarantine"]
    plan = facts.plan(room=room)
    after = uses(facts, plan)
    assert len(plan.picks) <= max(0, free)
    assert sum(pick.quarantine for pick in plan.picks) <= max(0, quarantine)
    for pick in plan.picks:
        of = pick.flow
        assert sum(use.members for use in after if use.tenant == of.tenant) <= facts.caps[of.tenant]
        cap = facts.run_caps.get(of.run)
        assert cap is None or sum(use.members for use in after if use.run == of.run) <= cap
        assert all(held(after, resource) <= facts.capacities[resource] for resource, _ in of.needs)
        for tenant, scope, name, most in facts.quotas:
            if tenant == of.tenant and scope == "pool":
                assert sum(use.members for use in after if use.tenant == tenant) <= most
            elif tenant == of.tenant and name in dict(of.needs):
                assert held(after, name, tenant) <= most


@given(given_facts())
@settings(max_examples=100, deadline=None)
def test_a_plan_takes_from_the_room_exactly_what_it_gives(facts: Given) -> None:
    room = facts.room()
    plan = facts.plan(room=room)
    after = Given(**vars(facts) | {"flight": tuple(uses(facts, plan))}).room()
    assert (room.free, room.resources, room.quotas) == (after.free, after.resources, after.quotas)
    assert (room.tenants, room.runs) == (after.tenants, after.runs)


@given(given_facts())
@settings(max_examples=100, deadline=None)
def test_a_plan_is_deterministic_changes_no_line_and_does_not_depend_on_the_order_of_the_flows(facts: Given) -> None:
    line = facts.line()
    before = line.dump()
    plan = facts.plan(line)
    assert line.dump() == before
    assert facts.plan(line) == plan
    assert facts.plan(facts.line(reversed(facts.tasks))).picks == plan.picks


@given(given_facts())
@settings(max_examples=100, deadline=None)
def test_each_flow_is_served_oldest_first_without_gaps(facts: Given) -> None:
    plan = facts.plan()
    for of, found in facts.tasks.items():
        taken = [task for pick in plan.picks if pick.flow == of for task in pick.tasks]
        # All but those that wait for a slot of quarantine, which keep nobody waiting.
        quarantined = {head.task for head in found if head.lost_starts >= LOST_STARTS_QUARANTINE} - set(taken)
        assert taken == [head.task for head in found if head.task not in quarantined][: len(taken)]


@given(given_facts())
@settings(max_examples=100, deadline=None)
def test_while_slots_remain_nobody_waits_without_a_reason(facts: Given) -> None:
    room = facts.room()
    line = facts.line()
    plan = facts.plan(line, room)
    assert set(plan.held.values()).isdisjoint({"slots"}) or room.free[POOL] <= 0
    if room.free[POOL] > 0:
        # Nothing has become free since: whoever would be picked now was left out without a reason.
        assert facts.plan(line, room).picks == () or any(
            head.lost_starts for found in facts.tasks.values() for head in found
        )


@given(given_facts())
@settings(max_examples=100, deadline=None)
def test_bundles_are_short_one_kind_and_never_p0_or_single(facts: Given) -> None:
    for pick in facts.plan().picks:
        if len(pick.tasks) == 1:
            continue
        found = {head.task: head for head in facts.tasks[pick.flow]}
        assert pick.flow.priority != 0
        assert not pick.quarantine
        assert pick.kind in BUNDLING
        assert {found[task].kind for task in pick.tasks} == {pick.kind}
        assert not any(found[task].single or found[task].lost_starts for task in pick.tasks)
        assert len(pick.tasks) * KINDS[pick.kind] <= BUNDLE_S + 1e-9
        assert pick.est_s <= BUNDLE_S + 1e-9
        assert len(pick.tasks) <= BUNDLE_MAX


def test_the_victims_picks_are_the_same_whatever_the_elephants_backlog() -> None:
    def victims(backlog: int) -> list[tuple[int, ...]]:
        tasks = {flow(1, 1): heads(1, backlog), flow(2, 2): heads(2, 3), flow(3, 3): heads(3, 1)}
        return [pick.tasks for pick in Given(slots=6, tasks=tasks).plan().picks if pick.flow.tenant != 1]

    assert victims(10) == victims(10_000)
    assert len(victims(10)) == 3  # two slots each, and tenant 3 has but one task


def test_a_blocked_flow_does_not_hold_up_the_others() -> None:
    tasks = {flow(i, i, signature="llm=1"): heads(i, 1) for i in range(1, 51)} | {flow(99, 99): heads(99, 1)}
    facts = Given(slots=1, tasks=tasks, capacities={"llm": 0})
    plan = facts.plan()
    assert [pick.flow.id for pick in plan.picks] == [99]
    assert [asked.flows for asked in facts.looks] == [(99,)], "what can't run isn't even asked for"


def test_a_resource_without_room_holds_up_nothing_else_of_the_same_run() -> None:
    tasks = {flow(1, 1, run=11, signature="llm=1"): heads(1, 5), flow(2, 1, run=11): heads(2, 5)}
    plan = Given(slots=4, tasks=tasks, capacities={"llm": 0}).plan()
    assert [pick.flow.id for pick in plan.picks] == [2] * 4


def test_a_backlog_of_short_work_is_bundled_and_a_few_tasks_are_spread_over_the_slots() -> None:
    many = Given(slots=4, tasks={flow(1, 1): heads(1, 500, "short")})
    line = many.line()
    line.bundled = True  # the last look saw such work
    assert [len(pick.tasks) for pick in many.plan(line).picks] == [50] * 4
    few = Given(slots=4, tasks={flow(1, 1): heads(1, 4, "short")})
    assert [len(pick.tasks) for pick in few.plan().picks] == [1] * 4


def test_a_task_that_lost_two_workers_goes_through_quarantine() -> None:
    killer: dict[FlowFacts, tuple[Head, ...]] = {
        flow(1, 1): (Head(7, "long", lost_starts=2, single=True), Head(8, "long"))
    }
    (first,) = Given(slots=1, tasks=killer).plan().picks
    assert first.quarantine
    waits = Given(slots=2, tasks=killer, quarantine=0).plan()
    assert [pick.tasks for pick in waits.picks] == [(8,)], "it keeps nobody of its flow waiting"


# -- rule 7


CLASSES = {flow(p + 1, p + 1, priority=p): heads(p + 1, 100) for p in range(4)}


def with_credits(**credits_s: float) -> tuple[Given, Line]:
    """A pool of 4 with all classes waiting, and credits as given."""
    facts = Given(slots=4, tasks=CLASSES)
    line = facts.line()
    line.at_s = NOW_S
    for lane, name in ((P0, "p0"), (P2, "p2"), (P3, "p3"), (AGED, "aged")):
        line.accounts[lane].credit_s = credits_s.get(name, -100.0)
        line.accounts[lane].est_s = 5.0
        line.waited[lane] = True
    return facts, line


def lanes_of(plan: Plan) -> list[tuple[int, int]]:
    return [(pick.flow.priority, pick.lane) for pick in plan.picks]


def test_p0_goes_first_while_its_credit_lasts_and_pays_since_others_wait() -> None:
    facts, line = with_credits(p0=1.0)
    assert lanes_of(facts.plan(line)) == [(0, P0), (1, NO_LANE), (1, NO_LANE), (1, NO_LANE)]


def test_p0_pays_nothing_while_nobody_else_waits_and_comes_last_when_its_credit_is_spent() -> None:
    alone = Given(slots=2, tasks={flow(1, 1, priority=0): heads(1, 9)})
    assert lanes_of(alone.plan()) == [(0, NO_LANE)] * 2
    facts, line = with_credits(p0=-1.0)
    assert lanes_of(facts.plan(line)) == [(1, NO_LANE)] * 4
    few = Given(slots=4, tasks={flow(1, 1, priority=0): heads(1, 9), flow(2, 2, priority=1): heads(2, 1)})
    line = few.line()
    line.at_s, line.accounts[P0].credit_s = NOW_S, -1.0
    assert lanes_of(few.plan(line)) == [(1, NO_LANE)] + [(0, NO_LANE)] * 3


def test_lanes_pick_before_p1_the_most_overdue_first_and_at_most_half_of_the_pool() -> None:
    facts, line = with_credits(p2=9.0, p3=6.0)
    assert lanes_of(facts.plan(line)) == [(3, P3), (2, P2), (1, NO_LANE), (1, NO_LANE)]


def test_the_aged_lane_takes_what_has_waited_longest_by_its_classs_measure() -> None:
    facts, line = with_credits(aged=0.0)
    facts.tasks = {
        of: tuple(Head(h.task, h.kind, ready_s=0.0 if of.priority == 3 else NOW_S) for h in found)
        for of, found in CLASSES.items()
    }
    line = facts.line()
    for of in facts.tasks:
        line.forget([of.id])
        line.add(of, 0.0 if of.priority >= 2 else NOW_S)
    line.at_s = NOW_S
    for lane in (P0, P2, P3):
        line.accounts[lane].credit_s = -100.0
    plan = facts.plan(line)
    assert lanes_of(plan)[0] == (3, AGED)
    assert dict(plan.since)[3] == NOW_S, "P2's flow turned out not to be old"


def test_headroom_is_p0s_alone_where_slots_end_seldom() -> None:
    slow = InFlight(POOL, None, 9, 0, "", 8, 8, 1)
    facts = Given(slots=10, tasks={flow(1, 1, priority=1): heads(1, 9)}, flight=(slow,))
    line = facts.line()
    line.urgent_s, line.accounts[AGED].mean_s = NOW_S - 60, 60.0
    assert len(facts.plan(line).picks) == 1
    facts.tasks |= {flow(2, 2, priority=0): heads(2, 9)}
    line.add(flow(2, 2, priority=0), NOW_S)
    assert [pick.flow.priority for pick in facts.plan(line).picks] == [0, 0]
