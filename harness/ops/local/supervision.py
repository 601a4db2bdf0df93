"""Harness's processes under supervisor: its configuration, and what it says about them.

Two groups, so that a stop has an order: `entry` (what brings in work) goes before `work` (what does it). All
programs of a group are told at once. Secrets travel in the environment, never in the configuration or on argv.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import xmlrpc.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.parsers.expat import ExpatError

from harness.ops.local import processes, procfile
from harness.ops.local.places import Places
from harness.ops.local.server import tail
from harness.policy.errors import Refused, Unavailable

ENTRY = {"web", "dispatcher", "beat"}
NUMBERS = {"dispatcher": 2}  # one leads, one stands by
ENTRY_STOP_S = 2
WORK_STOP_S = 5  # together with the entry's, supervisor's own second and the servers' 2: under the 10 s of Ctrl-C
DRAIN_S = 3  # what a worker may take of that to finish what it runs (HARNESS_DRAIN_S); the rest it hands back
FAILED_STARTS = 3  # with fewer, it may have been a neighbour that wasn't up yet
SOCKET_NAME = "supervisor.sock"
MORE = "more.conf"  # beside the configuration: what was added while it runs (harness.ops.local.more)
WILL_NOT_START = (69, 75, 78)  # what a worker ends with that finds no database, no room, or nonsense
WORK_PRIORITY = 1  # a lower priority starts first and stops last


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One process as supervisor sees it. `up_s` is 0.0 when it doesn't run; `code`: what it last ended with."""

    name: str
    state: str
    pid: int
    up_s: float
    detail: str
    code: int


class Supervision:
    """supervisord as our child."""

    def __init__(self, places: Places, base_dir: Path, *, settle_s: int) -> None:
        """A program counts as running when it has run for `settle_s`."""
        self._places = places
        self._base_dir = base_dir
        self._settle_s = settle_s
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, programs: Mapping[str, str], variables: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """Start all programs; `wait_running` says when they run."""
        configuration = self._places.stack / "supervisor.conf"
        configuration.write_text(self.configuration(programs, variables), encoding="utf-8")
        (self._places.stack / MORE).write_text("", encoding="utf-8")  # what an earlier run had added is gone with it
        socket_path(self._places).unlink(missing_ok=True)
        with (self._places.logs / "supervisor.out").open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "--configuration", str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._base_dir,
                env=dict(environment),
                # Ctrl-C in the terminal reaches us alone; we stop the rest in order.
                start_new_session=True,
            )

    def configuration(self, programs: Mapping[str, str], variables: Mapping[str, str]) -> str:
        """Return supervisor's configuration for these programs."""
        stack = self._places.stack
        lines = [
            "[unix_http_server]",
            f"file = {_value(socket_path(self._places))}",
            "chmod = 0700",
            "[supervisord]",
            f"logfile = {_value(self._places.logs / 'supervisor.log')}",
            f"pidfile = {_value(stack / 'supervisor.pid')}",
            f"childlogdir = {_value(self._places.logs)}",
            "nodaemon = true",
            *(["user = root"] if os.geteuid() == 0 else []),
            "[rpcinterface:supervisor]",
            "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
            "[include]",
            f"files = {MORE}",
        ]
        groups: dict[str, list[str]] = {"work": [], "entry": []}
        for name, command in programs.items():
            group = "entry" if name in ENTRY else "work"
            # Flower holds nothing, and its threads would keep it for as long as they may.
            patience_s = 1 if name == "flower" else ENTRY_STOP_S if group == "entry" else WORK_STOP_S
            groups[group].append(name)
            lines += _program(
                name,
                procfile.fill(command, variables),
                base_dir=self._base_dir,
                places=self._places,
                settle_s=self._settle_s,
                patience_s=patience_s,
                many=NUMBERS.get(name, 1),
            )
        # A lower priority starts first and stops last.
        for priority, (group, names) in enumerate(groups.items(), WORK_PRIORITY):
            if names:
                lines += [f"[group:{group}]", f"programs = {','.join(names)}", f"priority = {priority}"]
        return "\n".join(lines) + "\n"

    def alive(self) -> bool:
        """Whether supervisord runs."""
        return self._process is not None and self._process.poll() is None

    def wait_running(self, ready: Callable[[], bool], *, patience_s: float) -> None:
        """Return when every program runs and `ready`. Raises: Unavailable with the log of those that don't run."""
        until = time.monotonic() + patience_s
        pids: dict[str, set[int]] = {}
        while True:
            if not self.alive():
                out = self._places.logs / "supervisor.out"
                raise Unavailable(f"supervisor ended:\n{tail(out)}", field="supervisor")
            found = ask(self._places)
            for one in found:
                pids.setdefault(one.name, set()).update([one.pid] if one.pid else [])
            waiting = [one for one in found if one.state != "RUNNING"]
            # A program that needs long to find out that it can't run looks as if it ran, again and again.
            failing = [one for one in found if len(pids[one.name]) >= FAILED_STARTS]
            if found and not waiting and not failing and ready():
                return
            if failing or time.monotonic() > until:
                texts = [
                    f"{one.name} ({one.state}):\n{tail(self.log(one.name))}" for one in failing or waiting or found
                ]
                raise Unavailable("these processes don't run:\n" + "\n".join(texts), field="Procfile")
            time.sleep(0.1)

    def log(self, name: str) -> Path:
        """Return the log of a process."""
        return self._places.logs / f"{name}.log"

    def stop(self) -> None:
        """Stop all programs, `entry` first, then supervisord; then end, by pid, what is still there."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(ENTRY_STOP_S + WORK_STOP_S + 1.5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            socket_path(self._places).unlink(missing_ok=True)
        sweep(self._places)


def sweep(places: Places) -> int:
    """End every process of this stack that outlived its supervisor; return how many there were."""
    left = processes.marked(places.stack)
    if left:
        processes.end(left, first=signal.SIGKILL, patience_s=2.0)
    return len(left)


def ask(places: Places) -> list[Program]:
    """Return what supervisor says about each program; [] when no supervisor answers."""
    try:
        found = call(places, "getAllProcessInfo")
    except Unavailable:
        return []
    return [
        Program(
            name=one["name"],
            state=one["statename"],
            pid=one["pid"],
            up_s=float(max(0, one["now"] - one["start"])) if one["pid"] else 0.0,
            detail=one["spawnerr"] or one["description"],
            code=one["exitstatus"],
        )
        for one in found
    ]


def call(places: Places, method: str, *parameters: Any) -> Any:
    """Call a method of supervisor's. Raises: Unavailable when none answers, Refused when it won't."""
    question = xmlrpc.client.dumps(parameters, f"supervisor.{method}")
    connection = _Connection(socket_path(places))
    try:
        connection.request("POST", "/RPC2", question, {"Content-Type": "text/xml"})
        answer, _ = xmlrpc.client.loads(connection.getresponse().read())
    except xmlrpc.client.Fault as error:
        raise Refused(f"supervisor refuses {method}: {error.faultString}", field="supervisor") from error
    except (OSError, http.client.HTTPException, xmlrpc.client.Error, ExpatError) as error:
        raise Unavailable(f"no supervisor answers ({error}): `manage.py stack up`", field="supervisor") from error
    finally:
        connection.close()
    return answer[0]


def worker(places: Places, base_dir: Path, name: str, command: str) -> str:
    """Return the configuration of a worker that is added while the others run.

    One that ends as it should, or says that it won't start, stays ended; one that crashes is started again.
    """
    lines = _program(
        name, command, base_dir=base_dir, places=places, settle_s=1, patience_s=WORK_STOP_S, restart="unexpected"
    )
    return (
        "\n".join([*lines, f"exitcodes = {','.join(map(str, (0, *WILL_NOT_START)))}", f"priority = {WORK_PRIORITY}"])
        + "\n"
    )


def socket_path(places: Places) -> Path:
    """Return supervisor's socket; it binds a longer name first (with its pid) and renames it."""
    return places.socket_folder(f"{SOCKET_NAME}.0123456789", for_servers=False) / SOCKET_NAME


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=5)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _program(
    name: str,
    command: str,
    *,
    base_dir: Path,
    places: Places,
    settle_s: int,
    patience_s: int,
    many: int = 1,
    restart: str = "true",
) -> list[str]:
    each = "%(program_name)s_%(process_num)d" if many > 1 else "%(program_name)s"
    return [
        f"[program:{name}]",
        f"command = {_value(command)}",
        f"directory = {_value(base_dir)}",
        f"numprocs = {many}",
        f"process_name = {each}",
        "numprocs_start = 1",
        f"autorestart = {restart}",
        # Longer and longer pauses, and no end: a database that is away for minutes is no reason to give up. One that
        # was added is given up; who added it looks again.
        f"startretries = {1000 if restart == 'true' else 2}",
        f"startsecs = {settle_s}",
        "stopsignal = TERM",
        f"stopwaitsecs = {patience_s}",
        "killasgroup = true",
        "redirect_stderr = true",
        f"stdout_logfile = {_value(places.logs)}/{each}.log",
        "stdout_logfile_maxbytes = 5MB",
        "stdout_logfile_backups = 1",
    ]


def _value(value: object) -> str:
    # supervisor expands %(name)s; everything else in a value is taken as it is, up to a " ;".
    return str(value).replace("%", "%%")
