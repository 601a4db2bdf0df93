"""`bench.gated`: waits, and holds one of the resource `bench:gate`, which benchmarks.settings adds."""

from benchmarks.kinds.wait.kind import Wait, wait
from harness.kinds import kind

GATE = "bench:gate"
POOL = "tool_read"

kind("bench.gated", pool=POOL, input=Wait, resources={GATE: 1}, timeout_s=120, est_s=2.0)(wait)
