"""A recorded trace gives the same plans, as lists, from the store that recorded it and from the simulator's world."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.conf import settings

from harness.kinds import registry
from harness.ops.traces import export
from harness.policy.accounts import ClockKey
from harness.policy.lifecycle import Event
from harness.sim import trace as traces
from harness.sim.parse import load
from harness.sim.report import simulate
from harness.sim.rows import Lease, Task, Tenant
from harness.sim.trace import Trace
from harness.sim.world import World
from harness.store import transitions
from harness.store.transitions import ClaimedTask, Outcome
from tests.stage import Stage

Picks = list[tuple[int, int, int, str, tuple[int, ...]]]  # tenant, run, priority, kind, tasks by their number
SLOTS = {"db": 3, "tool_read": 2, "quarantine": 1}
Clocks = dict[ClockKey, float]
KINDS = ("noop", "noop.single", "noop.sleep")
STEPS = 60


class Recording:
    """Work that goes through the real tables, step by step, and what each tick released."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.dice = Random(seed)
        self.session = stage.add_session(SLOTS)
        self.tenants = [stage.tenant, stage.add_tenant("b", cap=2), stage.add_tenant("c")]
        self.run = stage.one(
            "INSERT INTO run (public_id, tenant_id, size, fanout_cap) VALUES (gen_random_uuid(), %s, 20, 2) "
            "RETURNING id",
            stage.tenant,
        )
        stage.memory.folded_s = float("inf")  # the estimates stay as they are: a trace doesn't tell when they moved
        self.running: list[tuple[ClaimedTask, int, int]] = []
        self.ticks: list[tuple[float, Picks, Clocks]] = []

    def step(self) -> None:
        """Something comes, something ends, the dispatcher ticks, the workers claim."""
        self.stage.connection.execute("UPDATE worker_session SET beat_at = clock_timestamp()")
        if self.dice.random() < 0.4:
            self._submit()
        for _ in range(min(len(self.running), self.dice.choice((0, 1, 1, 3)))):
            self._end(self.running.pop(self.dice.randrange(len(self.running))))
        while self.dice.random() < 0.5:  # one by one: of two that ripen in one statement, either may be the first
            transitions.wake_due(self.stage.connection, actor="test", limit=1)
        picks = self._tick()
        self.ticks.append((self.stage.memory.now_s, picks, self.stage.memory.line("db").clocks()))
        for message in self.stage.messages:
            for task in self.stage.claim(message, self.session):
                self.running.append((task, message.lease, message.token))

    def end_all(self) -> None:
        """End what still runs: a trace tells of an attempt, and that it was claimed, only when it has ended."""
        while self.running:
            self._end(self.running.pop())

    def _submit(self) -> None:
        tenant = self.dice.choice(self.tenants)
        run = self.run if tenant == self.stage.tenant and self.dice.random() < 0.5 else 0
        n = self.dice.choice((1, 2, 8))
        self.stage.submit(self.dice.choice(KINDS), n, tenant=tenant, run=run, priority=self.dice.choice((1, 2, 2, 3)))

    def _end(self, running: tuple[ClaimedTask, int, int]) -> None:
        task, lease, token = running
        event = self.dice.choice((Event.SUCCEED, Event.SUCCEED, Event.SUCCEED, Event.FAIL, Event.INTERRUPT))
        claimed_at = self.stage.one("SELECT claimed_at FROM lease WHERE id = %s", lease)
        slot_s = self.stage.one("SELECT extract(epoch FROM clock_timestamp() - %s)::double precision", claimed_at)
        outcome = Outcome(
            task=task.id,
            release_no=task.release_no,
            event=event,
            slot_s=slot_s,
            delay_s=0.0 if event is Event.FAIL else None,
            spends=int(event is Event.FAIL),
        )
        settled = transitions.settle(
            self.stage.connection, [outcome], lease=lease, token=token, session=self.session, actor="test worker"
        )
        assert list(settled) == [task.id]
        # A trace tells how long a task took by its events, which come some milliseconds after what they tell of. Here
        # they are put right to the microsecond: what a task overran ranks its tenant.
        self.stage.connection.execute(
            "UPDATE event e SET at = CASE event WHEN 'claim' THEN %(at)s "
            "ELSE %(at)s + make_interval(secs => %(slot_s)s) END FROM task t "
            "WHERE t.id = %(task)s AND e.task_id = t.id AND e.seq BETWEEN t.event_no - 1 AND t.event_no",
            {"at": claimed_at, "slot_s": slot_s, "task": task.id},
        )

    def _tick(self) -> Picks:
        before = self.stage.one("SELECT coalesce(max(id), 0) FROM lease")
        self.stage.tick()
        # A plan and its commit are one moment to who replays them; what a slot's holder owes begins with the release.
        self.stage.connection.execute(
            "UPDATE lease SET released_at = to_timestamp(%s) WHERE id > %s", (self.stage.memory.now_s, before)
        )
        rows = self.stage.connection.execute(
            "SELECT tenant_id, run_id, priority, kind, "
            "(SELECT array_agg(task_id ORDER BY ordinal) FROM lease_member WHERE lease_id = lease.id) "
            "FROM lease WHERE id > %s ORDER BY id",
            (before,),
        )
        return [(tenant, run, priority, kind, tuple(tasks)) for tenant, run, priority, kind, tasks in rows]


class Following:
    """A world in which what a trace says happens, as it says; only the plans are its own."""

    def __init__(self, trace: Trace) -> None:
        topology = settings.HARNESS_TOPOLOGY
        self.world = World(
            {pool: SLOTS[pool] for pool in topology.pools if pool in SLOTS},
            {name: resource.capacity for name, resource in topology.resources.items()},
            registry.all_kinds(),
        )
        for one in trace.tenants:
            self.world.add_tenant(Tenant(one.id, str(one.id), "all", cap=one.cap), one.quotas)
        for number, (tenant, cap) in trace.runs.items():
            self.world.add_run(self.world.tenants[tenant], cap, number)
        self.tasks: list[Task] = []
        happenings: list[tuple[float, int, Any]] = []
        for number, task in enumerate(trace.tasks):
            happenings.append((task.submit_s, number, ("submit", task)))
            for attempt in task.attempts:
                end_s = attempt.start_s + attempt.slot_s
                happenings.append((attempt.start_s, number, ("claim", None)))
                happenings.append((end_s, number, ("end", attempt)))
                if attempt.gap_s:
                    happenings.append((end_s + attempt.gap_s, number, ("ripen", None)))
        self._happenings = sorted(happenings, key=lambda one: one[:2])

    def tick(self, at_s: float) -> Picks:
        """Let all happen until then, and plan."""
        while self._happenings and self._happenings[0][0] <= at_s:
            self.world.now_s, number, what = self._happenings.pop(0)
            self._happen(number, *what)
        self.world.now_s = at_s
        self.world.lines["db"].bundled = True  # as the stage has it
        leases = [lease for tick in self.world.tick() for lease in tick.leases]
        return [
            (
                lease.tenant.id,
                lease.run.id if lease.run else 0,
                lease.priority,
                lease.members[0].kind,
                tuple(task.id for task in lease.members),
            )
            for lease in leases
        ]

    def clocks(self) -> Clocks:
        """Return the virtual times, as the last tick left them."""
        return self.world.lines["db"].clocks()

    def _happen(self, number: int, what: str, more: Any) -> None:
        world = self.world
        if what == "submit":
            run = world.runs[more.run] if more.run else None
            tenant = world.tenants[more.tenant]
            self.tasks.append(world.submit(tenant, run, more.kind, more.pool, more.priority, more.signature))
            return
        task = self.tasks[number]
        if what == "ripen":
            world.ripen(task)
            return
        lease = self._lease_of(task)
        if what == "claim":
            if lease.claimed_s is None:
                world.claim(lease)
        else:
            world.settle(lease, task, Event(more.event), more.slot_s, waits=more.gap_s != 0.0)

    def _lease_of(self, task: Task) -> Lease:
        (lease,) = [lease for lease in self.world.leases.values() if task in lease.members]
        return lease


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_recorded_trace_gives_the_same_plans_and_clocks(stage: Stage, tmp_path: Path, seed: int) -> None:
    recording = Recording(stage, seed)
    for _ in range(STEPS):
        recording.step()
    recording.end_all()
    exported = export(stage.connection, settings.HARNESS_TOPOLOGY, since=datetime(2000, 1, 1, tzinfo=UTC))
    traces.write(exported, tmp_path / "trace.jsonl.gz")
    trace = traces.read(tmp_path / "trace.jsonl.gz")
    ids = [row[0] for row in stage.connection.execute("SELECT id FROM task ORDER BY id")]
    zero_s = float(stage.one("SELECT extract(epoch FROM min(created_at))::double precision FROM task"))
    number = {task: at for at, task in enumerate(ids, 1)}
    following = Following(trace)
    assert sum(len(picks) for _, picks, _ in recording.ticks) > STEPS / 2
    for at, (at_s, picks, clocks) in enumerate(recording.ticks):
        expected = [(*pick[:4], tuple(number[task] for task in pick[4])) for pick in picks]
        assert following.tick(at_s - zero_s) == expected, f"tick {at}"
        # Epoch seconds as doubles are good to a quarter of a microsecond, each time that they are added.
        assert following.clocks() == pytest.approx(clocks, abs=1e-4), f"tick {at}"


def test_a_trace_replayed_in_a_scenario_does_the_same_work(stage: Stage, tmp_path: Path) -> None:
    recording = Recording(stage, 4)
    for _ in range(20):
        recording.step()
    trace = export(stage.connection, settings.HARNESS_TOPOLOGY, since=datetime(2000, 1, 1, tzinfo=UTC))
    traces.write(trace, tmp_path / "trace.jsonl")
    report = simulate(load(tmp_path / "trace.jsonl"))
    counts = report.figures["counts"]
    assert counts["submitted"] == len(trace.tasks)
    last = [task.attempts[-1] for task in trace.tasks if task.attempts]
    unfinished = sum(one.event == Event.FAIL and one.gap_s is None for one in last)  # nobody had requeued them yet
    assert sum(group["unfinished"] for group in report.figures["groups"].values()) == unfinished
    assert counts["interrupt"] == sum(one.event == "interrupt" for task in trace.tasks for one in task.attempts)
    assert report.figures["caps_exceeded"] == 0
