"""What a lease owes: charged once, however it ends; what never ran is given back. Together it is what was used."""

import uuid
from dataclasses import replace

import psycopg
import pytest

from harness.policy.lifecycle import Event
from harness.policy.verbs import Asked, cancel, pause
from harness.store import snapshot, transitions
from harness.store.clocks import ZOMBIE_CHARGED_S, Moved
from harness.store.transitions import By, Outcome
from tests.leases import new_lease
from tests.stage import Stage

EST_S, COST = 2.0, 3.0


class Bench:
    """Tasks on one lease, charged for at release: EST_S times COST each."""

    def __init__(self, stage: Stage, n: int = 1) -> None:
        self.stage = stage
        self.session = stage.add_session({"db": 9})
        self.tasks = stage.submit(n=n)
        lease = replace(new_lease(stage, self.tasks), est_s=EST_S, cost=COST, lane=2)
        assert stage.epoch is not None
        done = transitions.release(stage.connection, [lease], Moved(), capacities={}, epoch=stage.epoch)
        ((self.lease, self.n),) = done.made.values()

    def claim(self, lead_s: float = 0.0) -> None:
        """Claim it, as if so long after its release."""
        assert transitions.claim(self.stage.connection, self.lease, 7, session=self.session, pid=1, actor="test worker")
        self.stage.connection.execute(
            "UPDATE lease SET released_at = claimed_at - make_interval(secs => %s)", (lead_s,)
        )

    def settle(self, *tasks: int, slot_s: float, event: Event = Event.SUCCEED) -> None:
        outcomes = [Outcome(task=task, release_no=1, event=event, slot_s=slot_s) for task in tasks]
        transitions.settle(
            self.stage.connection, outcomes, lease=self.lease, token=7, session=self.session, actor="test worker"
        )

    def owed(self) -> list[tuple[int, float, float, float]]:
        """(tasks measured, slot_s, owed_s, cost_s) of each charge; all name the same flow and lane."""
        charges = [charge for _, _, charge in snapshot.in_use(self.stage.connection).charges]
        assert {(c.priority, c.tenant, c.run, c.lane, c.kind) for c in charges} <= {
            (2, self.stage.tenant, 0, 2, "noop.single")
        }
        return [(c.n, c.slot_s, c.owed_s, c.cost_s) for c in charges]


def test_a_settle_charges_what_was_used_beyond_the_estimate_times_the_cost_once(stage: Stage) -> None:
    bench = Bench(stage)
    bench.claim()
    bench.settle(*bench.tasks, slot_s=5.0)
    bench.settle(*bench.tasks, slot_s=5.0)  # told twice
    assert bench.owed() == [(1, 5.0, 9.0, 15.0)]


@pytest.mark.parametrize(("lead_s", "charged_s"), [(3.0, 3.0), (3600.0, 10.0), (-3600.0, 0.0)])
def test_a_slot_is_its_holders_from_the_release_on_whatever_a_clock_says(
    stage: Stage, lead_s: float, charged_s: float
) -> None:
    bench = Bench(stage, 2)
    bench.claim(lead_s)
    bench.settle(*bench.tasks[:1], slot_s=2.0)
    bench.settle(*bench.tasks[1:], slot_s=2.0)
    assert [owed_s for _, _, owed_s, _ in bench.owed()] == [pytest.approx(charged_s / 2 * COST)] * 2, "each its part"


def test_a_task_shorter_than_its_estimate_is_given_the_rest_back(stage: Stage) -> None:
    bench = Bench(stage)
    bench.claim()
    bench.settle(*bench.tasks, slot_s=0.5, event=Event.INTERRUPT)
    assert bench.owed() == [(1, 0.5, -4.5, 1.5)]


def test_each_flush_of_a_bundle_charges_its_own(stage: Stage) -> None:
    bench = Bench(stage, 3)
    bench.claim()
    bench.settle(*bench.tasks[:2], slot_s=2.0)
    bench.settle(bench.tasks[2], slot_s=3.0)
    assert bench.owed() == [(2, 4.0, 0.0, 12.0), (1, 3.0, 3.0, 9.0)]


@pytest.mark.parametrize("n", [1, 3])
def test_a_lease_that_nobody_claimed_gives_back_all_that_was_charged(stage: Stage, n: int) -> None:
    bench = Bench(stage, n)
    transitions.hand_back_unclaimed(stage.connection, older_than_s=0)
    assert bench.owed() == [(0, 0.0, -n * EST_S * COST, 0.0)]


def test_a_task_that_its_tenant_takes_off_its_lease_gives_its_part_back(stage: Stage) -> None:
    """As role web, which may write nothing else of charges."""
    bench = Bench(stage, 3)
    with stage.open("web") as web:
        web.execute("SELECT set_config('harness.tenant', %s, false)", (str(stage.tenant),))
        by = By(actor="someone")
        transitions.act(web, bench.tasks[:1], cancel, Asked(), by)
        transitions.act(web, bench.tasks[1:2], pause, Asked(hold="tenant"), by)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            web.execute("SELECT * FROM charge")
    assert bench.owed() == [(0, 0.0, -EST_S * COST, 0.0)] * 2
    bench.claim()
    bench.settle(bench.tasks[2], slot_s=2.0)
    assert sum(owed for _, _, owed, _ in bench.owed()) == -2 * EST_S * COST


def test_a_task_that_expires_at_its_claim_gives_its_part_back(stage: Stage) -> None:
    bench = Bench(stage)
    stage.connection.execute("UPDATE task SET start_by = clock_timestamp() - interval '1 s'")
    bench.claim()
    assert bench.owed() == [(0, 0.0, -EST_S * COST, 0.0)]


@pytest.mark.parametrize(("ran_s", "held_s"), [(10, 10.0), (100_000, 60.0)])
def test_a_lost_lease_charges_what_it_held_up_to_its_time_limit(stage: Stage, ran_s: int, held_s: float) -> None:
    bench = Bench(stage)
    bench.claim()
    stage.connection.execute("UPDATE lease SET claimed_at = clock_timestamp() - make_interval(secs => %s)", (ran_s,))
    transitions.lose(
        stage.connection, max_attempts={}, retry_delay_s=0.0, actor="test", session=bench.session, dead_pids=[1]
    )
    ((n, slot_s, owed_s, cost_s),) = bench.owed()
    assert n == 0, "it says nothing of how long a task takes"
    assert (slot_s, owed_s, cost_s) == pytest.approx((held_s, (held_s - EST_S) * COST, held_s * COST), abs=3.0)


def test_what_a_running_task_overruns_becomes_its_charge_in_one_snapshot(stage: Stage) -> None:
    """Between the two nobody sees neither: its tenant would win the slot that it gives back."""
    bench = Bench(stage)
    bench.claim()
    stage.connection.execute("UPDATE lease SET claimed_at = clock_timestamp() - interval '7 s'")
    before = snapshot.in_use(stage.connection)
    (use,) = before.flight
    assert use.overrun_s == pytest.approx(5.0 * COST, abs=3.0)
    assert use.cost == COST
    assert before.charges == []
    bench.settle(*bench.tasks, slot_s=7.0)
    after = snapshot.in_use(stage.connection)
    assert after.flight == []
    assert [charge.owed_s for _, _, charge in after.charges] == [5.0 * COST]


def test_a_session_of_another_worker_charges_nothing(stage: Stage) -> None:
    bench = Bench(stage)
    bench.claim()
    bench.session = uuid.uuid4()
    bench.settle(*bench.tasks, slot_s=5.0)
    assert bench.owed() == []


def test_a_zombie_is_charged_what_it_holds_the_slot_beyond_its_tasks_once(stage: Stage) -> None:
    bench = Bench(stage)
    bench.claim()
    outcome = Outcome(task=bench.tasks[0], release_no=1, event=Event.FAIL, slot_s=4.0)
    gone = {"lease": bench.lease, "token": 7, "session": bench.session, "actor": "test worker"}
    transitions.settle(stage.connection, [outcome], **gone, keep_lease=True)  # type: ignore[arg-type]
    stage.connection.execute("UPDATE lease SET zombie_since = zombie_since - interval '10 seconds'")
    (use,) = snapshot.in_use(stage.connection).flight
    assert use.overrun_s == pytest.approx(10.0 * COST, abs=3.0 * COST)
    for _ in range(2):
        transitions.settle(stage.connection, [], **gone)  # type: ignore[arg-type]
    (of_task, of_zombie) = bench.owed()
    assert of_task == (1, 4.0, (4.0 - EST_S) * COST, 4.0 * COST)
    assert of_zombie[0] == 0, "it says nothing about how long a task takes"
    assert of_zombie[2] == of_zombie[3] == pytest.approx(10.0 * COST, abs=3.0 * COST)


@pytest.mark.parametrize("zombie", [False, True])
def test_a_step_of_the_servers_clock_is_no_service(stage: Stage, zombie: bool) -> None:
    bench = Bench(stage)
    bench.claim()
    stage.connection.execute("UPDATE lease SET claimed_at = claimed_at - interval '1 hour'")
    if zombie:
        stage.connection.execute("UPDATE lease SET zombie_since = claimed_at")
    (use,) = snapshot.in_use(stage.connection).flight
    assert use.overrun_s == (ZOMBIE_CHARGED_S if zombie else 60.0 - EST_S) * COST
