"""A tenant's work in sentences: what runs and waits, what holds it, what was done, and the budget."""

from collections.abc import Sequence
from datetime import datetime

from harness.engine.why import said_at
from harness.policy import money
from harness.policy.lifecycle import State
from harness.policy.money import Budget, Spent
from harness.policy.reasons import Reason, told
from harness.store.money import DayUsed
from harness.store.runs import LIVE_MOST, NEWEST_MOST, Now
from harness.web.pages import times, words
from harness.web.pages.run_told import Answer
from harness.web.pages.words import counted

WAITING = (
    (State.QUEUED, "in line"),
    (State.WAITING_APPROVAL, "waiting for a decision"),
    (State.FAILED_RETRYABLE, "trying again later"),
    (State.PAUSED, "paused or waiting for children"),
)


def sentence(now: Now, decisions: int, *, most: int) -> tuple[State, str]:
    """Return how a tenant's work stands: a state whose mark fits, and the sentence.

    >>> idle = Now(running=0, live={}, ended={}, more=False)
    >>> sentence(idle, 0, most=5)[1], sentence(idle, 2, most=5)[1]
    ('Nothing runs, and nothing waits', '2\\xa0questions wait for a decision')
    >>> sentence(Now(running=3, live={State.RUNNING: 3, State.QUEUED: 9}, ended={}, more=False), 0, most=5)[1]
    '3\\xa0tasks run, 9 wait'
    """
    if decisions:
        more = " or more" if decisions >= most else ""
        verb = "waits" if decisions == 1 and not more else "wait"
        return State.WAITING_APPROVAL, f"{counted(decisions, 'question')}{more} {verb} for a decision"
    waiting = sum(now.live.get(state, 0) for state, _ in WAITING)
    over = "more than " if now.more else ""
    if now.running:
        waits = f", {over}{waiting:,} {'waits' if waiting == 1 else 'wait'}" if waiting else ""
        return State.RUNNING, f"{counted(now.running, 'task')} {'runs' if now.running == 1 else 'run'}{waits}"
    if waiting:
        return State.QUEUED, f"{_capital(over)}{counted(waiting, 'task')} {'waits' if waiting == 1 else 'wait'}"
    return State.SUCCEEDED, "Nothing runs, and nothing waits"


def running(now: Now) -> Answer:
    """Return what runs."""
    return Answer(asks="Running", says=counted(now.running, "task"))


def waiting(now: Now, reasons: Sequence[tuple[Reason, datetime]], at: datetime) -> Answer:
    """Return what waits, and what holds it first."""
    parts = [f"{now.live[state]:,} {said}" for state, said in WAITING if now.live.get(state)]
    says = ", ".join(parts) if parts else "Nothing waits"
    if now.more:  # by state they are counted in part only
        says = f"More than {counted(LIVE_MOST - now.live.get(State.RUNNING, 0), 'task')}"
    more = ""
    if reasons and now.live.get(State.QUEUED):
        reason, since = reasons[0]
        said = told(reason, lambda at_s: said_at(at_s, at))
        more = f"{said.words} {said.frees} So since {times.clock(since, at)}."
    return Answer(asks="Waiting", says=says, more=more)


def done(now: Now) -> Answer:
    """Return what has ended in the last day."""
    n, failed = now.ended.get(State.SUCCEEDED, 0), now.ended.get(State.FAILED_TERMINAL, 0)
    gone = now.ended.get(State.CANCELLED, 0)
    says = f"{counted(n, 'task')} in the last 24{words.NB}hours" if n else f"Nothing in the last 24{words.NB}hours"
    parts = [f"{k:,} {said}" for k, said in ((failed, "failed"), (gone, "cancelled")) if k]
    more = f"{_capital(' and '.join(parts))}." if parts else ""
    if now.newest:
        more = f"{more} Counted are your newest {NEWEST_MOST:,} tasks.".strip()
    return Answer(asks="Done", says=says, more=more)


def budget(found: tuple[Budget, Spent] | None, today: Sequence[DayUsed]) -> Answer:
    """Return where the budget stands; without one, what was used today."""
    used = ", ".join(f"{money.shown(round(day.usd, 2))} and {counted(day.tokens, 'token')} today" for day in today[:1])
    if found is None:
        return Answer(asks="Budget", says="No budget is set", more=f"{_capital(used)}." if used else "")
    limit, spent = found
    standing = money.stand(limit, spent)
    parts = [
        f"{money.shown(round(gone, 2))} of {money.shown(most)} {'this month' if period == 'month' else 'today'}"
        for period, most, gone in (
            ("month", limit.month_usd, spent.month_usd),
            ("day", limit.day_usd, spent.day_usd),
        )
        if most is not None
    ]
    left = f"It begins anew in {times.about(standing.left_s)} (UTC)."
    more = {
        "open": "",
        "soft": f"It is nearly spent. {left}",
        "hard": f"It is spent: work that costs waits. {left} It can be raised, too.",
    }[standing.line]
    return Answer(asks="Budget", says=f"{', '.join(parts)} spent", more=more)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
