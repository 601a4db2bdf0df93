"""A session whose process is gone, by its own machine's word, is ended before its silence alone would end it."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from harness.engine import living
from harness.store import sessions
from tests.stage import Stage

SILENT = "UPDATE worker_session SET beat_at = clock_timestamp() - make_interval(secs => %s) WHERE uuid = %s"


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as started:
        yield started
        started.kill()


def enter(stage: Stage, pid: int, place: str | None, *, silent_s: float) -> uuid.UUID:
    session = uuid.uuid4()
    sessions.register(
        stage.connection,
        session=session,
        host="h",
        pid=pid,
        place=place,
        pools={"db": 1},
        kinds=[],
        connections=1,
        budget=1000,
    )
    stage.connection.execute(SILENT, (silent_s, session))
    return session


def ended(stage: Stage) -> list[uuid.UUID]:
    here = living.place()
    assert here is not None
    return [session for session, _ in sessions.end_gone(stage.connection, here, living.is_gone)]


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def test_a_killed_process_ends_its_session_once_its_beat_is_overdue(
    stage: Stage, process: "subprocess.Popen[bytes]"
) -> None:
    session = enter(stage, process.pid, living.place(), silent_s=sessions.QUIET_S + 1)
    assert ended(stage) == [], "it is there"
    kill(process)
    assert ended(stage) == [session]
    assert ended(stage) == [], "once"
    assert not sessions.beat(stage.connection, session)


def test_a_beat_is_believed_more_than_a_number_that_is_nowhere(
    stage: Stage, process: "subprocess.Popen[bytes]"
) -> None:
    """As on a copy of a running machine, which takes itself for the same place."""
    enter(stage, process.pid, living.place(), silent_s=sessions.BEAT_EVERY_S)
    kill(process)
    assert ended(stage) == []


def test_a_stopped_process_is_not_gone(stage: Stage, process: "subprocess.Popen[bytes]") -> None:
    enter(stage, process.pid, living.place(), silent_s=sessions.DEAD_AFTER_S - 1)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert ended(stage) == []


def test_whoever_is_elsewhere_or_leaves_children_behind_is_told_by_silence_alone(
    stage: Stage, process: "subprocess.Popen[bytes]"
) -> None:
    for place in (None, "another boot/4026531836/h"):
        enter(stage, process.pid, place, silent_s=sessions.DEAD_AFTER_S - 1)
    kill(process)
    assert ended(stage) == []


def test_a_session_that_somebody_has_locked_keeps_no_other_waiting(
    stage: Stage, process: "subprocess.Popen[bytes]"
) -> None:
    locked, free = (enter(stage, process.pid, living.place(), silent_s=sessions.QUIET_S + 1) for _ in range(2))
    kill(process)
    with stage.open() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM worker_session WHERE uuid = %s FOR UPDATE", (locked,))
        assert ended(stage) == [free]
        other.execute("ROLLBACK")
    assert ended(stage) == [locked]
