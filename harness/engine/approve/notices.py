"""Tells tenants' hooks that a task waits for a decision: a POST with a signed link, at least once, never by a request.

A round takes what is due (committed before it is sent, so that a runner that dies sends it again later), posts it
through the same guarded client as `tool.webhook`, and notes what became of it. A receiver that answers no 2xx hears of
it again, ever later. The idempotency key is the same each time. A link is made when it is sent and stored nowhere: who
may only read a tenant's tasks can't decide by it.
"""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial

from harness.engine.approve import links
from harness.engine.approve.links import Link
from harness.kinds import egress
from harness.kinds.egress import target
from harness.kinds.errors import WorkError
from harness.policy.errors import Invalid
from harness.store import approvals, audit, limits
from harness.store.approvals import Notice
from harness.store.database import Connection
from harness.telemetry import logs

AT_ONCE = 8
POST_S = 3.0  # a receiver that takes longer hears of it again: the pool that runs this has other work
ROUND_S = 3.0  # then the next beat goes on
AGAIN_S, AGAIN_MOST_S = 10.0, 3_600.0
TRIES_MOST = 12  # over some four hours
LABEL = "webhook"  # for whom its link is, which stays with a decision
URL_MOST_CHARS = 2_000
ERROR_MOST_CHARS = 300

log = logs.get(__name__)


def notify(connection: Connection, *, most_s: float = ROUND_S, now: Callable[[], datetime] | None = None) -> int:
    """Send what is due, until nothing is or `most_s` seconds are over. Returns how many went out."""
    at = now or partial(datetime.now, UTC)
    sent = 0
    end_s = time.monotonic() + most_s
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="notices") as pool:
        while True:
            taken = approvals.take_notices(connection, limit=AT_ONCE, again_s=AGAIN_S, again_most_s=AGAIN_MOST_S)
            for notice, error in zip(taken, pool.map(partial(_post, at()), taken), strict=True):
                last = error is not None and notice.tries >= TRIES_MOST
                approvals.told_of(connection, notice, error=error, last=last)
                sent += error is None
                if error is not None:
                    log.warning("notice_not_sent", tenant=notice.tenant, tries=notice.tries, error=error, last=last)
            if not taken or time.monotonic() >= end_s:
                return sent


def set_hook(connection: Connection, tenant: str, url: str | None, *, actor: str, reason: str) -> None:
    """Set where a tenant hears of questions; None: nowhere. Outside a transaction. Raises: Invalid, NotFound."""
    if url is not None:
        _check(url)
    with connection.transaction():
        found = limits.lock_tenant(connection, tenant)
        if found is None:
            raise Invalid(f"tenant: there is no tenant {tenant!r}; `manage.py tenant list` shows them", field="tenant")
        number, _ = found
        had = approvals.hook(connection, number) is not None
        approvals.set_hook(connection, number, url, author=actor)
        audit.note(
            connection,
            actor=actor,
            verb="approvals.hook",
            subject=f"tenant {tenant}",
            reason=reason,
            data={"before": "set" if had else "none", "after": "none" if url is None else "set"},
        )


def body_of(notice: Notice, *, now: datetime) -> bytes:
    """Return what a hook gets."""
    link = Link(approval=notice.approval, asks=notice.asks, tenant=notice.tenant, label=LABEL)
    told = {
        "type": "approval.waiting",
        "task_id": str(notice.task_id),
        "kind": notice.kind,
        "title": notice.title or "",
        "prompt": notice.prompt,
        "choices": notice.choices,
        "deny": notice.deny,
        "asks": notice.asks,
        "asked_at": notice.asked_at.astimezone(UTC).isoformat(),
        "deadline": None if notice.deadline is None else notice.deadline.astimezone(UTC).isoformat(),
        "link": links.address(links.made(link, now=now)),
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def _post(now: datetime, notice: Notice) -> str | None:
    """Post one. Returns what went wrong, without the address: it may hold a secret."""
    headers = {"content-type": "application/json", "idempotency-key": f"approval-{notice.approval}-{notice.asks}"}
    try:
        answer = egress.post(notice.url, body=body_of(notice, now=now), headers=headers, timeout_s=POST_S)
    except WorkError as error:
        return str(error)[:ERROR_MOST_CHARS]
    return None if 200 <= answer.status < 300 else f"the receiver answered {answer.status}"


def _check(url: str) -> None:
    if len(url) > URL_MOST_CHARS:
        raise Invalid(f"url: must be at most {URL_MOST_CHARS:,} characters", field="url")
    try:
        target.parse(url)
    except WorkError as error:
        raise Invalid(f"url: {error}", field="url") from None
