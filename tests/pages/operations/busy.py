"""A system under pressure, as rows: a provider that refuses, work behind it, tenants, dead letters, what people did."""

import json
from math import sin

from harness.engine import operate
from harness.policy.pressure import Change, Level, Memory, Reading, State
from harness.policy.pressure.course import Course, Stood
from harness.store import evaluations, pressure, resources
from harness.store.resources import ResourceNow
from tests.dead_letters import bury
from tests.stage import Stage

READINGS = {
    "llm_rate_limit": Reading(value=0.034, score=2),
    "p1_wait": Reading(value=1.18, score=2),
    "oldest_age": Reading(value=74.0, score=1),
    "queue_depth": Reading(value=0.41, score=0),
    "worker_busy_ratio": Reading(value=0.83, score=0),
    "tool_error_rate": Reading(value=0.012, score=0),
    "retry_storm": Reading(value=0.031, score=0),
    "llm_in_use": Reading(value=0.88, score=0),
    "demand": Reading(value=1.1, score=0),
    "p95_task_latency": Reading(value=1.3, score=0),
    "db_connection_usage": Reading(value=0.46, score=0),
    "db_pool_wait": Reading(value=0.003, score=0),
    "http_pool_wait": Reading(value=0.011, score=0),
    "tenant_fairness": Reading(value=0.02, score=0),
}
FELL = (50, 50, 42, 36, 30, 24, 20, 18, 18, 19, 21, 24, 27, 29, 31, 31)


def press(stage: Stage, *, eases: bool = True) -> None:
    """The level is high since 22 minutes, by what the provider of llm:default refuses."""
    state = State(level=Level.HIGH, now_s=5_000.0, asked=Level.HIGH, calm_s=4_970.0 if eases else None)
    change = Change(
        before=Level.ELEVATED,
        after=Level.HIGH,
        signals={name: one for name, one in READINGS.items() if one.score},
    )
    pressure.keep(stage.connection, state, Memory(), READINGS, change=change, done="P3 by its floor")
    stage.connection.execute("UPDATE level SET since = since - interval '22 min'")
    stage.connection.execute("UPDATE level_change SET at = at - interval '22 min'")


def course(stage: Stage) -> None:
    """The hour behind it: the limit of llm:default falls and climbs; acme uses twice what the other does."""
    other = stage.one("SELECT max(id) FROM tenant")
    with stage.connection.transaction():
        for minute in range(60, -1, -1):
            step = FELL[max(0, 15 - minute // 2)]
            hits = 6 if 4 < minute < 26 else 1 if minute % 5 == 0 and minute < 30 else 0
            used = min(step, 40 + round(5 * sin(minute / 4)))
            drift = 1.0 + 0.2 * sin(minute / 5)
            readings = {
                name: Reading(value=one.value * drift * (1.0 if minute < 26 else 0.4), score=one.score)
                for name, one in READINGS.items()
            }
            seen = Course(
                resources={
                    "llm:default": Stood(step, used, 100, hits),
                    "tool:http": Stood(20, 3, 50, 0),
                },
                tenants={stage.tenant: 20.0, other: 10.0},
            )
            evaluations.keep(stage.connection, Level.NORMAL, readings, seen)
            stage.connection.execute(
                "UPDATE evaluation SET at = clock_timestamp() - make_interval(mins => %s) "
                "WHERE at = (SELECT max(at) FROM evaluation)",
                (minute,),
            )


def busy(stage: Stage) -> None:
    """All of it."""
    other = stage.add_tenant("orchard")
    for pools in ({"llm": 16}, {"llm": 16}, {"db": 16, "tool_read": 8}, {"browser": 2}):
        stage.add_session(pools)
    stage.submit("llm.chat", 40)
    stage.tick()
    for priority, n in ((1, 14), (2, 86), (3, 212)):
        stage.submit("llm.chat", n, priority=priority, tenant=other if priority == 3 else stage.tenant)
    bury(stage, stage.submit("noop.single", 3), "the index is gone")
    course(stage)
    press(stage)
    resources.keep(
        stage.connection,
        [
            ResourceNow(resource="llm:default", limit_now=31, proven=31, mode="climb", breaker="closed", in_flight=31),
            ResourceNow(resource="tool:http", limit_now=20, breaker="half_open", in_flight=3, waiting=2),
        ],
        [
            resources.Change(resource="llm:default", at_s=None, old=50, new=18, reason="429s", mode="drain"),
        ],
    )
    advise(stage)
    with stage.open("staff") as staff:
        operate.pause_scope(
            staff, "pool_priority", "ingest.p3", tenant=None, actor="staff:ana", reason="provider incident, PD-4471"
        )
        operate.set_resource(staff, "tool:http", {"capacity": 15}, actor="staff:ana", reason="the key is shared")
    stage.connection.execute(
        "INSERT INTO door_answer (at, tenant_id, pool, priority, signature, code, reason, tasks, once) "
        "VALUES (now(), %s, 'llm', 3, '', 'overload', 'pressure', 38, 0)",
        (other,),
    )


def advise(stage: Stage) -> None:
    """Autoscale holds llm, and would add a browser."""
    rows = [
        {"pool": "llm", "workers": 2, "desired": 2, "wanted": 5, "binds": "llm:default", "holds": True,
         "reason": "adding workers will not help: llm:default limit 31, in use 31"},
        {"pool": "browser", "workers": 1, "desired": 2, "wanted": 2, "binds": "work", "holds": False,
         "reason": "what waits and comes asks for 4.0 slots, 2 a process"},
    ]  # fmt: skip
    stage.connection.execute(
        "INSERT INTO advice (pool, workers, desired, wanted, binds, reason, holds, since, seen_at, state) "
        "SELECT pool, workers, desired, wanted, binds, reason, holds, now(), now(), '{}' "
        "FROM jsonb_to_recordset(%s::jsonb) AS x(pool text, workers int, desired int, wanted int, binds text, "
        "reason text, holds bool)",
        (json.dumps(rows),),
    )
