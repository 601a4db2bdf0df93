# mypy: disable-error-code="import-not-found"
# Peers are installed for benchmarks only (requirements-bench.txt), so the checker may not find them.
"""huey on Redis, results off; worker processes."""

import os

from huey import RedisHuey

from benchmarks import effects, servers
from benchmarks.submission import Item, Submitter

huey = RedisHuey("bench", url=os.environ["BROKER_URL"], results=False)
run = huey.task(name="bench_run")(effects.body)


class _Huey(Submitter):
    def one(self, item: Item) -> None:
        run(*item)


def reset() -> None:
    """Empty the broker."""
    servers.flush_broker(os.environ["BROKER_URL"])


def submitter() -> Submitter:
    """Return an open client."""
    return _Huey()
