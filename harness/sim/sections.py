"""Reads the sections of a scenario one by one: a table of TOML, and the value that it is. No file, no defaults hidden.

Invariants: every key is asked for, every name that is used is declared.
"""

from collections.abc import Mapping
from math import log

from harness.policy.errors import ErrorClass
from harness.policy.resources import LIMITERS
from harness.sim.scenario import (
    Breaker,
    Dispatcher,
    Expect,
    Kind,
    Law,
    Loss,
    Measure,
    Pause,
    Phase,
    Provider,
    Said,
    Steps,
    TenantGroup,
    Work,
)
from harness.sim.table import Table

CLASSES = ("p0", "p1", "p2", "p3")
SAID = ("db_connection_usage", "db_pool_wait", "http_pool_wait")  # signals that a world has nothing to read from


def kind(
    name: str,
    table: Table,
    pools: Mapping[str, Steps],
    resources: Mapping[str, Steps],
    providers: Mapping[str, Provider],
) -> Kind:
    """Read a kind of work."""
    law = table.text("law", "fixed", among=("fixed", "exponential", "lognormal"))
    mean_s = table.number("mean_s", above=0)
    sigma = table.number("sigma", 0.0)
    if (law == "lognormal") != (sigma > 0):
        table.refuse("sigma", 'must be above 0 with law = "lognormal", and is of no use with another')
    needs = table.table("needs", {})
    numbers = {one: needs.whole(one, least=1) for one in sorted(needs.names())}
    for resource in numbers:
        declared(needs, resource, resource, resources, "resources")
    calls = table.text("calls", "")
    if calls:
        numbers[declared(table, "calls", calls, providers, "providers")] = 1
    call_ratio = table.number("call_ratio", 1.0, above=0)
    if call_ratio > 1.0:
        table.refuse("call_ratio", "must be at most 1: the share of its time that its call takes")
    failures = table.table("failures", {})
    shares = tuple(
        (ErrorClass(one), failures.number(one))
        if one in list(ErrorClass)
        else failures.refuse(one, f"is no class of errors; they are {', '.join(ErrorClass)}")
        for one in failures.names()
    )
    if sum(share for _, share in shares) > 1:
        table.refuse("failures", "must add up to at most 1")
    kind = Kind(
        name=name,
        pool=declared(table, "pool", table.text("pool"), pools, "pools"),
        signature=",".join(f"{one}={n}" for one, n in sorted(numbers.items())),
        law=Law(name=law, mean_s=mean_s, mu=log(mean_s) - sigma * sigma / 2, sigma=sigma),  # type: ignore[arg-type]  # `among`
        est_s=table.number("est_s", mean_s, above=0),
        bundle=table.flag("bundle", default=False),
        timeout_s=table.number("timeout_s", above=0) if table.has("timeout_s") else None,
        zombie_s=table.number("zombie_s", 0.0),
        max_attempts=table.whole("max_attempts", 4, least=1),
        failures=shares,
        retry_after_s=table.number("retry_after_s") if table.has("retry_after_s") else None,
        calls=calls,
        call_ratio=call_ratio,
    )
    table.done()
    return kind


def work(table: Table, kinds: Mapping[str, Kind], tenants: Mapping[str, TenantGroup], duration_s: float) -> Work:
    """Read what a group submits."""
    law = table.text("arrivals", among=("poisson", "every", "at"))
    at_s: tuple[float, ...] = ()
    if law == "at":
        value = table.any("at_s", 0)
        value = value if isinstance(value, list) else [value]
        if not value or not all(isinstance(one, int | float) and one >= 0 for one in value) or value != sorted(value):
            table.refuse("at_s", "must be a second, or an array of them in order")
        at_s = tuple(float(one) for one in value)
    names = table.texts("kind")
    work = Work(
        tenants=declared(table, "tenants", table.text("tenants"), tenants, "tenants"),
        kinds=tuple(declared(table, "kind", name, kinds, "kinds") for name in names),
        priority=CLASSES.index(table.text("priority", "p2", among=CLASSES)),
        law=law,  # type: ignore[arg-type]  # checked by `among`
        rate_per_s=table.number("rate_per_s", above=0) if law == "poisson" else 0.0,
        every_s=table.number("every_s", above=0) if law == "every" else 0.0,
        at_s=at_s,
        from_s=table.number("from_s", 0.0),
        until_s=table.number("until_s", duration_s, above=0),
        batch=table.whole("batch", 1, least=1),
        as_run=table.flag("run", default=False),
        fanout_cap=table.whole("fanout_cap") if table.has("fanout_cap") else None,
        skew=table.number("skew", 0.0),
        deadline_s=table.number("deadline_s", above=0) if table.has("deadline_s") else None,
    )
    if work.fanout_cap is not None and not work.as_run:
        table.refuse("fanout_cap", "is a run's: say run = true")
    table.done()
    return work


def provider(name: str, table: Table, resources: Mapping[str, Steps]) -> Provider:
    """Read a provider and the limit before it."""
    if name in resources or "," in name or "=" in name:
        table.refuse("", "must have a name of its own, without ',' and '='")
    usual = Provider(quota=(), capacity=0)
    quota = table.steps("quota")
    capacity = table.whole("capacity", 4 * max(n for _, n in quota), least=1)
    down = table.any("down", [])
    spans = down if isinstance(down, list) else [down]
    if not all(isinstance(one, list) and len(one) == 2 and 0 <= one[0] < one[1] for one in spans):
        table.refuse("down", "must be an array of [from, until] in seconds")
    found = Provider(
        quota=quota,
        capacity=capacity,
        limiter=table.text("limiter", usual.limiter, among=LIMITERS),
        floor=table.whole("floor", usual.floor, least=1),
        start=table.whole("start", least=1) if table.has("start") else None,
        p0_reserve=table.whole("p0_reserve", usual.p0_reserve),
        refuse_after_s=table.number("refuse_after_s", usual.refuse_after_s, above=0),
        retry_after_s=table.number("retry_after_s", 0.0),
        down=tuple((float(from_s), float(until_s)) for from_s, until_s in spans),
    )
    if found.floor > capacity:
        table.refuse("floor", f"must be at most capacity, {capacity}")
    table.done()
    return found


def pause(table: Table) -> Pause:
    """Read a pause."""
    pause = Pause(
        scope=table.text("scope", among=("pool", "priority", "pool_priority", "tenant")),
        key=table.text("key"),
        from_s=table.number("from_s", 0.0),
        until_s=table.number("until_s", above=0),
    )
    table.done()
    return pause


def breaker(table: Table, resources: Mapping[str, Steps]) -> Breaker:
    """Read an open breaker."""
    breaker = Breaker(
        resource=declared(table, "resource", table.text("resource"), resources, "resources"),
        from_s=table.number("from_s", 0.0),
        until_s=table.number("until_s", above=0),
    )
    table.done()
    return breaker


def loss(table: Table, pools: Mapping[str, Steps]) -> Loss:
    """Read the loss of a worker."""
    loss = Loss(
        at_s=table.number("at_s"),
        pool=declared(table, "pool", table.text("pool"), pools, "pools"),
        slots=table.whole("slots", least=1),
        back_s=table.number("back_s", 1.0),
    )
    table.done()
    return loss


def said(table: Table, duration_s: float) -> Said:
    """Read what a signal is said to read."""
    from_s = table.number("from_s", 0.0)
    said = Said(
        signal=table.text("signal", among=SAID),
        value=table.number("value"),
        from_s=from_s,
        until_s=table.number("until_s", duration_s, above=from_s),
    )
    table.done()
    return said


def phases(tables: list[Table], duration_s: float) -> tuple[Phase, ...]:
    """Read the phases, each told by itself."""
    phases: list[Phase] = []
    for table in tables:
        from_s = table.number("from_s", 0.0)
        phase = Phase(name=table.text("name"), from_s=from_s, until_s=table.number("until_s", duration_s, above=from_s))
        if phase.name in {one.name for one in phases}:
            table.refuse("name", f"names a second phase {phase.name!r}")
        if phase.until_s > duration_s:
            table.refuse("until_s", f"must be at most duration_s, {duration_s:g}")
        table.done()
        phases.append(phase)
    return tuple(phases)


def dispatcher(table: Table) -> Dispatcher:
    """Read what the dispatcher costs."""
    usual = Dispatcher()
    dispatcher = Dispatcher(
        coalesce_s=table.number("coalesce_s", usual.coalesce_s),
        hop_s=table.number("hop_s", usual.hop_s),
        sweep_s=table.number("sweep_s", usual.sweep_s, above=0),
    )
    table.done()
    return dispatcher


def measure(table: Table, duration_s: float) -> Measure:
    """Read what is measured when."""
    from_s = table.number("from_s", 0.0)
    window_s = table.number("window_s", 60.0, above=0)
    measure = Measure(
        from_s=from_s,
        until_s=table.number("until_s", duration_s, above=from_s),
        window_s=window_s,
        step_s=table.number("step_s", window_s, above=0),
    )
    steps = measure.window_s / measure.step_s
    if steps < 1 or abs(steps - round(steps)) > 1e-9:
        table.refuse("step_s", f"must divide window_s, {window_s:g}")
    table.done()
    return measure


def expect(table: Table) -> tuple[Expect, ...]:
    """Read the ranges that figures must be in."""
    expected = []
    for figure in table.names():
        value = table.any(figure)
        fits = isinstance(value, list) and len(value) == 2
        if not fits or not all(isinstance(one, int | float) and not isinstance(one, bool) for one in value):
            table.refuse(f'"{figure}"', f"must be [least, most], not {value!r}")
        if value[0] > value[1]:
            table.refuse(f'"{figure}"', f"is an empty range: {value[0]} is above {value[1]}")
        expected.append(Expect(figure=figure, least=float(value[0]), most=float(value[1])))
    return tuple(expected)


def declared(table: Table, key: str, name: str, known: Mapping[str, object], where: str) -> str:
    """Return a name that another section declares. Raises: Invalid."""
    if name not in known:
        table.refuse(
            key, f"names {name!r}, which [{where}] doesn't have; there is {', '.join(sorted(known)) or 'none'}"
        )
    return name
