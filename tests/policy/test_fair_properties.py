"""Who may be picked: I1 to I7, I9, I10 and I12 of policy.md (as its amendments change them), seen from outside.

Each plays a pool in virtual time and counts by itself (fair_play); none knows how the plan decides. The others are in
test_fair_service.
"""

from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from harness.policy.flow import needs
from harness.policy.lanes import AGED
from harness.policy.quota import fan_out_cap
from harness.sim.rows import Lease, Task
from tests.policy.fair_play import POOL, SLOTS, Play, Scene, in_flight, kind, scenes, set_up

few = settings(max_examples=20, deadline=None)
# A long play isn't shrunk: it would be played hundreds of times more.
long_plays = settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
pools = pytest.mark.parametrize("slots", SLOTS)


def used(flight: list[Lease], **of: Any) -> int:
    return in_flight(flight, **of)


@given(scenes())
@few
def test_i1_no_cap_is_exceeded_by_any_pick_whatever_changes_meanwhile(scene: Scene) -> None:
    play = set_up(scene)
    world = play.world

    def check(lease: Lease, flight: list[Lease]) -> None:
        after, tenant = [*flight, lease], lease.tenant
        assert len(after) <= world.slots[POOL]
        assert used(after, tenant=tenant.id) <= tenant.cap
        if tenant.cap == 7:
            assert used(after, tenant=tenant.id) <= 2  # its quota of the pool
        if lease.run is not None and lease.run.fanout_cap is not None:
            assert used(after, run=lease.run.id) <= lease.run.fanout_cap
        for name, _ in needs(lease.signature):
            assert used(after, resource=name) <= world.capacities[name]

    def change() -> None:
        world.capacities["browser"] = scene.licences
        world.slots[POOL] = max(1, scene.slots // 2)
        world.change_tenant(world.tenants[1], cap=1)
        world.stand()

    play.at(10.0, change)
    play.on_pick = check
    play.go()


@given(scenes(needy=True, paused=True))
@few
def test_i2_nothing_paused_and_no_resource_without_room_is_used(scene: Scene) -> None:
    play = set_up(scene)
    pauses = {(scope, key, "operator", "test") for scope, key in scene.pauses}
    paused: set[tuple[str, str]] = set()

    def pause(begins: bool) -> None:
        paused.update(scene.pauses) if begins else paused.clear()
        play.world.pause(pauses if begins else ())

    def check(lease: Lease, _: list[Lease]) -> None:
        p = f"p{lease.priority}"
        scopes = {("tenant", str(lease.tenant.id)), ("priority", p), ("pool_priority", f"{POOL}.{p}"), ("pool", POOL)}
        assert not scopes & paused
        assert all(play.world.capacities[name] >= n for name, n in needs(lease.signature))

    play.at(3.0, partial(pause, True))
    play.at(12.0, partial(pause, False))
    play.on_pick = check
    play.go()


@given(scenes(paused=True))
@few
def test_i3_the_same_state_gives_the_same_picks_and_nothing_that_is_handed_in_is_changed(scene: Scene) -> None:
    plays = [set_up(scene), set_up(scene)]
    for play in plays:
        handed_in = play.world.slots, play.world.capacities, play.world.standing, play.kinds
        before = deepcopy(handed_in[:2]), handed_in[2], deepcopy(handed_in[3])
        play.go(15.0)
        assert (play.world.slots, play.world.capacities) == before[0]
        assert play.kinds == before[2]
    assert plays[0].picks == plays[1].picks


def free_reason(play: Play, task: Task, free: int, *, headroom: bool, now_s: float, last_s: dict[int, float]) -> bool:
    """Whether a limit that has a name holds a task while slots are free."""
    flight = list(play.world.leases.values())
    c, tenant, demands = play.world.slots[POOL], task.tenant, needs(task.signature)
    mine = used(flight, tenant=tenant.id)
    others = any(now_s - at_s <= 600.0 for number, at_s in last_s.items() if number != tenant.id)
    long = play.kinds[task.kind].est_s > 10.0 * play.world.lines[POOL].accounts[AGED].mean_s
    return bool(
        mine >= tenant.cap
        or (tenant.cap == 7 and mine >= 2)
        or (task.run and task.run.fanout_cap is not None and used(flight, run=task.run.id) >= task.run.fanout_cap)
        or any(used(flight, resource=name) + n > play.world.capacities[name] for name, n in demands)
        or (c >= 10 and task.priority and others and mine >= ceil(0.9 * c - 1e-9))  # rule 8
        or (headroom and task.priority and free <= 1)  # the headroom of P0
        or (long and task.run and others and used(flight, run=task.run.id) >= fan_out_cap(c))  # rule 14
        or any(reserved(play, name) for name, _ in demands)  # rule 11
    )


def reserved(play: Play, resource: str) -> bool:
    """Whether somebody waits for it who may reserve: for more than one of it, or for other things too."""
    for task in play.waiting.values():
        demands = dict(needs(task.signature))
        if resource in demands and (demands[resource] > 1 or len(demands) > 1):
            return True
    return False


LONG_BESIDE_BLOCKED = Scene(  # the long tasks of a run are held to 8 of 10 by rule 14, beside tenants that can't go
    slots=10,
    seed=1_000_000,
    weights=(0.5,) * 4,
    caps=(1000, 1, 1, 1),
    fanout_caps=(None,) * 4,
    browsers=0,
    licences=0,
    needy=True,
    urgent=False,
    heavy=True,
)


@given(scenes())
@example(LONG_BESIDE_BLOCKED)
@few
def test_i4_while_slots_are_free_every_task_that_waits_is_held_by_a_limit_with_a_name(scene: Scene) -> None:
    play = set_up(scene)
    last_s: dict[int, float] = {}
    p0_s: list[float] = []

    def note() -> None:
        for task in play.waiting.values():
            last_s[task.tenant.id] = play.now_s
            if not task.priority:
                p0_s.append(play.now_s)
        for lease in play.world.leases.values():
            last_s[lease.tenant.id] = play.now_s

    def check() -> None:
        free = play.world.slots[POOL] - len(play.world.leases)
        if free > 0:
            headroom = scene.slots >= 10 and bool(p0_s)
            for task in play.waiting.values():
                assert free_reason(play, task, free, headroom=headroom, now_s=play.now_s, last_s=last_s), task

    play.before_tick, play.after_tick = note, check
    play.go()
    reachable = {"browser": scene.browsers, "licence": scene.licences}
    left = [task for task in play.waiting.values() if all(reachable[name] >= n for name, n in needs(task.signature))]
    assert not left  # all that can run did


@given(scenes())
@few
def test_i5_inside_a_flow_the_oldest_goes_first(scene: Scene) -> None:
    play = set_up(scene)

    def check(lease: Lease, _: list[Lease]) -> None:
        first = lease.members[0]
        flow = (first.priority, first.tenant.id, first.run, first.signature)
        mine = [
            task.id
            for task in play.waiting.values()
            if (task.priority, task.tenant.id, task.run, task.signature) == flow
        ]
        assert first.id == min(mine)

    play.on_pick = check
    play.go()


@given(scenes(capped=False, needy=False, runs=False))
@few
def test_i6_nobody_with_his_share_of_a_class_is_picked_before_one_below_his(scene: Scene) -> None:
    """Neither before one that has nothing, nor, by whatever he holds, before the one that has had least of all."""
    play = set_up(scene)
    clocks: dict[tuple[int, int], float] = {}
    everybody = sum(scene.weights)

    def read() -> None:
        play.world.fold_charges()
        clocks.update({(p, tenant): v for (p, tenant, run), v in play.world.clocks(POOL).items() if not run})

    def check(lease: Lease, flight: list[Lease]) -> None:
        p = lease.priority
        mine = [one for one in flight if one.priority == p]
        waiting = {task.tenant.id: task.tenant for task in play.waiting.values() if task.priority == p}
        there = waiting | {one.tenant.id: one.tenant for one in mine}
        weights = sum(tenant.weight for tenant in there.values())
        top = ceil(0.9 * scene.slots - 1e-9) if scene.slots >= 10 else scene.slots

        def over(number: int) -> float:
            """How far a tenant is above its share of what the class has in flight with one more."""
            return used(mine, tenant=number) / (len(mine) + 1) - there[number].weight / weights

        def had_less(number: int) -> bool:
            """Whether it has nothing here, and had no more of late than who is picked: else it has no claim."""
            mine_v, other_v = clocks.get((p, number), 0.0), clocks.get((p, lease.tenant.id), 0.0)
            return not used(mine, tenant=number) and mine_v <= other_v

        def had(number: int) -> float:
            """What it has had, over its weight: its clock, and what its tasks overrun by now."""
            overrun_s = sum(
                max(0.0, play.now_s - one.claimed_s - one.est_s) * one.cost
                for one in mine
                if one.tenant.id == number and one.claimed_s is not None
            )
            return clocks.get((p, number), 0.0) + overrun_s / there[number].weight

        may = [number for number in waiting if p == 0 or used(flight, tenant=number) < top]
        least = min(may, key=had, default=None)
        # Below its share even if all were there: the plan learns at its next look that a flow is empty.
        if least is not None and used(mine, tenant=least) / (len(mine) + 1) < there[least].weight / everybody - 1e-9:
            assert had(lease.tenant.id) <= had(least) + 1e-6, (lease.tenant.id, least)
        if over(lease.tenant.id) > 1e-9:
            below = [n for n in waiting if over(n) < -1e-9 and had_less(n) and (p == 0 or used(flight, tenant=n) < top)]
            assert not below, (lease.tenant.id, below)
        number = lease.tenant.id
        clocks[p, number] = clocks.get((p, number), 0.0) + lease.est_s / lease.tenant.weight

    play.before_tick, play.on_pick = read, check
    play.go(290.0)  # none is aged before 300 s: the aged lane goes by waits


@pools
def test_i7_only_p0_takes_the_headroom_of_a_large_pool_and_small_pools_have_none(slots: int) -> None:
    mean_s = 6.0 * slots
    play = Play(slots, kinds=[kind("slow", mean_s)], lasts=lambda task: mean_s)
    tenants = [play.tenant(number) for number in (1, 2, 3)]
    headroom = 1 if slots >= 10 else 0  # and a slot ends every 6 s only, too seldom for P0
    left: list[int] = []

    def check(lease: Lease, flight: list[Lease]) -> None:
        if lease.priority and play.now_s > 5.0:  # by then P0 was asked for
            assert len(flight) + 1 <= slots - headroom

    def note() -> None:
        if any(task.priority for task in play.waiting.values()):
            left.append(slots - len(play.world.leases))

    for tenant in tenants:
        play.at(0.0, partial(play.submit, tenant, "slow", 2, None, 10 * slots))
    for number in range(20):
        play.at(1.0 + 1.7 * mean_s * number, partial(play.submit, tenants[0], "slow", 0))
    play.on_pick, play.after_tick = check, note
    play.go(9.0 * mean_s)
    assert max(left) <= headroom


@given(scene=scenes(capped=False), order=st.randoms(use_true_random=False))
@few
def test_i9_the_order_in_which_tenants_come_within_a_second_changes_nothing(scene: Scene, order: Random) -> None:
    def run(shuffled: bool) -> list[tuple[Any, ...]]:
        play = set_up(replace(scene, heavy=False))
        play.lasts = lambda task: play.kinds[task.kind].est_s
        # Each tenant's own stay in order: inside a flow the oldest goes first.
        queues = [
            [(tenant, name, p) for name in sorted(play.kinds) for p in (1, 2, 3)]
            for tenant in range(1, 1 + len(scene.weights))
        ]
        while any(queues):
            queue = order.choice([one for one in queues if one]) if shuffled else next(one for one in queues if one)
            tenant, name, p = queue.pop(0)
            play.submit(play.world.tenants[tenant], name, p)
        play.go(12.0)
        return [(pick.at_s, pick.tenant, pick.priority, pick.kind) for pick in play.picks]

    def by_second(picks: list[tuple[Any, ...]]) -> list[list[tuple[Any, ...]]]:
        return [list(group) for _, group in groupby(picks, key=lambda pick: pick[0])]

    assert by_second(run(shuffled=False)) == by_second(run(shuffled=True))


@given(scene=scenes(needy=False), which=st.sampled_from(["slots", "tenant", "run"]))
@few
def test_i10_raising_one_cap_never_reduces_the_picks_of_a_tick(scene: Scene, which: str) -> None:
    def picks(raised: int) -> int:
        play = set_up(scene)
        play.go(8.0)  # any state
        slots, tenant = scene.slots, play.world.tenants[1]
        if which == "slots":
            play.world.slots[POOL] = slots + raised
        elif which == "tenant":
            play.world.change_tenant(tenant, cap=tenant.cap + raised)
        play.world.stand()
        for one in play.world.tenants.values():
            cap = 2 + raised if which == "run" and one is tenant else 2
            play.submit(one, "plain", 2, play.world.add_run(one, cap), 5)
        before = len(play.picks)
        play.tick()
        return len(play.picks) - before

    assert picks(1) >= picks(0)


@given(scenes(needy=False))
@few
def test_i12_a_task_whose_time_has_not_come_is_never_picked(scene: Scene) -> None:
    play = set_up(scene)
    dice = Random(scene.seed)
    later: dict[int, float] = {}

    def submit(not_before_s: float) -> None:
        tenant = play.world.tenants[dice.randint(1, len(play.world.tenants))]
        task = play.world.submit(tenant, None, "plain", POOL, dice.choice((0, 1, 2, 3)), "", ready=False)
        later[task.id] = not_before_s

        def ripen() -> None:
            play.waiting[task.id] = task
            play.world.ripen(task)

        play.at(not_before_s, ripen)

    def check(lease: Lease, _: list[Lease]) -> None:
        assert all(later.get(task.id, 0.0) <= play.now_s for task in lease.members)

    for at_s in range(10):
        play.at(float(at_s), partial(submit, at_s + dice.uniform(0, 30)))
    play.on_pick = check
    play.go()
    assert set(later) <= {task for pick in play.picks for task in pick.tasks} or any(cap <= 2 for cap in scene.caps)
