"""Pressure and real processes: two beats evaluate once; a system worker and beat go and come, and the level holds."""

import subprocess
from pathlib import Path

from harness.policy.pressure import Level
from harness.store import pressure
from tests.engine.test_pressure import fail
from tests.route.conftest import Route
from tests.stage import wait_until


def beat(route: Route, folder: Path) -> subprocess.Popen[bytes]:
    number = len(route.processes)
    return route.start("-m", "celery", "-A", "config", "beat", "--schedule", str(folder / f"{number}"), "--pidfile=")


def evaluations(route: Route) -> tuple[float, float]:
    """Return the machine's time and the database's: how often and when it was evaluated."""
    row = route.stage.connection.execute(
        "SELECT (state #>> '{machine,now_s}')::float8, date_part('epoch', seen_at) FROM level"
    ).fetchone()
    return (row[0], row[1]) if row else (0.0, 0.0)


def level(route: Route) -> Level | None:
    found = pressure.now(route.stage.connection)
    return found.level if found else None


def test_two_beats_evaluate_once_and_the_level_holds_while_there_is_none(route: Route, tmp_path: Path) -> None:
    worker = route.worker("system")
    beats = [beat(route, tmp_path), beat(route, tmp_path)]
    fail(route.stage, 20, of=100)
    wait_until(lambda: level(route) is Level.HIGH, within_s=40)
    assert len(pressure.changes(route.stage.connection, most=10)) == 1
    # What the machine counted is the time that passed: nothing was evaluated twice.
    before = evaluations(route)
    wait_until(lambda: evaluations(route)[1] > before[1] + 8.0, within_s=30)
    after = evaluations(route)
    assert abs((after[0] - before[0]) - (after[1] - before[1])) < 0.5
    route.stage.connection.execute("DELETE FROM attempt")
    for process in beats:
        process.terminate()
        process.wait(15)
    worker.kill()
    held = pressure.now(route.stage.connection)
    # As if three minutes had passed without them; then all come again.
    route.stage.connection.execute("UPDATE level SET seen_at = seen_at - interval '3 minutes'")
    assert held is not None and level(route) is Level.HIGH
    route.worker("system")
    beat(route, tmp_path)
    seen_s = evaluations(route)[1]
    wait_until(lambda: evaluations(route)[1] > seen_s + 60.0, within_s=40)
    assert level(route) is Level.HIGH, "nobody watched, so nothing has fallen"
