"""The peers: each module offers `reset()`, `submitter()` and what its worker's command line names.

A module is imported only in a process of its own (benchmarks.drive or the peer's worker), with DATABASE_URL,
BROKER_URL and HARNESS_BENCH_LOG in the environment. Settings are the peer's defaults unless the docstring says
otherwise. The body is effects.body, or effects.body_async where the queue runs coroutines.
"""

FAILED = "F"  # mark in the effect log: this task gave up
GOT = "G"  # mark: from when a connection was asked for, over when it was had, to when it was given back
