"""Someone sets the clock of a worker's machine: nothing notices, for no decision is made on it."""

import subprocess
import time

from harness.store.sessions import BEAT_EVERY_S
from tests.recovery.conftest import Ward
from tests.recovery.stepped import JUMPS, STEP_S
from tests.stage import wait_until

WORK_S = BEAT_EVERY_S + 1.0  # one beat begins before the step, and the next after it


def stepped_worker(ward: Ward, pool: str) -> subprocess.Popen[bytes]:
    before = ward.sessions()
    words = ("celery", "-A", "config", "worker", "--resource-pool", pool, "-n", f"w{len(ward.processes)}@test")
    process = ward.start("-m", "tests.recovery.stepped", *words)
    wait_until(lambda: ward.sessions() > before, within_s=30)
    return process


def test_a_step_of_an_hour_fences_no_worker_spends_no_attempt_and_loses_nothing(ward: Ward) -> None:
    stage = ward.stage
    jump = ward.folder / "jump"
    ward.environment[JUMPS] = str(jump)
    began = stage.one("SELECT clock_timestamp()")
    ward.dispatcher()
    workers = [stepped_worker(ward, "tool_read"), stepped_worker(ward, "ingest")]
    effects = {"effects": int(WORK_S / 0.25), "pause_s": 0.25}
    tasks = ward.submit("recovery.thread", *[{"i": i, **effects} for i in (1, 2)])
    tasks += ward.submit("recovery.child", {"i": 3, **effects})
    wait_until(lambda: len({line.i for line in ward.lines("effect")}) == 3, within_s=20)
    jump.touch()
    wait_until(lambda: len([x for x in ward.lines("effect") if x.at_s > time.time() + STEP_S / 2]) > 3, within_s=5)
    tasks += ward.submit("recovery.thread", {"i": 4})  # begins under the new clock
    tasks += ward.submit("recovery.child", {"i": 5})
    wait_until(lambda: ward.count("succeeded") == 5, within_s=WORK_S + 20)
    jump.unlink()  # and back
    tasks += ward.submit("recovery.thread", {"i": 6, **effects})
    wait_until(lambda: ward.count("succeeded") == 6, within_s=WORK_S + 10)

    assert [worker.poll() for worker in workers] == [None, None]
    assert stage.one("SELECT count(*) FROM worker_session WHERE ended_at IS NOT NULL") == 0
    for worker in workers:
        assert "fence_closed" not in ward.text(worker) and "lease_lost" not in ward.text(worker)
    for i, task in enumerate(tasks, start=1):
        assert len(ward.lines("begun", i)) == 1
        assert stage.events(task) == ["submit", "claim", "succeed"]
        assert (stage.row(task)["attempts_used"], stage.row(task)["lost_starts"]) == (0, 0)
    assert stage.one("SELECT count(*) FROM lease") == 0
    for column, table in (("at", "event"), ("started", "attempt"), ("ended", "attempt"), ("beat_at", "worker_session")):
        within = f"SELECT min({column}) > %s AND max({column}) <= clock_timestamp() FROM {table}"
        assert stage.one(within, began), f"{table}.{column} is the database's time"
