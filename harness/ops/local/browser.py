"""A headless Chromium, driven over its debugging pipe: enough to log in, look, and take pictures. No driver, no port.

Messages are JSON, each ended by a zero byte, on the browser's file descriptors 3 (in) and 4 (out).
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.policy.errors import Unavailable

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ANSWER_S = 30.0
SETTLED_MS = 250  # after the load event: the time that the admin's own scripts take to show and hide


def find() -> str | None:
    """Return the path of a Chromium on this machine, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page. Use as a context manager. Raises: Unavailable when there is none, or it hangs."""

    def __init__(self) -> None:
        program = find()
        if program is None:
            raise Unavailable("no Chromium is installed (apt-get install chromium)", field="chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="harness-browser-", ignore_cleanup_errors=True)
        theirs_in, self._in = os.pipe()
        self._out, theirs_out = os.pipe()
        self.errors: list[str] = []
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self._loaded = False
        # Chromium wants exactly 3 and 4; the shell puts them there.
        command = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        if os.geteuid() == 0:
            options.append("--no-sandbox")  # it refuses its sandbox to root
        self._process = subprocess.Popen(
            ["bash", "-c", command, program, *options, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def tell(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        until_s = time.monotonic() + ANSWER_S
        while time.monotonic() < until_s:
            answer = self._read()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise Unavailable(f"the browser refused {method}: {answer['error'].get('message')}")
                result: dict[str, Any] = answer["result"]
                return result
        raise Unavailable(f"the browser didn't answer {method}")

    def look(self, *, width: int, height: int, dark: bool) -> None:
        """Set the window and the scheme for what follows."""
        self.tell(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        """Go to a page and wait until it is there."""
        self._loaded = False
        self.tell("Page.navigate", url=url)
        self._wait()

    def send_form(self, fields: dict[str, str]) -> None:
        """Fill the page's form and send it, as a person would."""
        self._loaded = False
        self.run(
            f"for (const [name, value] of Object.entries({json.dumps(fields)}))"
            " document.querySelector(`form [name=${name}]`).value = value;"
            " document.querySelector(`form [name=${Object.keys(" + json.dumps(fields) + ")[0]}]`).form.requestSubmit()"
        )
        self._wait()

    def run(self, script: str) -> Any:
        """Return what a script gives, in the page."""
        answer = self.tell("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a PNG of the window, or of the whole page."""
        shot = self.tell("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _wait(self) -> None:
        until_s = time.monotonic() + ANSWER_S
        while not self._loaded:
            if time.monotonic() > until_s:
                raise Unavailable("the page didn't load")
            self._read()
        self.run(f"new Promise(done => setTimeout(done, {SETTLED_MS}))")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._out], [], [], ANSWER_S)[0]:
                raise Unavailable(f"the browser said nothing for {ANSWER_S:.0f} s")
            part = os.read(self._out, 1 << 16)
            if not part:
                raise Unavailable("the browser ended")
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Log.entryAdded" if parameters["entry"]["level"] == "error":
                self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")
            case "Runtime.exceptionThrown":
                self.errors.append(parameters["exceptionDetails"].get("text", "a script failed"))
            case _:
                pass
        return message
