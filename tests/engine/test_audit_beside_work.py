"""Beside a busy stage the auditor finds nothing: no rule takes what is under way for a fault."""

import random
import threading
import time
import uuid
from collections.abc import Callable

import psycopg
import pytest
from django.conf import settings

from harness.engine import dispatch, sweep
from harness.engine.auditor import Alerts, Auditor, Finding
from harness.engine.schedules import Firing
from harness.policy import verbs
from harness.policy.holds import PEOPLE
from harness.policy.lifecycle import Event
from harness.policy.verbs import Asked
from harness.store import leader, sessions, transitions
from harness.store.database import Connection
from harness.store.message import Message
from harness.store.transitions import By, ClaimedTask, NewTask, Outcome
from tests.stage import Stage

RACE_S = 8.0
KINDS = ("noop", "noop.single")


class Yard:
    """Everything that a real system does to its rows, by threads, as fast as they can."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.over = threading.Event()
        self.messages: list[Message] = []
        self.errors: list[BaseException] = []
        self.done: dict[str, int] = {}
        self.runs = [
            int(
                stage.one(
                    "INSERT INTO run (tenant_id, size, fanout_cap) VALUES (%s, 100, 5) RETURNING id", stage.tenant
                )
            )
            for _ in range(2)
        ]
        stage.connection.execute(
            "INSERT INTO quota (tenant_id, scope, name, cap) VALUES (%s, 'pool', 'db', 30)", (stage.tenant,)
        )
        stage.connection.execute("UPDATE tenant SET cap = 40 WHERE id = %s", (stage.tenant,))

    def count(self, what: str, n: int = 1) -> None:
        self.done[what] = self.done.get(what, 0) + n

    def submit(self, connection: Connection, dice: random.Random) -> None:
        tasks = [
            NewTask(
                kind=dice.choice(KINDS),
                version=1,
                pool="db",
                priority=dice.randrange(4),
                signature="",
                input="{}",
                public_id=uuid.uuid4(),
            )
            for _ in range(dice.randrange(1, 12))
        ]
        run = dice.choice([0, 0, *self.runs])
        with connection.transaction():
            transitions.submit(connection, tasks, tenant=self.stage.tenant, run=run, actor="test")
            time.sleep(dice.random() * 0.05)  # a transaction takes its time; flows are deleted meanwhile
        self.count("submitted", len(tasks))
        time.sleep(0.02)

    def dispatch(self, connection: Connection, dice: random.Random) -> None:
        assert self.stage.epoch is not None
        leader.renew(connection, self.stage.epoch)
        self.stage.see_short_work()
        dispatch.tick(
            connection,
            settings.HARNESS_TOPOLOGY,
            self.stage.memory,
            epoch=self.stage.epoch,
            publish=self.messages.extend,
        )
        time.sleep(0.01)

    def sweep(self, connection: Connection, dice: random.Random) -> None:
        assert self.stage.epoch is not None
        swept = sweep.sweep(connection, epoch=self.stage.epoch, firing=Firing())
        transitions.hand_back_unclaimed(connection, older_than_s=0.5)
        self.count("lost", swept.lost)
        time.sleep(0.2)

    def people(self, connection: Connection, dice: random.Random) -> None:
        """Cancel, pause, resume, try again, and change priorities, of tasks in any state."""
        rows = connection.execute("SELECT id FROM task WHERE finished_at IS NULL ORDER BY id DESC LIMIT 20").fetchall()
        tasks = [row[0] for row in rows]
        by = By(actor="test", reason="a race")
        for decide, asked, n in (
            (verbs.cancel, Asked(), 3),
            (verbs.pause, Asked(hold=dice.choice(PEOPLE)), 4),
            (verbs.resume, Asked(hold=dice.choice(PEOPLE)), 20),
            (verbs.requeue, Asked(), 20),
            (verbs.priority, Asked(priority=dice.randrange(4)), 20),
        ):
            some = dice.sample(tasks, min(len(tasks), n))
            for decision in transitions.act(connection, some, decide, asked, by).values():
                self.count(decision.outcome)
        time.sleep(0.05)

    def work(self, connection: Connection, dice: random.Random) -> None:
        """One life of a worker: it claims, settles, loses messages, and is declared dead with what it holds."""
        session = uuid.uuid4()
        sessions.register(
            connection,
            session=session,
            host="test",
            pid=1,
            pools={"db": 16, "quarantine": 4},
            kinds=[f"{kind}@1" for kind in KINDS],
            connections=1,
            budget=1000,
        )
        held: list[tuple[Message, list[ClaimedTask]]] = []
        for _ in range(dice.randrange(50, 150)):
            if self.over.is_set():
                break
            try:
                message = self.messages.pop(0)
            except IndexError:
                time.sleep(0.005)
                continue
            if dice.random() < 0.05:
                continue  # lost on its way
            claimed = transitions.claim(
                connection, message.lease, message.token, session=session, pid=1, actor="test worker"
            )
            self.count("claimed", len(claimed))
            if dice.random() < 0.1:
                held.append((message, claimed))  # it hangs, until its session is declared dead
                continue
            self.settle(connection, dice, session, message, claimed)
        sessions.end(connection, session)

    def settle(
        self,
        connection: Connection,
        dice: random.Random,
        session: uuid.UUID,
        message: Message,
        claimed: list[ClaimedTask],
    ) -> None:
        flush = max(1, len(claimed) // 2)
        for start in range(0, len(claimed), flush):
            outcomes = [outcome(dice, task) for task in claimed[start : start + flush]]
            transitions.settle(
                connection, outcomes, lease=message.lease, token=message.token, session=session, actor="test worker"
            )
            self.count("settled", len(outcomes))
        if not claimed:
            transitions.settle(
                connection, [], lease=message.lease, token=message.token, session=session, actor="test worker"
            )

    def run(self, work: Callable[[Connection, random.Random], None], seed: int) -> None:
        dice = random.Random(seed)
        with self.stage.open() as connection:
            while not self.over.is_set():
                try:
                    work(connection, dice)
                except psycopg.errors.DeadlockDetected:
                    self.count("deadlocks")
                except BaseException as error:  # noqa: BLE001  (the test's thread tells)
                    self.errors.append(error)
                    return


def outcome(dice: random.Random, task: ClaimedTask) -> Outcome:
    event = dice.choice([Event.SUCCEED] * 5 + [Event.FAIL, Event.POSTPONE, Event.INTERRUPT, Event.BURY])
    return Outcome(
        task=task.id,
        release_no=task.release_no,
        event=event,
        slot_s=0.001,
        spends=1 if event in (Event.FAIL, Event.BURY) else 0,
        delay_s=0.2 if event in (Event.FAIL, Event.POSTPONE) else None,
        error_class="bug" if event in (Event.FAIL, Event.BURY) else None,
        tokens=dice.choice([0, 10]),
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_the_auditor_beside_a_busy_stage_finds_nothing(stage: Stage, seed: int) -> None:
    yard = Yard(stage)
    parts = [yard.submit, yard.submit, yard.dispatch, yard.sweep, yard.people, yard.work, yard.work, yard.work]
    threads = [threading.Thread(target=yard.run, args=(part, seed * 100 + n)) for n, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    auditor = Auditor(
        topology=settings.HARNESS_TOPOLOGY,
        alerts=Alerts(),
        depths=lambda queues: {"db.p2": len(yard.messages)},
        repair=True,
    )
    findings: list[Finding] = []
    with stage.open() as connection:
        end_s = time.monotonic() + RACE_S
        while time.monotonic() < end_s:
            auditor.look(connection, now_s=time.monotonic())
            findings += auditor.confirm(connection, now_s=time.monotonic())
        yard.over.set()
        for thread in threads:
            thread.join()
        # What is left comes to rest by the sweep alone; then nothing may be at odds, at a single look.
        stage.connection.execute("UPDATE worker_session SET ended_at = coalesce(ended_at, clock_timestamp())")
        assert stage.epoch is not None
        leader.renew(connection, stage.epoch)
        sweep.sweep(connection, epoch=stage.epoch, firing=Firing())
        transitions.hand_back_unclaimed(connection, older_than_s=0)
        # A flow that was deleted while a transaction counted on it is late by 65 s at most (ADR 0005): it is known to
        # the dispatcher, whose time to look again has come now.
        stage.memory.deleted = [(0.0, looked, key) for _, looked, key in stage.memory.deleted]
        stage.tick()
        transitions.hand_back_unclaimed(connection, older_than_s=0)
        stage.fold()
        at_rest = Auditor(topology=settings.HARNESS_TOPOLOGY, alerts=Alerts())
        at_rest.look(connection, now_s=0.0)
        left = [(one.rule, one.subject, one.facts) for one in at_rest.confirm(connection, now_s=100.0)]
    assert yard.errors == []
    assert [(one.rule, one.subject, one.facts) for one in findings] == []
    assert left == []
    assert stage.one("SELECT count(*) FROM audit_finding") == 0
    least = {
        "submitted": 200,
        "settled": 100,
        "cancelled": 10,
        "wished": 1,
        "lost": 1,
        "reprioritised": 10,
        "paused": 5,
        "resumed": 1,
    }
    assert all(yard.done.get(what, 0) >= n for what, n in least.items()), yard.done
    assert auditor.costs["members"].statements >= 10
