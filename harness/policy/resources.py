"""Resources: downstreams with a capacity, as resources.toml and operators' overrides describe them. Frozen values.

Does no I/O. One rule a field judges the file and the overrides alike: the file is refused by the key that makes no
sense, an override by its field. What is in force already is never refused: where the file has moved under an override,
the operator's value holds and what contradicts it gives way (`in_force`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from harness.policy.errors import Invalid
from harness.policy.limits import STRATEGIES
from harness.policy.toml import TomlFile

LIMITERS = tuple(STRATEGIES)
CAPACITY_MOST = 100_000
RATE_LEAST, RATE_MOST = 0.01, 1e9  # a minute: below, a call would wait for hours; above, a slip of the pen
TIMEOUT_LEAST_S, TIMEOUT_MOST_S = 0.1, 86_400.0
PERMIT_MARGIN_S = 5.0  # a permit outlives its call's time-out by so much
RETRY_RATIO_MOST, RETRY_PER_S_MOST = 1.0, 1000.0
TENANT_CAP_MOST = 2**31 - 2

Value = int | float | bool | str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """A downstream. `capacity`: how many may use it at once; of an adaptive limiter the ceiling.

    Only `capacity` and `tenant_cap` mean something of one that is held by tasks, and `floor` and `start` only with an
    adaptive limiter. `rpm`, `tpm`: requests and tokens a minute, None: no such limit. `p0_reserve`: places that only P0
    gets. `retry_ratio`, `retry_per_s`: the retry budget (retries per first attempt, and retries a second beside them).
    """

    name: str
    held: Literal["task", "call"]
    capacity: int
    limiter: str = "fixed"
    floor: int = 1
    start: int | None = None
    rpm: float | None = None
    tpm: float | None = None
    breaker: bool = True
    timeout_s: float = 60.0
    p0_reserve: int = 0
    retry_ratio: float = 0.1
    retry_per_s: float = 0.5
    tenant_cap: int | None = None

    @property
    def adaptive(self) -> bool:
        """Whether its limit is learned."""
        return self.held == "call" and self.limiter != "fixed"

    @property
    def permit_ttl_s(self) -> float:
        """How long a permit lives that nobody ends, in seconds."""
        return self.timeout_s + PERMIT_MARGIN_S


@dataclass(frozen=True, kw_only=True, slots=True)
class Override:
    """An operator's change of one field, with why; moments in epoch seconds."""

    value: Value
    author: str = ""
    reason: str = ""
    created_s: float = 0.0
    until_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Live:
    """A resource as it is now: overrides applied, and what the database keeps of its limit and of tenants' quotas.

    `proven`, `limit_now`: None before anything was kept. `quotas`: caps by tenant. `overrides`: those in force.
    """

    resource: Resource
    proven: int | None = None
    limit_now: int | None = None
    quotas: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    overrides: Mapping[str, Override] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def limit(self) -> int:
        """How many may use it at once, as last kept; a fixed limit is its capacity. Never beyond its capacity."""
        fixed = self.resource.held == "call" and not self.resource.adaptive
        if fixed or self.limit_now is None:
            return self.resource.capacity
        return min(self.limit_now, self.resource.capacity)

    def tenant_cap(self, tenant: int) -> int | None:
        """Return how many of it a tenant may hold at once: its quota, else the resource's own cap. None: any number.

        >>> live = Live(resource=Resource(name="x", held="call", capacity=9, tenant_cap=4), quotas={7: 2})
        >>> live.tenant_cap(7), live.tenant_cap(8)
        (2, 4)
        """
        return self.quotas.get(tenant, self.resource.tenant_cap)


@dataclass(frozen=True, slots=True)
class _Field:
    """What a field may be: `judge` returns the value, or says in a ValueError what it must be."""

    judge: Callable[[object], Value]
    optional: bool = False  # None, "none" in an override: no such limit
    task: bool = False  # means something of a resource held by tasks


def _whole(least: int, most: int) -> Callable[[object], Value]:
    def judge(value: object) -> Value:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"must be a whole number from {least} to {most:,}")
        return value

    return judge


def _number(least: float, most: float, unit: str) -> Callable[[object], Value]:
    def judge(value: object) -> Value:
        fits = isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
        if not fits:  # NaN is within no bounds
            raise ValueError(f"must be a number of {unit} from {least:g} to {most:,.0f}")
        return float(value)  # type: ignore[arg-type]  # `fits` says so

    return judge


def _truth(value: object) -> Value:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _limiter(value: object) -> Value:
    if value not in LIMITERS:
        raise ValueError(f"must be one of {', '.join(LIMITERS)}")
    return str(value)


FIELDS: Mapping[str, _Field] = {
    "capacity": _Field(_whole(1, CAPACITY_MOST), task=True),
    "limiter": _Field(_limiter),
    "floor": _Field(_whole(1, CAPACITY_MOST)),
    "start": _Field(_whole(1, CAPACITY_MOST), optional=True),
    "rpm": _Field(_number(RATE_LEAST, RATE_MOST, "requests a minute"), optional=True),
    "tpm": _Field(_number(RATE_LEAST, RATE_MOST, "tokens a minute"), optional=True),
    "breaker": _Field(_truth),
    "timeout_s": _Field(_number(TIMEOUT_LEAST_S, TIMEOUT_MOST_S, "seconds")),
    "p0_reserve": _Field(_whole(0, CAPACITY_MOST)),
    "retry_ratio": _Field(_number(0.0, RETRY_RATIO_MOST, "retries per first attempt")),
    "retry_per_s": _Field(_number(0.0, RETRY_PER_S_MOST, "retries a second")),
    "tenant_cap": _Field(_whole(0, TENANT_CAP_MOST), optional=True, task=True),
}
_FILE = TomlFile("resources.toml")


def parse(name: str, table: Mapping[str, object]) -> Resource:
    """Build one resource from its table of resources.toml. Raises: Invalid naming the key."""
    at = f"resources.{name}."
    if not name or "," in name or "=" in name or any(ch.isspace() or not ch.isprintable() for ch in name):
        _FILE.refuse(
            f"resources.{name}", "must be named without spaces, ',' and '=' (they separate a resource signature)"
        )
    held = table.get("held")
    if held != "task" and held != "call":
        _FILE.refuse(at + "held", f'must be "task" or "call", not {held!r}')
    for key in table:
        if held == "task" and key in FIELDS and not FIELDS[key].task:
            _FILE.refuse(at + key, 'is for resources with held = "call"; what tasks hold is a number, so leave it out')
    _FILE.only(table, {"held", *fields_of(held)}, at)
    if "capacity" not in table:
        _FILE.refuse(at + "capacity", "is missing: a resource without a limit protects nothing; say how many at once")
    values: dict[str, Any] = {}
    for key in fields_of(held):
        if key in table:
            try:
                values[key] = FIELDS[key].judge(table[key])
            except ValueError as error:
                _FILE.refuse(at + key, f"{error}, not {table[key]!r}")
    if held == "task":
        values["breaker"] = False
    resource = Resource(name=name, held=held, **values)
    if "p0_reserve" not in values:
        resource = replace(resource, p0_reserve=_usual_reserve(resource))
    if wrong := _contradiction(resource):
        _FILE.refuse(at + wrong[0], wrong[1])
    return resource


def fields_of(held: Literal["task", "call"]) -> tuple[str, ...]:
    """Return the fields that mean something of a resource held so; the order in which people see them.

    >>> fields_of("task")
    ('capacity', 'tenant_cap')
    """
    return tuple(name for name, one in FIELDS.items() if held == "call" or one.task)


def read(text: str) -> Value:
    """Return what an operator wrote as a value: a number, on or off, none, or the word itself.

    >>> read("20"), read("0.5"), read("none"), read("off"), read("csl"), read("1_000")
    (20, 0.5, None, False, 'csl', 1000)
    """
    word = text.strip()
    said: Mapping[str, Value] = {"none": None, "true": True, "on": True, "false": False, "off": False}
    if word.lower() in said:
        return said[word.lower()]
    for number in (int, float):
        try:
            return number(word.replace(",", ""))
        except ValueError:
            continue
    return word


def checked(resource: Resource, changes: Mapping[str, Value]) -> dict[str, Value]:
    """Return an operator's changes of a resource as they will be kept; `resource`: as it would be without them.

    A capacity of 0 is allowed here alone: nothing uses the resource until that ends.
    Raises: Invalid naming the resource and the field.
    """
    found: dict[str, Value] = {}
    for key, value in changes.items():
        if key not in fields_of(resource.held):
            _refuse(resource, key, f"can't be set; of this resource one can set {', '.join(fields_of(resource.held))}")
        found[key] = _judged(resource, key, value)
    if wrong := _contradiction(_applied(resource, found)):
        _refuse(resource, *wrong)
    return found


def in_force(resource: Resource, overrides: Mapping[str, Value]) -> Resource:
    """Return a configured resource with the overrides that it has.

    Never refuses: a field or value that is no longer known is left out, and what contradicts the capacity gives way.

    >>> configured = Resource(name="x", held="call", capacity=50, limiter="csl", floor=8)
    >>> in_force(configured, {"capacity": 4, "colour": 1}).floor
    4
    """
    known = {}
    for key, value in overrides.items():
        if key in fields_of(resource.held):
            try:
                known[key] = _judged(resource, key, value)
            except Invalid:
                continue
    applied = _applied(resource, known)
    capacity = applied.capacity
    floor = min(applied.floor, max(capacity, 1))
    return replace(
        applied,
        floor=floor,
        start=None if applied.start is None else max(floor, min(applied.start, max(capacity, 1))),
        p0_reserve=min(applied.p0_reserve, max(capacity - 1, 0)),
    )


def _judged(resource: Resource, key: str, value: Value) -> Value:
    rule = FIELDS[key]
    if (value is None and rule.optional) or (key == "capacity" and value == 0 and type(value) is int):
        return value
    try:
        return rule.judge(value)
    except ValueError as error:
        none = (
            ", or none for no such limit" if rule.optional else ", or 0: nothing uses it" if key == "capacity" else ""
        )
        _refuse(resource, key, f"{error}{none}, not {'none' if value is None else value}")


def _applied(resource: Resource, changes: Mapping[str, Value]) -> Resource:
    """Apply changes. Nothing adapts at capacity 0; a usual P0 reserve follows the limiter, a start its bounds."""
    values: dict[str, Any] = dict(changes)
    changed = replace(resource, **values)
    if changed.capacity == 0:
        return replace(changed, limiter="fixed", p0_reserve=0)
    if changed.start is not None and "start" not in changes:
        changed = replace(changed, start=max(changed.floor, min(changed.start, changed.capacity)))
    if "p0_reserve" not in changes and resource.p0_reserve == _usual_reserve(resource):
        return replace(changed, p0_reserve=_usual_reserve(changed))
    return changed


def _usual_reserve(resource: Resource) -> int:
    return 1 if resource.adaptive and resource.capacity > 1 else 0


def _contradiction(resource: Resource) -> tuple[str, str] | None:
    """Return the field that contradicts another one, and the fix."""
    most = resource.capacity
    if resource.adaptive and resource.floor > most:
        return "floor", f"must not exceed capacity ({most}), not {resource.floor}: lower it, too"
    if resource.adaptive and resource.start is not None and not resource.floor <= resource.start <= most:
        return "start", f"must be from floor ({resource.floor}) to capacity ({most}), not {resource.start}"
    if most and resource.p0_reserve >= most:
        return "p0_reserve", f"must be below capacity ({most}), not {resource.p0_reserve}: others need a place as well"
    return None


def _refuse(resource: Resource, key: str, why: str) -> NoReturn:
    raise Invalid(f"{resource.name}: {key} {why}", field=key)
