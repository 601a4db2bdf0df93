"""What a worker of given pools must look like, and what is wrong with one that looks otherwise.

Pure: values in, sentences out. `gate` asks for both; nothing here touches Celery, a server or a clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.policy.capacity import SIDE_CONNECTIONS, process_connections
from harness.policy.errors import Invalid
from harness.policy.settings import QUARANTINE, SYSTEM, Pool, Topology

SYSTEM_QUEUE = "system"
# RabbitMQ's own, since 3.8.17; a worker can't ask the broker for it.
CONSUMER_TIMEOUT_S = 1800.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Profile:
    """One worker process as resources.toml wants it. `slots` maps a pool to its slots in this process."""

    slots: Mapping[str, int]
    workers: Literal["threads", "prefork"]
    queues: tuple[str, ...]
    connections: int
    side_connections: int
    prefetch_multiplier: int
    events: bool

    @property
    def concurrency(self) -> int:
        """Executing slots of all pools together."""
        return sum(self.slots.values())

    @property
    def is_system(self) -> bool:
        """Whether this worker runs beat's ticks; it is the only one that uses Django's ORM and keeps results."""
        return SYSTEM in self.slots

    @property
    def max_tasks_per_child(self) -> int | None:
        """Quarantine gives each task a child of its own, so that nothing is left over for the next."""
        return 1 if QUARANTINE in self.slots else None

    @property
    def all_connections(self) -> int:
        """The most connections this process and its children open to Harness's database."""
        return self.connections + self.side_connections

    def derivation(self) -> str:
        """How `all_connections` comes about, for the person who has to fit it into the budget."""
        what = "shared by the slots" if self.workers == "threads" else "one for each child"
        if self.is_system:
            what = "an engine's and an ORM's for each child"
        return (
            f"{'+'.join(self.slots)}: {self.connections} ({what}) + {self.side_connections} (heartbeat, watch)"
            f" = {self.all_connections}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Effective:
    """What a worker process really came out as, after the command line, the environment and the app's settings."""

    workers: str
    queues: tuple[str, ...]
    concurrency: int
    prefetch_multiplier: int
    disable_prefetch: bool
    acks_late: bool
    autoscale: bool
    max_tasks_per_child: int | None
    transport: str
    consumer_timeout_s: float


def queues_of(pool: Pool) -> tuple[str, ...]:
    """The Celery queues of a pool, most urgent first; `system` has a single one."""
    return (SYSTEM_QUEUE,) if pool.name == SYSTEM else pool.queues()


def resolve(topology: Topology, text: str) -> Profile:
    """Build the profile of `--resource-pool text` (names of one worker type, with commas). Raises: Invalid.

    Queues stand by priority first, then in the order given, because `queue_order_strategy` is `priority`.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise Invalid(f"--resource-pool {text!r} must be pool names with commas between, each once", field="pool")
    pools = [topology.pool(name) for name in names]
    types = {pool.workers for pool in pools}
    if len(types) > 1:
        mixed = ", ".join(f"{pool.name} ({pool.workers})" for pool in pools)
        raise Invalid(
            f"--resource-pool mixes worker types: {mixed}; start one worker for threads and one for prefork",
            field="pool",
        )
    for alone in (SYSTEM, QUARANTINE):
        if alone in names and len(names) > 1:
            raise Invalid(f"pool {alone!r} needs a worker of its own; give it no other pool", field="pool")
    ranked = sorted((rank, at, name) for at, pool in enumerate(pools) for rank, name in enumerate(queues_of(pool)))
    return Profile(
        slots={pool.name: pool.slots for pool in pools},
        workers=pools[0].workers,
        queues=tuple(name for _, _, name in ranked),
        connections=process_connections(pools) - SIDE_CONNECTIONS,
        side_connections=SIDE_CONNECTIONS,
        prefetch_multiplier=max(pool.prefetch_multiplier for pool in pools),
        events=any(pool.events for pool in pools),
    )


def objection(profile: Profile, effective: Effective, *, longest_held_s: float) -> str | None:
    """Say in one sentence why this worker must not start, or None when it is as its profile wants it.

    `longest_held_s`: how long it may have a message without acknowledging it.
    """
    pools = ",".join(profile.slots)
    if effective.autoscale:
        return (
            f"--autoscale is refused: pool {pools} has {profile.concurrency} slots, and the dispatcher goes by them; "
            "scale by processes: `manage.py autoscale --apply`, or start another worker"
        )
    for what, is_, wanted, fix in (
        ("the pool class", effective.workers, profile.workers, "drop -P"),
        ("the concurrency", effective.concurrency, profile.concurrency, "drop -c, or change slots"),
        ("the list of queues", ",".join(effective.queues), ",".join(profile.queues), "drop -Q and -X"),
        ("the prefetch multiplier", effective.prefetch_multiplier, profile.prefetch_multiplier, "drop the option"),
        (
            "max tasks per child",
            effective.max_tasks_per_child,
            profile.max_tasks_per_child,
            "drop --max-tasks-per-child",
        ),
    ):
        if is_ != wanted:
            return (
                f"{what} is {is_ or 'none'}, but pool {pools} of resources.toml wants {wanted or 'none'}: "
                f"{fix} (also look for CELERY_* in the environment)"
            )
    return _transport_objection(effective, longest_held_s)


def _transport_objection(effective: Effective, longest_held_s: float) -> str | None:
    if effective.transport == "redis":
        if not effective.disable_prefetch:
            return "worker_disable_prefetch is off: on Redis only that keeps a worker from holding more than its slots"
        if effective.acks_late:
            return "task_acks_late is on: on Redis a late ack lets the broker deliver a long task again; switch it off"
        return None
    if effective.disable_prefetch:
        return (
            f"worker_disable_prefetch is on, but the broker {effective.transport!r} ignores it: "
            "use a redis:// BROKER_URL, or late ack on RabbitMQ"
        )
    if effective.transport != "amqp":
        return f"the broker {effective.transport!r} is not supported: BROKER_URL must be redis:// or amqp://"
    if not effective.acks_late:
        return "task_acks_late is off: on RabbitMQ only a late ack keeps a worker from holding more than its slots"
    if effective.consumer_timeout_s <= longest_held_s:
        return (
            f"RabbitMQ cuts off a worker that has had a message for longer than consumer_timeout, and here that may be "
            f"{longest_held_s:g} s (the longest time limit of a kind and the patience with a stuck thread): raise "
            f"consumer_timeout in rabbitmq.conf (it counts milliseconds) and say so in HARNESS_CONSUMER_TIMEOUT_S "
            f"(seconds; now {effective.consumer_timeout_s:g}, {CONSUMER_TIMEOUT_S:g} is RabbitMQ's own default)"
        )
    return None
