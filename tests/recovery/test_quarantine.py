"""A task that kills its worker, among others that are innocent."""

import json

from tests.recovery.conftest import Ward
from tests.stage import wait_until

SLOTS = 50
THREADED_DEATHS = 2  # workers that a killer may take along before it is alone


def fifty_threads(ward: Ward) -> None:
    ward.environment |= {
        "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
        "HARNESS_BENCH_SLOTS": json.dumps({"tool_read": SLOTS}),
    }


def test_one_killer_among_fifty_threads_is_buried_and_the_other_forty_nine_succeed(ward: Ward) -> None:
    stage = ward.stage
    fifty_threads(ward)
    ward.dispatcher()
    ward.workers("quarantine", "quarantine")  # each task has a process of its own: 49 of them, four at a time
    (killer,) = ward.submit("recovery.killer", {"i": 0, "company": SLOTS, "pause_s": 3})
    others = ward.submit("recovery.patient", *[{"i": i, "pause_s": 0.5} for i in range(1, SLOTS)])
    deaths = 0
    worker = ward.worker("tool_read")
    while deaths < THREADED_DEATHS:
        assert worker.wait(20) == -9
        deaths += 1
        ward.pass_the_silence(worker)
        worker = ward.worker("tool_read")
    wait_until(lambda: stage.state(killer) == "failed_terminal", within_s=60)
    wait_until(lambda: all(stage.state(task) == "succeeded" for task in others), within_s=120)
    assert worker.poll() is None
    assert stage.events(killer) == ["submit", "claim", "lose", "claim", "lose", "claim", "bury"]
    assert len(ward.lines("begun", 0)) == THREADED_DEATHS + 1
    reason = stage.one("SELECT data ->> 'reason' FROM event WHERE task_id = %s AND event = 'bury'", killer)
    assert "quarantine" in reason
    assert stage.one("SELECT error ->> 'message' FROM task_body WHERE task_id = %s", killer) == reason
    assert stage.one("SELECT max(attempts_used) FROM task") == 0
