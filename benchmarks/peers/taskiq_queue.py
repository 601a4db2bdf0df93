# mypy: disable-error-code="import-not-found"
# Peers are installed for benchmarks only (requirements-bench.txt), so the checker may not find them.
"""taskiq on Redis streams (the broker of its family that acknowledges), no result backend."""

import os

from taskiq_redis import RedisStreamBroker

from benchmarks import effects, servers
from benchmarks.submission import AsyncSubmitter, Item, Submitter

# The group reads from the start of the stream, so that tasks submitted before the first worker are not skipped.
broker = RedisStreamBroker(os.environ["BROKER_URL"], consumer_id="0")
run = broker.task(task_name="bench.run")(effects.body_async)


class _Taskiq(AsyncSubmitter):
    def __init__(self) -> None:
        super().__init__()
        self.wait(broker.startup())

    def one(self, item: Item) -> None:
        self.wait(run.kiq(*item))

    def close(self) -> None:
        self.wait(broker.shutdown())
        super().close()


def reset() -> None:
    """Empty the broker."""
    servers.flush_broker(os.environ["BROKER_URL"])


def submitter() -> Submitter:
    """Return an open client."""
    return _Taskiq()
