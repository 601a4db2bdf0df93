"""The product's side of a storm: what is sampled while it blows, and what its tables say then.

See benchmarks.drive. `watch` goes on until its process is ended: a JSON line every so often.
"""

import json
import time
from typing import Any

from benchmarks import product_client
from benchmarks.product_client import open_connection
from harness.store import pressure
from harness.store.database import Connection

reset = product_client.reset
make_key = product_client.make_key

_COUNTS = """
SELECT (SELECT count(*) FROM lease_member),
       (SELECT count(*) FROM task t WHERE state = 'queued' AND ready
        AND NOT EXISTS (SELECT FROM lease_member m WHERE m.task_id = t.id)),
       (SELECT count(*) FROM task WHERE state = 'queued' AND NOT ready)
"""
_PAUSES = """
SELECT scope, key, source FROM pause
WHERE resumed_at IS NULL AND (until IS NULL OR until > clock_timestamp()) ORDER BY 1, 2, 3
"""
_STATES = "SELECT state, priority, count(*) FROM task GROUP BY state, priority ORDER BY 1, 2"


def watch(path: str, every_s: float) -> None:
    """Append a sample to `path` every so many seconds, for ever."""
    with open_connection("staff") as connection, open(path, "a", buffering=1) as file:
        while True:
            file.write(json.dumps(_sample(connection)) + "\n")
            time.sleep(every_s)


def _sample(connection: Connection) -> dict[str, Any]:
    """Return the level with its signals, the pauses in force, and how many tasks have a slot, wait, or aren't ready."""
    standing = pressure.now(connection)
    row = connection.execute(_COUNTS).fetchone()
    assert row is not None
    return {
        "at_s": time.time(),
        "level": standing.level.word if standing else "normal",
        "signals": {name: (one.value, one.score) for name, one in pressure.readings(connection).items()},
        "pauses": ["/".join(map(str, one)) for one in connection.execute(_PAUSES)],
        "released": int(row[0]),
        "waiting": int(row[1]),
        "not_ready": int(row[2]),
    }


def level_changes() -> dict[str, Any]:
    """Return the changes of the level, the oldest first, with what asked for them and what was done."""
    with open_connection("staff") as connection:
        found = pressure.changes(connection, most=1000)
    return {
        "changes": [
            {
                "at_s": one.at_s,
                "from": one.before.word,
                "to": one.after.word,
                "signals": {name: round(seen.value, 3) for name, seen in one.signals.items()},
                "done": one.done,
            }
            for one in reversed(found)
        ]
    }


def states() -> dict[str, Any]:
    """Return how many tasks of each priority are in each state."""
    with open_connection("staff") as connection:
        return {"states": [[state, priority, int(n)] for state, priority, n in connection.execute(_STATES)]}
