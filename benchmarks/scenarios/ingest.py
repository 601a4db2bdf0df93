"""ingest: a folder of real documents three times over, a worker's memory meanwhile, and search over 100,000 chunks.

Documents go the whole way: run, dispatcher, a prefork worker with its parser processes, PostgreSQL. Memory is the
proportional set size (Pss) of the worker's whole process tree after each round; the first round is the measure of the
others, since parsers are loaded in it. Search is timed at the store, as `rag.search` calls it.

Figures of other owners join by a module with `figures(bench) -> dict`: see OTHERS.
"""

import importlib
import importlib.util
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import corpus, machine, product
from benchmarks.bench import Bench
from benchmarks.stage import Stage

DOCUMENTS, QUICK_DOCUMENTS = 200, 25
ROUNDS = 3
CHUNKS, QUICK_CHUNKS = 100_000, 3_000
SEARCHES, QUICK_SEARCHES = 400, 60
PATIENCE_S = 400.0
SETTLE_S = 2.0  # until what the round used has been given back
# Figure -> the module whose `figures(bench)` returns it, and whatever belongs to it.
OTHERS: Mapping[str, str] = {"admin_list_ms": "benchmarks.admin", "emulator_calls_per_s": "benchmarks.emulator"}

ARM = replace(
    product.arm("harness_ingest", kind="ingest.document", pools=("ingest",)), module="benchmarks.ingest_client"
)


def run(bench: Bench) -> dict[str, Any]:
    """Measure and return the JSON."""
    number, chunks, searches = (
        (QUICK_DOCUMENTS, QUICK_CHUNKS, QUICK_SEARCHES) if bench.quick else (DOCUMENTS, CHUNKS, SEARCHES)
    )
    found = corpus.gather(bench.folder / "documents", number)
    arm = replace(ARM, environment={**ARM.environment, "HARNESS_DOCUMENT_ROOTS": str(found.folder)})
    with bench.stage(arm) as stage:
        stage.drive("reset")
        stage.start()
        rounds = [_round(bench, stage, found.folder, n) for n in range(ROUNDS)]
        stage.stop()
        filled = stage.drive("fill", total=chunks)
        idle = machine.await_quiet(bench.patience_s)
        searched = stage.drive("search", number=searches)
    memory = [one["memory_mb"] for one in rounds]
    failures = [{"name": name, "why": why} for name, why in rounds[0]["failures"].items()]
    report: dict[str, Any] = {
        "documents": sum(found.by_suffix.values()),
        "by_suffix": found.by_suffix,
        "meant_to_fail": found.meant_to_fail,
        "lost": max(_lost(one) for one in rounds),
        "failed": len(failures),
        "failed_named": sum(_names(one["name"], one["why"]) for one in failures),
        "failures": failures,
        "doubled": max(one["chunk_rows"] - one["chunks"] for one in rounds)
        + rounds[-1]["documents"]
        - rounds[0]["documents"],
        "memory_mb": memory,
        "memory_growth_mb": round(memory[-1] - memory[0], 1),
        "memory_growth_ratio": round(memory[-1] / memory[0] - 1, 4),
        "rounds_s": [one["took_s"] for one in rounds],
        "search_chunks": searched["chunks"],
        "search_p50_ms": searched["p50_ms"],
        "search_p95_ms": searched["p95_ms"],
        "search_max_ms": searched["max_ms"],
        "search_p95_ms_by_form": searched["p95_ms_by_form"],
        "searches": searched["searches"],
        "searches_with_hits": searched["with_hits"],
        "chunks_put_per_s": filled["per_s"],
        "idle_before_search": idle,
        "not_measured": {},
    }
    for figure, module in OTHERS.items():
        _add(bench, report, figure, module)
    _tell(bench, report)
    return report


def _round(bench: Bench, stage: Stage, folder: Path, number: int) -> dict[str, Any]:
    found = stage.drive("ingest", folder=str(folder), patience_s=PATIENCE_S)
    stage.check_alive()
    time.sleep(SETTLE_S)
    found["memory_mb"] = pss_mb(machine.descendants(_workers(stage)))
    bench.say(f"round {number + 1}: {found['states']} in {found['took_s']} s, worker {found['memory_mb']} MB")
    return found


def _workers(stage: Stage) -> list[int]:
    return stage.pids()[1:]  # the dispatcher is first


def pss_mb(pids: set[int]) -> float:
    """Return the memory of processes, what they share counted once: MB (10^6 bytes)."""
    total_kib = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it ended while we looked
            continue
        total_kib += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return round(total_kib * 1024 / 1e6, 1)


def _lost(one: dict[str, Any]) -> int:
    """Documents of a round that neither are there nor failed."""
    return int(one["submitted"] - one["documents"] - len(one["failures"]))


def _names(name: str, why: str) -> bool:
    return repr(name) in why and len(why) > len(name) + 10


def _add(bench: Bench, report: dict[str, Any], figure: str, module: str) -> None:
    if importlib.util.find_spec(module) is None:
        report["not_measured"][figure] = f"{module} isn't there yet"
        return
    figures = getattr(importlib.import_module(module), "figures", None)
    if figures is None:
        report["not_measured"][figure] = f"{module} has no figures(bench)"
        return
    report |= figures(bench)


def _tell(bench: Bench, report: dict[str, Any]) -> None:
    figures = ("documents", "lost", "failed", "failed_named", "doubled", "memory_mb", "memory_growth_mb", "rounds_s")
    bench.table("documents", ["figure", "value"], [[name, report[name]] for name in figures])
    bench.table("failed", ["document", "why"], [[one["name"], one["why"][:110]] for one in report["failures"]])
    rows = [[name, report[name]] for name in ("search_chunks", "search_p50_ms", "search_p95_ms", "search_max_ms")]
    bench.table("search", ["figure", "value"], rows + [[f, ms] for f, ms in report["search_p95_ms_by_form"].items()])
