"""How many connections an arm has open to its database, by application_name, sampled while it works.

What PostgreSQL says (pg_stat_activity), not what a process counts of itself. The sampler's own connection is in another
database, and its one statement every EVERY_S costs every arm the same.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import psycopg

from benchmarks import servers
from harness.policy.errors import Unavailable

EVERY_S = 0.1
_OPEN = """
SELECT coalesce(nullif(application_name, ''), '(no name)'), count(*)
  FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend' GROUP BY 1
"""


@dataclass(slots=True)
class Seen:
    """The most connections at once: of each name, and of all together."""

    by_name: dict[str, int] = field(default_factory=dict)
    most: int = 0
    samples: int = 0

    def add(self, now: Mapping[str, int]) -> None:
        """Take one sample in."""
        self.samples += 1
        self.most = max(self.most, sum(now.values()))
        for name, number in now.items():
            self.by_name[name] = max(number, self.by_name.get(name, 0))


class Sampler:
    """Samples from entering to leaving. Leaving raises Unavailable when the samples ended early."""

    def __init__(self, database_url: str | None) -> None:
        """Without a database there is nothing to sample, and `seen` stays empty."""
        self.seen = Seen()
        self._url = database_url
        self._over = threading.Event()
        self._failed: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, name="connections", daemon=True)

    def __enter__(self) -> Self:
        if self._url:
            self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        if self._url:
            self._thread.join()
        if self._failed and kind is None:
            raise Unavailable(f"connections couldn't be counted: {self._failed}")

    def _run(self) -> None:
        assert self._url is not None
        name = servers.database_name(self._url)
        try:
            with servers.maintenance(self._url) as connection:
                while not self._over.wait(EVERY_S):
                    self.seen.add(Counter(dict(connection.execute(_OPEN, (name,)).fetchall())))
        except psycopg.Error as error:
            self._failed = error
