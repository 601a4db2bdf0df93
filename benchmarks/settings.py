"""The product's settings for a benchmark: its own, with the kinds for benchmarks and, on request, other slots.

HARNESS_BENCH_SLOTS is a JSON object POOL -> slots of one worker process, HARNESS_BENCH_RESOURCES one of RESOURCE -> its
table in resources.toml (new values over those that stand there), HARNESS_BENCH_TARGETS the same of its targets,
HARNESS_BENCH_CONNECTIONS the database
budget, HARNESS_BENCH_SABOTAGE a folder of orders to fail at (benchmarks.chaos.sabotage), HARNESS_BENCH_BARE leaves out
what guards the route (benchmarks.bare). `bench:gate`, a resource of two, is there for the kind that holds it. Nothing
else differs from daily use.
"""

import json
import os
import tomllib

from benchmarks import bare
from benchmarks.chaos import sabotage
from config.settings import *  # noqa: F403  (settings are a namespace)
from config.settings import BASE_DIR, HARNESS_TASK_PACKAGES
from harness.policy.settings import parse

HARNESS_TASK_PACKAGES = [*HARNESS_TASK_PACKAGES, "benchmarks.kinds"]

with (BASE_DIR / "config" / "resources.toml").open("rb") as _file:
    _resources = tomllib.load(_file)
for _pool, _slots in json.loads(os.environ.get("HARNESS_BENCH_SLOTS", "{}")).items():
    _resources["pools"][_pool]["slots"] = _slots
for _name, _table in json.loads(os.environ.get("HARNESS_BENCH_RESOURCES", "{}")).items():
    _resources["resources"][_name] = _resources["resources"].get(_name, {}) | _table
for _name, _table in json.loads(os.environ.get("HARNESS_BENCH_TARGETS", "{}")).items():
    _resources["targets"][_name] |= _table
_resources["resources"]["bench:gate"] = {"held": "task", "capacity": 2}
if _budget := os.environ.get("HARNESS_BENCH_CONNECTIONS"):
    _resources["database"]["connections"] = int(_budget)
HARNESS_TOPOLOGY = parse(_resources)

if _folder := os.environ.get(sabotage.VARIABLE):
    sabotage.install(_folder)
if bare.asked():
    bare.install()
