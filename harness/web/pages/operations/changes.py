"""What changed of late, newest first: levels, limits, what people did. Pure.

A limit that an algorithm moves changes every few seconds: changes of one direction, close together, are one line.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.store.resources import Change
from harness.web.pages import words
from harness.web.pages.operations import signs
from harness.web.pages.operations.seen import Seen

SHOWN = 9
TOGETHER_S = 120.0
SMALL_RATIO = 0.1  # a limit that moves by less is no news
VERBS = {"pause": "paused", "resume": "resumed", "resource": "set", "drain": "let go of", "limits": "changed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One change. `level`: of a change of the level, else ""."""

    at_s: float
    what: str
    detail: str
    level: str = ""


def lines(seen: Seen) -> list[Line]:
    """Return the newest changes."""
    found = [
        Line(
            at_s=one.at_s,
            what=f"{one.before.word.capitalize()} to {one.after.word}",
            detail=signs.named(one.signals) or one.done,
            level=one.after.word,
        )
        for one in seen.turns
    ]
    found += [
        Line(
            at_s=one.at_s,
            what=f"{words.person(one.actor)} {VERBS.get(one.verb, one.verb)} {_subject(one.subject)}",
            detail=f"“{one.reason}”" if one.reason else "",
        )
        for one in seen.acts
    ]
    found += turns(seen.limits)
    return sorted(found, key=lambda one: -one.at_s)[:SHOWN]


def turns(changes: Sequence[Change]) -> list[Line]:
    """Return changes of limits, those of one direction close together as one, without small ones and people's own."""
    found: list[Line] = []
    by_name: dict[str, list[Change]] = {}
    for one in sorted(changes, key=lambda one: one.at_s or 0.0):
        if one.old is not None and one.mode != "override" and one.old != one.new:
            by_name.setdefault(one.resource, []).append(one)
    for name, of_it in by_name.items():
        run = [of_it[0]]
        for after in of_it[1:]:
            if not _goes_on(run[-1], after):
                found += _line(name, run)
                run = []
            run.append(after)
        found += _line(name, run)
    return found


def _goes_on(before: Change, one: Change) -> bool:
    assert before.old is not None and one.old is not None
    close = (one.at_s or 0.0) - (before.at_s or 0.0) <= TOGETHER_S
    return close and (one.new > one.old) == (before.new > before.old)


def _line(name: str, run: Sequence[Change]) -> list[Line]:
    first, last = run[0].old, run[-1].new
    assert first is not None
    if abs(last - first) < max(2, SMALL_RATIO * max(first, last)):
        return []
    what = f"{name}’s limit {'fell' if last < first else 'rose'} to {last:,}"
    return [Line(at_s=run[-1].at_s or 0.0, what=what, detail=f"from {first:,}: {run[-1].reason}")]


def _subject(subject: str) -> str:
    """Return what an act was about, without the word that names its class where the name says it."""
    scope, _, name = subject.partition(" ")
    return {"pool_priority": name, "priority": name.upper(), "worker": f"the worker {name}"}.get(scope, name or subject)
