"""The consumer step that keeps the queues consumed equal to what the pauses leave, several times a second.

The dispatcher obeys a pause first; this is the second fence, for what was released already. It reconciles instead
of obeying commands, so a pause outlives restarts and reconnects. It runs on Celery's loop: no I/O but the broker's.
"""

from collections.abc import Sequence
from typing import Any

from celery import bootsteps

from harness.telemetry import logs

EVERY_S = 0.25  # the watch looks once a second, and a pause is to reach every worker within two

log = logs.get(__name__)


class Pauses(bootsteps.StartStopStep):
    """Cancel what is paused, add what is no longer."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        self._timer_entry: Any = None
        super().__init__(consumer, **options)

    def start(self, parent: Any) -> None:
        """Celery calls this again after each reconnect."""
        life = parent.controller.harness_life
        if life.profile.is_system:  # beat's ticks are never paused
            return

        def reconcile() -> None:
            # One callable for all changes: Celery's call_soon keeps no order between callables.
            parent.call_soon(apply, parent, life.profile.queues, life.paused)

        self._timer_entry = parent.timer.call_repeatedly(EVERY_S, reconcile)

    def stop(self, parent: Any) -> None:
        """Stop asking; the queues stay as they are."""
        if self._timer_entry is not None:
            self._timer_entry.cancel()
            self._timer_entry = None


def changes(queues: Sequence[str], paused: frozenset[str], consumed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the queues to cancel, then those to add, in this order.

    Redis serves queues in the order they were added, so what stands behind a resumed queue is added anew.

    >>> changes(("p0", "p1", "p2"), frozenset({"p1"}), ("p0", "p1", "p2"))
    (['p1'], [])
    >>> changes(("p0", "p1", "p2"), frozenset(), ("p0", "p2"))
    (['p2'], ['p1', 'p2'])
    """
    wanted = [queue for queue in queues if queue not in paused]
    consumed = list(consumed)
    same = 0
    kept = [queue for queue in consumed if queue in wanted]
    while same < len(kept) and kept[same] == wanted[same]:
        same += 1
    cancel = [queue for queue in consumed if queue not in wanted[:same]]
    return cancel, wanted[same:]


def apply(consumer: Any, queues: Sequence[str], paused: frozenset[str]) -> None:
    """Bring a consumer's queues in line. On Celery's loop only."""
    if consumer.task_consumer is None:
        return
    cancel, add = changes(queues, paused, tuple(consumer.app.amqp.queues.consume_from))
    for queue in cancel:
        consumer.cancel_task_queue(queue)
    for queue in add:
        consumer.add_task_queue(queue)
    if cancel or add:
        log.info("queues_changed", paused=sorted(set(queues) & paused))
