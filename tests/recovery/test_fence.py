"""A worker that was away for longer than anyone waits for it comes back, and may do nothing any more."""

import subprocess
import time
from typing import Any

import psycopg
import pytest

from harness.store.database import database_name, role_names
from tests.recovery.conftest import Ward
from tests.stage import wait_until

AWAY_S = 25.0


@pytest.fixture
def table_of_a_kind(database_url: str) -> str:
    """A table that a kind writes to by `ctx.db`."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS recovery_row")
        owner.execute("CREATE TABLE recovery_row (i integer, pid integer)")
        owner.execute(f'GRANT INSERT, SELECT ON recovery_row TO "{role_names(database_name(database_url))["engine"]}"')
    return "recovery_row"


def test_a_worker_stopped_for_25_s_begins_no_effect_and_writes_nothing_when_it_goes_on(
    ward: Ward, table_of_a_kind: str
) -> None:
    stage = ward.stage
    ward.dispatcher()
    stopped = ward.workers("tool_read", "ingest")
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("recovery.thread", {"i": 1, "effects": 40, "pause_s": 0.25}),  # one effect after the other
        ("recovery.thread", {"i": 2, "effects": 1, "pause_s": 6}),  # its result is all that is left to say
        ("recovery.row", {"i": 3, "pause_s": 6}),  # its transaction is open
        ("recovery.child", {"i": 4, "effects": 40, "pause_s": 0.25}),
        ("recovery.child", {"i": 5, "effects": 1, "pause_s": 6}),
    ]
    tasks = [ward.submit(kind, payload)[0] for kind, payload in payloads]
    wait_until(lambda: len({line.i for line in ward.lines("begun")}) == 5, within_s=15)
    old_pids = {line.pid for line in ward.lines("begun")}
    for worker in stopped:
        ward.stop(worker)
    until_s = time.monotonic() + AWAY_S
    ward.workers("tool_read", "ingest")
    wait_until(lambda: time.monotonic() > until_s, within_s=AWAY_S + 1)  # the silence itself is under test
    assert all(len(ward.lines("begun", i)) == 2 for i in range(1, 6)), "they run elsewhere meanwhile"

    went_on_s = min(ward.go_on(worker) for worker in stopped)
    assert [ends(worker) for worker in stopped] == [1, 1]
    wait_until(lambda: ward.count("succeeded") == 5, within_s=30)
    late = [line for what in ("begun", "effect") for line in ward.lines(what) if line.at_s > went_on_s]
    assert not {line.pid for line in late} & old_pids
    for task in tasks:
        assert stage.events(task) == ["submit", "claim", "lose", "claim", "succeed"]
    assert stage.one("SELECT count(*) FROM attempt WHERE verdict = 'succeed'") == 5
    rows = stage.connection.execute(f"SELECT i, pid FROM {table_of_a_kind}").fetchall()
    assert len(rows) == 1 and rows[0][1] not in old_pids


def ends(worker: "subprocess.Popen[bytes]") -> int:
    """The exit code of a worker that leaves by itself."""
    return worker.wait(15)
