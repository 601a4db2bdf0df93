"""What is served, and when: I8, I11, I13 and I14 of policy.md and the bound of P3, seen from outside.

Each plays a pool in virtual time and counts by itself (fair_play); none knows how the plan decides.
"""

from collections import Counter
from functools import partial
from math import ceil
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harness.policy.lifecycle import Event
from harness.sim.meter import jain
from harness.sim.rows import Lease, Task
from tests.policy.fair_play import NEEDY, PLAIN, POOL, SLOTS, Play, Scene, kind, scenes, set_up

few = settings(max_examples=15, deadline=None)
# A long play isn't shrunk: it would be played hundreds of times more.
long_plays = settings(max_examples=3, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
pools = pytest.mark.parametrize("slots", SLOTS)


def victims_picks(slots: int, backlog: int, seed: int) -> list[tuple[float, int, int, str, int]]:
    """What the elephant's neighbours get, and in which order, beside a run that never has less than `backlog` left."""
    dice = Random(seed)
    lengths: dict[int, Random] = {number: Random(seed + number) for number in range(1, 6)}
    play = Play(slots, kinds=PLAIN, lasts=lambda task: lengths[task.tenant.id].uniform(0.5, 1.5))
    elephant, *victims = (play.tenant(number) for number in range(1, 6))
    run = play.world.add_run(elephant, None)

    def feed() -> None:
        missing = backlog - sum(task.tenant is elephant for task in play.waiting.values()) if backlog < 1000 else 0
        if missing > 0:
            play.submit(elephant, "plain", 2, run, missing)

    play.submit(elephant, "plain", 2, run, backlog)
    for _ in range(30):
        victim, priority = dice.choice(victims), dice.choice((2, 2, 2, 1, 3))
        play.at(dice.uniform(0, 20), partial(play.submit, victim, "plain", priority, None, dice.choice((1, 2, 5))))
    play.before_tick = feed
    play.go(25.0)
    first: dict[tuple[int, int], int] = {}
    found = []
    for pick in play.picks:
        if pick.tenant != elephant.id:
            nth = first[pick.tenant, pick.priority] = first.get((pick.tenant, pick.priority), 0) + 1
            found.append((pick.at_s, pick.tenant, pick.priority, pick.kind, nth))
    return found


@pools
@given(seed=st.integers(0, 10**6))
@long_plays
def test_i8_the_victims_picks_and_their_order_do_not_know_the_elephants_backlog(slots: int, seed: int) -> None:
    assert victims_picks(slots, max(10, slots), seed) == victims_picks(slots, 1000, seed)


@pools
def test_i8_not_even_of_a_hundred_thousand(slots: int) -> None:
    assert victims_picks(slots, max(10, slots), 77) == victims_picks(slots, 100_000, 77)


def test_i8_nor_of_half_a_million() -> None:
    assert victims_picks(10, 10, 77) == victims_picks(10, 500_000, 77) != []


@pools
@given(seed=st.integers(0, 10**6), weights=st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=2, max_size=5))
@few
def test_i11_what_clocks_were_charged_is_what_was_used(slots: int, seed: int, weights: list[float]) -> None:
    dice = Random(seed)
    play = Play(
        slots, kinds=PLAIN + NEEDY, capacities={"browser": 0}, lasts=lambda task: dice.lognormvariate(-0.5, 1.0)
    )
    # All come at once, and one task of each waits for ever: a clock that begins at 0 is moved by charges alone.
    for number, weight in enumerate(weights, 1):
        tenant = play.tenant(number, weight=weight)
        run = play.world.add_run(tenant, None)
        for p in range(4):
            play.at(0.0, partial(play.submit, tenant, "plain", p, dice.choice((run, None)), dice.randint(1, 12)))
            play.at(0.0, partial(play.submit, tenant, "long", p, None, dice.randint(0, 5)))
            play.at(0.0, partial(play.submit, tenant, "browse", p))
    play.go()
    play.world.fold_charges()
    play.tick()
    last = {(p, tenant): v for (p, tenant, run), v in play.world.clocks(POOL).items() if not run}
    used_s: dict[tuple[int, int], float] = {}
    for begin_s, end_s, task in play.held:
        key = (task.priority, task.tenant.id)
        used_s[key] = used_s.get(key, 0.0) + end_s - begin_s
    assert used_s.keys() == last.keys()
    for (p, number), seconds in used_s.items():
        assert last[p, number] * weights[number - 1] == pytest.approx(seconds, rel=1e-6, abs=1e-6)


@given(scenes(needy=False, capped=False))
@few
def test_i13_what_ended_once_is_charged_once(scene: Scene) -> None:
    def outcome(twice: bool) -> Any:
        play = set_up(scene)
        settle = play.world.settle

        def again(lease: Lease, task: Task, event: Event, slot_s: float, **more: Any) -> Any:
            state = settle(lease, task, event, slot_s, **more)
            with pytest.raises((ValueError, LookupError)):  # no row of it is left to settle
                settle(lease, task, event, slot_s, **more)
            return state

        def fold() -> None:
            for _ in range(1 + twice):
                play.world.fold_charges()

        if twice:
            play.world.settle = again  # type: ignore[method-assign]  # the same settle, delivered twice
        play.after_tick = fold
        play.go()
        return play.picks, play.world.clocks(POOL), play.world.estimates

    assert outcome(twice=False) == outcome(twice=True)


@pools
@given(
    seed=st.integers(0, 10**6),
    weights=st.lists(st.sampled_from([1.0, 2.0, 4.0]), min_size=4, max_size=5),
    costs=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=5, max_size=5),
)
@long_plays
def test_i14_slot_seconds_by_weight_are_even_in_any_window(
    slots: int, seed: int, weights: list[float], costs: list[float]
) -> None:
    dice = Random(seed)
    kinds = [kind(f"k{number}", cost) for number, cost in enumerate(costs, 1)]
    heavy = slots >= 10
    mean_s = sum(costs[: len(weights)]) / len(weights)
    window_s = 60.0 * mean_s if heavy else 1000.0 * mean_s / slots
    play = Play(
        slots,
        kinds=kinds,
        lasts=lambda task: costs[task.tenant.id - 1] * (dice.lognormvariate(-0.125, 0.5)),
    )
    end_s = 2.0 * window_s
    for number, weight in enumerate(weights, 1):
        tenant = play.tenant(number, weight=weight)
        play.at(0.0, partial(play.submit, tenant, f"k{number}", 2, None, ceil(1.3 * end_s * slots / costs[number - 1])))
    play.go(end_s)
    step_s = window_s / 4
    for step in range(1, 5):
        from_s, until_s = step * step_s, step * step_s + window_s
        got = [0.0] * len(weights)
        for begin_s, over_s, task in play.held:
            got[task.tenant.id - 1] += max(0.0, min(over_s, until_s) - max(begin_s, from_s))
        index = jain([seconds / weight for seconds, weight in zip(got, weights, strict=True)])
        assert index >= (0.97 if slots >= 10 else 0.96), got


def p3_bound_s(play: Play, at_s: float, facts: "P3", steps: list[tuple[float, int]], k: int) -> float:
    """The latest start of a P3 task by the closed form, over the slots that there are from its arrival on."""
    longest_s = max([1.0, *(end - begin for begin, end, _ in play.held if end > at_s and begin <= facts.start_s)])
    owed = (facts.older + 2) * facts.tenants * longest_s + facts.running * longest_s
    until_s = at_s
    for (from_s, n), (next_s, _) in zip(steps, [*steps[1:], (float("inf"), 0)], strict=True):
        if next_s <= at_s:
            continue
        begin_s = max(at_s, from_s)
        paid = 0.05 * n * (next_s - begin_s)
        if paid >= owed:
            until_s = begin_s + owed / (0.05 * n)
            break
        owed -= paid
    return until_s + k * longest_s


class P3:
    """What stood before a P3 task when it came: older ones of its tenant, tenants with P3, P3 tasks running."""

    def __init__(self, older: int, tenants: int, running: int) -> None:
        self.older, self.tenants, self.running = older, tenants, running
        self.start_s = float("inf")


@pytest.mark.parametrize("urgent", [False, True])
@pytest.mark.parametrize("steps", [*([(0.0, c)] for c in SLOTS), [(0.0, 50), (40.0, 3), (160.0, 50)]], ids=str)
@given(seed=st.integers(0, 10**6))
@long_plays
def test_a_p3_task_starts_within_its_bound_whatever_the_other_classes_want(
    urgent: bool, steps: list[tuple[float, int]], seed: int
) -> None:
    dice = Random(seed)
    play = Play(steps[0][1], lasts=lambda task: dice.lognormvariate(-0.125, 0.5))
    batch, others = [play.tenant(n) for n in (1, 2)], [play.tenant(n) for n in (3, 4)]
    end_s = {1: 1500.0, 2: 800.0, 4: 500.0, 10: 250.0, 50: 100.0 if len(steps) == 1 else 300.0}[steps[0][1]]
    came: dict[int, tuple[Task, float, P3]] = {}
    waiting = Counter[tuple[int, int]]()

    def keep_busy() -> None:
        for tenant in others:
            for priority in (0, 1, 2) if urgent else (1, 2):
                have = waiting[tenant.id, priority]
                if have <= steps[0][1]:
                    play.submit(tenant, "plain", priority, None, 3 * steps[0][1])
                    waiting[tenant.id, priority] += 3 * steps[0][1]

    def arrive(tenant: Any) -> None:
        older = sum(task.tenant is tenant and task.priority == 3 for task in play.waiting.values())
        running = sum(lease.priority == 3 for lease in play.world.leases.values())
        (task,) = play.submit(tenant, "plain", 3)
        came[task.id] = task, play.now_s, P3(older, len(batch), running)

    def note(lease: Lease, _: list[Lease]) -> None:
        waiting[lease.tenant.id, lease.priority] -= 1
        for task in lease.members:
            if task.id in came:
                came[task.id][2].start_s = play.now_s

    def set_slots(n: int) -> None:
        play.world.slots[POOL] = n
        play.world.stand()

    for at_s, n in steps[1:]:
        play.at(at_s, partial(set_slots, n))
    at_s = 5.0
    while at_s < end_s * 0.6:
        play.at(at_s, partial(arrive, dice.choice(batch)))
        at_s += dice.expovariate(1.0) * 12.0
    for second in range(int(end_s)):
        play.at(float(second), lambda: None)
    play.before_tick, play.on_pick = keep_busy, note
    play.go(end_s)
    bounds = [
        (at_s, facts, p3_bound_s(play, at_s, facts, steps, 14 if urgent else 3)) for _, at_s, facts in came.values()
    ]
    assert any(bound_s < end_s for _, _, bound_s in bounds), "it is played for too short a time"
    for at_s, facts, bound_s in bounds:
        if bound_s < end_s:
            assert facts.start_s <= bound_s + 1.0, (at_s, facts.start_s, bound_s)


@pools
def test_rule_10_a_resource_without_room_holds_up_nothing_else_of_the_same_run(slots: int) -> None:
    play = Play(slots, kinds=PLAIN + NEEDY, capacities={"browser": 0, "licence": 9})
    tenant = play.tenant(1)
    run = play.world.add_run(tenant, None)
    play.submit(tenant, "browse", 2, run, 50)
    plain = play.submit(tenant, "plain", 2, run, 5 * slots)
    play.at(0.0, lambda: None)
    play.go()
    assert [task for pick in play.picks for task in pick.tasks] == [task.id for task in plain]
    assert play.now_s == pytest.approx(5.0, abs=1.1)
