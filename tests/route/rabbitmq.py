"""A RabbitMQ of a test's own: Debian's `rabbitmq-server`, with a port, data, cookie and port mapper of its own.

Invariants: nothing of it outlives `close`; what is counted comes from RabbitMQ itself (`rabbitmqctl`), not from us.
"""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

from tests.stage import wait_until

PROGRAMS = Path("/usr/lib/rabbitmq/bin")  # the wrapper in the PATH wants root or Debian's own user
MISSING = "needs Debian's rabbitmq-server (apt-get install rabbitmq-server)"
STARTS_S = 60.0


def available() -> bool:
    """Whether this machine has RabbitMQ and the port mapper of Erlang."""
    return (PROGRAMS / "rabbitmq-server").exists() and shutil.which("epmd") is not None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class RabbitMQ:
    """One node."""

    def __init__(self, folder: Path, *, consumer_timeout_s: float) -> None:
        self._port, mapper, distribution = _free_port(), _free_port(), _free_port()
        self._log = folder / "rabbitmq.log"
        (folder / "rabbitmq.conf").write_text(f"consumer_timeout = {int(consumer_timeout_s * 1000)}\n")
        (folder / "plugins").write_text("[].\n")
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"harness-{self._port}@localhost",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            # Two cores have no use for busy schedulers that wait for work.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        mapper_program = shutil.which("epmd")
        assert mapper_program is not None, MISSING
        self._start(mapper_program, "-port", str(mapper))
        self._start(str(PROGRAMS / "rabbitmq-server"))
        wait_until(self._answers, within_s=STARTS_S, every_s=0.1)

    def add_host(self, name: str) -> str:
        """Make an empty virtual host; its BROKER_URL."""
        self.ctl("add_vhost", name)
        self.ctl("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        return f"amqp://guest:guest@127.0.0.1:{self._port}/{name}"

    def counts(self, host: str, prefix: str) -> tuple[int, int]:
        """Messages of a host's queues whose name starts so: (waiting, delivered and not acknowledged)."""
        listed = self.ctl("list_queues", "-p", host, "name", "messages_ready", "messages_unacknowledged")
        rows = [line.split("\t") for line in listed.splitlines() if line.startswith(prefix)]
        return sum(int(row[1]) for row in rows), sum(int(row[2]) for row in rows)

    def ctl(self, *arguments: str) -> str:
        """Run `rabbitmqctl`; what it printed. Raises: subprocess.CalledProcessError."""
        command = [str(PROGRAMS / "rabbitmqctl"), "--silent", *arguments]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def close_connections(self, host: str) -> None:
        """Cut every client of a host off, as a restart of the broker would; its queues stay."""
        self.ctl("close_all_connections", "--vhost", host, "test")

    def close(self) -> None:
        """End all of it. Its data is the test's and goes with the folder."""
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            finally:
                process.wait()

    def _start(self, *command: str) -> None:
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=self._environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)

    def _answers(self) -> bool:
        assert self._processes[-1].poll() is None, self._log.read_text(errors="replace")[-2000:]
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1) as client:
                client.sendall(b"AMQP\x00\x00\x09\x01")
                return bool(client.recv(1))
        except OSError:
            return False
