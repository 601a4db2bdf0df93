"""How a worker of threads receives `harness.run`: Celery's own way (celery.worker.strategy), for a hint.

Celery decodes a message's body three times, once only to look whether it is of an older protocol, and acknowledges each
from its thread through the loop, which wakes up for it. A hint has no ETA, no rate limit, no expiry and, on Redis,
nothing to acknowledge; what is left is the request with its bookkeeping (slots, `inspect`, revoke) and its event.

Invariants: whatever looks otherwise than the dispatcher's messages goes Celery's way, as everything in prefork does.
"""

import json
from collections.abc import Callable
from typing import Any

from celery import signals
from celery.utils.imports import symbol_by_name
from celery.worker import state
from celery.worker.request import create_request_cls  # type: ignore[attr-defined]  # missing in the stubs
from celery.worker.strategy import default

Receive = Callable[..., Any]


def receive_hints(task: Any, app: Any, consumer: Any, **options: Any) -> Receive:
    """Return what the consumer calls with each message; Celery asks for it at each connection."""
    otherwise: Receive = default(task, app, consumer, **options)
    if getattr(consumer.pool, "executor", None) is None:
        return otherwise
    hostname, eventer = consumer.hostname, consumer.event_dispatcher
    new = create_request_cls(symbol_by_name(task.Request), task, consumer.pool, hostname, eventer, app=app)
    send_event = eventer.send if eventer and eventer.enabled and task.send_events else None
    unacknowledged = consumer.connection.transport.driver_type == "redis"  # see hints
    handle, errors, revoked = consumer.on_task_request, consumer.connection_errors, consumer.controller.state.revoked

    def receive(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any) -> Any:
        headers = message.headers
        content = _content(message)
        if content is None or headers.get("eta") or headers.get("expires"):
            return otherwise(message, body, ack, reject, callbacks)
        request = new(
            message,
            on_ack=_nothing if unacknowledged else ack,
            on_reject=reject,
            app=app,
            hostname=hostname,
            eventer=eventer,
            task=task,
            connection_errors=errors,
            body=content,
            headers=headers,
            decoded=True,
        )
        if request.id in revoked and request.revoked():
            return None
        if signals.task_received.receivers:
            signals.task_received.send(sender=consumer, request=request)
        if send_event is not None:
            send_event(
                "task-received",
                uuid=request.id,
                name=request.name,
                args=request.argsrepr,
                kwargs=request.kwargsrepr,
                root_id=request.root_id,
                parent_id=request.parent_id,
                retries=0,
                eta=None,
                expires=None,
            )
        state.task_reserved(request)
        for callback in callbacks or ():
            callback(request)
        return handle(request)

    return receive


def _content(message: Any) -> list[Any] | None:
    """Return [args, kwargs, embed], or None where the body isn't that."""
    if message.content_type != "application/json":
        return None
    try:
        content = json.loads(message.body)
    except ValueError:
        return None
    return content if isinstance(content, list) and len(content) == 3 and isinstance(content[1], dict) else None


def _nothing(*_: Any) -> None:
    pass
