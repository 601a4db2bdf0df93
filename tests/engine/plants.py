"""Faults to plant past the triggers, one for each rule of the auditor: `PLANTS`."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from django.conf import settings

from harness.engine.auditor import Alerts
from harness.policy.resources import Resource
from tests.stage import Stage, wait_until


@dataclass
class Planted:
    """What the auditor is expected to call it, and how it has to be set up to see it."""

    subject: str
    auditor: dict[str, Any] = field(default_factory=dict)
    after: Callable[[], object] = lambda: None  # what must be so after the repair


class House:
    """A stage with the owner's way past the triggers."""

    def __init__(self, stage: Stage, stack: ExitStack) -> None:
        self.stage = stage
        self.stack = stack
        self.session = stage.add_session({"db": 4, "llm": 4, "tool_read": 4, "quarantine": 1})
        self.owner = stack.enter_context(psycopg.connect(stage.url, autocommit=True))
        self.force("UPDATE leader SET until = 'epoch'")

    def force(self, statement: str, *parameters: object) -> Any:
        """Run a statement with the triggers of task off; return the first value of the first row, if any."""
        self.owner.execute("ALTER TABLE task DISABLE TRIGGER USER")
        try:
            cursor = self.owner.execute(statement, parameters)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None
        finally:
            self.owner.execute("ALTER TABLE task ENABLE TRIGGER USER")

    def into(self, task: int, state: str, more: str = "") -> None:
        """Put a task into a state, with an event that says so."""
        over = "clock_timestamp()" if state in ("succeeded", "cancelled", "failed_terminal") else "NULL"
        self.force(
            f"WITH t AS (UPDATE task SET state = '{state}', ready = false, finished_at = {over}, "
            f"event_no = event_no + 1 {more} WHERE id = {task} RETURNING *) "
            "INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor) "
            "SELECT id, tenant_id, event_no, clock_timestamp() - interval '1 hour', 'planted', 'queued', state, 'test' "
            "FROM t"
        )

    def released(self, n: int = 1, **more: Any) -> list[int]:
        tasks = self.stage.submit(n=n, **more)
        assert len(self.stage.tick()) == n
        return tasks

    def claimed(self) -> int:
        (task,) = self.released()
        (message,) = self.stage.messages
        assert self.stage.claim(message, self.session)
        return task

    def lease(self, claimed: str = "NULL", zombie: str = "NULL") -> int:
        return int(
            self.force(
                "INSERT INTO lease (token, pool, tenant_id, run_id, priority, kind, est_s, n, timeout_s, session, pid, "
                "claimed_at, zombie_since) "
                f"VALUES (1, 'db', %s, 0, 2, 'noop.single', 1, 1, 60, %s, 1, {claimed}, {zombie}) "
                "RETURNING id",
                self.stage.tenant,
                self.session if claimed != "NULL" else None,
            )
        )

    def back_in_line(self, task: int, events: list[str]) -> None:
        row = self.stage.row(task)
        assert (row["state"], row["ready"]) == ("queued", True)
        assert self.stage.events(task) == events
        assert self.stage.one("SELECT actor FROM event WHERE task_id = %s ORDER BY seq DESC LIMIT 1", task) == "auditor"
        assert self.stage.one("SELECT count(*) FROM lease_member WHERE task_id = %s", task) == 0
        assert self.stage.tick(), "a dispatcher sees it again"


def running_without_lease(house: House) -> Planted:
    task = house.claimed()
    house.force("DELETE FROM lease_member")
    house.force("DELETE FROM lease")
    return Planted(f"task {task}", after=lambda: house.back_in_line(task, ["submit", "claim", "lose"]))


def member_of_idle_task(house: House) -> Planted:
    task = house.claimed()
    house.into(task, "succeeded")
    return Planted(f"task {task}", after=lambda: no_leases(house))


def member_of_other_release(house: House) -> Planted:
    (task,) = house.released()
    house.force("UPDATE lease_member SET release_no = 7")
    return Planted(f"task {task}", after=lambda: house.back_in_line(task, ["submit", "ripen"]))


def member_at_odds(house: House) -> Planted:
    task = house.claimed()
    house.force("UPDATE lease SET claimed_at = NULL, session = NULL")
    return Planted(f"task {task}", after=lambda: house.back_in_line(task, ["submit", "claim", "lose"]))


def ready_while_leased(house: House) -> Planted:
    (task,) = house.released()
    house.force("UPDATE task SET ready = true")

    def after() -> None:
        assert not house.stage.row(task)["ready"] and house.stage.claim(house.stage.messages[0], house.session)

    return Planted(f"task {task}", after=after)


def lease_without_session(house: House) -> Planted:
    task = house.claimed()
    lease = house.stage.messages[0].lease
    house.force("DELETE FROM worker_session")
    house.session = house.stage.add_session({"db": 4})
    return Planted(f"lease {lease}", after=lambda: house.back_in_line(task, ["submit", "claim", "lose"]))


def lease_without_member(house: House) -> Planted:
    return Planted(
        f"lease {house.lease(claimed=AGO)}",
        after=lambda: no_leases(house),
    )


def release_not_taken_back(house: House) -> Planted:
    (task,) = house.released()
    house.force(f"UPDATE lease SET released_at = {AGO}")

    def after() -> None:
        assert house.stage.row(task)["ready"]
        no_leases(house)

    return Planted(f"lease {house.stage.messages[0].lease}", after=after)


def zombie_for_long(house: House) -> Planted:
    return Planted(f"lease {house.lease(claimed=AGO, zombie=AGO)}")


def member_without_lease(house: House) -> Planted:
    (task,) = house.released()
    house.force("DELETE FROM lease")
    return Planted(f"task {task}", after=lambda: house.back_in_line(task, ["submit", "ripen"]))


def member_without_task(house: House) -> Planted:
    lease = house.lease()
    house.force(
        "INSERT INTO lease_member (task_id, tenant_id, lease_id, release_no, ordinal) VALUES (10^12, %s, %s, 1, 1)",
        house.stage.tenant,
        lease,
    )
    return Planted("task 1000000000000", after=lambda: no_leases(house))


def task_without_body(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("DELETE FROM task_body")
    return Planted(f"task {task}")


def task_without_run(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("UPDATE task SET run_id = 999")
    house.force("UPDATE flow SET run_id = 999")
    return Planted(f"task {task}")


def attempt_without_task(house: House) -> Planted:
    attempt = house.force(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict) "
        "VALUES (10^12, %s, 1, now(), 'succeed') RETURNING id",
        house.stage.tenant,
    )
    return Planted(f"attempt {attempt}", after=lambda: gone(house, "attempt"))


def body_without_task(house: House) -> Planted:
    house.force("INSERT INTO task_body (task_id, tenant_id, input) VALUES (10^12, %s, '{}')", house.stage.tenant)
    return Planted("body of task 1000000000000", after=lambda: gone(house, "task_body"))


def steps_without_task(house: House) -> Planted:
    house.force(
        "INSERT INTO step (task_id, tenant_id, ordinal, key, name, release_no, began_at) "
        "SELECT 10^12, %s, n, '', 'search', 1, now() FROM generate_series(1, 3) n",
        house.stage.tenant,
    )
    return Planted("steps of task 1000000000000", after=lambda: gone(house, "step"))


def steps_differ(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.into(task, "paused", ", holds = '{version}'")
    house.force(
        "INSERT INTO step (task_id, tenant_id, ordinal, key, name, release_no, began_at, differed_at) "
        f"VALUES (%s, %s, 1, '', 'search', 1, {AGO}, {AGO})",
        task,
        house.stage.tenant,
    )
    return Planted("kind noop.single@1")


def stranded(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("UPDATE task SET ready = false")
    house.force("DELETE FROM flow")
    return Planted(f"task {task}", after=lambda: house.back_in_line(task, ["submit", "ripen"]))


def parked_for_nothing(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.into(task, "paused", ", holds = '{children}'")

    def after() -> None:
        assert house.stage.events(task)[-1] == "unpark" and house.stage.row(task)["ready"]

    return Planted(f"task {task}", after=after)


def unanswerable(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.into(task, "waiting_approval")
    house.force(
        "INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, on_timeout, deny, asked_at, open) "
        "VALUES (%s, %s, 1, 'ask', 'Go on?', '{approved}', 'pause', 'cancel', now(), false)",
        task,
        house.stage.tenant,
    )

    def after() -> None:
        row = house.stage.row(task)
        assert (row["state"], row["ready"]) == ("waiting_approval", True)
        assert house.stage.events(task) == ["submit", "planted", "ripen"]

    return Planted(f"task {task}", after=after)


def never_due(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.into(task, "failed_retryable")
    return Planted(f"task {task}", after=lambda: house.back_in_line(task, ["submit", "planted", "requeue"]))


def paused_without_hold(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.into(task, "paused")

    def after() -> None:
        assert (house.stage.state(task), house.stage.row(task)["holds"]) == ("paused", ["operator"])
        assert house.stage.events(task) == ["submit", "planted", "pause"]

    return Planted(f"task {task}", after=after)


def version_unknown(house: House) -> Planted:
    for task in house.stage.submit(n=3, version=99):
        house.into(task, "paused", more=", holds = ARRAY['version']")
    return Planted("kind noop.single@99")


def pool_over_slots(house: House) -> Planted:
    house.released(n=3)
    house.force("""UPDATE worker_session SET pools = '{"db": 2}'""")
    return Planted("pool db")


def tenant_over_cap(house: House) -> Planted:
    house.released(n=3)
    house.force("UPDATE tenant SET cap = 2")
    return Planted(f"tenant {house.stage.tenant}")


def run_over_cap(house: House) -> Planted:
    run = house.force(
        "INSERT INTO run (tenant_id, size, fanout_cap) VALUES (%s, 3, 3) RETURNING id", house.stage.tenant
    )
    house.released(n=3, run=run)
    house.force("UPDATE run SET fanout_cap = 1")
    return Planted(f"run {run}")


def quota_over_cap(house: House) -> Planted:
    house.released(n=3)
    house.force("INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', 'db', 2)", house.stage.tenant)
    return Planted(f"tenant {house.stage.tenant}, pool db")


def resource_over_capacity(house: House) -> Planted:
    house.released(n=3)
    house.force("UPDATE lease SET signature = 'browser=2,llm:default=1'")
    topology = replace(
        settings.HARNESS_TOPOLOGY,
        resources={
            "browser": Resource(name="browser", held="task", capacity=5),
            "llm:default": Resource(name="llm:default", held="call", capacity=1),
        },
    )
    return Planted("resource browser", {"topology": topology})


def flow_missing(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("DELETE FROM flow")
    key = f'["db", 2, {house.stage.tenant}, 0, ""]'

    def after() -> None:
        assert house.stage.tick() and house.stage.row(task)["release_no"] == 1

    return Planted(f"flow {key}", after=after)


def queue_too_long(house: House) -> Planted:
    house.released(n=2)
    return Planted("pool db", {"depths": lambda queues: {queue: 100 for queue in queues if queue == "db.p2"}})


def charged_twice(house: House) -> Planted:
    house.claimed()
    lease = house.stage.messages[0].lease
    charge(house, lease)
    return Planted(f"lease {lease}")


def charges_not_folded(house: House) -> Planted:
    charge(house, 10**12)
    house.force("UPDATE leader SET until = now() + interval '1 hour'")
    return Planted("charges")


def usage_differs(house: House) -> Planted:
    house.force("INSERT INTO usage_mark (id, until) VALUES (1, now())")
    house.force(
        "INSERT INTO usage_day (tenant_id, day, attempts, tokens, unpriced_tokens, usd) "
        "SELECT %s, (until - interval '1 microsecond') AT TIME ZONE 'UTC', 2, 30, 0, 0 FROM usage_mark",
        house.stage.tenant,
    )
    return Planted(f"tenant {house.stage.tenant}")


def fence_went_back(house: House) -> Planted:
    (task,) = house.stage.submit()
    attempt(house, task, release_no=3, verdict="interrupt")
    return Planted(f"task {task}")


def attempts_miscounted(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("UPDATE task SET attempts_used = 2, release_no = 3")
    attempt(house, task, release_no=1, verdict="fail")
    attempt(house, task, release_no=2, verdict="interrupt")
    return Planted(f"task {task}")


def trace_gap(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("UPDATE event SET seq = 2")
    return Planted(f"task {task}")


def trace_elsewhere(house: House) -> Planted:
    (task,) = house.stage.submit()
    house.force("UPDATE event SET to_state = 'paused'")
    return Planted(f"task {task}")


def old_transaction(house: House) -> Planted:
    other = house.stack.enter_context(house.stage.open())
    house.stack.enter_context(other.transaction())
    other.execute("SELECT 1")
    pid = other.info.backend_pid
    old = "SELECT max(age_s) FROM harness_transactions() WHERE pid = %s"
    wait_until(lambda: house.stage.one(old, pid) > 0.2, within_s=5)
    return Planted(f"session {pid}", {"alerts": Alerts(transaction_s=0.2)})


def dead_rows(house: House) -> Planted:
    house.owner.execute("ALTER TABLE lease SET (autovacuum_enabled = off)")
    house.stack.callback(house.owner.execute, "ALTER TABLE lease RESET (autovacuum_enabled)")
    house.owner.execute("VACUUM lease")
    house.force(
        "INSERT INTO lease (token, pool, tenant_id, run_id, priority, kind, est_s, n, timeout_s) "
        "SELECT 1, 'db', 1, 0, 2, 'noop', 1, 1, 1 FROM generate_series(1, 200)"
    )
    house.owner.execute("DELETE FROM lease")
    house.owner.execute("SELECT pg_stat_force_next_flush()")
    dead = "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'lease'"
    wait_until(lambda: house.stage.one(dead) > 100, within_s=5)
    return Planted("table lease", {"alerts": Alerts(dead_rows=100)})


def observe_late(house: House) -> Planted:
    house.force(
        "INSERT INTO resource_state (resource, limit_now, mode, breaker, in_flight, waiting, seen_at) "
        "VALUES ('llm:default', 5, 'hold', 'closed', 0, 0, clock_timestamp() - interval '31 seconds')"
    )
    return Planted("observe")


def level_late(house: House) -> Planted:
    house.force(
        "INSERT INTO level (id, level, since, seen_at, state, readings) "
        "VALUES (1, 2, clock_timestamp(), clock_timestamp() - interval '31 seconds', '{}', '{}')"
    )
    return Planted("level")


AGO = "clock_timestamp() - interval '20 minutes'"
PLANTS: dict[str, Callable[[House], Planted]] = {
    plant.__name__: plant
    for plant in (
        running_without_lease, member_of_idle_task, member_of_other_release, member_at_odds, ready_while_leased,
        lease_without_session, lease_without_member, release_not_taken_back, zombie_for_long, member_without_lease,
        member_without_task, task_without_body, task_without_run, attempt_without_task, body_without_task,
        steps_without_task, steps_differ, stranded, unanswerable,
        never_due, parked_for_nothing, paused_without_hold, version_unknown,
        pool_over_slots, tenant_over_cap, run_over_cap, quota_over_cap,
        resource_over_capacity, flow_missing, queue_too_long, charged_twice, charges_not_folded, usage_differs,
        fence_went_back, attempts_miscounted, trace_gap, trace_elsewhere, old_transaction, dead_rows, observe_late,
        level_late,
    )
}  # fmt: skip


def charge(house: House, lease: int) -> None:
    house.force(
        "INSERT INTO charge (lease_id, pool, tenant_id, run_id, kind, n, slot_s) "
        "VALUES (%s, 'db', %s, 0, 'noop', 1, 1)",
        lease,
        house.stage.tenant,
    )


def attempt(house: House, task: int, *, release_no: int, verdict: str) -> None:
    house.force(
        "INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict) "
        "VALUES (%s, %s, %s, clock_timestamp(), %s)",
        task,
        house.stage.tenant,
        release_no,
        verdict,
    )


def no_leases(house: House) -> None:
    assert house.stage.one("SELECT count(*) FROM lease") == 0
    assert house.stage.one("SELECT count(*) FROM lease_member") == 0


def gone(house: House, table: str) -> None:
    assert house.stage.one(f"SELECT count(*) FROM {table}") == 0
