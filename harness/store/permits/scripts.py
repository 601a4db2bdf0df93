"""The permit scripts as Redis gets them: the parts that each needs, with policy's constants and the places of fields.

Redis makes a script's functions anew at each call. Those of `_AT_ONCE` are made at its beginning, those of any other
part when the first of them is called: few calls need what a refusal does, or the steps of a limiter that isn't there.

`$module.NAME` in a script is the constant of that name in that module of policy, so that each number stands once;
`st.NAME` and `cfg.NAME` are fields of the lists of numbers that a resource's state and configuration are. A name that
nothing has stops the process at its start.
"""

import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from types import ModuleType
from typing import Final

from harness.policy import breaker, bucket, desk, permits, retry_budget
from harness.policy.bucket import Bucket
from harness.policy.limits import aimd, csl, gradient, guard, state
from harness.policy.limits.guard import Guard
from harness.policy.limits.state import State
from harness.policy.permits import Ask, Report, score
from harness.policy.resources import LIMITERS, Live
from harness.policy.retry_budget import Budget
from harness.store import lua

Argument = str | int | float | bytes

# What is made at once beside `core`: (nearly) each call needs it.
_AT_ONCE: Final[dict[str, tuple[str, ...]]] = {
    "acquire": ("limits", "budget", "asking"),
    "finish": ("reports",),
    **dict.fromkeys(("give_up", "ended", "renew", "register", "read", "retry"), ()),
}
# What is made when it is needed, in the order of how often.
_LATER: Final = (
    "budget", "rates", "limits", "ticks", "outcomes", "csl", "changes", "wake", "sweep", "breaker", "window", "drops",
    "guard", "aside", "reports",
)  # fmt: skip
NAMES: Final = tuple(_AT_ONCE)
# The state of a resource, in this order; the limiter's fields have their own names.
FIELDS: Final = (
    "born_s",
    "sweep_s",
    "door_s",
    "door",
    "head_s",
    "head",
    "stop_s",
    "waited",  # 0: nobody waits in the line
    *(one.name for one in fields(State)),
    "b_mode",
    "b_since_s",
    "b_until_s",
    "b_k",
    "b_streak",
    *(f"b_probes_s{number or ''}" for number in range(breaker.PROBES)),
    *(f"{which}_{one.name}" for which in "rt" for one in fields(Bucket)),
    *(f"u_{one.name}" for one in fields(Budget)),
    "g_window_s",
    "g_calls",
    # Of the breaker's window: the bucket that counts now, what it counts, and the sums of the others.
    "w_number",
    "w_calls",
    "w_failures",
    "w_calls_before",
    "w_failures_before",
)
# What the latency guard keeps beside its window, then the bins of the day.
GUARD: Final = tuple(one.name for one in fields(Guard) if one.name not in ("window_s", "calls", "window", "day"))
CONFIG: Final = (
    "capacity",
    "limiter",
    "floor",
    "ceiling",
    "start",
    "rpm",
    "tpm",
    "breaker",
    "ttl_s",
    "reserve",
    "ratio",
    "per_s",
    "proven",
    "cap",
    "tokens",
    "birth",
    # Places for what `acquire` finds out: seconds that one request and one token cost, and tokens charged.
    "rpm_unit_s",
    "tpm_unit_s",
    "charged",
)
QUESTION: Final = ("priority", "place", "since_s", "waits", "again", "first")
REPORT: Final = (
    "jitter",
    "about",
    "outcome",
    "retry_after_s",
    "rate",
    "overload",
    "failure",
    "timed_out",
    "latency_s",
    "bin",
    "headers",
    "requests",
    "requests_left",
    "tokens",
    "tokens_left",
)
# Names what the state's fields are.
_LAYOUT: Final = f"{zlib.crc32(','.join(FIELDS).encode()):08x}"
STATE: Final = f":state:{_LAYOUT}"
_OUTCOMES = ("success", "ignore", "drop")
_WINDOW = 2 * breaker.BUCKETS


def _format(size: int) -> str:
    return "<" + size * "d"


_PLAIN = struct.Struct(_format(len(CONFIG) - 6))
_ASKED_OF = struct.Struct(_format(6))
_QUESTION = struct.Struct(_format(len(QUESTION)))
_REPORT = struct.Struct(_format(len(REPORT)))
_TIME = struct.Struct(_format(1))
NOTHING_ASKED: Final = _ASKED_OF.pack(-1.0, -1.0, 0.0, 0.0, 0.0, 0.0)


_NAMED: Final[dict[str, dict[str, str]]] = {
    "state_of": {
        "SIZE": str(len(FIELDS)),
        "FORMAT": _format(len(FIELDS)),
        "LAYOUT": _LAYOUT,
    },
    "config_of": {"FORMAT": _format(len(CONFIG))},
    "question_of": {"FORMAT": _format(len(QUESTION))},
    "report_of": {"FORMAT": _format(len(REPORT))},
    "outcome": {name: str(number) for number, name in enumerate(_OUTCOMES)},
    "window_of": {"SIZE": str(_WINDOW), "FORMAT": _format(_WINDOW)},
    "guard_of": {
        "SIZE": str(len(GUARD) + guard.BINS),
        "FORMAT": _format(len(GUARD) + guard.BINS),
        "BINS_AT": str(len(GUARD)),
        "CUTS": ", ".join(map(repr, guard.CUTS)),
        "CUTS_NUMBER": str(len(guard.CUTS)),
    },
    "how": {name: str(number) for number, name in enumerate(LIMITERS)},
    "at": {name: str(number) for number, name in enumerate(FIELDS, start=1)},
}
_MODULES: Final[dict[str, ModuleType]] = {
    module.__name__.rpartition(".")[2]: module
    for module in (aimd, breaker, bucket, csl, desk, gradient, guard, permits, retry_budget, state)
}
_CONSTANT = re.compile(r"\$(\w+)\.(\w+)")
_FIELD = re.compile(r"(?<![\w.$])(st|states\[\w+\]|cfg|g|q|rep)\.(\w+)")
_DEFINED = re.compile(r"^function P\.(\w+)", re.MULTILINE)
_CALLED = re.compile(r"(?<![\w.])P\.(\w+)")
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


@cache
def text(name: str) -> str:
    """Return a whole script. Raises: AttributeError, KeyError, ValueError for a name that nothing has."""
    at_once = ("core", *_AT_ONCE[name])
    later = [f"if {_one_of(_defined(part))} then\n{_part(part)}" for part in _needed_later(name, at_once)]
    make = "\nelse".join(later) + "\nend"
    parts = map(_part, (*at_once, name))
    return "\n".join(
        ("local P = setmetatable({}, {__index = function(P, name)", make, "return rawget(P, name)", "end})", *parts)
    )


def key(resource: str) -> str:
    """Return a resource's key."""
    return permits.PREFIX + resource


def config(live: Live) -> bytes:
    """Return what scripts have to know of a resource as it is configured now; `asked_of` must follow it."""
    one = live.resource
    return _PLAIN.pack(
        one.capacity,
        LIMITERS.index(one.limiter),
        one.floor,
        max(1, one.capacity),
        one.start or 0,
        one.rpm or 0.0,
        one.tpm or 0.0,
        one.breaker,
        one.permit_ttl_s,
        one.p0_reserve,
        one.retry_ratio,
        one.retry_per_s,
        live.proven or 0,
    )


def asked_of(cap: int | None, tokens: float, birth: float) -> bytes:
    """Return what a call says of one resource: its tenant's cap, its tokens, and the birth that its process knows."""
    return _ASKED_OF.pack(-1 if cap is None else cap, tokens, birth, 0.0, 0.0, 0.0)


def question(ask: Ask, *, again: bool) -> bytes:
    """Return what a call asks, for `acquire`; `again`: it may have been given already."""
    place = score(ask.priority, ask.calls_done, ask.since_s)
    return _QUESTION.pack(ask.priority, place, ask.since_s, ask.waits, again, ask.first)


def report(told: Report, *, about: int, jitter: float) -> bytes:
    """Return how a call ended, for `finish`; `about`: the number of the resource that answered, from 1."""
    said, latency_s = told.headers, told.latency_s
    requests_left = said.remaining_requests if said else None
    tokens_left = said.remaining_tokens if said else None
    return _REPORT.pack(
        jitter,
        about,
        _OUTCOMES.index(told.outcome),
        told.retry_after_s,
        told.rate,
        told.overload,
        told.failure,
        told.timed_out,
        latency_s,
        guard.bin_of(latency_s) if latency_s > 0 else -1,
        said is not None,
        (said.limit_requests or 0) if said else 0,
        -1 if requests_left is None else requests_left,
        (said.limit_tokens or 0) if said else 0,
        -1 if tokens_left is None else tokens_left,
    )


def moment(packed: bytes) -> float:
    """Return a time of an answer, in epoch seconds."""
    found: float = _TIME.unpack(packed)[0]
    return found


@cache
def _part(name: str) -> str:
    """Return a part with the constants and places written in."""
    part = _COMMENT.sub("", lua.load(f"permit_{name}"))
    part = _CONSTANT.sub(lambda found: _constant(found[1], found[2]), part)
    return _FIELD.sub(lambda found: f"{found[1]}[{_place(found[1], found[2])}]", part)


def _defined(part: str) -> list[str]:
    return _DEFINED.findall(_part(part))


def _one_of(functions: Sequence[str]) -> str:
    return " or ".join(f"name == '{function}'" for function in functions)


def _needed_later(name: str, at_once: Sequence[str]) -> list[str]:
    """Return the other parts whose functions a script may call, through others too, in the order of _LATER."""
    home = {function: part for part in (*_LATER, *at_once, name) for function in _defined(part)}
    found, ahead = {*at_once, name}, [*at_once, name]
    while ahead:
        more = {home[function] for function in _CALLED.findall(_part(ahead.pop()))} - found
        found |= more
        ahead += more
    return [part for part in _LATER if part in found and part not in at_once]


def _constant(module: str, name: str) -> str:
    if module in _NAMED:
        return _NAMED[module][name]
    value = getattr(_MODULES[module], name)
    return value if isinstance(value, str) else repr(value)  # the same double in Lua


def _place(owner: str, name: str) -> int:
    """Lua counts from 1."""
    return {"cfg": CONFIG, "g": GUARD, "q": QUESTION, "rep": REPORT}.get(owner, FIELDS).index(name) + 1
