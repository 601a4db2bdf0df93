"""The one place where a task's state changes: by compare-and-set, with its trace event in the same statement.

Each function runs one named statement of sql/transitions (people's verbs: several, under locks) on the caller's
connection and returns what really happened; a lost race is an empty answer, never an error. Order of locks: lease, then
task, by id. Waking the dispatcher (`doorbell`) is the caller's, after the commit.
"""

from harness.store.transitions.approvals import Decided, decide, time_out
from harness.store.transitions.auditor import back_on_the_way, give_up_lease, take_back_unclaimed, unready
from harness.store.transitions.due import expire_due, let_in, resume_version, wake_due
from harness.store.transitions.notices import look_again, rouse
from harness.store.transitions.people import BUSY, By, act, cancel, lock_free
from harness.store.transitions.redrive import Again, redrive
from harness.store.transitions.values import ClaimedTask, Ended, Lost, NewLease, NewTask, Outcome, Released
from harness.store.transitions.work import (
    claim,
    claim_many,
    hand_back_unclaimed,
    lose,
    release,
    settle,
    settle_many,
    submit,
)

__all__ = (
    "BUSY",
    "Again",
    "By",
    "ClaimedTask",
    "Decided",
    "Ended",
    "Lost",
    "NewLease",
    "NewTask",
    "Outcome",
    "Released",
    "act",
    "back_on_the_way",
    "cancel",
    "claim",
    "claim_many",
    "decide",
    "expire_due",
    "give_up_lease",
    "hand_back_unclaimed",
    "let_in",
    "lock_free",
    "look_again",
    "lose",
    "redrive",
    "release",
    "resume_version",
    "rouse",
    "settle",
    "settle_many",
    "submit",
    "take_back_unclaimed",
    "time_out",
    "unready",
    "wake_due",
)
