"""The stack's life with real supervisor and real servers, around a checkout of small programs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from harness.ops.local import addresses, processes, stack, supervision
from harness.ops.local.places import SOCKET_BYTES, open_places
from harness.ops.local.ports import PortTaken
from harness.ops.local.stack import Stack
from harness.policy.errors import Conflict, Invalid, Unavailable

_SLEEPER = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); time.sleep(600)"
_STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
_OWNER = """
import sys
from pathlib import Path
from harness.ops.local.stack import Stack
one = Stack(Path(sys.argv[1]))
one.start()
print("ready", flush=True)
one.run()
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout, in a path with a space, whose programs are small; the run's own servers serve it."""
    monkeypatch.setattr(stack, "SETTLE_S", 1)
    # A database that is there before any test has asked for its own.
    monkeypatch.setenv("DATABASE_URL", urlsplit(os.environ["DATABASE_URL"])._replace(path="/postgres").geturl())
    base = tmp_path / "check out"
    base.mkdir()
    (base / "manage.py").write_text("")
    (base / "Procfile").write_text(
        f"# programs\nweb: python -m http.server $PORT --bind 127.0.0.1\ndispatcher: python -c '{_SLEEPER}'\n"
        f"worker_db: python -c '{_SLEEPER}' --name db@%h --file $STACK/file\n"
    )
    yield base
    processes.end(processes.marked(base / ".harness" / "stack"), first=signal.SIGKILL, patience_s=5.0)


def left(base: Path) -> list[psutil.Process]:
    return processes.marked(base / ".harness" / "stack")


def until(test: Callable[[], bool], patience_s: float = 15.0) -> None:
    end = time.monotonic() + patience_s
    while not test():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_it_starts_all_shows_them_restarts_what_ends_and_leaves_nothing(checkout: Path) -> None:
    with Stack(checkout) as one:
        found = one.start()
        assert addresses.read(checkout / ".harness") == found
        assert addresses.path(checkout / ".harness").stat().st_mode & 0o777 == 0o600
        here = open_places(checkout / ".harness")
        programs = {program.name: program for program in supervision.ask(here)}
        assert set(programs) == {"web", "dispatcher_1", "dispatcher_2", "worker_db"}
        argv = psutil.Process(programs["worker_db"].pid).cmdline()
        assert argv[-4:] == ["--name", "db@%h", "--file", str(here.stack / "file")]

        os.kill(programs["worker_db"].pid, signal.SIGKILL)
        until(
            lambda: any(
                program.name == "worker_db" and program.state == "RUNNING" and program.pid != programs["worker_db"].pid
                for program in supervision.ask(here)
            )
        )
        with pytest.raises(Conflict, match=f"process {os.getpid()}"):
            Stack(checkout).start()
        socket = supervision.socket_path(here)
        assert len(os.fsencode(socket)) <= SOCKET_BYTES
        started = time.monotonic()
    assert time.monotonic() - started < 10
    assert left(checkout) == []
    assert not socket.parent.exists()
    assert addresses.read(checkout / ".harness") == {}


def test_what_does_not_heed_the_signal_is_gone_within_ten_seconds_all_the_same(checkout: Path) -> None:
    one = Stack(checkout, programs=[], extra={"beat": f"python -c '{_STUBBORN}'"})
    one.start()
    assert len(left(checkout)) == 2
    started = time.monotonic()
    one.stop()
    assert time.monotonic() - started < 10
    assert left(checkout) == []


def test_a_kill_9_of_the_owner_and_of_supervisor_blocks_no_later_start(checkout: Path, root: Path) -> None:
    command = [sys.executable, "-c", _OWNER, str(checkout)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        assert owner.stdout.readline() == "ready\n"
        assert stack.owner(checkout / ".harness") == owner.pid
        owner.kill()
    assert stack.owner(checkout / ".harness") is None
    command = [sys.executable, "manage.py", "stack", "status"]
    environment = os.environ | {"HARNESS_LOCAL_DIR": str(checkout / ".harness")}
    told = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 1 and "`manage.py stack down` ends them" in told.stdout.splitlines()[-1]
    for process in left(checkout):
        if "supervisord" in " ".join(process.cmdline()):
            process.kill()
    assert len(left(checkout)) >= 4

    said: list[str] = []
    with Stack(checkout, say=said.append) as again:
        again.start()
        assert any("an earlier run had left" in line for line in said)
    assert left(checkout) == []


def test_a_reader_that_has_seen_enough_of_the_status_ends_it_without_a_traceback(tmp_path: Path, root: Path) -> None:
    (tmp_path / "stack").mkdir(mode=0o700)
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as gone:
        told = subprocess.run(
            [sys.executable, "manage.py", "stack", "status"],
            cwd=root,
            env=os.environ | {"HARNESS_LOCAL_DIR": str(tmp_path)},
            stdout=gone,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (told.returncode, told.stderr) == (141, "")


def test_a_taken_port_is_refused_by_the_name_of_its_option(checkout: Path) -> None:
    with Stack(checkout) as one:
        port = int(one.start()["WEB_URL"].rsplit(":", 1)[1])
        with pytest.raises(PortTaken, match=f"--port {port} is in use"):
            Stack(checkout, home=checkout / "other").start(port=port)


def test_a_program_that_does_not_run_is_named_with_its_log_and_nothing_stays(checkout: Path) -> None:
    broken = {"worker_db": "python -c 'raise SystemExit(\"no such pool\")'"}
    one = Stack(checkout, programs=[], extra=broken)
    one.patience_s = 2.0
    with pytest.raises(Unavailable, match=r"(?s)worker_db.*no such pool"):
        one.start()
    assert left(checkout) == []


def test_a_failing_migration_is_shown_and_nothing_stays(checkout: Path) -> None:
    (checkout / "manage.py").write_text("raise SystemExit('relation is broken')")
    with pytest.raises(Unavailable, match=r"(?s)migrating.*relation is broken"):
        Stack(checkout).start()
    assert stack.owner(checkout / ".harness") is None


def test_an_unknown_program_and_a_line_without_a_name_are_refused(checkout: Path) -> None:
    with pytest.raises(Invalid, match=r"no program worker_gpu; it has web, dispatcher, worker_db"):
        Stack(checkout, programs=["worker_gpu"]).start()
    (checkout / "Procfile").write_text("just words\n")
    with pytest.raises(Invalid, match="Procfile:1"):
        Stack(checkout).start()


def test_addresses_in_the_environment_win_over_the_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_places(tmp_path / ".harness")
    addresses.save(tmp_path / ".harness", {"DATABASE_URL": "postgresql://here"})
    assert addresses.load(tmp_path) == {}
    monkeypatch.delenv("DATABASE_URL")
    assert addresses.load(tmp_path) == {"DATABASE_URL": "postgresql://here"}
    addresses.path(tmp_path / ".harness").write_text(json.dumps(["damaged"]))
    assert addresses.load(tmp_path) == {}
