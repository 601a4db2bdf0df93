"""A message to a worker as Redis holds it: Celery's protocol 2 in kombu's envelope, made without kombu.

kombu takes 0.2 ms for each message of a batch, most of it to build anew what never changes: with 50 slots of short work
that was two thirds of the dispatcher's CPU. Here a text with three gaps is kept for each queue, kind and time limit.
What kombu itself would have written is the yardstick of tests/store/test_broker.py.
"""

import json
import os
import socket
import uuid
from functools import lru_cache
from typing import Any

from harness.store.message import Message

TASK_NAME = "harness.run"
EMBED = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
_TASK, _LEASE, _TOKEN = "<task>", "<lease>", "<token>"


def body(lease: object, token: object) -> str:
    """Return the arguments of `harness.run`, as JSON."""
    return json.dumps([[lease, token], {}, EMBED])


def headers(message: Message, *, task_id: str, lease: object) -> dict[str, Any]:
    """Return the headers of Celery's protocol."""
    hard, soft = message.time_limits_s or (None, None)
    return {
        "lang": "py",
        "task": TASK_NAME,
        "id": task_id,
        "root_id": task_id,
        "parent_id": None,
        "group": None,
        "shadow": message.kind,
        "eta": None,
        "expires": None,
        "retries": 0,
        "timelimit": [hard, soft],
        "argsrepr": f"({lease}, ...)",
        "kwargsrepr": "{}",
        "origin": _origin(),
        "ignore_result": True,
    }


def seal(message: Message) -> str:
    """Return the message as an element of its queue's list."""
    text = _template(message.queue, message.kind, message.time_limits_s)
    return (
        text.replace(_TASK, str(uuid.uuid4())).replace(_LEASE, str(message.lease)).replace(_TOKEN, str(message.token))
    )


@lru_cache(maxsize=1024)
def _template(queue: str, kind: str, time_limits_s: tuple[float, float] | None) -> str:
    message = Message(queue=queue, kind=kind, lease=0, token=0, time_limits_s=time_limits_s)
    arguments = body(_LEASE, _TOKEN).replace(f'"{_LEASE}"', _LEASE).replace(f'"{_TOKEN}"', _TOKEN)
    return json.dumps(
        {
            "body": arguments,  # plain: what kombu encodes by base64 is JSON already
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": headers(message, task_id=_TASK, lease=_LEASE),
            "properties": {
                "correlation_id": _TASK,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": 0,
                "delivery_tag": _TASK,
            },
        }
    )


def _origin() -> str:
    return f"{os.getpid()}@{socket.gethostname()}"
