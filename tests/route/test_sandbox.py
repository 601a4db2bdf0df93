"""Code in the sandbox of a real worker: it runs with what tenants sent, and goes with a cancel and with its worker."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from harness.engine import operate
from harness.kinds import sandbox
from tests.route.conftest import Route
from tests.stage import wait_until

pytestmark = pytest.mark.skipif(sandbox.lack() is not None, reason=f"no sandbox here: {sandbox.lack()}")


def marked(mark: str) -> list[int]:
    """The processes with the mark on their command line."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in one.read_bytes():
                found.append(int(one.parent.name))
        except OSError:
            continue
    return found


def test_a_cancel_and_a_kill_of_the_worker_leave_nothing_of_the_code(route: Route) -> None:
    def sleeping(mark: str) -> str:
        code = (
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import time; time.sleep(999)', '{mark}'])"
        )
        return json.dumps({"code": code, "wall_s": 200})

    mark = f"route-{os.getpid()}-{time.monotonic_ns()}"
    route.dispatcher()
    worker = route.worker("sandbox")
    (done,) = route.stage.submit("sandbox.python", input=json.dumps({"code": "print(6 * 7)"}))
    wait_until(lambda: route.stage.state(done) == "succeeded", within_s=60)
    output = route.stage.one("SELECT output FROM task_body WHERE task_id = %s", done)
    assert (output["stdout"], output["exit_code"]) == ("42\n", 0)

    (cancelled,) = route.stage.submit("sandbox.python", input=sleeping(f"{mark}-a"))
    wait_until(lambda: marked(f"{mark}-a"), within_s=60)
    operate.cancel(route.stage.connection, route.stage.row(cancelled)["public_id"], tenant=None, actor="me")
    wait_until(lambda: route.stage.state(cancelled) == "cancelled", within_s=30)
    assert marked(f"{mark}-a") == []

    (lost,) = route.stage.submit("sandbox.python", input=sleeping(f"{mark}-b"))
    wait_until(lambda: marked(f"{mark}-b"), within_s=60)
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: marked(f"{mark}-b") == [], within_s=30)
    wait_until(lambda: route.stage.state(lost) == "queued", within_s=60)
