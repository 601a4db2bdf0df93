"""The quick form of every scenario: counts and keys that noise can't flip, never absolute times."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.servers import Servers
from harness.policy.settings import parse
from harness.worker import profile

ROOT = Path(__file__).resolve().parents[2]
Quick = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Quick:
    """Run a scenario once, on the servers of the tests, with databases of its own there."""
    shared = Servers(database_url=os.environ["DATABASE_URL"], broker_url=os.environ["BROKER_URL"])
    environment = os.environ | {"BROKER_URL": shared.broker(8)}
    reports: dict[tuple[str, ...], dict[str, Any]] = {}

    def run(*arguments: str) -> dict[str, Any]:
        if arguments not in reports:
            path = tmp_path_factory.mktemp("bench") / "report.json"
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks", *arguments, "--quick", "--json", str(path)],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
            reports[arguments] = json.loads(path.read_text())
        return reports[arguments]

    return run


def test_every_arm_of_the_drain_does_each_task_exactly_once(quick: Quick) -> None:
    report = quick("throughput")
    assert report["failures"] == {}
    assert {"celery", "harness_bundled", "harness_unbundled"} == {one["arm"] for one in report["drains"]}
    for one in report["drains"]:
        assert (one["done"], one["done_twice"]) == (one["n"], 0), one
    for key in ("bundled_vs_celery", "unbundled_vs_celery"):
        assert report[key] > 0
    for key in ("cpu_s_per_1000", "commits_per_task", "row_writes_per_task"):
        assert {"harness_bundled", "harness_unbundled"} <= report[key].keys()


def test_bundled_work_costs_fewer_commits_than_unbundled_work(quick: Quick) -> None:
    commits = quick("throughput")["commits_per_task"]
    assert commits["harness_bundled"] < commits["harness_unbundled"] / 2


def test_no_process_opens_more_connections_than_it_declared_and_all_stay_in_the_budget(quick: Quick) -> None:
    report = quick("throughput")
    with (ROOT / "config" / "resources.toml").open("rb") as file:
        topology = parse(tomllib.load(file))
    assert report["connections_budget"] == topology.database_connections
    assert 0 < report["connections_max"] <= report["connections_budget"]
    by_name = report["connections_by_name"]
    assert 0 < by_name["harness-db"] <= profile.resolve(topology, "db").all_connections
    assert all(name.startswith("harness-") for name in by_name), by_name
    assert all(one["connections_max"] > 0 for one in report["drains"] if one["arm"].startswith("harness_"))


def test_an_arm_that_is_not_installed_is_skipped_with_the_reason(quick: Quick) -> None:
    report = quick("throughput", "--only", "huey")
    measured = {one["arm"] for one in report["drains"]}
    skipped = {one["arm"]: one["reason"] for one in report["skipped"]}
    assert "huey" in measured or "huey" in skipped["huey"]


def test_every_paced_task_is_picked_up_once(quick: Quick) -> None:
    report = quick("latency")
    assert {one["arm"] for one in report["runs"]} == {"celery", "harness_unbundled"}
    for one in report["runs"]:
        assert (one["done"], one["done_twice"]) == (one["n"], 0), one
    assert report["p50_ms"] <= report["p95_ms"] <= report["p99_ms"]
    assert report["p50_vs_celery"] is not None


def test_fifty_slots_are_all_used_and_never_exceeded(quick: Quick) -> None:
    report = quick("slots")
    for one in report["runs"]:
        assert (one["done"], one["done_twice"]) == (one["n"], 0), one
        assert one["at_once_max"] <= report["slots"], one
    assert max(one["at_once_max"] for one in report["runs"] if one["arm"] == "harness_slots") == report["slots"]


def test_a_worker_never_holds_more_than_its_slots_and_runs_nothing_cancelled(quick: Quick) -> None:
    for name, pool in quick("prefetch")["pools"].items():
        assert pool["samples"] > 0, name
        assert 0 < pool["held_max"] <= pool["slots"], name
        assert pool["cancelled"] > 0 and pool["stale_after_cancel"] == 0, name
        assert pool["running_at_kill"] == pool["redelivered_on_kill"] == pool["slots"], name


def test_every_submitted_task_is_a_row_with_payload_and_trace_when_the_answer_comes(quick: Quick) -> None:
    report = quick("submit")
    assert set(report["rows_over_http"].values()) == {report["tasks_expected_over_http"]}
    assert len(set(report["engine_rows"].values())) == 1
    for key in ("engine_per_s", "run_1000_ms", "single_p50_ms", "single_p95_ms"):
        assert report[key] > 0
    assert {"admission_adds_ms", "admission_look_adds_ms"} <= report.keys()


def test_the_buffers_of_a_tick_do_not_grow_with_the_backlog(quick: Quick) -> None:
    report = quick("backlog")
    assert report["lines"]["1m"]["waiting"] == 10 * report["lines"]["1k"]["waiting"]
    assert report["buffers_1m_vs_1k"] <= 1.5
    assert report["buffers_approvals_vs_0"] <= 1.2, "who waits for people is no business of the tick"
    assert report["lines"]["1k"]["released"] == report["lines"]["1m"]["released"] > 0
    assert {"tick_ms_1k", "tick_ms_1m", "tick_ms_10000_tenants"} <= report.keys()


def test_no_document_is_lost_or_doubled_and_every_failure_is_named(quick: Quick) -> None:
    report = quick("ingest")
    assert report["documents"] >= 25 and report["lost"] == 0 and report["doubled"] == 0
    assert report["failed"] == report["failed_named"] >= report["meant_to_fail"]
    assert report["searches"] > 0 and report["searches_with_hits"] > report["searches"] / 2
    assert {"memory_growth_mb", "search_p95_ms", "emulator_calls_per_s"} <= report.keys()
    assert report["not_measured"] == {}
    assert report["admin_tasks"] > 0 and report["admin_list_ms"] > 0 and report["admin_task_ms"] > 0


def test_what_ran_in_a_killed_worker_runs_again_and_a_rolling_restart_costs_nothing(quick: Quick) -> None:
    report = quick("crash")
    assert report["running_at_kill"] == report["recovered"] == 10
    assert report["lost"] == 0
    assert report["recovery_max_s"] > 0 and report["child_recovery_s"] > 0
    restart = report["restart"]
    assert restart["lost"] == restart["done_twice"] == restart["attempts_spent"] == restart["starts_lost"] == 0
    assert restart["interrupted"] >= 2, "the work that outlasts every drain was handed back"
    assert report["restart_gap_s"] == max(restart["gap_s"].values()) > 0
    assert (report["restart_gap_allowed_s"], report["failed"]) == (restart["drain_s"] + 5, False)


def test_the_arms_without_guards_do_each_task_exactly_once_too(quick: Quick) -> None:
    report = quick("guards")
    assert {one["arm"] for one in report["drains"]} == {
        "harness_bundled", "harness_unbundled", "bare_bundled", "bare_unbundled"
    }  # fmt: skip
    assert all((one["done"], one["done_twice"]) == (one["n"], 0) for one in report["drains"])
    assert set(report["guards_cpu_ratio"]) == {"bundled", "unbundled"}


def test_every_step_is_timed_alone_and_with_all_slots_at_it(quick: Quick) -> None:
    report = quick("steps")
    assert [one["steps"] for one in report["runs"]] == [900] * len(report["runs"])
    assert 0 < report["alone_p50_ms"] <= report["alone_p95_ms"]
    assert 0 < report["busy_p50_ms"] <= report["busy_p95_ms"] and report["busy_steps_per_s"] > 0


def test_parents_get_all_their_children_and_hold_no_slot_while_they_wait(quick: Quick) -> None:
    report = quick("children")
    assert [one["children"] for one in report["families"]] == [1, 50, 1, 50, 300]
    for one in report["families"]:
        assert one["succeeded"] == one["gathered"] == one["children"] and one["spawn_s"] > 0, one
    assert report["slots_while_parked"] == 0


def test_the_simulator_is_measured_in_every_shape(quick: Quick) -> None:
    report = quick("simulator")
    assert len(report["tasks_per_s"]) == 5
    assert all(one["median"] > 0 for one in (*report["tasks_per_s"].values(), *report["tick_ms"].values()))


def test_others_get_their_turn_beside_an_elephant_caps_hold_and_every_task_is_done_once(quick: Quick) -> None:
    report = quick("fairness")
    assert report["failures"] == []
    assert report["caps_exceeded_from"] == {"trace": 0, "emulator": 0, "effects": 0}, report["caps_exceeded_lines"]
    assert report["caps_exceeded"] == 0 and report["caps"]["reached"] >= 5, "caps that bound, or none was tried"
    assert 0 < report["caps"]["emulator_in_flight_max"] <= report["caps"]["emulator_allowed"]
    assert {"10", "2"} == report["by_capacity"].keys()
    for one in report["by_capacity"].values():
        assert one["victim_wait_p50_s"] < one["celery_victim_wait_p50_s"], "who comes later waits for the backlog there"
        assert one["p1_share_of_slot_s"] > one["p3_share_of_slot_s"]
        for key in ("victim_wait_p99_s", "jain_min_window", "makespan_vs_alone", "makespan_vs_celery"):
            assert one[key] > 0, key
    waited = report["neighbour_wait_s"]
    assert waited["harness_fair"]["p50_s"] < waited["celery_threads"]["p50_s"]
    assert report["blocked_slots_used"]["beside"] > 2 * report["blocked_slots_used"]["gated"] > 0
    assert report["singles_wait"]["n"] > 0


def test_the_limiter_reaches_its_figures_on_a_quota_that_moves(quick: Quick) -> None:
    report = quick("limiter")
    assert report["missed"] == []
    assert report["phases_600_s"]["csl"]["S=5"]["utilisation"] >= 0.95
    assert report["special"]["calls_per_s_under_429"] <= 1.2 * report["special"]["probing_floor_per_s"]


def test_a_quota_is_kept_without_a_storm_of_429_and_a_provider_that_refuses_all_is_left_alone(quick: Quick) -> None:
    report = quick("quota", "--columns", "plain,sustained")
    ours, theirs = report["columns"]["plain"]["harness"], report["columns"]["plain"]["celery"]
    assert ours["answered"] > 0 and theirs["answered"] > 0
    assert report["rate_429"] < report["celery_rate_429"] / 2
    assert report["utilisation"] > 0.25 and {"t95_down_s", "t95_up_s", "celery_t95_up_s"} <= report.keys()
    assert report["calls_per_s_under_429"] < report["celery_calls_per_s_under_429"] / 4
    ours = report["sustained"]["harness"]
    assert ours["calls_per_s_under_429"] < ours["calls_per_s_before"] / 4
    assert ours["workers"][1] <= ours["workers"][0], "no worker is added while the provider refuses"
    assert ours["in_flight_under_429"] == 0


def test_local_work_has_its_own_place_beside_a_saturated_provider(quick: Quick) -> None:
    report = quick("isolation")
    for one in report["arms"].values():
        assert one["started"] == one["submitted"] and one["calls_answered"] > 0, one
    assert report["local_wait_p95_s"] < report["celery_one_queue_local_wait_p95_s"]
    ours, theirs = report["arms"]["harness"], report["arms"]["celery_two_queues"]
    assert ours["rate_429"] < theirs["rate_429"] / 2


def test_no_more_connections_than_the_pool_are_in_use_however_many_workers_there_are(quick: Quick) -> None:
    report = quick("dbpool")
    ours = report["arms"]["harness"]
    for one in ours["by_workers"].values():
        assert 0 < one["in_flight_max"] <= 20 and one["seen_active_max"] <= 20, one
    assert 0 < ours["beside_foreign"]["in_flight_max"] <= 10
    assert report["db_wait_p95_s"]["2"] < report["celery_db_wait_p95_s"]["2"]


def test_an_outage_costs_no_task_and_no_storm_of_retries(quick: Quick) -> None:
    report = quick("outage")
    ours, theirs = report["arms"]["harness"], report["arms"]["celery"]
    assert ours["failed"] == 0 and ours["attempts_without_a_call"] == 0
    assert ours["retries"] <= ours["retries_allowed"]
    assert ours["calls_while_down"] < theirs["calls_while_down"] / 2
    assert report["recovery_s"] is not None and report["retry_ratio"] < report["celery_retry_ratio"]


def test_rates_a_minute_are_used_and_not_exceeded(quick: Quick) -> None:
    report = quick("ratelimit")
    for what in ("rpm", "tpm"):
        assert report[f"use_{what}"] > 0.5, report["arms"]["harness"][what]
    assert report["worst_window"] <= 1.05 and report["rate_429"] <= 0.02


def test_no_more_calls_are_under_way_than_permits_and_a_killed_worker_gives_its_own_back(
    quick: Quick,
) -> None:
    report = quick("permits")
    for name in ("load", "tight"):
        assert 0 < report[name]["held_max"] <= report[name]["capacity"]
        assert report[name]["scripts"] > 0 and report[name]["script_us"] > 0 and report[name]["p95_ms"] > 0
    calls = report["calls"]
    assert calls["in_flight_max_before_kill"] == calls["limit"]
    assert calls["in_flight_max"] <= calls["in_flight_allowed"]
    assert 0 < calls["abandoned"] <= calls["limit"] and calls["answered"] > calls["limit"]


def test_more_than_can_be_done_is_done_in_part_and_everybody_is_answered(quick: Quick) -> None:
    report = quick("overload", "--columns", "10x")
    ours, theirs = report["arms"]["harness"]["10x"], report["arms"]["celery"]["10x"]
    assert report["capacity_per_s"]["large"] > 0
    for one in (ours, theirs):
        assert one["useful_per_s"] > 0 and one["in_flight_max"] > 0, one
        assert sum(one["door"]["by_outcome"].values()) == one["door"]["submitted"] > 0, one
        assert one["p0_submitted"] > 0, one
    assert ours["rate_429"] < 0.2
    assert ours["door"]["by_outcome"].get("rejected", 0) > theirs["door"]["by_outcome"].get("rejected", 0) == 0
    assert ours["door"]["without_retry_after"] == 0, "who is refused is told when to come again"
    assert ours["given_up"] < theirs["given_up"], "more of what is taken is done"
    assert {"goodput_ratio", "celery_goodput_ratio", "penalty_rate_429", "small_goodput_ratio"} <= report.keys()


def test_a_storm_through_the_whole_chain_is_sampled_answered_and_drawn(quick: Quick) -> None:
    report = quick("pressure")
    assert report["door"]["submitted"] > report["door_afterwards"]["submitted"] > 0
    assert report["drawn"] > 1000 and report["course"]["levels"], "the level was sampled"
    assert max(report["course"]["in_flight_by_s"]) > 0 and report["course"]["p0_wait_p95"]
    assert {"level_max", "normal_again_s", "p0_wait_p95_s", "reject_p95_ms", "rate_429"} <= report.keys()


def test_starts_are_foretold_and_judged_by_the_first_line_of_each_body(quick: Quick) -> None:
    report = quick("eta")
    assert report["looks"] > 5 and report["asked_of"] > 0
    assert report["started"] <= report["submitted"] and report["started"] > 0
    assert report["n"] + report["still_waiting"] <= report["forecasts"] <= report["asked_of"]
    assert {"p50_coverage", "p90_coverage", "p90_over_p50", "pinball_vs_plain"} <= report.keys()


def test_workers_follow_what_is_advised_and_none_comes_while_the_provider_refuses_all(quick: Quick) -> None:
    report = quick("autoscale")
    ours, theirs = report["arms"]["harness"], report["arms"]["celery"]
    assert report["added_under_429"] == 0 and ours["advice"], ours
    assert report["best_workers"] in (1, 2) and all(per_s > 0 for per_s in report["sweep_per_s"].values())
    assert ours["answered"] > 0 and theirs["answered"] > 0 and theirs["workers_max"] > 1, theirs
