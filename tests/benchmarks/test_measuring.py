"""The parts that every scenario measures with."""

import doctest
import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
import redis

from benchmarks import bare, effects, machine, servers, statistics_of_runs
from benchmarks.arms import PEERS
from benchmarks.bench import in_turn
from benchmarks.scenarios.crash import judged_gap
from benchmarks.statistics_of_runs import pairwise, quantile, spread
from harness.policy.errors import Refused
from harness.store import sql


def test_a_rolling_restart_may_take_the_drain_and_five_seconds_and_only_a_full_run_fails_by_it() -> None:
    for gap_s, quick, failed in ((13.0, False, False), (13.1, False, True), (13.1, True, False)):
        told = judged_gap(gap_s, 8.0, quick=quick)
        assert told == {"restart_gap_s": gap_s, "restart_gap_allowed_s": 13.0, "failed": failed}


def test_a_half_written_line_is_counted_once_when_it_is_whole(tmp_path: Path) -> None:
    log = effects.EffectLog(tmp_path)
    line = b"D t 7 1.0 2.0 3.0 99\n"
    with (tmp_path / "99.rec").open("ab") as file:
        file.write(line + line[:5])
        file.flush()
        assert log.count("t") == 1
        file.write(line[5:])
        file.flush()
        assert log.count("t") == 2
    assert [effect.i for effect in log.read("t")] == [7, 7]
    assert log.count("t", effects.BEGUN) == log.count("other") == 0


def test_the_body_leaves_a_line_at_its_start_only_when_it_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(effects.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(effects, "_open_file", {})
    effects.body("t", 1, 0.0, 0.0)
    effects.body("t", 2, 0.0, 0.001)
    log = effects.EffectLog(tmp_path)
    assert [effect.i for effect in log.read("t", effects.BEGUN)] == [2]
    assert sorted(effect.i for effect in log.read("t")) == [1, 2]


def test_a_ratio_takes_only_rounds_that_both_have() -> None:
    assert pairwise({0: 4.0, 2: 1.0}, {0: 2.0, 1: 9.0}) == spread([2.0])
    assert pairwise({}, {0: 1.0}) is None
    assert quantile([5.0], 0.99) == 5.0


def test_the_examples_of_the_statistics_hold() -> None:
    found = doctest.testmod(statistics_of_runs)
    assert found.failed == 0 and found.attempted > 0


def test_rounds_alternate_their_order() -> None:
    arms = list(PEERS[:2])
    assert [in_turn(arms, number)[0] for number in (0, 1, 2)] == [arms[0], arms[1], arms[0]]


def test_the_cpu_of_a_child_that_has_ended_still_counts() -> None:
    burn = "import time; until = time.process_time() + 0.2\nwhile time.process_time() < until: pass"
    # In a tree of its own: of ours, what earlier tests began may end meanwhile.
    run = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", run], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert machine.cpu_s([parent.pid]) >= 0.2
        parent.communicate(b"\n")


def test_a_redis_database_with_keys_of_others_is_refused_and_left_alone(broker_url: str) -> None:
    with redis.Redis.from_url(broker_url) as client:
        client.set("somebody's", 1)
        with pytest.raises(Refused, match="BROKER_URL"):
            servers.flush_broker(broker_url)
        assert client.exists("somebody's")
        client.flushdb()
        servers.flush_broker(broker_url)
        client.set("ours now", 1)
        servers.flush_broker(broker_url)
        assert not client.exists("ours now")


def test_arms_have_names_and_databases_of_their_own() -> None:
    assert len({arm.name for arm in PEERS}) == len(PEERS)
    databases = [arm.database for arm in PEERS if arm.database]
    assert len(set(databases)) == len(databases)


def test_idle_is_a_share() -> None:
    began_s = time.monotonic()
    assert 0.0 <= machine.idle_ratio(0.05) <= 1.0
    assert time.monotonic() - began_s >= 0.05


@pytest.mark.parametrize("name", bare.CUT)
def test_the_arm_without_guards_leaves_out_the_trace_and_nothing_else(name: str) -> None:
    whole = sql.load(name)
    cut = bare.without_trace(whole)
    assert whole.count("INSERT INTO event ") == 1 and "INSERT INTO event " not in cut
    left_out = [line for line in whole.splitlines() if line not in cut.splitlines()]
    assert len(whole.splitlines()) - len(cut.splitlines()) <= 8
    assert left_out[0].startswith("e AS (")
    with pytest.raises(ValueError, match="0 inserts"):
        bare.without_trace(cut)


def test_a_database_is_recreated_although_a_client_is_still_in_it() -> None:
    shared = servers.Servers(database_url=os.environ["DATABASE_URL"], broker_url=os.environ["BROKER_URL"])
    url = shared.database("recreated")
    servers.recreate_database(url)
    try:
        with psycopg.connect(url, autocommit=True) as client:
            client.execute("CREATE TABLE left_behind ()")
            servers.recreate_database(url)
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
        with psycopg.connect(url) as fresh:
            assert fresh.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
    finally:
        servers.drop_database(url)
