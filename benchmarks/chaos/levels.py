"""How long pressure stood at which level in a run: what it pauses explains how long a task took to come back. Pure."""

from collections.abc import Mapping

from benchmarks.chaos.history import History
from harness.policy.lifecycle import Event
from harness.policy.pressure.signals import Level


def seconds(history: History) -> Mapping[str, float]:
    """Return the seconds at each level, from the first sample of leases until everything had ended."""
    began_s = history.samples[0].at_s if history.samples else history.ended_s
    found = {level.word: 0.0 for level in Level}
    level, since_s = Level.NORMAL.word, began_s
    for change in history.levels:
        at_s = min(max(change.at_s, began_s), history.ended_s)
        found[level] += at_s - since_s
        level, since_s = change.after, at_s
    found[level] += history.ended_s - since_s
    return {name: round(s, 1) for name, s in found.items()}


def retry_ratio(history: History) -> float:
    """Return retries over first attempts in the whole run, as the signal retry_storm counts them in a minute."""
    verdicts = [event.event for event in history.trace]
    first = verdicts.count(Event.SUCCEED) + verdicts.count(Event.BURY)
    return round(verdicts.count(Event.FAIL) / first, 3) if first else 0.0
