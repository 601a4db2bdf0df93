"""resources.toml is refused with the key that makes no sense."""

import copy
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.policy.errors import Invalid
from harness.policy.settings import parse


@pytest.fixture
def raw(root: Path) -> dict[str, Any]:
    return copy.deepcopy(tomllib.loads((root / "config" / "resources.toml").read_text()))


def test_the_shipped_file_parses_and_every_pool_prefetches_its_slots(raw: dict[str, Any]) -> None:
    topology = parse(raw)
    assert {pool.prefetch_multiplier for pool in topology.pools.values()} == {1}
    assert topology.pools["ingest"].workers == topology.pools["quarantine"].workers == "prefork"


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        (("pools", "db", "slots"), 0, "pools.db.slots"),
        (("pools", "db", "slots"), "many", "pools.db.slots"),
        (("pools", "db", "workers"), "gevent", "pools.db.workers"),
        (("pools", "db", "prefetch_multiplier"), 4, "pools.db.prefetch_multiplier"),
        (("pools", "db", "connections"), 99, "pools.db.connections"),
        (("pools", "cpu", "connections"), 1, "pools.cpu.connections"),
        (("pools", "db", "colour"), "red", "pools.db.colour"),
        (("pools", "system", "workers"), "threads", "pools.system.workers"),
        (("resources", "llm:default", "held"), "both", "resources.llm:default.held"),
        *(
            (("resources", "llm:default", "capacity"), wrong, "resources.llm:default.capacity")
            for wrong in (-1, 0, 1.5, math.nan, math.inf, True, "5")
        ),
        *((("pools", "db", "slots"), wrong, "pools.db.slots") for wrong in (-1, math.nan, math.inf)),
        (("database", "connections"), True, "database.connections"),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_by_its_key(
    raw: dict[str, Any], path: tuple[str, ...], value: object, key: str
) -> None:
    table = raw
    for name in path[:-1]:
        table = table[name]
    table[path[-1]] = value
    with pytest.raises(Invalid, match=r"resources\.toml") as caught:
        parse(raw)
    assert caught.value.field == key
