"""Why a task waits: the closed set of reasons as data, in the order in which they bind, and their words. Pure.

A reason is a code, a subject (which resource, which pause) and facts. What a tenant is told of others is counts, never
names or numbers of theirs: no entry below has a fact that could say more.

Invariants: of several reasons the first in TABLE binds, so that lifting what is told is worth something; two looks at
the same constraint give equal `key`s, however its figures moved meanwhile.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness.policy import money
from harness.policy.ramp import WHOLE_AFTER_S

Fact = str | int | float
Key = tuple[str, str, tuple[tuple[str, Fact], ...]]

AHEAD_MOST = 1000  # tasks of one's own that are counted; beyond, "more than" is said

_PART = re.compile(r"\[([^\]]*)\]")
_NAME = re.compile(r"\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}")


class Who(StrEnum):
    """Who can free a task that waits: its tenant, the system by itself, or another person."""

    YOU = "you"
    SYSTEM = "system"
    PERSON = "person"


class Code(StrEnum):
    """The reasons. Names are wire values."""

    NO_DISPATCHER = "no_dispatcher"
    HELD = "held"
    CHILDREN = "children"
    DEPENDENCIES = "dependencies"
    VERSION = "version"
    UNANSWERED = "unanswered"
    APPROVAL = "approval"
    NOT_BEFORE = "not_before"
    DEFERRED = "deferred"
    POSTPONED = "postponed"
    RETRY = "retry"
    PAUSED = "paused"
    NO_WORKER = "no_worker"
    TOO_LARGE = "too_large"
    BREAKER = "breaker"
    BLOCKED = "blocked"
    RATE = "rate"
    BUDGET = "budget"
    TENANT_CAP = "tenant_cap"
    RUN_CAP = "run_cap"
    QUOTA = "quota"
    LIMITED = "limited"
    RESOURCE = "resource"
    RESERVED = "reserved"
    SHARE = "share"
    FAN_OUT = "fan_out"
    PRESSURE = "pressure"
    RAMP = "ramp"
    QUARANTINE = "quarantine"
    OWN_LINE = "own_line"
    TURN = "turn"
    STARTING = "starting"
    UNNOTED = "unnoted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What is said of one reason. `label`: in a table of times; `words`: what holds it; `frees`: what would free it.

    `{name}` is a fact (of `name_s`: that moment), `{name|one|many}` a number with its noun, and a part in [ ] is left
    out when a fact of it is missing, empty or 0. `at_none`: words and what frees it where the limit is 0.
    """

    who: Who
    label: str
    words: str
    frees: str = ""
    at_none: tuple[str, str] | None = None


TABLE: dict[Code, Entry] = {
    Code.NO_DISPATCHER: Entry(
        who=Who.PERSON,
        label="No dispatcher",
        words="Nothing is started: no dispatcher leads[ since {since}].",
        frees="Another takes the lead within seconds, where one runs; else an operator starts one.",
    ),
    Code.HELD: Entry(
        who=Who.PERSON,
        label="Paused",
        words="Paused[ by {author}][ since {since}][: “{reason}”].",
        frees="It goes on when {lifts}.",
    ),
    Code.CHILDREN: Entry(
        who=Who.SYSTEM,
        label="Its children",
        words="It is waiting[ for {left|child|children}][ of {total}], and holds no slot meanwhile.",
        frees="It goes on when they have ended[, or {need} of all have succeeded].",
    ),
    Code.DEPENDENCIES: Entry(
        who=Who.SYSTEM,
        label="What it depends on",
        words="It is waiting for what it depends on[: {left|task|tasks} of its run][, {failed} of which ended without "
        "success].",
        frees="It gets in line when they have succeeded[; send the {failed} again that ended].",
    ),
    Code.VERSION: Entry(
        who=Who.PERSON,
        label="No worker knows its kind",
        words="No worker knows its kind in this version[: {reason}].",
        frees="It goes on by itself when a worker comes that does.",
    ),
    Code.UNANSWERED: Entry(
        who=Who.PERSON,
        label="Nobody decided",
        words="Nobody decided in time[ since {since}].",
        frees="It goes on when it is asked again and somebody decides.",
    ),
    Code.APPROVAL: Entry(
        who=Who.PERSON,
        label="A decision",
        words="It waits for a decision[ since {since}][: “{reason}”].",
        frees="It goes on when somebody has decided[, before {until}].",
    ),
    Code.NOT_BEFORE: Entry(
        who=Who.YOU,
        label="Not before its time",
        words="Planned for {until}.",
        frees="It gets in line then.",
    ),
    Code.DEFERRED: Entry(
        who=Who.SYSTEM,
        label="Deferred by admission",
        words="Deferred by admission[: {reason}].",
        frees="It gets in line when its predicted wait is within the target of its priority[, or at {until}].",
    ),
    Code.POSTPONED: Entry(
        who=Who.SYSTEM,
        label="Sent back for a while",
        words="What it needs had no room[: {reason}].",
        frees="It gets in line again at {until}; no attempt was spent.",
    ),
    Code.RETRY: Entry(
        who=Who.SYSTEM,
        label="Until it is tried again",
        words="It failed and is tried again[ at {until}][: {reason}].",
        frees="It gets in line then, or when somebody requeues it.",
    ),
    Code.PAUSED: Entry(
        who=Who.PERSON,
        label="Paused: {subject}",
        words="{what} is paused[ until {until}][ by {author}][ since {since}][: “{reason}”].",
        frees="It goes on when {lifts}[, or at {until}].",
    ),
    Code.NO_WORKER: Entry(
        who=Who.PERSON,
        label="No {subject} worker",
        words="No {pool} worker is running.",
        frees="It starts when an operator starts one.",
    ),
    Code.TOO_LARGE: Entry(
        who=Who.PERSON,
        label="More of {subject} than there is",
        words="It needs {needs} of {resource}, and {resource} gives {most} at most.",
        frees="It can't start before an operator gives {resource} more room.",
    ),
    Code.BREAKER: Entry(
        who=Who.SYSTEM,
        label="{subject} keeps failing",
        words="Calls to {resource} keep failing[ since {since}], so none is sent[ before {until}].",
        frees="It starts when a few calls, sent to try, have succeeded; no attempt is spent until then.",
    ),
    Code.BLOCKED: Entry(
        who=Who.SYSTEM,
        label="{subject} wants no calls",
        words="{resource} has asked to be sent nothing[ until {until}].",
        frees="It starts after that; no attempt is spent until then.",
    ),
    Code.RATE: Entry(
        who=Who.SYSTEM,
        label="Rate limit of {subject}",
        words="The rate limit of {resource} is used up[ until {until}].",
        frees="It starts when {resource} takes calls again; this eases by itself.",
    ),
    Code.BUDGET: Entry(
        who=Who.PERSON,
        label="The budget is spent",
        words="The {period}'s budget of ${limit} is spent.",
        frees="It starts when the {period} ends (UTC) or the budget is raised.",
        at_none=("The {period}'s budget is $0.", "It starts when the budget is raised."),
    ),
    Code.TENANT_CAP: Entry(
        who=Who.YOU,
        label="Your cap on tasks at once",
        words="You run {used} of your {limit} tasks at once.",
        frees="It starts when one of yours ends; an operator can give you more.",
        at_none=("Your cap is 0: nothing of yours is started.", "It starts when an operator gives you a cap above 0."),
    ),
    Code.RUN_CAP: Entry(
        who=Who.YOU,
        label="The run's cap on tasks at once",
        words="This run works on {used} of its {limit} tasks at once[: half of its {halved_of}, while the system is "
        "under pressure].",
        frees="It starts when one of the run's tasks ends.",
        at_none=("The cap of this run is 0: nothing of it is started.", "It starts when the run's cap is raised."),
    ),
    Code.QUOTA: Entry(
        who=Who.YOU,
        label="Your quota on {subject}",
        words="You hold {used} of your {limit} in {name} at once[, and it needs {needs}].",
        frees="It starts when one of yours there ends; an operator can give you more.",
        at_none=("Your quota on {name} is 0.", "It starts when an operator gives you a quota above 0."),
    ),
    Code.LIMITED: Entry(
        who=Who.SYSTEM,
        label="{subject} limited",
        words="{resource} is limited to {limit} at once[ since {since}][ by {author}], all in use.",
        frees="It starts when a place there is free; the limit rises as soon as {resource} can take more.",
        at_none=(
            "Nothing may use {resource} now[ since {since}][, says {author}].",
            "It starts when {resource} may be used again.",
        ),
    ),
    Code.RESOURCE: Entry(
        who=Who.SYSTEM,
        label="{subject} in full use",
        words="{resource} is in full use: {used} of {limit}[, and it needs {needs}].",
        frees="It starts when enough of {resource} is free; this eases by itself.",
    ),
    Code.RESERVED: Entry(
        who=Who.SYSTEM,
        label="{subject} kept for a larger task",
        words="What is free of {resource} is kept for a task that needs more of it and has waited longer.",
        frees="It starts when that one has got its places.",
    ),
    Code.SHARE: Entry(
        who=Who.YOU,
        label="Your most beside others",
        words="You hold {used} of the {limit|place|places} of {pool} that one tenant may hold beside others.",
        frees="It starts when one of yours there ends, or when nobody else has had work there for 10 min.",
    ),
    Code.FAN_OUT: Entry(
        who=Who.YOU,
        label="The run's most of long tasks beside others",
        words="The long tasks of this run hold as many places of {pool} as a run's may beside others.",
        frees="It starts when one of them ends.",
    ),
    Code.PRESSURE: Entry(
        who=Who.SYSTEM,
        label="Pressure",
        words="Its priority holds its part of {pool} while more urgent work waits there and the system is under "
        "pressure.",
        frees="It starts by its floor, when nothing more urgent waits, or when the pressure is over.",
    ),
    Code.RAMP: Entry(
        who=Who.SYSTEM,
        label="Back from a pause, step by step",
        words="{what} comes back from a pause, step by step.",
        frees=f"It starts when its share of the places has room; all are given back within {WHOLE_AFTER_S:g} s.",
    ),
    Code.QUARANTINE: Entry(
        who=Who.SYSTEM,
        label="A place in quarantine",
        words="It lost its worker {lost|time|times}, so it runs apart in quarantine[, which has {slots|place|places}].",
        frees="It starts when a place there is free.",
    ),
    Code.OWN_LINE: Entry(
        who=Who.YOU,
        label="Your own tasks before it",
        words="[{beyond} ]{ahead|of your own tasks comes|of your own tasks come} before it.",
        frees="They start as places in {pool} come free[, which go round {others|other tenant|other tenants} too].",
    ),
    Code.TURN: Entry(
        who=Who.SYSTEM,
        label="Its turn",
        words="It is the next of yours in its line[; {others|other tenant waits|other tenants wait} for {pool} too].",
        frees="It starts when it is its turn at a free place of {pool}[, which has {slots}]; the places go round.",
    ),
    Code.STARTING: Entry(who=Who.SYSTEM, label="Starting", words="It has a place and starts now."),
    Code.UNNOTED: Entry(who=Who.SYSTEM, label="Not noted", words="Nobody looked at that moment."),
}

_RANK = {code: rank for rank, code in enumerate(TABLE)}
_LIFTS = {"tenant": "you resume it", "operator": "an operator resumes it", "pressure": "the pressure has fallen"}
_WHO = {"tenant": Who.YOU, "operator": Who.PERSON, "pressure": Who.SYSTEM}
# Figures that move while the reason stays the same.
MOVING = frozenset({"left", "failed", "used", "others", "slots", "ahead", "beyond"})


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason. `facts` whose names end in `_s` are moments, in epoch seconds."""

    code: Code
    subject: str = ""
    facts: Mapping[str, Fact | None] | None = None

    @property
    def key(self) -> Key:
        """What makes it another reason: all but the figures that move."""
        facts = ((n, v) for n, v in sorted((self.facts or {}).items()) if v is not None and n not in MOVING)
        return (self.code, self.subject, tuple(facts))

    @property
    def rank(self) -> int:
        """Its place in the order: the smallest binds."""
        return _RANK[self.code]

    @property
    def who(self) -> Who:
        """Who can free it."""
        source = (self.facts or {}).get("source")
        return _WHO.get(str(source), TABLE[self.code].who)


@dataclass(frozen=True, slots=True)
class Told:
    """A reason in words: what holds the task, and what would free it."""

    words: str
    frees: str


def told(reason: Reason, at: Callable[[float], str]) -> Told:
    """Return a reason in words. `at` says a moment (epoch seconds).

    >>> cap = Reason(Code.TENANT_CAP, "", {"used": 5, "limit": 5})
    >>> told(cap, str).words
    'You run 5 of your 5 tasks at once.'
    >>> pause = {"what": "The pool browser", "author": "jo", "source": "operator", "reason": "it burns", "until_s": 9.0}
    >>> told(Reason(Code.PAUSED, "pool browser", pause), lambda s: f"{s:g}").words
    'The pool browser is paused until 9 by jo: “it burns”.'
    >>> told(Reason(Code.TURN, "", {"pool": "llm", "others": 1, "slots": 0}), str).words
    'It is the next of yours in its line; 1 other tenant waits for llm too.'
    """
    entry = TABLE[reason.code]
    facts: dict[str, str | int] = {"subject": reason.subject}
    for name, value in (reason.facts or {}).items():
        if value is not None and name.endswith("_s"):
            facts[name.removesuffix("_s")] = at(float(value))
        elif value is not None:
            facts[name] = value if isinstance(value, str | int) else money.shown(value).removeprefix("$")
    facts["lifts"] = _LIFTS.get(str(facts.get("source")), "somebody resumes it")
    none = entry.at_none if (reason.facts or {}).get("limit") == 0 else None
    words, frees = none or (entry.words, entry.frees)
    return Told(_filled(words, facts), _filled(frees, facts))


def label(code: Code, subject: str) -> str:
    """Return a reason's name for a table of times.

    >>> label(Code.RESOURCE, "browser"), label(Code.TURN, "")
    ('browser in full use', 'Its turn')
    """
    return TABLE[code].label.replace("{subject}", subject)


def _filled(template: str, facts: Mapping[str, str | int]) -> str:
    def part(found: re.Match[str]) -> str:
        whole = all(facts.get(name[1]) for name in _NAME.finditer(found[1]))
        return found[1] if whole else ""

    def fact(found: re.Match[str]) -> str:
        value = facts.get(found[1], "")
        said = f"{value:,}" if isinstance(value, int) else value
        return said if found[2] is None else f"{said} {found[2] if value == 1 else found[3]}"

    return _NAME.sub(fact, _PART.sub(part, template))
