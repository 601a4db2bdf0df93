"""A worker that is told to drain takes nothing new, ends what it runs, and goes; and its slots never change."""

import subprocess
import sys
import time

import pytest

from harness.store import sessions
from tests.worker.conftest import Floor, eventually


@pytest.mark.parametrize(
    ("pool", "kind", "field"), [("tool_read", "noop.sleep", "sleep_s"), ("ingest", "child.nap", "nap_s")]
)
def test_a_worker_that_is_told_to_drain_ends_what_it_runs_takes_nothing_new_and_goes(
    floor: Floor, pool: str, kind: str, field: str
) -> None:
    """It runs on for longer than a SIGTERM would leave it (HARNESS_DRAIN_S is 2)."""
    worker = floor.start(pool)
    session = floor.session(worker)
    assert session is not None
    long = floor.run_task(kind, {field: 9.0})
    floor.wait_for("running", long)
    sessions.start_drain(floor.db, session["uuid"])
    eventually(lambda: "queues_changed" in worker.text)
    late = floor.submit(kind, {field: 0.0})
    floor.release(kind, late)
    time.sleep(1.5)  # a worker that still consumed would have it within milliseconds
    assert floor.state(late) == "queued" and worker.process.poll() is None
    other = floor.start(pool)
    floor.wait_for("succeeded", late)
    floor.wait_for("succeeded", long, within_s=15)
    assert worker.process.wait(20) == 0
    ended = floor.session(worker)
    assert ended is not None and ended["ended_at"] is not None
    counts = floor.db.execute("SELECT attempts_used, lost_starts FROM task WHERE id = %s", (long,)).fetchone()
    assert counts == (0, 0)
    assert other.stop() == 0


def test_celerys_commands_that_would_change_the_slots_are_refused_with_the_reason(floor: Floor) -> None:
    worker = floor.start("ingest")
    before = worker.children()
    for command in (("pool_grow", "2"), ("pool_shrink", "1"), ("autoscale", "4", "1")):
        told = subprocess.run(
            [sys.executable, "-m", "celery", "-A", "config", "control", "-d", "w0@test", "--timeout", "10", *command],
            env=floor.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said = " ".join((told.stdout + told.stderr).split())
        assert "a worker's slots are fixed by resources.toml" in said, said
        assert "manage.py autoscale --apply" in said
    assert worker.children() == before
    assert worker.stop() == 0
