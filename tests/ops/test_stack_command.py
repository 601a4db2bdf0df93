"""`manage.py stack up | status | logs | down`, as a person types them, around the real programs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ops.local import processes
from tests.stage import wait_until

PROGRAMS = "web,dispatcher,beat,worker_db"
MANAGE = [sys.executable, "manage.py", "stack"]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A stack of its own, with servers of its own."""
    own = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
    yield own | {"HARNESS_LOCAL_DIR": str(tmp_path)}
    processes.end(processes.marked(tmp_path / "stack"), first=signal.SIGKILL, patience_s=5.0)


def ask(root: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MANAGE, *words], cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_ctrl_c_stops_all_in_order_within_ten_seconds_and_leaves_no_process(
    root: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    told = tmp_path / "told"
    with (
        told.open("w") as output,
        subprocess.Popen(
            [*MANAGE, "up", "--only", PROGRAMS], cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT
        ) as up,
    ):
        wait_until(lambda: "ready;" in told.read_text() or up.poll() is not None, within_s=120, every_s=0.2)
        status = json.loads(ask(root, environment, "status", "--json").stdout)
        names = {"beat", "dispatcher_1", "dispatcher_2", "postgres", "valkey", "web", "worker_db"}
        assert status["processes"] == dict.fromkeys(names, "RUNNING")
        logs = ask(root, environment, "logs", "worker_db")
        assert "db@" in logs.stdout and logs.stdout.startswith("==> worker_db <==")
        began_s = time.monotonic()
        up.send_signal(signal.SIGINT)  # the terminal's Ctrl-C: supervisor and its programs are in sessions of their own
        up.wait(30)
    assert time.monotonic() - began_s < 10
    assert (up.returncode, told.read_text().splitlines()[-2:]) == (0, ["stopping", "stopped"])
    assert processes.marked(tmp_path / "stack") == []
    stopped = re.findall(r"stopped: (\w+)", (tmp_path / "stack" / "logs" / "supervisor.log").read_text())
    assert set(stopped[:-1]) == {"web", "beat", "dispatcher_1", "dispatcher_2"}  # what brings in work, first
    assert stopped[-1] == "worker_db"
    status = json.loads(ask(root, environment, "status", "--json").stdout)
    assert status["pid"] is None and set(status["processes"].values()) == {"STOPPED"}


def test_logs_shows_the_end_of_one_program_of_its_numbers_or_of_all(
    root: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = tmp_path / "stack" / "logs"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("web", "dispatcher_1", "dispatcher_2"):
        (folder / f"{name}.log").write_text("".join(f"{name} line {n}\n" for n in range(100)))
    one = ask(root, environment, "logs", "web", "--lines", "2")
    assert (one.returncode, one.stdout) == (0, "==> web <==\nweb line 98\nweb line 99\n")
    both = ask(root, environment, "logs", "dispatcher")
    assert re.findall(r"==> (\w+) <==", both.stdout) == ["dispatcher_1", "dispatcher_2"]
    assert both.stdout.count(" line ") == 80
    every = ask(root, environment, "logs", "--lines", "1")
    assert re.findall(r"==> (\w+) <==", every.stdout) == ["dispatcher_1", "dispatcher_2", "web"]
    none = ask(root, environment, "logs", "worker_gpu")
    assert none.returncode == 1
    assert "no log of worker_gpu; logs: dispatcher_1, dispatcher_2, web" in none.stderr


def test_logs_follow_what_is_written_until_ctrl_c(root: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "stack" / "logs"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "web.log").write_text("early\n")
    told = tmp_path / "told"
    with (
        told.open("w") as output,
        (folder / "web.log").open("a") as log,
        subprocess.Popen([*MANAGE, "logs", "web", "--follow"], cwd=root, env=environment, stdout=output) as follow,
    ):
        wait_until(lambda: "early" in told.read_text(), within_s=30)

        def late() -> bool:  # written again: `tail` may not have begun to follow when the first is written
            print("late", file=log, flush=True)
            return "late" in told.read_text()

        wait_until(late, within_s=30, every_s=0.2)
        follow.send_signal(signal.SIGINT)
    assert follow.returncode == -signal.SIGINT
