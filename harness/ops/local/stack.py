"""One whole local stack: the servers, the schema, Harness's processes, and their end.

    1 take the lock   2 end what an earlier run left   3 start the servers   4 migrate   5 start the processes
    6 wait until they run and web answers; `stop` goes back the same way

A stack belongs to one state folder (`.harness` of a checkout): two checkouts have two, side by side. It owns the
folder's lock while it lives; the kernel drops the lock with the process, so a kill -9 blocks nobody.
"""

import fcntl
import http.client
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from harness.ops.local import addresses, ports, postgres, procfile, supervision, valkey
from harness.ops.local.places import Places, open_places
from harness.ops.local.processes import MARK
from harness.ops.local.server import end_orphans
from harness.ops.local.servers import Known, Servers
from harness.policy.errors import Conflict, Unavailable

RUNNING_S = 120.0  # a dozen Python processes share what may be two slow cores
SETTLE_S = 3  # what refuses to start (a wrong pool, no connection left) has said so by then
MEND_EVERY_S = 1.0
STOP_S = 9.0  # Ctrl-C is over within 10 s; supervision takes at most 8.5 of them
FLOWER_USER = "harness"


class Stack:
    """The stack of one checkout. Use as a context manager, or call `stop` whatever happens."""

    def __init__(
        self,
        base_dir: Path,
        *,
        home: Path | None = None,
        programs: Sequence[str] | None = None,
        extra: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`programs` names lines of the Procfile (default: all); `extra` adds lines of its own, by name.

        `home` is the state folder (default: see addresses.home); `environment` replaces this process's own.
        """
        self._base_dir = base_dir.resolve()
        self._home = home or addresses.home(base_dir)
        self._only = None if programs is None else list(programs)
        self._extra = dict(extra or {})
        self._environment = dict(os.environ if environment is None else environment)
        self._say = say
        self._places: Places | None = None
        self._lock: int | None = None
        self._servers: Servers | None = None
        self._supervision: supervision.Supervision | None = None
        self.settle_s = SETTLE_S
        self.patience_s = RUNNING_S  # how long processes may take until all of them run
        self.addresses: dict[str, str] = {}

    def start(self, *, port: int | None = None) -> dict[str, str]:
        """Start everything and return the addresses. `port` is web's; without it web takes a free one.

        Raises: Conflict when this stack runs already; PortTaken, Refused, Invalid, Unavailable naming the cause.
        Whatever was started is stopped again before one of them is raised.
        """
        try:
            return self._start(port)
        except BaseException:
            self.stop()
            raise

    def mend(self) -> None:
        """Start again an embedded server that ended. Raises: Unavailable when supervisor is gone."""
        for name in self._servers.mend() if self._servers else []:
            self._say(f"{name} had ended and was started again")
        if self._supervision and not self._supervision.alive():
            raise Unavailable("supervisor ended; see supervisor.log", field="supervisor")

    def run(self) -> None:
        """Keep the stack whole until this process is interrupted."""
        while True:
            self.mend()
            time.sleep(MEND_EVERY_S)

    def stop(self) -> None:
        """Stop all, in order: what brings work in, what does it, broker, database. May be called again.

        Whatever hangs, it takes STOP_S and a little: each has the time that is left.
        """
        until_s = time.monotonic() + STOP_S
        if self._supervision:
            self._supervision.stop()
            self._supervision = None
        if self._servers:
            self._servers.stop(patience_s=until_s - time.monotonic())
            self._servers = None
        if self._places and self._lock is not None:
            self._places.drop_socket_folders()
            addresses.forget(self._home)
            pid_path(self._home).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self, port: int | None) -> dict[str, str]:
        programs = procfile.choose(procfile.read(self._base_dir / "Procfile"), self._only) | self._extra
        if port is not None and "web" in programs:
            ports.require(port, option="--port")
        places = self._places = open_places(self._home)
        self._lock = _take_lock(self._home)
        if gone := supervision.sweep(places):
            self._say(f"ended {gone} processes that an earlier run had left")
        self._servers = Servers(places)
        self._say("starting the servers")
        found = self._servers.start(self._environment)
        known = Known(places.stack / "secrets.json")
        found["SECRET_KEY"] = self._environment.get("SECRET_KEY") or known.secret("secret_key")
        variables = {"STACK": str(places.stack)}
        if "web" in programs:
            variables["PORT"] = str(port or ports.free_port(int(known.get("web_port"))))
            found["WEB_URL"] = f"http://{ports.LOOPBACK}:{variables['PORT']}"
        if "flower" in programs:
            found |= _flower(places, known)
        if port is None and "web" in programs:
            known.put("web_port", variables["PORT"])
        environment = self._child_environment(places, found)
        self._say("migrating the database")
        migrate(self._base_dir, environment)
        addresses.save(self._home, found)
        self.addresses = found
        if programs:
            self._say(f"starting {', '.join(programs)}")
            self._supervision = supervision.Supervision(places, self._base_dir, settle_s=self.settle_s)
            self._supervision.start(programs, variables, environment)
            web = int(variables["PORT"]) if "web" in programs else None
            self._supervision.wait_running(lambda: web is None or _answers(web), patience_s=self.patience_s)
        return found

    def _child_environment(self, places: Places, found: Mapping[str, str]) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        return self._environment | {
            "DATABASE_URL": found["DATABASE_URL"],
            "BROKER_URL": found["BROKER_URL"],
            "SECRET_KEY": found["SECRET_KEY"],
            "DJANGO_SETTINGS_MODULE": self._environment.get("DJANGO_SETTINGS_MODULE", "config.settings"),
            "HARNESS_ARTIFACTS_DIR": self._environment.get("HARNESS_ARTIFACTS_DIR") or str(places.home / "artifacts"),
            "HARNESS_DRAIN_S": self._environment.get("HARNESS_DRAIN_S", str(supervision.DRAIN_S)),
            MARK: str(places.stack),
            "PATH": os.pathsep.join([scripts, self._environment.get("PATH", os.defpath)]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(self._base_dir), self._environment.get("PYTHONPATH")])),
            "PYTHONUNBUFFERED": "1",
            # Django's checks load the web ring: 26 MB in each worker. `migrate` and script/check have run them.
            "CELERY_SKIP_CHECKS": "1",
            # glibc gives every thread an arena of its own; two serve as well, and keep less.
            "MALLOC_ARENA_MAX": self._environment.get("MALLOC_ARENA_MAX", "2"),
        }


def migrate(base_dir: Path, environment: Mapping[str, str]) -> None:
    """Bring the schema up to date, in a process of its own: this one's settings may name another database."""
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"],
        cwd=base_dir,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.strip().splitlines()[-12:])
        raise Unavailable(f"migrating the database failed:\n{last}", field="DATABASE_URL")


def pid_path(home: Path) -> Path:
    """Return the file that holds the pid of the process that owns the stack."""
    return home / "stack" / "stack.pid"


def owner(home: Path) -> int | None:
    """Return the pid of the process that owns this stack now, or None."""
    try:
        handle = os.open(home / "stack" / "lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_pid(home)
    finally:
        os.close(handle)
    return None


def clear(home: Path) -> int:
    """End what a killed stack left: processes, then servers. Return how many things were ended.

    Raises: Conflict when the stack's owner is alive.
    """
    places = open_places(home)
    lock = _take_lock(home)
    try:
        ended = supervision.sweep(places)
        for name in ("valkey", "postgres"):
            ended += _end_server(places, name)
        addresses.forget(home)
        pid_path(home).unlink(missing_ok=True)
    finally:
        os.close(lock)
    return ended


def _end_server(places: Places, name: str) -> int:
    folder = places.servers / name
    running = postgres.is_running(places) if name == "postgres" else valkey.is_running(places)
    end_orphans(folder, name=postgres.PROGRAM if name == "postgres" else valkey.PROGRAM)
    return int(running)


def _take_lock(home: Path) -> int:
    handle = os.open(home / "stack" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Conflict(
            f"this checkout's stack runs already (process {_read_pid(home) or 'unknown'}); "
            "see `manage.py stack status`, stop it with `manage.py stack down`",
            field="stack",
        ) from None
    pid_path(home).write_text(str(os.getpid()), encoding="ascii")
    return handle


def _read_pid(home: Path) -> int | None:
    try:
        return int(pid_path(home).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _flower(places: Places, known: Known) -> dict[str, str]:
    """Write Flower's configuration: loopback, basic auth, read-only; a file, so that argv shows no password."""
    port = ports.free_port(int(known.get("flower_port")))
    known.put("flower_port", str(port))
    password = known.secret("flower_password")
    addresses.write_private(
        places.stack / "flower.py",
        f'address = "{ports.LOOPBACK}"\nport = {port}\nbasic_auth = ["{FLOWER_USER}:{password}"]\nread_only = True\n'
        # Which pools send events is in resources.toml: Flower must not switch them on for the others.
        "enable_events = False\nmax_tasks = 10000\npurge_offline_workers = 300\n",
    )
    return {
        "FLOWER_WEB_URL": f"http://{ports.LOOPBACK}:{port}",
        "FLOWER_LOGIN": FLOWER_USER,
        "FLOWER_LOGIN_PASSWORD": password,
    }


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection(ports.LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", "/health/live")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
