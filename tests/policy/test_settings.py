"""resources.toml is refused with the key that makes no sense."""

import copy
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from harness.policy.errors import Invalid
from harness.policy.pressure import SIGNALS
from harness.policy.settings import parse
from harness.policy.toml import parsed


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


def test_thresholds_of_pressure_are_set_by_their_table_and_the_others_stay(raw: dict[str, Any]) -> None:
    raw["pressure"] = {"queue_depth": {"elevated": 0.6, "critical": 9}, "llm_in_use": {"critical": 1.5}}
    found = parse(raw).pressure
    depth = found["queue_depth"]
    assert (depth.elevated, depth.high, depth.critical) == (0.6, 1.0, 9.0)
    assert found["llm_in_use"].critical == 1.5
    assert found["retry_storm"] == SIGNALS["retry_storm"]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"queue_depht": {"high": 2}}, "pressure.queue_depht"),
        ({"queue_depth": {"hihg": 2}}, "pressure.queue_depth.hihg"),
        ({"queue_depth": 2}, "pressure.queue_depth"),
        *(({"queue_depth": {"high": wrong}}, "pressure.queue_depth.high") for wrong in (0, -1, "2", True, math.nan)),
        ({"queue_depth": {"high": 0.5}}, "pressure.queue_depth.high"),
        ({"queue_depth": {"elevated": 2}}, "pressure.queue_depth.high"),
        ({"queue_depth": {"high": 4}}, "pressure.queue_depth.critical"),
        ({"queue_depth": {"high": math.inf}}, "pressure.queue_depth.critical"),
    ],
)
def test_thresholds_that_make_no_sense_or_are_out_of_order_are_refused_by_their_key(
    raw: dict[str, Any], table: object, key: str
) -> None:
    raw["pressure"] = table
    with pytest.raises(Invalid, match=r"resources\.toml") as caught:
        parse(raw)
    assert caught.value.field == key


@pytest.mark.parametrize(
    ("added", "key", "line"),
    [
        ("[pressure.queue_depth]\nelevated = 0.5\nhigh = 0.4", "pressure.queue_depth.high", 3),
        ("[pressure.queue_depth] # only one of three\nelevated = 2.0", "pressure.queue_depth.high", 1),
        ('[resources."tool:x"]\nheld = "both"\ncapacity = 1', "resources.tool:x.held", 2),
        ("[pools.gpu]\nworkers = 'threads'", "pools.gpu", 1),
    ],
)
def test_what_is_refused_at_the_start_is_told_with_its_line(root: Path, added: str, key: str, line: int) -> None:
    shipped = (root / "config" / "resources.toml").read_text()
    with pytest.raises(Invalid) as caught:
        parsed(f"{shipped}\n{added}", parse)
    assert (caught.value.field or "").startswith(key)
    assert caught.value.message.startswith(f"resources.toml, line {len(shipped.splitlines()) + 1 + line}: {key}")
