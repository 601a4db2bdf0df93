"""How many calls the provider emulator takes: its own measurement, for `script/bench ingest`."""

from benchmarks.bench import Bench
from harness.ops.emulator import measure

CLIENTS = 50
SECONDS = 3.0


def figures(bench: Bench) -> dict[str, object]:
    """Return calls per second of one emulator process, and its CPU-seconds per 1,000 calls."""
    found = measure.measured(clients=CLIENTS, seconds=SECONDS)
    return {"emulator_calls_per_s": found["calls_per_s"], "emulator_cpu_s_per_1000": found["cpu_s_per_1000"]}
