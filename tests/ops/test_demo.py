"""script/demo as a person runs it: the whole stack, real work, the figures, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest
from django.conf import settings

from harness.ops.demo import documents, people, scenario, verdict
from harness.store.keys import keys
from tests.stage import wait_until


def test_the_demo_does_its_work_writes_its_figures_and_leaves_no_process(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "documents"
    folder.mkdir()
    for number in range(6):
        name = "a folder with a rather long name, longer than forty characters"
        (folder / name).mkdir(exist_ok=True)
        (folder / name / f"note {number}.md").write_text(
            f"# Note {number}\n\nThe dispatcher releases a task when every limit has room. Note {number} says so.\n"
        )
    report = tmp_path / "figures.json"
    environment = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
    told = tmp_path / "told"
    with (
        told.open("w") as output,
        subprocess.Popen(
            [sys.executable, "-m", "harness.ops.demo", "--dir", str(folder), "--json", str(report), "--stay"],
            cwd=root,
            env=environment | {"HARNESS_LOCAL_DIR": str(tmp_path / "state"), "PYTHONPATH": str(root)},
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as demo,
    ):
        try:
            wait_until(
                lambda: "Ctrl-C stops it all." in told.read_text() or demo.poll() is not None, within_s=300, every_s=0.5
            )
            addresses = dict(re.findall(r"(?m)^(\w+): (\S+)$", told.read_text()))
            _answer(addresses)
        finally:
            began_s = time.monotonic()
            demo.send_signal(signal.SIGINT)
            demo.wait(30)
    assert time.monotonic() - began_s < 10
    assert demo.returncode == 0, told.read_text()[-6000:]
    figures = json.loads(report.read_text())
    assert figures["tasks_by_state"]["failed_terminal"] == 2
    assert set(figures["tasks_by_state"]) == {"succeeded", "failed_terminal"}
    assert figures["tasks_by_state"]["succeeded"] >= 300 + 6 + 6
    assert set(figures["wait_p50_s"]) == set(figures["wait_p95_s"]) == {"P0", "P1", "P2", "P3"}
    for pool, most in figures["max_in_flight"].items():
        assert most <= figures["slots"][pool], pool
    assert {"provider_429", "wall_s"} <= set(figures)
    mark = f"HARNESS_STACK={tmp_path / 'state'}"
    left = [p.pid for p in psutil.process_iter() if _names(p, mark)]
    assert left == []


def _answer(addresses: dict[str, str]) -> None:
    """What --stay printed leads to the system, and is all that a person needs for it."""
    assert httpx.get(f"{addresses['WEB_URL']}/health/ready", timeout=10).status_code == 200
    assert httpx.get(f"{addresses['WEB_URL']}/api/docs", timeout=10).status_code == 200
    login = (addresses["FLOWER_LOGIN"], addresses["FLOWER_LOGIN_PASSWORD"])
    assert httpx.get(f"{addresses['FLOWER_WEB_URL']}/workers", auth=login, timeout=20).status_code == 200
    assert httpx.get(f"{addresses['FLOWER_WEB_URL']}/workers", timeout=20).status_code == 401


@pytest.mark.parametrize(
    ("states", "most", "tokens", "says"),
    [
        ({"succeeded": 300, "failed_terminal": 3}, {"llm": 16}, 1, "'failed_terminal': 3}, 2 were meant"),
        ({"succeeded": 300, "failed_terminal": 2, "cancelled": 1}, {"llm": 16}, 1, "'cancelled': 1"),
        ({"succeeded": 301, "failed_terminal": 1}, {"llm": 16}, 1, "'failed_terminal': 1}, 2 were meant"),
        ({"succeeded": 300, "failed_terminal": 2, "queued": 1}, {"llm": 16}, 1, "'queued': 1"),
        ({"succeeded": 300, "failed_terminal": 2}, {"llm": 17}, 1, "over their slots: {'llm': 17}"),
        ({"succeeded": 300, "failed_terminal": 2}, {"llm": 16}, 2, "delivered under: 2"),
    ],
)
def test_the_demo_exits_with_1_when_a_task_did_not_end_as_meant(
    states: dict[str, int], most: dict[str, int], tokens: int, says: str
) -> None:
    judged = verdict.judge(states=states, meant=2, tokens=tokens, most=most, slots={"llm": 16})
    assert (judged.code, says in judged.sentence) == (1, True), judged.sentence


def test_a_folder_without_documents_is_refused_by_name(root: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness.ops.demo", "--dir", str(tmp_path)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 2
    assert "--dir" in done.stdout


def test_ctrl_c_while_the_demo_loads_ends_it_quietly(root: Path, tmp_path: Path) -> None:
    # A module that the demo imports first, in whose place stands one that never ends.
    (tmp_path / "httpx.py").write_text("import sys, time\nprint('loading', flush=True)\ntime.sleep(600)\n")
    with subprocess.Popen(
        [sys.executable, "-m", "harness.ops.demo"],
        cwd=root,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{root}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout and demo.stdout.readline() == "loading\n"
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=20)
    assert (demo.returncode, said) == (130, "")


def test_what_is_left_out_is_told_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# Good")
    (tmp_path / "old.txt").write_bytes("Grüße".encode("latin-1"))
    (tmp_path / "empty.txt").touch()
    found = documents.find(tmp_path)
    assert [one.name for one in found.documents] == ["good.md"]
    assert dict(found.left_out) == {
        "empty.txt": "empty",
        "old.txt": "not UTF-8 text (byte 3 begins no character); save it as UTF-8",
    }


def test_a_demo_ends_the_keys_of_the_one_before(transactional_db: None) -> None:
    first, second = people.tenants(), people.tenants()
    assert first.keys() == second.keys()
    valid = {key.prefix for key in keys() if key.label == people.LABEL and key.revoked_at is None}
    assert valid == {key.split("_")[1] for key in second.values()}


def _names(process: psutil.Process, mark: str) -> bool:
    try:
        return any(f"{name}={value}".startswith(mark) for name, value in process.environ().items())
    except psutil.Error:
        return False


def test_the_quota_that_drops_is_felt_by_the_slots_that_call_the_provider() -> None:
    slots = settings.HARNESS_TOPOLOGY.pools["llm"].slots
    assert scenario.LOW_QUOTA < slots <= scenario.QUOTA
