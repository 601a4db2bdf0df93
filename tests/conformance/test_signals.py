"""Every signal is read in the store and in the simulator, from the same scene to the same number."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from django.conf import settings

from harness.kinds import registry
from harness.policy.calls import Assumed
from harness.policy.errors import ErrorClass
from harness.policy.lifecycle import Event
from harness.policy.outlook import Outlook
from harness.policy.pressure import READS, SIGNALS, Facts, Memory, measure
from harness.sim import pressure as of_world
from harness.sim.rows import Tenant
from harness.sim.world import World
from harness.store import pressure as of_store
from tests.stage import Stage

LLM = "llm:default"
NEED = f"{LLM}=1"
KIND = "llm.chat"
LIMIT = 50
MEMORY = Memory(since_s=3600.0, usual_s={KIND: (2.0, 3600.0)})
CLOSE = 0.2  # relative: the two looks are of two clocks

Attempt = tuple[int, str, str, float, float]  # priority, verdict, class, slot_s, ended ago


@dataclass(kw_only=True)
class Scene:
    """What there is in pool llm, 10 slots, for two tenants. `waiting`: (tenant 0 | 1, priority, ready ago)."""

    waiting: list[tuple[int, int, float]] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)  # ages of tasks that are not in line any more
    ended: list[tuple[int, Attempt]] = field(default_factory=list)
    leases: int = 0
    in_flight: int = 0
    connections: dict[str, float] = field(default_factory=dict)  # as said, or as really taken


def done(
    n: int, verdict: str = "succeed", error: str = "", slot_s: float = 2.0, tenant: int = 0
) -> list[tuple[int, Attempt]]:
    return [(tenant, (1, verdict, error, slot_s, 50.0 * i / n)) for i in range(n)]


SCENES: Mapping[str, Scene] = {
    "queue_depth": Scene(waiting=[(0, 2, 10.0)] * 200, ended=done(30, slot_s=20.0)),
    "oldest_age": Scene(waiting=[(0, 1, 45.0), (1, 1, 20.0), (1, 2, 500.0)]),
    "p1_wait": Scene(waiting=[(0, 1, 5.0)] * 40, ended=done(30, slot_s=10.0), leases=10),
    "demand": Scene(arrived=[x * 0.5 for x in range(120)], ended=done(30, slot_s=10.0)),
    "worker_busy_ratio": Scene(waiting=[(0, 2, 1.0)], leases=9),
    "llm_rate_limit": Scene(ended=done(95) + done(5, "postpone", "rate_limit")),
    "llm_in_use": Scene(waiting=[(0, 1, 1.0)], in_flight=48),
    "tool_error_rate": Scene(ended=done(80) + done(20, "bury", "server_error")),
    "retry_storm": Scene(ended=done(80) + done(20, "fail", "bug")),
    "db_connection_usage": Scene(connections={"db_connection_usage": 0.75}),
    "db_pool_wait": Scene(connections={"db_pool_wait": 1.5}),
    "http_pool_wait": Scene(connections={"http_pool_wait": 0.5}),
    "p95_task_latency": Scene(ended=done(90) + done(10, slot_s=8.0)),
    "tenant_fairness": Scene(waiting=[(0, 1, 90.0), (1, 1, 90.0)], ended=done(80, tenant=0) + done(4, tenant=1)),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_is_read_in_both_and_says_the_same(stage: Stage, name: str) -> None:
    scene = SCENES[name]
    stored = measure(facts_of_the_store(stage, scene), MEMORY)[name]
    simulated = measure(facts_of_the_world(scene), MEMORY)[name]
    assert stored is not None and simulated is not None
    assert SIGNALS[name].score(stored) >= 1, "the scene is one in which the signal counts"
    assert stored == pytest.approx(simulated, rel=CLOSE)
    assert SIGNALS[name].score(stored) == SIGNALS[name].score(simulated)


@pytest.mark.parametrize("name", SIGNALS)
def test_where_there_is_nothing_a_signal_is_0_in_both(stage: Stage, name: str) -> None:
    assert measure(facts_of_the_store(stage, Scene()), MEMORY)[name] == 0.0
    assert measure(facts_of_the_world(Scene()), MEMORY)[name] == 0.0


def test_every_signal_is_measured_and_has_a_scene() -> None:
    assert SIGNALS.keys() == READS.keys() == SCENES.keys()


def facts_of_the_store(stage: Stage, scene: Scene) -> Facts:
    tenants = [stage.tenant, stage.add_tenant("other")]
    stage.add_session({"llm": 10, "quarantine": 1, "system": 1})
    for tenant, priority, ago_s in scene.waiting:
        made = stage.submit(KIND, priority=priority, tenant=tenants[tenant], signature=NEED)
        stage.connection.execute(
            "UPDATE task SET created_at = clock_timestamp() - make_interval(hours => 1), "
            "ready_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
            (ago_s, made[0]),
        )
    for age_s in scene.arrived:
        made = stage.submit(KIND, priority=2, signature=NEED)
        stage.connection.execute(
            "UPDATE task SET ready = false, created_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
            (age_s, made[0]),
        )
    for tenant, (priority, verdict, error, slot_s, ago_s) in sorted(scene.ended, key=lambda one: -one[1][4]):
        made = stage.submit(KIND, priority=priority, tenant=tenants[tenant], signature=NEED)
        stage.connection.execute(
            "UPDATE task SET ready = false, created_at = clock_timestamp() - interval '1 hour' WHERE id = %s",
            (made[0],),
        )
        stage.connection.execute(
            "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, slot_s) "
            "VALUES (%s, %s, 1, clock_timestamp() - make_interval(secs => %s), %s, %s, %s)",
            (made[0], tenants[tenant], ago_s, verdict, error or None, slot_s),
        )
    for _ in range(scene.leases):
        stage.connection.execute(
            "INSERT INTO lease (token, pool, tenant_id, run_id, priority, kind, signature, est_s, n, timeout_s) "
            "VALUES (1, 'llm', %s, 0, 2, %s, %s, 10, 1, 60)",
            (stage.tenant, KIND, NEED),
        )
    for name, one in settings.HARNESS_TOPOLOGY.resources.items():
        if one.held == "call":
            stage.connection.execute(
                "INSERT INTO resource_state (resource, limit_now, mode, breaker, in_flight, waiting, seen_at) "
                "VALUES (%s, %s, 'fixed', 'closed', %s, 0, clock_timestamp())",
                (name, one.capacity, scene.in_flight if name == LLM else 0),
            )
    said = scene.connections
    others = []
    budget = 20
    for _ in range(round(said.get("db_connection_usage", 0.0) * budget)):
        other = stage.open()
        other.execute("BEGIN")
        other.execute("SELECT 1")
        others.append(other)
    owner = stage.open()
    owner.execute("RESET ROLE")
    try:
        with owner.transaction(force_rollback=True):
            for signal, name in (("db_pool_wait", "db:main"), ("http_pool_wait", LLM)):
                if signal in said:
                    waits = f'{{"{name}": {{"n": 40, "p50_s": 0.1, "p95_s": {said[signal]}, "max_s": 9}}}}'
                    owner.execute("UPDATE worker_session SET waits = %s::jsonb", (waits,))
            return of_store.facts(owner, settings.HARNESS_TOPOLOGY.resources, connections=budget, tasks=1000)
    finally:
        for other in (*others, owner):
            other.close()


def facts_of_the_world(scene: Scene) -> Facts:
    resources = {name: one.capacity for name, one in settings.HARNESS_TOPOLOGY.resources.items()}
    world = World({"llm": 10, "quarantine": 1}, resources, registry.all_kinds())
    tenants = [Tenant(number, f"t{number}", "all") for number in (1, 2)]
    for one in tenants:
        world.add_tenant(one)
    world.stand()
    recent = of_world.Recent()
    now_s = 10_000.0
    world.now_s = now_s - 1000.0
    for _ in range(scene.leases):
        world.submit(tenants[0], None, KIND, "llm", 2, NEED)
    world.estimates[KIND] = 10.0
    world.stand()
    world.tick()
    assert len(world.leases) == scene.leases
    for tenant, priority, ago_s in scene.waiting:
        world.now_s = now_s - ago_s
        world.submit(tenants[tenant], None, KIND, "llm", priority, NEED)
    for tenant, (priority, verdict, error, slot_s, ago_s) in sorted(scene.ended, key=lambda one: -one[1][4]):
        world.now_s = now_s - ago_s
        task = world.submit(tenants[tenant], None, KIND, "llm", priority, NEED, ready=False)
        recent.ended(task, slot_s, Event(verdict), ErrorClass(error) if error else None, world.now_s)
    for age_s in sorted(scene.arrived, reverse=True):
        world.now_s = now_s - age_s
        recent.came(world.submit(tenants[0], None, KIND, "llm", 2, NEED, ready=False), world.now_s)
    world.now_s = now_s
    reading = Assumed(at_s=now_s, limit=LIMIT, proven=LIMIT, ceiling=LIMIT, in_flight=scene.in_flight)
    world.see(Outlook(by_task={}, readings={LLM: reading}, at_s=now_s, taken_s=now_s))
    return of_world.facts(world, recent, scene.connections)
