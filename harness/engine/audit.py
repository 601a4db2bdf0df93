"""The rules of the auditor, as one table: what must be so, which look sees it, and what repairs it, if that is safe.

To add a rule: a CASE in a statement of store/sql/audit (or a statement, and its look in engine.auditor), a row here, a
line in docs/howto/audit.md, and a test that plants the fault. A repair must be right whatever else happens meanwhile:
it looks again under the locks. What nobody can know (lost input, a gap in the trace, money) is reported, not invented.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from harness.store import findings, flows, transitions
from harness.store.database import Connection
from harness.store.findings import Found

ACTOR = "auditor"
CONFIRM_S = 3.0  # between two looks: longer than what the sweep, a settle or a repair of another takes
# A flow may be missing for as long as a transaction lasts that counted on it when it was deleted (ADR 0005).
CONFIRM_FLOW_S = 70.0

Level = Literal["fault", "warning"]
StillSo = Callable[[], bool]
Repair = Callable[[Connection, Found, StillSo], bool]  # whether it wrote; the auditor looks whether that helped


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule. `look`: what sees it (engine.auditor). `repair`: None when only people can decide.

    It is reported when `looks` looks, `confirm_s` seconds apart, saw the same subject, `still` in the same way.
    """

    name: str
    means: str
    look: str
    level: Level = "fault"
    repair: Repair | None = None
    does: str = ""
    looks: int = 2
    confirm_s: float = CONFIRM_S
    still: Callable[[Found, Found], bool] = lambda before, now: True


def _back_on_the_way(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return transitions.back_on_the_way(
        connection, found.id, still_so, actor=ACTOR, reason=f"the auditor found: {RULES[found.rule].means}"
    )


def _give_up_lease(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return transitions.give_up_lease(
        connection, found.id, still_so, actor=ACTOR, reason=f"the auditor found: {RULES[found.rule].means}"
    )


def _hand_back(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return transitions.take_back_unclaimed(connection, found.id, still_so)


def _unready(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return transitions.unready(connection, found.id, still_so)


def _look_again(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return transitions.look_again(connection, found.id, actor=ACTOR)


def _restore_flow(connection: Connection, found: Found, still_so: StillSo) -> bool:
    pool, priority, tenant, run, signature = found.facts["key"]
    return flows.restore(connection, [(pool, priority, tenant, run, signature)]) > 0


def _delete_attempt(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return findings.delete_attempt(connection, found.id)


def _delete_body(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return findings.delete_body(connection, found.id)


def _delete_steps(connection: Connection, found: Found, still_so: StillSo) -> bool:
    assert found.id is not None
    return findings.delete_steps(connection, found.id)


def _same(name: str) -> Callable[[Found, Found], bool]:
    def still(before: Found, now: Found) -> bool:
        return bool(before.facts[name] == now.facts[name])

    return still


_LOSE = "the task goes back in line (lose), or where a wish about it says"
_OFF = "the task leaves the lease; if it then waits or runs without one, it goes back in line"
_DROP = "the lease goes, its tasks go back in line"

RULES: dict[str, Rule] = {
    rule.name: rule
    for rule in (
        # Leases match running tasks.
        Rule(name="running_without_lease", look="tasks", means="it runs, but no lease has it",
             repair=_back_on_the_way, does=_LOSE),
        Rule(name="member_of_idle_task", look="members", means="a lease has a task that is over, paused or failed",
             repair=_back_on_the_way, does="the task leaves the lease"),
        Rule(name="member_of_other_release", look="members", means="a lease has it under another release number",
             repair=_back_on_the_way, does=_OFF),
        Rule(name="member_at_odds", look="members", means="a claimed lease has it waiting, or an unclaimed one running",
             repair=_back_on_the_way, does=_OFF),
        Rule(name="ready_while_leased", look="members", means="a lease has it, and it is ready for another",
             repair=_unready, does="it is no longer ready"),
        # No lease without session, none that nobody takes back.
        Rule(name="lease_without_session", look="leases", means="its worker's session is gone or ended long ago",
             repair=_give_up_lease, does=_DROP),
        Rule(name="lease_without_member", look="leases", means="the lease has no task, and no thread that hangs",
             repair=_give_up_lease, does="the lease goes"),
        Rule(name="release_not_taken_back", look="leases", means="nobody claimed it, and the sweep didn't take it back",
             repair=_hand_back, does=_DROP),
        Rule(name="zombie_for_long", look="leases", level="warning",
             means="a thread hangs for 15 minutes, and its worker didn't restart"),
        # No orphans.
        Rule(name="member_without_lease", look="members", means="its lease is gone",
             repair=_back_on_the_way, does=_OFF),
        Rule(name="member_without_task", look="members", means="a lease has a task that is gone",
             repair=_back_on_the_way, does="the member goes"),
        Rule(name="task_without_body", look="tasks", means="its input is gone: no worker can run it"),
        Rule(name="task_without_run", look="tasks", means="its run is gone, and the run's cap with it"),
        Rule(name="attempt_without_task", look="orphaned_attempts", means="its task is gone",
             repair=_delete_attempt, does="the attempt goes"),
        Rule(name="body_without_task", look="orphaned_bodies", means="its task is gone",
             repair=_delete_body, does="the body goes"),
        Rule(name="steps_without_task", look="orphaned_steps", means="their task is gone",
             repair=_delete_steps, does="the steps go"),
        # No state without a way out.
        Rule(name="stranded", look="tasks",
             means="it is queued, but neither ready, nor due, nor released, nor waits for others",
             repair=_back_on_the_way, does="it is ready (ripen)"),
        Rule(name="unanswerable", look="tasks", means="it waits for a decision that nobody can make, or that was made",
             repair=_back_on_the_way, does="it is ready (ripen): it gets the answer that there is, or asks again"),
        Rule(name="never_due", look="tasks", means="it is to be tried again, but at no time",
             repair=_back_on_the_way, does="it is requeued"),
        Rule(name="parked_for_nothing", look="tasks", means="it waits for its children, and none of them lives",
             repair=_look_again, does="it goes on (unpark)"),
        Rule(name="paused_without_hold", look="tasks", means="it is paused, but by no hold that one could take away",
             repair=_back_on_the_way, does="it gets the hold `operator`, which people lift"),
        Rule(name="version_unknown", look="tasks", level="warning",
             means="tasks wait for a worker that knows this version, and for 10 minutes there was none"),
        Rule(name="steps_differ", look="tasks", level="warning",
             means="tasks wait for a worker whose code has the steps that they have recorded, for 10 minutes now"),
        # Caps hold. A cap that was lowered is no fault: then nothing is released until enough has ended.
        *(
            Rule(name=name, look="caps", level="warning", means=means, looks=3)
            for name, means in (
                ("pool_over_slots", "more leases than slots"),
                ("tenant_over_cap", "more in flight than the tenant's cap"),
                ("run_over_cap", "more in flight than the run's cap"),
                ("quota_over_cap", "more in flight than the tenant's quota"),
                ("resource_over_capacity", "more held by tasks than there is"),
            )
        ),
        # Flows match the backlog, and messages the leases.
        Rule(name="flow_missing", look="flows", means="ready tasks have no flow, so no dispatcher sees them",
             repair=_restore_flow, does="the flow is inserted", confirm_s=CONFIRM_FLOW_S),
        Rule(name="queue_too_long", look="queues", level="warning",
             means="far more messages wait than leases: workers that take work are gone, or don't listen"),
        Rule(name="observe_late", look="observed", level="warning",
             means="nobody has kept how resources stand for 30 s: is beat running, and a worker of the pool system?"),
        Rule(name="level_late", look="observed", level="warning",
             means="nobody has evaluated the pressure for 30 s: the last level holds until `observe` runs again"),
        # Charges are folded once, fences and trace agree with the attempts.
        Rule(name="charged_twice", look="charges", means="more was charged than was released"),
        Rule(name="charges_not_folded", look="charges", means="a dispatcher leads, but charges stay",
             still=_same("oldest")),
        Rule(name="usage_differs", look="usage", means="what was added up today isn't what the attempts used"),
        Rule(name="fence_went_back", look="attempts", means="it has an attempt of a later release than its own"),
        Rule(name="attempts_miscounted", look="attempts", means="attempts_used isn't what its attempts spent"),
        Rule(name="trace_gap", look="trace", means="its events aren't numbered 1, 2, .. without a gap"),
        Rule(name="trace_elsewhere", look="trace", means="its last event led to another state than its own"),
        # The database itself.
        Rule(name="old_transaction", look="transactions", level="warning", looks=1,
             means="a transaction is open for so long that no dead row can be removed"),
        Rule(name="dead_rows", look="dead_rows", level="warning", looks=1,
             means="dead rows pile up: vacuum doesn't keep pace, or something holds it up"),
    )
}  # fmt: skip


def level_of(rule: Rule, before: Found, now: Found) -> Level:
    """Return how bad it is: over a cap and still releasing is a fault; over a cap that was lowered is not."""
    if rule.look == "caps":
        return "fault" if _newest(now) > _newest(before) and _same("cap")(before, now) else "warning"
    return rule.level


def _newest(found: Found) -> Any:
    return found.facts["newest"]
