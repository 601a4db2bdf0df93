"""A Redis that a test stops and starts, at one address."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from harness.ops.local.places import make_servers_folder, open_places
from harness.ops.local.ports import free_port
from harness.ops.local.valkey import Valkey


class OwnRedis:
    """A server of the test's own, over a folder that goes with it."""

    def __init__(self, home: Path) -> None:
        self._places = open_places(home)
        make_servers_folder(self._places)
        self._server = Valkey(self._places, password=secrets.token_hex(24))
        self.url = self._server.start(free_port())

    def start(self) -> None:
        self._server.start(urlsplit(self.url).port or 0)

    def stop(self) -> None:
        self._server.stop()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._places.servers, ignore_errors=True)


@contextmanager
def own_redis() -> Iterator[OwnRedis]:
    """A server in a folder that goes with it."""
    home = Path(tempfile.mkdtemp(prefix="harness-own-redis-"))
    home.chmod(0o711)  # the server's user passes through to its own folder
    own = OwnRedis(home)
    try:
        yield own
    finally:
        own.remove()
        shutil.rmtree(home, ignore_errors=True)
