"""What a pool name means, and which worker may not start. Values only."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from harness.policy.errors import Invalid
from harness.policy.settings import Topology, parse
from harness.worker import pauses
from harness.worker.option import defaults
from harness.worker.profile import Effective, Profile, objection, queues_of, resolve


@pytest.fixture(scope="module")
def topology(root: Path) -> Topology:
    with (root / "config" / "resources.toml").open("rb") as file:
        return parse(tomllib.load(file))


def as_wanted(profile: Profile) -> Effective:
    return Effective(
        workers=profile.workers,
        queues=profile.queues,
        concurrency=profile.concurrency,
        prefetch_multiplier=1,
        disable_prefetch=True,
        acks_late=False,
        autoscale=False,
        max_tasks_per_child=profile.max_tasks_per_child,
        transport="redis",
        consumer_timeout_s=0.0,
    )


def test_several_pools_sum_their_slots_and_connections(topology: Topology) -> None:
    profile = resolve(topology, "llm,tool_read")
    pools = [topology.pools["llm"], topology.pools["tool_read"]]
    assert profile.concurrency == sum(pool.slots for pool in pools)
    assert profile.connections == sum(pool.connections for pool in pools)
    assert profile.all_connections == profile.connections + 2
    assert str(profile.all_connections) in profile.derivation()


def test_the_most_urgent_queues_of_all_pools_stand_first(topology: Topology) -> None:
    assert resolve(topology, "llm,mcp").queues[:4] == ("llm.p0", "mcp.p0", "llm.p1", "mcp.p1")


def test_the_option_fills_what_celery_would_ask_for(topology: Topology) -> None:
    assert defaults(resolve(topology, "ingest")) == {
        "pool": "prefork",
        "concurrency": str(topology.pools["ingest"].slots),
        "queues": "ingest.p0,ingest.p1,ingest.p2,ingest.p3",
        "prefetch_multiplier": 1,
        "max_tasks_per_child": None,
        "task_events": topology.pools["ingest"].events,
        "without_gossip": True,
        "without_mingle": True,
    }


def test_the_system_pool_has_one_queue_and_quarantine_one_child_a_task(topology: Topology) -> None:
    assert queues_of(topology.pools["system"]) == ("system",)
    assert resolve(topology, "quarantine").max_tasks_per_child == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nope", "there is no pool 'nope'"),
        ("llm,cpu", "mixes worker types: llm (threads), cpu (prefork)"),
        ("llm,", "each once"),
        ("llm,llm", "each once"),
        ("system,cpu", "'system' needs a worker of its own"),
        ("cpu,quarantine", "'quarantine' needs a worker of its own"),
    ],
)
def test_a_list_of_pools_that_makes_no_sense_is_refused(topology: Topology, text: str, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        resolve(topology, text)
    assert says in refused.value.message


def test_a_worker_as_its_profile_wants_it_may_start(topology: Topology) -> None:
    for name in topology.pools:
        profile = resolve(topology, name)
        assert objection(profile, as_wanted(profile), longest_held_s=600) is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"workers": "prefork"}, "the pool class is prefork, but pool llm of resources.toml wants threads"),
        ({"workers": "gevent"}, "the pool class is gevent"),
        ({"concurrency": 3}, "the concurrency is 3, but pool llm of resources.toml wants 16"),
        ({"queues": ("llm.p0",)}, "the list of queues is llm.p0"),
        ({"prefetch_multiplier": 4}, "the prefetch multiplier is 4"),
        ({"max_tasks_per_child": 5}, "max tasks per child is 5"),
        ({"autoscale": True}, "--autoscale is refused"),
        ({"disable_prefetch": False}, "worker_disable_prefetch is off"),
        ({"acks_late": True}, "task_acks_late is on"),
        ({"transport": "amqp"}, "the broker 'amqp' ignores it"),
        ({"transport": "sqs", "disable_prefetch": False}, "the broker 'sqs' is not supported"),
        ({"transport": "amqp", "disable_prefetch": False}, "task_acks_late is off"),
        ({"transport": "amqp", "disable_prefetch": False, "acks_late": True}, "HARNESS_CONSUMER_TIMEOUT_S"),
    ],
)
def test_a_worker_that_differs_from_its_profile_is_told_how(
    topology: Topology, change: dict[str, object], says: str
) -> None:
    profile = resolve(topology, "llm")
    said = objection(profile, replace(as_wanted(profile), **change), longest_held_s=600)  # type: ignore[arg-type]  # the table's keys are the fields
    assert said is not None
    assert says in said


def test_rabbitmq_is_let_in_with_late_ack_and_a_raised_consumer_timeout(topology: Topology) -> None:
    profile = resolve(topology, "llm")
    effective = replace(
        as_wanted(profile), transport="amqp", disable_prefetch=False, acks_late=True, consumer_timeout_s=3600
    )
    assert objection(profile, effective, longest_held_s=600) is None


@pytest.mark.parametrize(
    ("paused", "consumed", "cancel", "add"),
    [
        ((), ("p0", "p1", "p2"), [], []),
        (("p1",), ("p0", "p1", "p2"), ["p1"], []),
        (("p0", "p1", "p2"), ("p0", "p1", "p2"), ["p0", "p1", "p2"], []),
        ((), ("p1", "p2"), ["p1", "p2"], ["p0", "p1", "p2"]),
        (("p1",), (), [], ["p0", "p2"]),
        (("p2",), ("p1", "p2"), ["p1", "p2"], ["p0", "p1"]),
    ],
)
def test_a_resumed_queue_takes_its_place_before_the_less_urgent_ones(
    paused: tuple[str, ...], consumed: tuple[str, ...], cancel: list[str], add: list[str]
) -> None:
    assert pauses.changes(("p0", "p1", "p2"), frozenset(paused), consumed) == (cancel, add)
