"""`browser.visit`: open a page, click through, read and picture it, in an installed Chromium driven by Playwright.

One child process a task, with a browser of its own and a deadline of its own: what is over, unwanted or hung is killed
with everything that it started. Nothing of the worker's environment gets there but what egress is allowed.
"""

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Final

from harness.kinds import Context, Permanent, RateLimited, TimedOut, Transient, egress, errors, kind
from harness.kinds.egress.outcomes import forbidden
from tasks.browser_visit import child, tree
from tasks.browser_visit.payload import DEADLINE_MOST_S, Kept, Visit, Visited

RESOURCE: Final = "browser"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOOK_EVERY_S: Final = 0.1  # for a person's wish
LINE_MOST_BYTES: Final = 8_000_000
PICTURE_MOST_BYTES: Final = 50_000_000
RESULT_MOST_JSON_BYTES: Final = 200_000
_PACKAGES: Final = Path(__file__).resolve().parents[2]
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "HARNESS_EGRESS_ALLOW", "HARNESS_EGRESS_PORTS", child.UNBOXED)


@kind(
    "browser.visit",
    pool="browser",
    input=Visit,
    output=Visited,
    resources={RESOURCE: 1},
    timeout_s=DEADLINE_MOST_S + 60,
    est_s=8.0,
)
def visit(ctx: Context, payload: Visit) -> Visited:
    """Visit once. Raises: Permanent (permission) for a refused address; TimedOut for a page that never loads."""
    program = _program()
    egress.check(payload.url, timeout_s=min(payload.load_s, payload.deadline_s))
    return Visited.model_validate(ctx.step("visit", lambda: _visited(ctx, payload, program)))


def missing() -> str | None:
    """Return what lacks here and how to get it; None: nothing."""
    if find_spec("playwright") is None:
        return "playwright isn't installed: pip install 'harness-queue[browser]'"
    named = os.environ.get(child.PROGRAM, "").strip()
    if named and not shutil.which(named):
        return f"{child.PROGRAM}={named} is no program: name a Chromium"
    if not named and not any(map(shutil.which, NAMES)):
        return f"no Chromium is installed: apt-get install chromium, or name one in {child.PROGRAM}"
    return None


def _program() -> str:
    lack = missing()
    if lack is not None:
        raise Permanent(f"{lack}, where the worker of pool browser runs")
    named = os.environ.get(child.PROGRAM, "").strip()
    return next(path for name in ((named,) if named else NAMES) if (path := shutil.which(name)))


def _visited(ctx: Context, payload: Visit, program: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="harness-visit-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        result = _told(ctx, payload, program, folder)
        kept = [_kept(ctx, folder, picture) for picture in result.pop("pictures")]
    result["screenshots"] = [one.model_dump() for one in kept]
    while len(json.dumps(result).encode()) > RESULT_MOST_JSON_BYTES and result["text"]:
        result["text"], result["truncated"] = result["text"][: len(result["text"]) // 2], True
    if len(json.dumps(result).encode()) > RESULT_MOST_JSON_BYTES:
        raise Permanent("actions: what is extracted is larger than 200 KB: extract less")
    return result


def _told(ctx: Context, payload: Visit, program: str, folder: Path) -> dict[str, Any]:
    """Run the child and return its result; however this ends, nothing of it goes on."""
    until_s = time.monotonic() + payload.deadline_s
    with _running(program, folder) as process:
        assert process.stdin is not None and process.stdout is not None  # pipes were asked for
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(process.stdout, lines), name="browser-visit", daemon=True)
        reader.start()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(payload.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        try:
            while True:
                ctx.checkpoint()
                if time.monotonic() > until_s:
                    raise TimedOut(f"deadline_s: the visit isn't over after {payload.deadline_s:g} s; it was killed")
                try:
                    line = lines.get(timeout=LOOK_EVERY_S)
                except queue.Empty:
                    continue
                if not line:
                    code = process.wait()
                    raise Transient(f"the browser's process ended (exit code {code}) without a result")
                if not line.endswith(b"\n"):
                    raise Permanent("actions: what is extracted is larger than 8 MB: extract less")
                heard = json.loads(line)
                if "did" in heard:
                    ctx.emit(f"{heard['did']}\n")
                elif "failed" in heard:
                    raise _error(heard["failed"], heard["as"])
                else:
                    result: dict[str, Any] = heard["result"]
                    return result
        finally:
            tree.kill(process.pid)
            process.wait()
            reader.join()


@contextlib.contextmanager
def _running(program: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    environment |= {"HOME": str(folder), "TMPDIR": str(folder), child.PROGRAM: program, "PYTHONPATH": str(_PACKAGES)}
    process = subprocess.Popen(
        [sys.executable, "-m", child.__name__, str(folder)],
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process:
        yield process


def _read(source: IO[bytes], lines: "queue.SimpleQueue[bytes]") -> None:
    while line := source.readline(LINE_MOST_BYTES):
        lines.put(line)
    lines.put(b"")


def _kept(ctx: Context, folder: Path, name: str) -> Kept:
    path = folder / f"{name}.png"
    if path.stat().st_size > PICTURE_MOST_BYTES:
        raise Permanent(f"actions: screenshot {name!r} is larger than {PICTURE_MOST_BYTES:,} bytes")
    return Kept(name=name, artifact_id=ctx.artifacts.put(f"{name}.png", "image/png", path.read_bytes()).id)


def _error(message: str, as_: str) -> errors.WorkError:
    match as_:
        case "timed_out":
            return TimedOut(message)
        case "rate_limited":
            return RateLimited(message)
        case "transient":
            return Transient(message)
        case "permission":
            return forbidden(message)
    return Permanent(message)
