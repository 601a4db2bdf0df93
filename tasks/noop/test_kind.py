"""The kinds that do nothing: the line they leave, and each way of going wrong."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from harness.kinds import Cancelled, Context, Permanent, Transient
from harness.kinds.registry import find
from tasks.noop import kind
from tasks.noop.kind import Fault, Mark, Sleep


def test_noop_and_noop_single_have_one_body_and_only_the_first_is_bundled() -> None:
    bundled, single = find("noop"), find("noop.single")
    assert bundled and single
    assert bundled.run is single.run
    assert (bundled.bundle, single.bundle) == (True, False)
    assert bundled.pool == single.pool == "db"


def test_an_execution_leaves_one_whole_line_in_its_process_s_file(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_BENCH_LOG", str(tmp_path))
    monkeypatch.setattr(kind, "_log", {})
    threads = [threading.Thread(target=kind.noop, args=(ctx, Mark(tag="t", i=i, ts=1.5))) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = (tmp_path / f"{os.getpid()}.rec").read_text().splitlines()
    assert sorted(int(line.split()[2]) for line in lines) == list(range(20))
    what, tag, _, ts, start, end, pid = lines[0].split()
    assert (what, tag, ts, pid) == ("D", "t", "1.500000", str(os.getpid()))
    assert float(start) <= float(end)


def test_without_the_variable_nothing_is_written(ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_BENCH_LOG", raising=False)
    monkeypatch.chdir(tmp_path)
    kind.noop(ctx, Mark())
    assert list(tmp_path.iterdir()) == []


def test_a_sleep_stops_when_its_task_is_cancelled(alone: Any) -> None:
    ctx = alone()
    ctx.stop = True
    with pytest.raises(Cancelled):
        kind.sleep(ctx, Sleep(sleep_s=600))


def test_a_sleep_takes_as_long_as_asked(ctx: Context) -> None:
    slept = kind.sleep(ctx, Sleep(sleep_s=0.05))
    assert 0.05 <= slept.slept_s < 0.5


@pytest.mark.parametrize(("fail", "error"), [("transient", Transient), ("permanent", Permanent), ("bug", RuntimeError)])
def test_a_fault_raises_what_was_asked(ctx: Context, fail: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="as asked"):
        kind.fault(ctx, Fault(fail=fail))


def test_a_fault_that_is_not_asked_for_does_not_happen(ctx: Context) -> None:
    assert kind.fault(ctx, Fault()) is None


def test_a_hang_does_not_look_at_cancel(alone: Any) -> None:
    ctx = alone()
    ctx.stop = True
    assert kind.fault(ctx, Fault(fail="hang", sleep_s=0.01)) is None


def test_notjson_returns_what_no_json_can_hold(ctx: Context) -> None:
    with pytest.raises(TypeError):
        __import__("json").dumps(kind.fault(ctx, Fault(fail="notjson")))


def test_exit_kills_the_process_without_a_word() -> None:
    code = "from tasks.conftest import Alone; from tasks.noop.kind import *; fault(Alone(), Fault(fail='exit'))"
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False, capture_output=True).returncode == 13


@pytest.mark.parametrize(
    "payload",
    [{"path": "/etc"}, {"tag": "two words"}, {"i": -1}, {"sleep_s": 601}, {"sleep_s": float("nan")}, {"fail": "else"}],
)
def test_a_wrong_field_is_refused_by_name(payload: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        Fault.model_validate(payload)
    assert refused.value.errors()[0]["loc"] == (next(iter(payload)),)
