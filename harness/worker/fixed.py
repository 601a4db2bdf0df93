"""A worker's slots are fixed: Celery's remote commands that would change them answer why not.

The dispatcher releases by the slots that a session has registered, so a pool that grew would stay empty, and one that
shrank would be sent what it can't run. On threads they end in an error, or end the worker (--autoscale).
"""

from typing import Any

from celery.worker.control import Panel

WHY = (
    "refused: a worker's slots are fixed by resources.toml, and the dispatcher goes by them. Scale by processes: "
    "`manage.py autoscale --apply`, or start another worker with --resource-pool"
)


COMMANDS = ("pool_grow", "pool_shrink", "autoscale")


def install() -> None:
    """Put the refusal in the place of Celery's commands, in this process."""
    Panel.data.update(dict.fromkeys(COMMANDS, _refuse))


def _refuse(state: Any, **_: Any) -> dict[str, str]:
    return {"error": WHY}
