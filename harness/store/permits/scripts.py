"""The permit scripts as Redis gets them: the parts that each needs, with policy's constants and the places of fields.

`$module.NAME` in a script is the constant of that name in that module of policy, so that each number stands once;
`st.NAME` and `cfg.NAME` are fields of the lists of numbers that a resource's state and configuration are. A name that
nothing has stops the process at its start.
"""

import re
import struct
import zlib
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

_ASKED: Final = ("core", "limits", "rates", "breaker", "desk", "asking")
_TOLD: Final = ("core", "limits", "outcomes", "desk", "reports")
_PARTS: Final = {
    "acquire": _ASKED,
    "finish": _TOLD,
    "give_up": _TOLD,
    "ended": _TOLD,
    "renew": ("core",),
    "register": ("core", "limits", "desk"),
    "read": (*_ASKED, "guard"),
    "retry": ("core", "limits", "rates", "desk"),
}
NAMES: Final = tuple(_PARTS)
# The state of a resource, in this order; the limiter's fields have their own names.
FIELDS: Final = (
    "born_s",
    "sweep_s",
    "door_s",
    "door",
    "head_s",
    "head",
    "stop_s",
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
STATE: Final = f":state:{zlib.crc32(','.join(FIELDS).encode()):08x}"
_OUTCOMES = ("success", "ignore", "drop")
_WINDOW = 1 + 3 * breaker.BUCKETS


def _format(size: int) -> str:
    return "<" + size * "d"


_PLAIN = struct.Struct(_format(len(CONFIG) - 3))
_ASKED_OF = struct.Struct(_format(3))
_QUESTION = struct.Struct(_format(len(QUESTION)))
_REPORT = struct.Struct(_format(len(REPORT)))
NOTHING_ASKED: Final = _ASKED_OF.pack(-1.0, -1.0, 0.0)


_NAMED: Final[dict[str, dict[str, str]]] = {
    "state_of": {
        "SIZE": str(len(FIELDS)),
        "FORMAT": _format(len(FIELDS)),
        "SUFFIX": STATE,
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
_COMMENT = re.compile(r"^\s*--.*$", re.MULTILINE)


@cache
def text(name: str) -> str:
    """Return a whole script. Raises: AttributeError, KeyError, ValueError for a name that nothing has."""
    parts = "\n".join(lua.load(f"permit_{part}") for part in (*_PARTS[name], name))
    parts = _CONSTANT.sub(lambda found: _constant(found[1], found[2]), _COMMENT.sub("", parts))
    return _FIELD.sub(lambda found: f"{found[1]}[{_place(found[1], found[2])}]", parts)


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
    return _ASKED_OF.pack(-1 if cap is None else cap, tokens, birth)


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


def _constant(module: str, name: str) -> str:
    if module in _NAMED:
        return _NAMED[module][name]
    value = getattr(_MODULES[module], name)
    return value if isinstance(value, str) else repr(value)  # the same double in Lua


def _place(owner: str, name: str) -> int:
    """Lua counts from 1."""
    return {"cfg": CONFIG, "g": GUARD, "q": QUESTION, "rep": REPORT}.get(owner, FIELDS).index(name) + 1
