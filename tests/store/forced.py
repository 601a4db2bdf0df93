"""States that no statement of the product would lead to."""

import psycopg

from harness.policy.lifecycle import TERMINAL, State
from tests.stage import Stage


def into(stage: Stage, task: int, state: State) -> None:
    """Put a task into a state past the triggers, as the table's owner."""
    with psycopg.connect(stage.url, autocommit=True) as owner:
        owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        finished = "clock_timestamp()" if state in TERMINAL else "NULL"
        owner.execute(
            f"UPDATE task SET state = %s, ready = false, finished_at = {finished} WHERE id = %s",
            (state, task),
        )
        owner.execute("ALTER TABLE task ENABLE TRIGGER USER")
