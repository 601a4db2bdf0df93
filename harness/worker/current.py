"""What executes leases in this process. Set once, before the first message; in prefork by each child.

It stands between `tasks`, which every process loads, and `process`, which only workers do.
"""

from collections.abc import Callable


def _nobody(lease_id: int, token: int) -> None:
    """No process state yet: the lease stays unclaimed and goes back after 10 s."""


_run: Callable[[int, int], None] = _nobody


def execute(lease_id: int, token: int) -> None:
    """Run one lease in this process. Never raises for the work's errors."""
    _run(lease_id, token)


def serve(run: Callable[[int, int], None]) -> None:
    """From now on, execute with this function of lease id and token."""
    global _run
    _run = run
