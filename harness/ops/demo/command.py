"""Starts the stack, plays the scenario, prints the figures. Exit code 0 only if all ended as meant."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx
from rich.console import Console
from rich.live import Live

from harness.ops.demo import documents, receiver, verdict, view
from harness.ops.demo.client import Client
from harness.ops.demo.receiver import Receiver
from harness.ops.demo.scenario import Scenario
from harness.ops.local.interruption import interrupt_on
from harness.ops.local.ports import free_port
from harness.ops.local.stack import Stack
from harness.policy.errors import HarnessError, Invalid, Unavailable

LOOK_EVERY_S = 0.5
GIVE_UP_S = 600.0
PROGRAMS = (
    "web",
    "dispatcher",
    "beat",
    "worker_net",
    "worker_db",
    "worker_cpu",
    "worker_quarantine",
    "worker_system",
)
MODEL = "emulator-1"


def main() -> int:
    """Run the demo. Returns the exit code."""
    base = Path.cwd()
    parser = argparse.ArgumentParser(prog="script/demo", description="Start everything and do real work through it.")
    parser.add_argument("--dir", type=Path, default=base, help="folder of documents (default: this repository's own)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--stay", action="store_true", help="keep the stack running and print its addresses")
    options = parser.parse_args()
    console = Console() if sys.stdout.isatty() else Console(width=110)
    interrupt_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        if options.json:
            _require_writable(options.json)
        found = documents.find(options.dir)
        for name, reason in found.left_out:
            console.print(f"left out {name}: {reason}")
        return _run(base, found.documents, options, console)
    except HarnessError as error:
        console.print(f"script/demo: {error.message}", style="red")
        return 2
    except KeyboardInterrupt:
        console.print("stopped")
        return 130


def _require_writable(path: Path) -> None:
    """Raises: Invalid, before the work and not after it."""
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise Invalid(f"--json {path}: {error.strerror}; name a file that can be written", field="json") from error


def _run(base: Path, found: tuple[documents.Document, ...], options: argparse.Namespace, console: Console) -> int:
    began_s = time.monotonic()
    provider = f"http://127.0.0.1:{free_port()}"
    with receiver.running() as hook:
        environment = os.environ | {
            "LLM_BASE_URL": f"{provider}/v1",
            "LLM_MODEL": MODEL,
            "LLM_API_KEY": "demo",
            "HARNESS_EGRESS_ALLOW": hook.address,  # the demo's own receiver; nothing else on this machine
        }
        return _on_a_stack(base, found, options, console, environment, provider, hook, began_s)


def _on_a_stack(
    base: Path,
    found: tuple[documents.Document, ...],
    options: argparse.Namespace,
    console: Console,
    environment: dict[str, str],
    provider: str,
    hook: Receiver,
    began_s: float,
) -> int:
    port = provider.rpartition(":")[2]
    stack = Stack(
        base,
        programs=(*PROGRAMS, "flower") if options.stay else PROGRAMS,
        extra={"provider": f"python manage.py provider --port {port} --latency-s 0.4 --sigma 0.4"},
        environment=environment,
        say=lambda line: console.print(line, style="dim"),
    )
    with stack:
        addresses = stack.start()
        console.print(f"the stack is up after {time.monotonic() - began_s:.1f} s")
        os.environ.update({name: addresses[name] for name in ("DATABASE_URL", "BROKER_URL", "SECRET_KEY")})
        code, figures = _play(addresses["WEB_URL"], provider, hook, found, began_s, stack.mend, console)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        if options.stay:
            for name, value in sorted(addresses.items()):
                if name not in ("SECRET_KEY", "DATABASE_URL", "BROKER_URL"):
                    console.print(f"{name}: {value}")
            console.print("Ctrl-C stops it all.")
            with suppress(KeyboardInterrupt):  # as told; the exit code still says how the work ended
                stack.run()
        return code


def _play(
    web: str,
    provider: str,
    hook: Receiver,
    found: tuple[documents.Document, ...],
    began_s: float,
    mend: Callable[[], None],
    console: Console,
) -> tuple[int, dict[str, Any]]:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from django.conf import settings

    from harness.ops.demo import people
    from harness.store import overview
    from harness.store.database import connect

    keys = people.tenants()
    clients = {name: Client(web, key) for name, key in keys.items()}
    scenario = Scenario(clients["library"], clients["crowd"], clients["desk"], found, provider, hook.address)
    with connect(settings.DATABASE_URL, "engine", application_name="harness-demo") as connection:
        row = connection.execute("SELECT coalesce(max(id), 0) + 1 FROM task").fetchone()
        since_id = int(row[0]) if row else 0
        played_s = time.monotonic()
        first_s: float | None = None
        scenario.start()
        slots: dict[str, int] = {}
        printed_s = 0.0
        with Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else _Lines() as screen:
            while not scenario.finished:
                if time.monotonic() - played_s > GIVE_UP_S:
                    raise Unavailable(f"not done after {GIVE_UP_S:.0f} s; `manage.py stack logs` tells more")
                mend()
                scenario.step()
                now = overview.now(connection, since_id=since_id)
                slots = {pool: max(n, slots.get(pool, 0)) for pool, n in now.slots.items()} | {
                    pool: n for pool, n in slots.items() if pool not in now.slots
                }
                if first_s is None and now.states.get("succeeded"):
                    first_s = time.monotonic() - began_s
                    console.print(f"the first task was done after {first_s:.1f} s")
                moment = view.Moment(now, scenario.submitted, _rejected(provider), time.monotonic() - played_s)
                if isinstance(screen, Live):
                    screen.update(view.live(moment))
                elif time.monotonic() - printed_s >= 3:
                    printed_s = time.monotonic()
                    console.print(view.line(moment))
                time.sleep(LOOK_EVERY_S)
        scenario.end()
        states = _settled(connection, since_id)
        waits = overview.waits(connection, since_id=since_id)
        most = overview.most_in_flight(connection, since_id=since_id)
    wall_s = time.monotonic() - played_s
    rejected = _rejected(provider)
    view.figures(console, states=states, waits=waits, most=most, slots=slots, rejected=rejected, wall_s=wall_s)
    view.summaries(console, scenario.texts(3))
    view.said(console, scenario.asked, scenario.answer, dict(hook.tokens))
    for kind, message in scenario.failures():
        console.print(f"meant to fail: {kind}: {message}", style="dim", markup=False)
    for name, why in scenario.unmeant:
        console.print(f"failed: {name}: {why}", style="red", markup=False)
    judged = verdict.judge(states=states, meant=len(scenario.failing), tokens=len(hook.tokens), most=most, slots=slots)
    console.print(f"\n{judged.sentence}", style="red" if judged.code else "green")
    for client in clients.values():
        client.close()
    return judged.code, {
        "tasks_by_state": states,
        "wait_p50_s": {f"P{wait.priority}": round(wait.p50_s, 4) for wait in waits},
        "wait_p95_s": {f"P{wait.priority}": round(wait.p95_s, 4) for wait in waits},
        "max_in_flight": most,
        "slots": slots,
        "provider_429": rejected,
        "wall_s": round(wall_s, 2),
        "first_task_s": None if first_s is None else round(first_s, 2),
    }


def _settled(connection: Any, since_id: int) -> dict[str, int]:
    """Wait for the desk's last tasks, then return the tasks by state."""
    from harness.store import overview

    end_s = time.monotonic() + 60
    while True:
        states = overview.now(connection, since_id=since_id).states
        if all(state in view.OVER for state in states) or time.monotonic() > end_s:
            return states
        time.sleep(0.1)


def _rejected(provider: str) -> int:
    try:
        return int(httpx.get(f"{provider}/admin/stats", timeout=2).json()["rejected_429"])
    except (httpx.HTTPError, KeyError, ValueError) as error:
        raise Unavailable(f"the provider emulator doesn't answer: {error}") from error


class _Lines:
    """No live screen: lines are printed instead."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None
