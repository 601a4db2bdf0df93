"""Plays one example on a stack of its own: servers, processes and data below `example/` of the local state folder.

    1 what lacks?   2 what the example needs around it   3 the stack, with the emulator unless a model is named
    4 a tenant and its key   5 the play   6 all of it down again

A stack that already runs in this checkout isn't touched, and none of its settings are taken over.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from harness.ops.demo.client import Client
from harness.ops.examples import tenant
from harness.ops.examples.example import PROGRAMS, Example, Outcome, Player
from harness.ops.local import addresses
from harness.ops.local.ports import free_port
from harness.ops.local.stack import Stack
from harness.policy.errors import Refused, Unavailable

MODEL = "emulator-extractive"
ENDPOINT = "LLM_BASE_URL"  # set: that endpoint is asked, and no emulator started


def run(
    example: Example,
    base_dir: Path,
    *,
    say: Callable[[str], None],
    stay: Callable[[Stack], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Play it and return what came of it. `stay(stack)` is called before all is stopped.

    Raises: Refused when something lacks here; Unavailable when it didn't end as meant; what `Stack.start` raises.
    """
    if lack := example.missing():
        raise Refused(f"{example.name} can't run here: {lack}")
    home = addresses.home(base_dir) / "example"
    own = dict(os.environ if environment is None else environment)
    extra = dict(example.extra)
    if not own.get(ENDPOINT):
        port = free_port()
        extra["provider"] = f"python manage.py provider --port {port} --latency-s 0.2 --sigma 0.3"
        own |= {ENDPOINT: f"http://127.0.0.1:{port}/v1", "LLM_MODEL": MODEL, "LLM_API_KEY": "example"}
    with example.around() as needed:
        stack = Stack(
            base_dir,
            home=home,
            programs=(*PROGRAMS, *example.programs),
            extra=extra,
            environment=own | dict(needed),
            say=say,
        )
        with stack:
            found = stack.start()
            client = Client(found["WEB_URL"], _key(base_dir, own | found))
            folder = home / "results" / example.name
            folder.mkdir(parents=True, exist_ok=True)
            try:
                outcome = example.play(Player(client=client, folder=folder, say=say, mend=stack.mend, around=needed))
            finally:
                client.close()
            if stay:
                stay(stack)
            return outcome


def _key(base_dir: Path, environment: Mapping[str, str]) -> str:
    """Make a key in a process of its own: this one's settings name another database, or none."""
    made = subprocess.run(
        [sys.executable, "-m", tenant.__name__],
        cwd=base_dir,
        env={**environment, "PYTHONPATH": str(base_dir)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise Unavailable(f"no key could be made: {made.stderr.strip()[-500:]}")
    return made.stdout.strip()
