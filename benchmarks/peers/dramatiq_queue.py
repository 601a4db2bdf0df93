# mypy: disable-error-code="import-not-found"
# Peers are installed for benchmarks only (requirements-bench.txt), so the checker may not find them.
"""dramatiq on Redis; processes times threads."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks import effects, servers
from benchmarks.submission import Item, Submitter

dramatiq.set_broker(RedisBroker(url=os.environ["BROKER_URL"]))
run = dramatiq.actor(actor_name="bench_run")(effects.body)


class _Dramatiq(Submitter):
    def one(self, item: Item) -> None:
        run.send(*item)


def reset() -> None:
    """Empty the broker."""
    servers.flush_broker(os.environ["BROKER_URL"])


def submitter() -> Submitter:
    """Return an open client."""
    return _Dramatiq()
