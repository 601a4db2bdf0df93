"""The product's side of the scenario eta: tenants with keys, the mixed load through the door, and which task was which.

See benchmarks.drive. `blow` submits the load and then waits until its process is ended.
"""

import signal
from typing import Any

from benchmarks import product_client, product_fair
from benchmarks.drive import play
from benchmarks.foretold import load
from benchmarks.product_client import open_connection
from harness.store import keys

reset = product_client.reset

_NUMBERS = """
SELECT public_id::text, (input ->> 'i')::integer FROM task JOIN task_body ON task_id = task.id
WHERE input ->> 'tag' = %s
"""


def make_tenants() -> dict[str, str]:
    """Make the tenants; return a key of each."""
    for name, plan in load.TENANTS.items():
        keys.create_tenant(
            name, weight=plan.weight, cap=plan.cap, backlog_quota=product_client.UNLIMITED, top_priority=0
        )
    return {name: keys.create_key(name) for name in load.TENANTS}


def blow(for_s: float, seed: int, faster: float) -> None:
    """Submit the load, then wait."""
    client = product_fair.submitter()
    play(client, load.arrivals(for_s, seed=seed, faster=faster))
    client.close()
    while True:
        signal.pause()


def numbers() -> dict[str, Any]:
    """Return each task's number in the effect log by its id."""
    with open_connection("staff") as connection:
        return {"numbers": {task: int(i) for task, i in connection.execute(_NUMBERS, (load.TAG,))}}
