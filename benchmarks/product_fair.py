"""The product's side of `script/bench fairness`: tenants, scenes played through the engine's door, caps by the trace.

See benchmarks.drive. Submits as the web would, in one process; the tenants' own caps and quotas hold.
"""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from benchmarks import product_client
from benchmarks.drive import play
from benchmarks.fairness import caps, scenes
from benchmarks.fairness.scenes import Scene
from benchmarks.fairness.score import Arrival, TenantPlan
from benchmarks.product_client import open_connection
from benchmarks.submission import Item, Submitter
from harness.engine import operate, submit
from harness.engine.dispatch import SCOPES_EVERY_S
from harness.engine.submit import Door, RunRequest, TaskRequest
from harness.policy.admission import TenantFacts
from harness.policy.errors import Unavailable
from harness.policy.flow import needs
from harness.store import keys
from harness.store.database import Connection
from harness.store.models import Quota, Tenant

CHAT = "llm.chat"
ANSWER_TOKENS = 16
END_S = 150.0  # that a scene may take to end after its last submit: an elephant of 100 s, on a slow machine

reset = product_client.reset

_RUNNING = """
SELECT extract(epoch FROM e.at)::double precision, CASE WHEN e.to_state = 'running' THEN 1 ELSE -1 END,
       n.name, t.run_id, t.pool, t.signature
FROM event e JOIN task t ON t.id = e.task_id JOIN tenant n ON n.id = t.tenant_id
WHERE (e.to_state = 'running') <> coalesce(e.from_state = 'running', false)
"""
_LEFT = """
SELECT (SELECT count(*) FROM lease), (SELECT count(*) FROM task
        WHERE state IN ('queued', 'running', 'waiting_approval', 'paused', 'failed_retryable'))
"""
_CAPS = """
SELECT 'tenant', name, cap FROM tenant
UNION ALL SELECT n.name || '/' || scope, q.name, q.cap FROM quota q JOIN tenant n ON n.id = tenant_id
UNION ALL SELECT 'run', id::text, fanout_cap FROM run WHERE fanout_cap IS NOT NULL
UNION ALL SELECT 'pool', p.key, sum(p.value::integer) FROM worker_session CROSS JOIN LATERAL jsonb_each_text(pools) p
    WHERE ended_at IS NULL GROUP BY p.key
"""


def _make(tenants: Mapping[str, TenantPlan]) -> None:
    """Make tenants, which may ask for every priority."""
    for name, plan in tenants.items():
        keys.create_tenant(
            name, weight=plan.weight, cap=plan.cap, backlog_quota=product_client.UNLIMITED, top_priority=0
        )
        for scope, of, cap in plan.quotas:
            Quota.objects.create(tenant=Tenant.objects.get(name=name), scope=scope, name=of, cap=cap)


class _Fair(Submitter):
    """A client for all tenants: each arrival is one submit by its own tenant, as a run or as tasks."""

    def __init__(self) -> None:
        self._connection = open_connection("web")
        self._door = Door(body_max_bytes=settings.HARNESS_BODY_MAX_BYTES)
        with open_connection("engine") as connection:
            self._tenants = _tenants(connection)

    def one(self, item: Item) -> None:
        raise NotImplementedError("a score names its tenants")

    def arrive(self, arrival: Arrival) -> None:
        """Submit what an arrival brings."""
        now_s = time.time()
        nodes = [
            TaskRequest(
                kind=part.kind,
                priority=arrival.priority,
                input=_input(part.kind, (part.tag, part.first + k, now_s, duration_s)),
            )
            for part in arrival.parts
            for k, duration_s in enumerate(part.durations_s())
        ]
        tenant = self._tenants[arrival.tenant]
        if arrival.run:
            run = RunRequest(nodes=nodes, fanout_cap=arrival.fanout_cap)
            submit.submit_run(self._door, self._connection, tenant, run, actor="bench")
        else:
            submit.submit(self._door, self._connection, tenant, nodes, actor="bench")

    def close(self) -> None:
        self._connection.close()


def submitter() -> Submitter:
    """Return an open client."""
    return _Fair()


def perform(quick: bool) -> dict[str, Any]:
    """Play the whole programme; return when each scene began (epoch s), how late its latest submit was, and the caps.

    Raises: Unavailable when a scene doesn't end.
    """
    began_s: dict[str, float] = {}
    late_s: dict[str, float] = {}
    programme = scenes.programme(quick)
    for scene in programme:
        _make(scene.tenants)
    time.sleep(SCOPES_EVERY_S)  # the dispatcher looks at quotas so often
    for scene in programme:
        client = _Fair()
        began_s[scene.name], late_s[scene.name] = play(client, scene.arrivals)
        client.close()
        if not scene.to_the_end:
            time.sleep(max(0.0, began_s[scene.name] + scene.until_s - time.time()))
            _clear()
        _await_end(scene)
    return {"began_s": began_s, "late_s": late_s, "caps": _caps_by_trace()}


def _clear() -> None:
    """Cancel everything that waits."""
    with open_connection("staff") as connection:
        for tenant in _tenants(connection).values():
            where = operate.Filter(tenant=tenant.id)
            operate.bulk(connection, "cancel", where, tenant=None, actor="bench", reason="the scene is over")


def _await_end(scene: Scene) -> None:
    """Wait until nothing is left. Raises: Unavailable."""
    give_up_s = time.monotonic() + END_S
    with open_connection("staff") as connection:
        while (left := connection.execute(_LEFT).fetchone()) != (0, 0):
            if time.monotonic() > give_up_s:
                raise Unavailable(f"scene {scene.name}: {left} leases and tasks are left after {END_S:.0f} s")
            time.sleep(0.05)


def _caps_by_trace() -> dict[str, Any]:
    """Return every cap that the trace shows to have been exceeded, and how many caps were held against it."""
    with open_connection("staff") as connection:
        changes = [
            caps.Change(at_s=at_s, step=step, tenant=tenant, run=run, pool=pool, needs=needs(signature))
            for at_s, step, tenant, run, pool, signature in connection.execute(_RUNNING)
        ]
        limits = {(scope, name): int(cap) for scope, name, cap in connection.execute(_CAPS)}
    limits |= {("resource", name): one.capacity for name, one in settings.HARNESS_TOPOLOGY.resources.items()}
    most = caps.most_at_once(changes)
    return {
        "exceeded": caps.exceeded(most, limits),
        "looked_at": sum(key in most for key in limits),
        "reached": sum(most.get(key, 0) == cap for key, cap in limits.items()),
        "claims": sum(change.step > 0 for change in changes),
    }


def _tenants(connection: Connection) -> dict[str, TenantFacts]:
    rows = connection.execute("SELECT id, name, top_priority, backlog_quota FROM tenant").fetchall()
    return {name: TenantFacts(id=id_, name=name, top_priority=top, backlog_quota=q) for id_, name, top, q in rows}


def _input(kind: str, item: Item) -> dict[str, Any]:
    if kind == CHAT:
        content = f"{item[0]} {item[1]} {uuid.uuid4()}"
        return {"messages": [{"role": "user", "content": content}], "max_tokens": ANSWER_TOKENS}
    return product_client.payload(kind, item)
