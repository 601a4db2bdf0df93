"""A webhook whose worker dies between the receiver's 2xx and the settling: delivered again, with the same token."""

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kinds.sites import Page, Site, site
from tests.route.conftest import Route
from tests.stage import wait_until


@pytest.mark.parametrize("status", [200, 409])
def test_a_worker_killed_after_the_2xx_delivers_at_most_the_same_token_again(route: Route, status: int) -> None:
    """`status`: what the receiver says to a token that it has seen; 409 while its first delivery is under way."""
    answered = threading.Event()
    with site() as receiver:
        route.environment["HARNESS_EGRESS_ALLOW"] = receiver.allow
        route.dispatcher()
        worker = route.worker("tool_write")
        receiver.pages["/done"] = [Page(status=201), Page(status=status), Page(status=200)]
        _before_the_first_answer(receiver, lambda: _stop(worker.pid), answered)
        payload = {"url": receiver.url("/done"), "body": {"n": 1}}
        (task,) = route.stage.submit("tool.webhook", input=json.dumps(payload))

        assert answered.wait(90), "no delivery came"
        assert route.stage.state(task) == "running"
        worker.kill()
        worker.wait()
        route.stage.connection.execute(  # as if the twenty seconds without a beat had passed
            "UPDATE worker_session SET beat_at = beat_at - interval '1 minute' WHERE pid = %s", (worker.pid,)
        )
        route.worker("tool_write")
        wait_until(lambda: route.stage.state(task) == "succeeded", within_s=90)
        seen = list(receiver.seen)
    tokens = {one.headers["idempotency-key"] for one in seen}
    (token,) = tokens
    assert token.startswith(f"harness-{route.stage.row(task)['public_id']}-s1-")
    assert len(seen) == (2 if status == 200 else 3)
    events = route.stage.events(task)
    assert events.count("succeed") == 1 and events[:5] == ["submit", "claim", "step_started", "lose", "claim"]
    assert route.stage.row(task)["lost_starts"] == 1
    assert route.stage.one("SELECT count(*) FROM attempt WHERE verdict = 'succeed'") == 1


def _stop(pid: int) -> None:
    """Stop a process; the kernel does it thread by thread, some time after it was asked."""
    os.kill(pid, signal.SIGSTOP)
    threads = list(Path(f"/proc/{pid}/task").iterdir())
    wait_until(
        lambda: all((one / "stat").read_text().rpartition(")")[2].split()[0] == "T" for one in threads), within_s=10
    )


def _before_the_first_answer(receiver: Site, act: Callable[[], None], answered: threading.Event) -> None:
    """Stop the worker before it can see the answer; its kernel takes the 2xx, its process never does."""
    answer = receiver.answer

    def stopping(path: str) -> Page:
        page = answer(path)
        if not answered.is_set():
            act()
            answered.set()
        return page

    receiver.answer = stopping  # type: ignore[method-assign]  # a receiver of this test's own, as `site` has no hook
