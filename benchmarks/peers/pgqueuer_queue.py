# mypy: disable-error-code="import-not-found, untyped-decorator"
# Peers are installed for benchmarks only (requirements-bench.txt), so the checker may not find them.
"""pgqueuer on PostgreSQL, batches of 10; with asyncpg where that is installed, else psycopg.

It completes jobs in batches after the body ran, which a drain timed by bodies does not see. Its own `pgq run` ends at
start in 1.6.0 (a mistake in its logging set-up), so `python -m benchmarks.peers.pgqueuer_queue` runs its PgQueuer.
"""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pgqueuer import PgQueuer
from pgqueuer.queries import Queries

from benchmarks import effects, servers
from benchmarks.submission import AsyncSubmitter, Item, Submitter

# The shape of ../shared/peerbench: 2 such processes; one of 10 where the others have 10 slots. It wants two batches.
CONCURRENT = int(os.environ.get("HARNESS_BENCH_CONCURRENT", "100"))
BATCH = min(10, CONCURRENT // 2)


async def _driver() -> Any:
    url = os.environ["DATABASE_URL"]
    if find_spec("asyncpg"):
        import asyncpg
        from pgqueuer.db import AsyncpgDriver

        return AsyncpgDriver(await asyncpg.connect(url))
    import psycopg
    from pgqueuer.db import PsycopgDriver

    return PsycopgDriver(await psycopg.AsyncConnection.connect(url, autocommit=True))


class _PgQueuer(AsyncSubmitter):
    def __init__(self) -> None:
        super().__init__()
        self._queries = Queries(self.wait(_driver()))

    def one(self, item: Item) -> None:
        self.wait(self._queries.enqueue("run", json.dumps(item).encode()))

    def many(self, items: Sequence[Item]) -> None:
        for start in range(0, len(items), 1000):
            payloads: list[bytes | None] = [json.dumps(item).encode() for item in items[start : start + 1000]]
            self.wait(self._queries.enqueue(["run"] * len(payloads), payloads, [0] * len(payloads)))


def reset() -> None:
    """Build the tables afresh."""
    servers.recreate_database(os.environ["DATABASE_URL"])

    async def install() -> None:
        await Queries(await _driver()).install()

    asyncio.run(install())


def submitter() -> Submitter:
    """Return an open client."""
    return _PgQueuer()


async def _work() -> None:
    queue = PgQueuer(await _driver())

    @queue.entrypoint("run")
    async def run(job: Any) -> None:
        await effects.body_async(*json.loads(job.payload))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await queue.run(batch_size=BATCH, max_concurrent_tasks=CONCURRENT)


if __name__ == "__main__":
    if find_spec("uvloop"):
        import uvloop

        uvloop.run(_work())
    else:
        asyncio.run(_work())
