"""How storms are made and judged: the same submissions each time, and planted courses are told for what they are."""

import doctest
import json
import shlex
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from benchmarks.effects import DONE, Effect
from benchmarks.limits.judge import Row
from benchmarks.limits.provider import Provider
from benchmarks.storm import answers, arms, arrivals, client, course, judge, picture
from benchmarks.storm.answers import Answer, Outcome
from benchmarks.storm.arrivals import Arrival, Phase, poisson
from benchmarks.storm.judge import Window

WINDOW = Window(since_s=100.0, until_s=200.0, deadline_s=60.0)


def answer(i: int, sent_s: float, outcome: Outcome = "accepted", *, priority: int = 2, took_s: float = 0.01) -> Answer:
    return Answer(i=i, priority=priority, due_s=sent_s, sent_s=sent_s, took_s=took_s, outcome=outcome, status=503)


def effect(i: int, submitted_s: float, started_s: float, ended_s: float) -> Effect:
    return Effect(mark=DONE, tag=answers.TAG, i=i, submitted_s=submitted_s, started_s=started_s, ended_s=ended_s, pid=1)


def test_a_storm_has_the_rate_of_each_phase_the_mix_and_the_same_arrivals_with_the_same_seed() -> None:
    phases = [Phase(rate_per_s=100.0, for_s=50.0), Phase(rate_per_s=0.0, for_s=10.0), Phase(rate_per_s=10.0, for_s=40)]
    found = list(poisson(phases, seed=7))
    assert found == list(poisson(phases, seed=7)) != list(poisson(phases, seed=8))
    assert [one.i for one in found] == list(range(len(found)))
    assert sum(one.at_s < 50 for one in found) == pytest.approx(5000, rel=0.06)
    assert not [one for one in found if 50 <= one.at_s < 60]
    assert sum(one.at_s >= 60 for one in found) == pytest.approx(400, rel=0.2)
    for priority, share in enumerate(arrivals.MIX):
        assert sum(one.priority == priority for one in found) / len(found) == pytest.approx(share, abs=0.03)


def test_what_ends_late_twice_or_outside_the_window_is_no_goodput() -> None:
    done = [
        effect(1, 90, 95, 150),
        effect(1, 90, 160, 149),
        effect(2, 90, 95, 151),
        effect(3, 190, 195, 250),
        effect(4, 80, 95, 99),
    ]
    assert judge.useful_per_s(done, WINDOW) == 0.01
    assert judge.late(done, WINDOW) == 1


def test_given_up_is_what_the_door_took_and_nobody_did_in_time() -> None:
    told = [answer(1, 110), answer(2, 110, "deferred"), answer(3, 110), answer(4, 110, "rejected"), answer(5, 150)]
    done = [effect(1, 110, 120, 130), effect(2, 110, 120, 171), effect(5, 150, 160, 161)]
    assert judge.given_up(told, done, WINDOW) == pytest.approx(2 / 3, abs=1e-3)
    assert judge.given_up([answer(1, 110, "rejected")], done, WINDOW) is None


def test_a_wait_lasts_to_the_first_call_and_who_never_began_still_waits() -> None:
    told = [answer(1, 110, priority=0), answer(2, 150, priority=0), answer(3, 120, "rejected", priority=0)]
    begun = [effect(1, 110, 140, 140), effect(1, 110, 112, 112)]
    assert judge.waits_s(told, begun, WINDOW, (0,)) == [2.0, 50.0]
    found = judge.p0(told, begun, WINDOW)
    assert (found["p0_submitted"], found["p0_rejected"], found["p0_wait_p95_s"]) == (3, 1, 50.0)


def test_the_door_is_counted_by_what_it_said_and_how_quickly() -> None:
    told = [answer(n, 110 + n, "rejected", took_s=0.01 * (n + 1)) for n in range(4)] + [answer(9, 120, took_s=0.5)]
    found = judge.door(told, WINDOW)
    assert found["by_outcome"] == {"rejected": 4, "accepted": 1}
    assert (found["reject_p95_ms"], found["accept_p95_ms"], found["without_retry_after"]) == (40.0, 500.0, 4)


def test_an_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    with path.open("w") as file:
        for i in (2, 1):
            answers.write(file, answer(i, 110.0))
    assert answers.read(path) == [answer(1, 110.0), answer(2, 110.0)]
    assert answers.read(tmp_path / "none") == []


def test_every_arrival_is_sent_once_by_a_door_of_its_threads_own_and_a_broken_door_is_told(tmp_path: Path) -> None:
    class Plain:
        def send(self, arrival: Arrival, due_s: float) -> Answer:
            return answer(arrival.i, due_s)

    class Broken:
        def send(self, arrival: Arrival, due_s: float) -> Answer:
            raise OSError("the web process is gone")

    storm = [Phase(rate_per_s=2000.0, for_s=0.1)]
    path = tmp_path / "answers.jsonl"
    client.blow(Plain, poisson(storm, seed=1), str(path), threads=3)
    assert [one.i for one in answers.read(path)] == [one.i for one in poisson(storm, seed=1)]
    with pytest.raises(OSError, match="gone"):
        client.blow(Broken, poisson(storm, seed=1), str(path), threads=1)


def test_a_task_of_celerys_expires_two_calls_before_its_deadline_and_p0_goes_first() -> None:
    weather = arms.Weather(quota=50, slots=64, mean_s=5.0, sigma=0.5, deadline_s=60.0)
    line = arms.client(Path("x"), [(1.0, 2.0)], seed=1, weather=weather, http=None).format(python="py")
    assert json.loads(shlex.split(line)[-1])["expires_s"] == 50.0
    (worker,) = arms.celery("celery_x", Provider(port=1), weather).workers
    assert "-c 50 -Q p0,p1,p2,p3" in worker


def a_course() -> dict[str, Any]:
    told = [answer(1, 100.5, priority=0), answer(2, 101.5, "deferred"), answer(3, 101.6, "rejected")]
    samples = [
        {"at_s": 99.0, "level": "normal", "signals": {}, "pauses": [], "waiting": 0},
        {
            "at_s": 101.0,
            "level": "high",
            "signals": {"demand": (2.0, 2)},
            "pauses": ["pool/llm/pressure"],
            "waiting": 9,
        },
        {"at_s": 103.0, "level": "high", "signals": {"demand": (0.1, 0)}, "pauses": [], "waiting": 1},
    ]
    seen = [
        Row(begin_s=n / 4, quota_s=2.5, busy_s=1.25, calls=1, accepted=1, answered=1, rejected_429=0, errors=0)
        for n in range(80)
    ]
    return course.of(
        began_s=100.0, for_s=20.0, told=told, first_call_s={1: 102.5}, samples=samples, rows=seen, every_s=0.25
    )


def test_the_course_of_a_storm_tells_answers_level_signals_pauses_and_waits_second_by_second() -> None:
    found = a_course()
    assert {name: seconds[:2] for name, seconds in found["answers_by_s"].items()} == {
        "accepted": [1, 0], "deferred": [0, 1], "rejected": [0, 1]
    }  # fmt: skip
    assert found["levels"] == [(1.0, 20.0, "high")]
    assert found["signals"] == {"demand": [(1.0, 3.0, 2)]}
    assert found["pauses"] == {"pool/llm/pressure": [(1.0, 3.0)]}
    assert (found["in_flight_by_s"][0], found["quota_by_s"][0]) == (5.0, 10.0)
    assert found["p0_wait_p95"] == [(5.0, 2.0)]


def test_the_picture_of_a_storm_has_all_of_it_above_one_another() -> None:
    drawn = picture.chain(a_course(), capacity_per_s=1.0, p0_allowed_s=1.2, title="a <storm>")
    root = ElementTree.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polygon")) == 3, "accepted, deferred and rejected"
    assert len(root.findall(f"{space}polyline")) == 5, "capacity, quota, in flight, what P0 may wait, and its waits"
    words = {one.text for one in root.findall(f"{space}text")}
    assert {"demand", "level", "llm", "a <storm>"} <= words


def test_the_examples_hold() -> None:
    assert [doctest.testmod(module).failed for module in (arrivals, client, course, judge)] == [0, 0, 0, 0]
