"""Tasks that have failed for good, written as a settle writes them."""

import json
import uuid

from tests.stage import Stage


def bury(stage: Stage, tasks: list[int], message: str = "boom", error_class: str = "bug") -> list[int]:
    """Let tasks fail for good, as a settle writes it, each a microsecond after the other. Returns them."""
    for task in tasks:
        stage.connection.execute(
            "UPDATE task SET state = 'running', ready = false, first_claimed_at = now() WHERE id = %s", (task,)
        )
        stage.connection.execute(
            "UPDATE task SET state = 'failed_terminal', finished_at = clock_timestamp(), attempts_used = 2, "
            "lost_starts = 1, postponements = 3, single = true, start_by = NULL, event_no = event_no + 1 WHERE id = %s",
            (task,),
        )
        stage.connection.execute(
            "UPDATE task_body SET error = %s WHERE task_id = %s",
            (json.dumps({"class": error_class, "message": message.format(task)}), task),
        )
        stage.connection.execute(
            "INSERT INTO attempt (task_id, tenant_id, release_no, started, ended, verdict, error_class, message, "
            "traceback, slot_s, tokens, usd) SELECT id, tenant_id, "
            "1 + (SELECT count(*) FROM attempt WHERE task_id = task.id), now() - interval '2 s', now(), "
            "'bury', %s, %s, 'File secret.py', 2.5, 100, 0.25 FROM task WHERE id = %s",
            (error_class, message.format(task), task),
        )
    return tasks


def public(stage: Stage, task: int) -> uuid.UUID:
    return uuid.UUID(str(stage.row(task)["public_id"]))


def with_steps(stage: Stage, task: int) -> None:
    """As if a task had finished the steps `step 1` and `step 2`, and ended within `step 3`."""
    stage.connection.execute(
        "INSERT INTO step (task_id, tenant_id, ordinal, key, name, release_no, began_at, finished_at, result) "
        "SELECT id, tenant_id, n, '', 'step ' || n, 1, now(), CASE WHEN n < 3 THEN now() END, "
        'CASE WHEN n < 3 THEN \'{"b": 1, "a": "ä"}\' END FROM task, generate_series(1, 3) n WHERE id = %s',
        (task,),
    )
