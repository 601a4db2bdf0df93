"""How the provider behaves: plain values with their bounds, no network. Every one can change while it runs."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.policy.errors import Invalid

RETRY_AFTER = ("seconds", "date", "none", "day", "negative", "words")
RATE_HEADERS = ("true", "none", "absurd")


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """What can be set; `SETTINGS` says what each means.

    The rate limits are always there, so that their headers are too: at the defaults no client of this machine can
    reach them.
    """

    quota: int = 50
    noise_ratio: float = 0.0
    noise_every_s: float = 15.0
    rpm: int = 1_000_000
    tpm: int = 1_000_000_000
    burst_s: float = 60.0
    reserve_max_tokens: bool = False
    latency_s: float = 0.5
    sigma: float = 0.0
    inflation: float = 1.0
    inflation_from: float = 0.8
    inflation_full: float = 1.0
    slow_from: int = 0
    first_token_ratio: float = 0.25
    retry_after_s: float = 1.0
    retry_after: str = "seconds"
    rate_headers: str = "true"
    hide_usage: bool = False
    refusal_latency_s: float = 0.0
    penalty_s: float = 0.0
    penalty_max_s: float = 60.0
    down: bool = False
    error_rate: float = 0.0
    error_status: int = 500
    hang_rate: float = 0.0
    hang_s: float = 600.0
    drop_rate: float = 0.0
    cut_rate: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The bounds of a number (beyond them is a slip of the pen, not a provider) or its words; and what it means."""

    least: float = 0.0
    most: float = 1.0
    choices: tuple[str, ...] = ()
    about: str


SETTINGS: dict[str, Setting] = {
    "quota": Setting(most=100_000, about="calls at a time; one more gets 429"),
    "noise_ratio": Setting(most=0.9, about="others use the key: the quota wanders by up to this share; 0: it doesn't"),
    "noise_every_s": Setting(least=0.01, most=3600, about="how often the wandering quota is drawn anew"),
    "rpm": Setting(most=1e9, about="requests a minute, a bucket that refills all the time; 0 lets none in"),
    "tpm": Setting(most=1e12, about="tokens a minute, prompt and answer, the same way"),
    "burst_s": Setting(least=0.001, most=3600, about="size of both buckets, in seconds of their rate"),
    "reserve_max_tokens": Setting(most=1, about="charge tpm with max_tokens instead of the answer's real tokens"),
    "latency_s": Setting(most=600, about="median seconds that an answer takes"),
    "sigma": Setting(most=3, about="spread of the lognormal latency; 0: constant"),
    "inflation": Setting(least=1, most=100, about="factor on the latency when the quota is used up; 1: none"),
    "inflation_from": Setting(most=1, about="share of the quota in use where inflation begins"),
    "inflation_full": Setting(most=1, about="share where it is complete; in between it grows in a line"),
    "slow_from": Setting(most=100_000, about="above so many calls at a time all take longer in proportion; 0: none"),
    "first_token_ratio": Setting(most=1, about="share of the latency before a stream's first token"),
    "retry_after_s": Setting(most=3600, about="what a 429 for the quota asks to wait; for rates it is the true wait"),
    "retry_after": Setting(choices=RETRY_AFTER, about="how Retry-After is written; the last three are absurd"),
    "rate_headers": Setting(choices=RATE_HEADERS, about="the x-ratelimit-* headers of every answer"),
    "hide_usage": Setting(about="leave the usage out of answers"),
    "refusal_latency_s": Setting(most=600, about="seconds until a 429 or 5xx is answered"),
    "penalty_s": Setting(most=3600, about="a call before Retry-After is over makes it this much longer; 0: off"),
    "penalty_max_s": Setting(most=86_400, about="the longest wait that hammering can earn"),
    "down": Setting(about="every call ends in error_status, also those under way, and none takes a place"),
    "error_rate": Setting(most=1, about="share of accepted calls that end in error_status"),
    "error_status": Setting(least=500, most=599, about="status of those"),
    "hang_rate": Setting(most=1, about="share that is never answered; the place is free when the client leaves"),
    "hang_s": Setting(most=86_400, about="after so long a hanging connection is dropped"),
    "drop_rate": Setting(most=1, about="share whose connection is dropped instead of an answer"),
    "cut_rate": Setting(most=1, about="share whose answer or stream breaks off in the middle"),
}
_TYPES: dict[str, Any] = {field.name: type(field.default) for field in dataclasses.fields(Behaviour)}


def changed(current: Behaviour, wanted: Mapping[str, object]) -> Behaviour:
    """Return `current` with the named settings replaced: all of them, or none.

    >>> changed(Behaviour(), {"quota": 3}).quota
    3

    Raises: Invalid naming the field.
    """
    values: dict[str, Any] = {name: _checked(name, value) for name, value in wanted.items()}
    after = dataclasses.replace(current, **values)
    if after.error_rate + after.hang_rate + after.drop_rate + after.cut_rate > 1 + 1e-9:
        name = next((name for name in values if name.endswith("_rate")), "error_rate")
        raise Invalid(f"{name}: error_rate, hang_rate, drop_rate and cut_rate may add up to 1 at most", field=name)
    if after.inflation_from > after.inflation_full:
        raise Invalid("inflation_from must not lie above inflation_full", field="inflation_from")
    return after


def _checked(name: str, value: object) -> bool | int | float | str:
    setting, type_ = SETTINGS.get(name), _TYPES.get(name)
    if setting is None:
        raise Invalid(f"unknown setting {name!r}: there are {', '.join(SETTINGS)}", field=name)
    if type_ is bool:
        if not isinstance(value, bool):
            raise Invalid(f"{name} must be true or false, not {value!r}", field=name)
        return value
    if setting.choices:
        if not isinstance(value, str) or value not in setting.choices:
            raise Invalid(f"{name} must be one of {', '.join(setting.choices)}, not {value!r}", field=name)
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise Invalid(f"{name} must be a number, not {value!r}", field=name)
    if not setting.least <= value <= setting.most:
        raise Invalid(f"{name} must lie between {setting.least:g} and {setting.most:g}, not {value!r}", field=name)
    if type_ is int:
        if value != int(value):
            raise Invalid(f"{name} must be a whole number, not {value!r}", field=name)
        return int(value)
    return float(value)


def _is_finite(value: float) -> bool:
    # A whole number beyond any float is as finite as they come; the bounds refuse it.
    return isinstance(value, int) or math.isfinite(value)
