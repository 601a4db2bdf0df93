"""`manage.py stack up | status | logs | down`: the local stack from the command line. It needs no database."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.ops.local import addresses, more, postgres, processes, stack, supervision, valkey
from harness.ops.local.interruption import interrupt_on
from harness.ops.local.places import open_places
from harness.ops.local.server import tail
from harness.policy.errors import HarnessError

DOWN_S = 12.0  # a stop takes at most 10
EX_PIPE = 128 + signal.SIGPIPE
DETACH_S = 180.0  # a first start on a slow machine: initdb, migrations, a dozen processes


class Command(BaseCommand):
    """The local stack: embedded servers and all processes of Harness."""

    help = "Start, watch and stop the local stack: embedded servers and all processes of Harness."
    requires_system_checks = ()
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the four verbs and their options."""
        # Django's own options (--settings, --verbosity ..) stay with the outer parser.
        verbs = parser.add_subparsers(dest="verb", required=True, parser_class=argparse.ArgumentParser)
        up = verbs.add_parser("up", help="start all; Ctrl-C stops all")
        up.add_argument("--port", type=int, help="web's port; without it a free one")
        up.add_argument(
            "--only", metavar="NAME,..", help="these programs of the Procfile only; '' for the servers alone"
        )
        up.add_argument("--detach", action="store_true", help="return when all runs; stop with `stack down`")
        status = verbs.add_parser("status", help="what runs; exit 1 when something doesn't")
        status.add_argument("--json", action="store_true")
        logs = verbs.add_parser("logs", help="the end of the logs")
        logs.add_argument("name", nargs="?", help="one program; without it all")
        logs.add_argument("--lines", type=int, default=40)
        logs.add_argument("--follow", action="store_true", help="go on as the log grows (one program)")
        verbs.add_parser("down", help="stop all")

    def handle(self, *args: object, **options: Any) -> None:
        """Do the verb. Raises: CommandError with the error's message."""
        base_dir: Path = settings.BASE_DIR
        try:
            match options["verb"]:
                case "up" if options["detach"]:
                    self._detach(base_dir)
                case "up":
                    self._up(base_dir, options)
                case "status":
                    self._status(base_dir, as_json=options["json"])
                case "logs":
                    self._logs(base_dir, options)
                case "down":
                    self._down(base_dir)
        except HarnessError as error:
            raise CommandError(error.message) from None
        except BrokenPipeError:
            # Whoever read has what it wanted (`| head`). Python would fail again when it flushes at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(EX_PIPE) from None

    def _up(self, base_dir: Path, options: dict[str, Any]) -> None:
        only = options["only"]
        programs = None if only is None else [name for name in only.split(",") if name]
        one = stack.Stack(base_dir, programs=programs, say=self._say)
        interrupt_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        try:
            one.start(port=options["port"])
            self._show(one.addresses)
            self._say("ready; Ctrl-C stops all")
            one.run()
        except KeyboardInterrupt:
            self._say("stopping")
        finally:
            one.stop()
        self._say("stopped")

    def _detach(self, base_dir: Path) -> None:
        home = addresses.home(base_dir)
        log = open_places(home).logs / "stack.log"
        if pid := stack.owner(home):
            raise CommandError(f"this checkout's stack runs already (process {pid})")
        arguments = [argument for argument in sys.argv if argument != "--detach"]
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + DETACH_S
        while "ready;" not in tail(log):
            if child.poll() is not None:
                raise CommandError(tail(log, 40).removeprefix("CommandError: "))
            if time.monotonic() > until:
                child.terminate()
                raise CommandError(f"not ready within {DETACH_S:.0f} s:\n{tail(log, 40)}")
            time.sleep(0.1)
        self._show(addresses.read(home))

    def _status(self, base_dir: Path, *, as_json: bool) -> None:
        home = addresses.home(base_dir)
        pid = stack.owner(home)
        if not (home / "stack").is_dir():
            raise CommandError("the stack was never started here; start it with `manage.py stack up`")
        places = open_places(home)
        programs = supervision.ask(places)
        known = addresses.read(home)
        rows = [(one.name, one.state, one.detail) for one in programs]
        for name, running, variable in (
            ("postgres", postgres.is_running(places), "DATABASE_URL"),
            ("valkey", valkey.is_running(places), "BROKER_URL"),
        ):
            external = bool(pid) and not running and bool(known.get(variable)) and bool(os.environ.get(variable))
            rows.append((name, "RUNNING" if running else "EXTERNAL" if external else "STOPPED", ""))
        if as_json:
            found = {"pid": pid, "processes": {name: state for name, state, _ in rows}, "addresses": _public(known)}
            self._say(json.dumps(found))
        else:
            for name, state, detail in rows:
                self._say(f"{name:<20} {state:<10} {detail}")
            if pid:
                self._show(known)
        ended = {name for name, state, _ in rows if name.startswith(more.PREFIX) and state == "EXITED"}  # as it should
        if pid is None or any(state not in {"RUNNING", "EXTERNAL"} for name, state, _ in rows if name not in ended):
            if not as_json:
                left = "RUNNING" in [state for _, state, _ in rows] or bool(processes.marked(places.stack))
                self._say(_summary(pid, left=left))
            raise SystemExit(1)

    def _logs(self, base_dir: Path, options: dict[str, Any]) -> None:
        folder = addresses.home(base_dir) / "stack" / "logs"
        logs = sorted(folder.glob(f"{options['name'] or '*'}.log")) or sorted(folder.glob(f"{options['name']}_*.log"))
        if not logs:
            known = ", ".join(sorted(path.stem for path in folder.glob("*.log"))) or "none yet"
            raise CommandError(f"there is no log of {options['name'] or 'any program'}; logs: {known}")
        for log in logs:
            self._say(f"==> {log.stem} <==\n{tail(log, options['lines'])}")
        if options["follow"]:
            os.execvp("tail", ["tail", "-n", "0", "-F", *map(str, logs)])

    def _down(self, base_dir: Path) -> None:
        home = addresses.home(base_dir)
        pid = stack.owner(home)
        if pid is not None:
            try:
                process = psutil.Process(pid)
                process.terminate()
                process.wait(DOWN_S)
            except psutil.NoSuchProcess:
                pass
            except psutil.TimeoutExpired:
                process.kill()
                process.wait(DOWN_S)
        ended = stack.clear(home) if (home / "stack").is_dir() else 0
        self._say("stopped" if pid or ended else "the stack was not running")

    def _show(self, known: dict[str, str]) -> None:
        for label, key in (("web", "WEB_URL"), ("flower", "FLOWER_WEB_URL"), ("flower user", "FLOWER_LOGIN")):
            if key in known:
                self._say(f"{label:<12} {known[key]}")
        self._say(f"passwords    {addresses.path(addresses.home(settings.BASE_DIR))}")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _summary(pid: int | None, *, left: bool) -> str:
    """Say in one line what a stack is that doesn't run as a whole."""
    if pid:
        return "the stack is up, but not all of it runs; `manage.py stack logs` shows why"
    if left:
        return "the process that owned the stack is gone and left others running; `manage.py stack down` ends them"
    return "the stack is down; `manage.py stack up` starts it"


def _public(known: dict[str, str]) -> dict[str, str]:
    """Return the addresses that hold no password."""
    return {key: value for key, value in known.items() if key in {"WEB_URL", "FLOWER_WEB_URL", "FLOWER_LOGIN"}}
