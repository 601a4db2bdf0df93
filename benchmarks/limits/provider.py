"""The provider emulator of an arm: its command line, its switches, and what it saw. Other code asks it nothing."""

import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks import asking
from benchmarks.stage import Stage
from harness.ops.local.ports import free_port
from harness.policy.errors import Unavailable

SEEN_S = 60.0  # that an arm may take until its first call


@dataclass(frozen=True, slots=True)
class Provider:
    """One emulator in a process of its own."""

    port: int = field(default_factory=free_port)

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, **wanted: float) -> dict[str, str]:
        """Return what the arm's processes need in order to call it; `wanted` as benchmarks.asking says."""
        return {
            asking.VARIABLE: json.dumps({"url": f"{self.url}/v1"} | wanted),
            "LLM_BASE_URL": f"{self.url}/v1",
            "LLM_API_KEY": "bench",
            "LLM_MODEL": "emulator-1",
        }

    def start(self, stage: Stage, *, seed: int = 0, **behaviour: Any) -> None:
        """Start it among the processes of the stage and set it up."""
        stage.start([f"{{python}} -m harness.ops.emulator --port {self.port} --seed {seed}"])
        give_up_s = time.monotonic() + SEEN_S
        while True:
            try:
                return self.change(**behaviour)
            except httpx.TransportError:
                stage.check_alive()
                if time.monotonic() > give_up_s:
                    raise Unavailable(f"{stage.arm.name}: the emulator doesn't listen") from None
                time.sleep(0.05)

    def change(self, **behaviour: Any) -> None:
        """Change how it behaves from now on."""
        httpx.post(f"{self.url}/admin/config", json=behaviour, timeout=10.0).raise_for_status()

    def stats(self) -> dict[str, int]:
        """Return its counters since the last reset."""
        found: dict[str, int] = httpx.get(f"{self.url}/admin/stats", timeout=10.0).json()
        return found

    def timeline(self) -> dict[str, Any]:
        """Return what it saw since the last reset, interval by interval."""
        found: dict[str, Any] = httpx.get(f"{self.url}/admin/timeline", timeout=30.0).json()
        return found

    def reset(self) -> None:
        """Count from zero."""
        httpx.post(f"{self.url}/admin/reset", json={}, timeout=10.0).raise_for_status()

    def await_calls(self, stage: Stage, n: int = 1) -> None:
        """Wait until it has let in n calls, then let it count from zero. Raises: Unavailable."""
        give_up_s = time.monotonic() + SEEN_S
        while self.stats()["accepted"] < n:
            stage.check_alive()
            if time.monotonic() > give_up_s:
                raise Unavailable(f"{stage.arm.name}: {n} calls didn't come within {SEEN_S:.0f} s")
            time.sleep(0.05)
        self.reset()
