"""Leases released by hand: without a look, a line or a plan."""

from collections.abc import Sequence
from typing import Any

from harness.policy.lanes import NO_LANE
from harness.store.transitions import NewLease
from tests.places import places_of
from tests.stage import Stage


def new_lease(stage: Stage, tasks: Sequence[int], *, token: int = 7, **more: Any) -> NewLease:
    """A lease to be, for these tasks of the stage's tenant."""
    values: dict[str, Any] = {
        "token": token,
        "pool": "db",
        "via": None,
        "tenant": stage.tenant,
        "run": 0,
        "priority": 2,
        "lane": NO_LANE,
        "kind": "noop.single",
        "signature": "",
        "est_s": 1.0,
        "cost": 1.0,
        "timeout_s": 60.0,
        "tasks": tuple(tasks),
        "places": places_of(stage.connection, tasks),
    }
    return NewLease(**(values | more))
