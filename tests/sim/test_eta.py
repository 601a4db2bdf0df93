"""Forecasts in virtual time: replays of what waits are unbiased, and those of a mixed load are borne out."""

from dataclasses import replace
from random import Random

import pytest

from harness.policy import eta
from harness.sim import SCENARIOS, foresight
from harness.sim.forecast import Behind, Held, Picture, Stream, Waiting, Whose, replay
from harness.sim.parse import load
from harness.sim.report import simulate
from harness.sim.run import play
from harness.sim.scenario import Kind, Law
from tests.sim.scenes import scene

STEP = Kind(name="step", pool="llm", law=Law(name="fixed", mean_s=1.0), est_s=1.0)
URGENT = Whose(pool="llm", priority=1, tenant=1)
LATER = Whose(pool="llm", priority=3, tenant=2)


def picture(**more: object) -> Picture:
    waiting = [Waiting(task=10 + n, kind="step", whose=URGENT, since_s=90.0 + n) for n in range(5)]
    usual = Picture(
        now_s=100.0,
        slots={"llm": 1},
        kinds=[STEP],
        waiting=waiting,
        services={"step": (10.0,) * 9},
        estimates={"step": 10.0},
    )
    return replace(usual, **more)  # type: ignore[arg-type]  # by name, as each test says


def starts(one: Picture, *, seed: int = 1, horizon_s: float = 1000.0, steps_most: int = 1000) -> dict[int, float]:
    return replay(one, Random(seed), horizon_s=horizon_s, steps_most=steps_most).starts_s


def test_tasks_start_one_after_the_other_behind_what_runs() -> None:
    running = Held(
        whose=URGENT,
        via=None,
        members=((5, "step"),),
        n=1,
        lane=-1,
        est_s=10.0,
        cost=1.0,
        released_s=93.0,
        claimed_s=94.0,
    )
    found = replay(picture(held=[running]), Random(1), horizon_s=1000.0, steps_most=1000)
    assert list(found.starts_s) == [10, 11, 12, 13, 14]
    assert [found.starts_s[task] for task in (10, 11, 14)] == pytest.approx([4.0, 14.0, 44.0], abs=0.2)
    assert found.ends_s[5] == pytest.approx(4.0) and found.ends_s[14] == pytest.approx(54.0, abs=0.2)
    assert not found.cut


def test_what_runs_longer_than_anything_was_measured_is_still_expected_to_end() -> None:
    stuck = Held(
        whose=URGENT,
        via=None,
        members=((5, "step"),),
        n=1,
        lane=-1,
        est_s=10.0,
        cost=1.0,
        released_s=0.0,
        claimed_s=0.0,
    )
    first_s = [starts(picture(held=[stuck]), seed=seed)[10] for seed in range(40)]
    assert 10.0 < sum(first_s) / 40 < 100.0


def test_more_urgent_work_that_is_still_to_come_counts() -> None:
    batch = picture(waiting=[Waiting(task=n, kind="step", whose=LATER, since_s=99.0) for n in (1, 2, 3)])
    stream = Stream(whose=URGENT, kind="step", rate_per_s=0.08, sizes=(1,) * 20)
    alone_s = [starts(batch, seed=seed)[3] for seed in range(20)]
    beside_s = [starts(replace(batch, streams=[stream]), seed=seed, horizon_s=1e5)[3] for seed in range(20)]
    assert max(alone_s) < 21.0
    assert sum(beside_s) > 1.5 * sum(alone_s)


def test_what_stands_behind_the_tasks_that_are_told_is_waited_for_and_has_no_start() -> None:
    batch = Waiting(task=99, kind="step", whose=Whose(pool="llm", priority=2, tenant=2), since_s=99.0)
    short = picture(waiting=[*picture().waiting, batch], behind=[Behind(whose=URGENT, kind="step", n=40, since_s=95.0)])
    long = replace(short, behind=[replace(short.behind[0], n=3000)])
    found = [starts(one, horizon_s=1e6, steps_most=10_000) for one in (picture(), short, long)]
    assert found[0].keys() == {10, 11, 12, 13, 14} and found[1].keys() == found[2].keys() == {10, 11, 12, 13, 14, 99}
    assert found[1][99] == found[2][99], "its lane comes long before the end of either"


def test_what_is_paused_has_no_start_and_what_waits_for_its_time_has_a_later_one() -> None:
    assert starts(picture(pauses=[("tenant", "1", "operator", "")])) == {}
    planned = Waiting(task=99, kind="step", whose=URGENT, since_s=700.0)
    assert starts(picture(waiting=[*picture().waiting, planned]))[99] == pytest.approx(600.0, abs=0.1)


def test_a_replay_costs_no_more_than_it_is_allowed_to() -> None:
    for horizon_s, steps_most in ((1000.0, 2), (15.0, 1000)):
        found = replay(picture(), Random(1), horizon_s=horizon_s, steps_most=steps_most)
        assert found.cut and len(found.starts_s) == 2


def test_the_same_picture_and_dice_give_the_same_replay() -> None:
    uneven = picture(services={"step": [n / 7 for n in range(1, 50)]}, slots={"llm": 2})
    assert starts(uneven, seed=7) == starts(uneven, seed=7) != starts(uneven, seed=8)


def test_replays_of_a_backlog_are_borne_out_without_any_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else comes, so only the service times are dice: the 19 and the truth are twenty draws of one law."""
    work = {"tenants": "a", "kind": "step", "arrivals": "at", "at_s": [0, 150], "batch": 30}
    kinds = {"step": {"pool": "llm", "law": "lognormal", "mean_s": 4.0, "sigma": 0.8}}
    backlog = scene(work=[work], kinds=kinds, duration_s=400.0, foresee_s=151.0, drain=True)
    monkeypatch.setattr(foresight, "RATES_LEAST_S", 1e9)  # what came is no stream
    made = [
        one
        for seed in range(20)
        for one in play(backlog, seed=seed).foresight.made.values()  # type: ignore[union-attr]  # it foresees
        if one.actual_s is not None
    ]
    assert len(made) > 500
    assert sum(one.actual_s <= one.raw.p50_s for one in made if one.actual_s) / len(made) == pytest.approx(
        0.5, abs=0.13
    )
    assert sum(one.actual_s <= one.raw.p90_s for one in made if one.actual_s) / len(made) == pytest.approx(
        0.9, abs=0.08
    )


def test_forecasts_of_a_mixed_load_are_borne_out_and_closer_than_backlog_over_rate() -> None:
    """Two worlds of the scenario's twenty, whose figures are asserted by `manage.py simulate eta`."""
    whole = load(SCENARIOS / "eta.toml")
    found = simulate(replace(whole, cells_run=2, duration_s=1200.0, end_s=1200.0, foresee_s=100.0)).figures["eta"]
    assert found["n"] >= 50
    assert 0.7 <= found["p90_covers"] <= 1.0
    assert 0.25 <= found["p50_covers"] <= 0.75
    assert found["spread"] <= 6.0
    assert found["pinball_ratio"] <= 0.9


def test_a_forecast_says_half_and_nine_tenths() -> None:
    values = [float(n) for n in range(19)]
    said = eta.of_replays(values)
    assert sum(value <= said.p50_s for value in values) == 10 and sum(value <= said.p90_s for value in values) == 18
