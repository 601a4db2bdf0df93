"""children: a parent spawns so many, parks, and goes on when the last has ended; times are the database's own.

Families of one and of 1,000 children by turns, then one of 10,000. The children do nothing, in bundles: what is
measured is the spawn (all rows and its record, committed) and the way back (from the end of the last child to the end
of the gather: notice, unpark, release, claim, replay, results).
"""

from dataclasses import asdict, replace
from typing import Any

from benchmarks import machine, product
from benchmarks.bench import Bench
from benchmarks.statistics_of_runs import spread

SIZES, QUICK_SIZES = (1, 1000), (1, 50)
LARGEST, QUICK_LARGEST = 10_000, 300
FAMILIES, QUICK_FAMILIES = 5, 2
PATIENCE_S = 240.0
ARM = replace(
    product.arm("harness_children", kind="bench.parent", pools=("tool_read", "db")),
    module="benchmarks.product_children",
)


def run(bench: Bench) -> dict[str, Any]:
    """Measure and return the JSON."""
    arms, skipped = bench.choose((ARM,))
    sizes, largest = (QUICK_SIZES, QUICK_LARGEST) if bench.quick else (SIZES, LARGEST)
    families: list[dict[str, Any]] = []
    idle = None
    if arms:
        with bench.stage(ARM) as stage:
            stage.drive("reset")
            stage.start()
            stage.drive("family", children=2, patience_s=PATIENCE_S)
            idle = machine.await_quiet(bench.patience_s)
            for _ in range(QUICK_FAMILIES if bench.quick else FAMILIES):
                families += [stage.drive("family", children=n, patience_s=PATIENCE_S) for n in sizes]
            families.append(stage.drive("family", children=largest, patience_s=PATIENCE_S))
    report: dict[str, Any] = {"families": families, "idle_before": idle, "skipped": [asdict(one) for one in skipped]}
    rows = []
    for n in (*sizes, largest):
        of_size = [one for one in families if one["children"] == n]
        spawn, resume = spread([one["spawn_s"] for one in of_size]), spread([one["resume_ms"] for one in of_size])
        report[f"spawn_{n}_s"] = spawn and round(spawn.median, 3)
        report[f"resume_{n}_ms"] = resume and round(resume.median, 1)
        rows.append([n, len(of_size), spawn, resume, max((one["slots_most"] for one in of_size), default=None)])
    report["slots_while_parked"] = max((one["slots_most"] for one in families), default=None)
    bench.table("Children", ["children", "families", "spawn s", "resume ms", "slots while parked"], rows)
    return report
