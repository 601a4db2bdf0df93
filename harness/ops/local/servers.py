"""PostgreSQL and the Redis-compatible server of a stack: the embedded ones, or those that the environment names.

DATABASE_URL and BROKER_URL, each for itself, point to real servers instead; those are only asked whether they
answer, never started, stopped or changed.
"""

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import psycopg
import redis

from harness.ops.local.addresses import write_private
from harness.ops.local.places import Places, make_servers_folder
from harness.ops.local.ports import PortTaken, free_port
from harness.ops.local.postgres import Postgres
from harness.ops.local.valkey import Valkey
from harness.policy.errors import Invalid, Unavailable

PORT_TRIES = 5  # a port found free may be taken before the server binds it
CONNECT_S = 5
STOP_S = 6.0  # both, when nobody waits for less
LEAST_STOP_S = 0.5  # an idle server ends within 0.1


class _Server(Protocol):
    def start(self, port: int) -> str: ...
    def alive(self) -> bool: ...
    def stop(self, *, patience_s: float) -> None: ...


class Servers:
    """The two servers of one stack. Data, passwords and, while they are free, ports last over restarts."""

    def __init__(self, places: Places, *, throwaway: bool = False) -> None:
        self._places = places
        self._known = Known(places.stack / "secrets.json")
        self._throwaway = throwaway
        self._embedded: dict[str, _Server] = {}

    def start(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Start what `environment` doesn't name and return DATABASE_URL and BROKER_URL.

        Raises: Unavailable or Invalid naming the variable when a named server doesn't answer or ours doesn't start.
        """
        try:
            return {
                "DATABASE_URL": check_database(environment["DATABASE_URL"])
                if environment.get("DATABASE_URL")
                else self._start("postgres_port", self._postgres),
                "BROKER_URL": check_broker(environment["BROKER_URL"])
                if environment.get("BROKER_URL")
                else self._start("valkey_port", self._valkey),
            }
        except BaseException:
            self.stop()
            raise

    def mend(self) -> list[str]:
        """Start again, on the same port, each embedded server that ended by itself; return their names."""
        mended = []
        for key, one in self._embedded.items():
            if not one.alive():
                one.start(int(self._known.get(key)))
                mended.append(key.removesuffix("_port"))
        return mended

    def stop(self, *, patience_s: float = STOP_S) -> None:
        """Stop the embedded servers, the broker first; what doesn't end within `patience_s` is killed, and recovers."""
        until_s = time.monotonic() + patience_s
        for key in reversed(list(self._embedded)):
            self._embedded.pop(key).stop(patience_s=max(LEAST_STOP_S, until_s - time.monotonic()))

    def _start(self, key: str, make: Callable[[], _Server]) -> str:
        make_servers_folder(self._places)
        one = make()
        self._embedded[key] = one
        for attempt in range(1, PORT_TRIES + 1):
            before = self._known.get(key, "")
            port = free_port(int(before) if before and attempt == 1 else None)
            try:
                url = one.start(port)
            except PortTaken:
                if attempt == PORT_TRIES:
                    raise
                continue
            self._known.put(key, str(port))
            return url
        raise AssertionError("the loop returns or raises")

    def _postgres(self) -> Postgres:
        return Postgres(
            self._places,
            password=self._known.secret("database_password"),
            superuser_password=self._known.secret("superuser_password"),
            throwaway=self._throwaway,
        )

    def _valkey(self) -> Valkey:
        return Valkey(self._places, password=self._known.secret("broker_password"))


class Known:
    """What a stack remembers from start to start: generated passwords and the ports it had. One 0600 file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._values: dict[str, str] = {}
        if path.exists():
            try:
                self._values = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise Invalid(
                    f"{path} is damaged ({error}); restore it, or remove it with the data", field=str(path)
                ) from error

    def get(self, key: str, default: str = "0") -> str:
        """Return what is known under this key."""
        return self._values.get(key, default)

    def secret(self, key: str) -> str:
        """Return the generated secret of this name, making it first if there is none."""
        if key not in self._values:
            # Letters and digits only: it stands in URLs and configuration files without quoting.
            self.put(key, secrets.token_hex(24))
        return self._values[key]

    def put(self, key: str, value: str) -> None:
        """Remember a value."""
        if self._values.get(key) != value:
            self._values[key] = value
            write_private(self._path, json.dumps(self._values, indent=2) + "\n")


def check_database(url: str) -> str:
    """Return the URL if one can log in with it. Raises: Invalid, Unavailable; never shows the password."""
    try:
        parts = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise Invalid(
            "DATABASE_URL is not a PostgreSQL address; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
            "or unset it to use the embedded server",
            field="DATABASE_URL",
        ) from error
    try:
        psycopg.connect(url, connect_timeout=CONNECT_S).close()
    except psycopg.OperationalError as error:
        where = f"{parts.get('user', '(no user)')} at {parts.get('host', '(local socket)')}:{parts.get('port', 5432)}"
        raise Unavailable(
            f"DATABASE_URL: cannot log in as {where} to database {parts.get('dbname', '(none)')}: "
            f"{' '.join(str(error).split())}. Correct it, or unset it to use the embedded server",
            field="DATABASE_URL",
        ) from error
    return url


def check_broker(url: str) -> str:
    """Return the URL if a broker answers there. Raises: Invalid, Unavailable; never shows the password."""
    parts = urlsplit(url)
    with contextlib.suppress(ValueError):
        if parts.scheme in {"redis", "rediss", "unix", "amqp", "amqps"} and (parts.hostname or parts.scheme == "unix"):
            _ask_broker(url, parts.scheme, parts.hostname or "", parts.port)
            return url
    raise Invalid(
        "BROKER_URL is not a broker's address; write redis://:PASSWORD@HOST:PORT/DB, "
        "or unset it to use the embedded server",
        field="BROKER_URL",
    )


def _ask_broker(url: str, scheme: str, host: str, port: int | None) -> None:
    try:
        if scheme.startswith("amqp"):
            # Only whether something listens: the protocol is kombu's, which stands in store and worker alone.
            socket.create_connection((host, port or 5672), timeout=CONNECT_S).close()
        else:
            with redis.Redis.from_url(url, socket_connect_timeout=CONNECT_S, socket_timeout=CONNECT_S) as client:
                client.ping()
    except (OSError, redis.RedisError) as error:
        raise Unavailable(
            f"BROKER_URL: {host}:{port or '(default port)'} does not answer: {error}. "
            "Correct it, or unset it to use the embedded server",
            field="BROKER_URL",
        ) from error
