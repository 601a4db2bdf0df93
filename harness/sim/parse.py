"""Reads a scenario from TOML. What makes no sense is refused by the path of its key, never repaired.

Invariants: no key is ignored; every name that is used is declared.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from math import log
from pathlib import Path
from types import MappingProxyType

from harness.policy.errors import ErrorClass, Invalid
from harness.policy.settings import QUARANTINE
from harness.sim import trace as traces
from harness.sim.plans import FIRST_COME, PLANS
from harness.sim.replay import tenant_name
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
    Said,
    Scenario,
    Steps,
    TenantGroup,
    Work,
)
from harness.sim.table import Table
from harness.sim.trace import Trace
from harness.sim.vary import Value, variations

CLASSES = ("p0", "p1", "p2", "p3")
SAID = ("db_connection_usage", "db_pool_wait", "http_pool_wait")  # signals that a world has nothing to read from
FIXED: Mapping[str, Value] = MappingProxyType({})  # nothing is varied


def load(path: Path) -> Scenario:
    """Read a scenario file without variations, or a trace to be replayed as it was. Raises: Invalid."""
    first, *more = load_all(path)
    if more:
        raise Invalid(f"{path.name}: vary makes {1 + len(more)} scenarios of it, where one is wanted", field="vary")
    return first


def load_all(path: Path) -> list[Scenario]:
    """Read a scenario file with all its variations, or a trace to be replayed as it was. Raises: Invalid."""
    if path.suffix != ".toml":
        return [parse({"trace": path.name, "title": path.name}, name=path.name, folder=path.parent)]
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"{path}: can't be read: {error.strerror}", field="scenario") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: isn't TOML: {error}", field="scenario") from error
    return [parse(one, name=path.name, folder=path.parent, varied=values) for values, one in variations(raw, path.name)]


def parse(
    raw: Mapping[str, object], *, name: str, folder: Path = Path(), varied: Mapping[str, Value] = FIXED
) -> Scenario:
    """Build a scenario. `folder`: where a trace that it names is looked for; `varied`: the values it was made with.

    Raises: Invalid naming the key.
    """
    top = Table(raw, "", name)
    trace = traces.read(folder / top.text("trace")) if top.has("trace") else None
    last_s = max((task.submit_s for task in trace.tasks), default=0.0) + 1.0 if trace else None
    duration_s = top.number("duration_s", last_s, above=0)
    pools = _pools(top, trace)
    resources = _resources(top, trace)
    kinds = _kinds(top, trace, pools, resources)
    tenants = _tenants(top, trace, pools, resources)
    for task in trace.tasks if trace else ():
        if task.pool not in pools or task.kind not in kinds:
            top.refuse("trace", f"has a task of kind {task.kind!r} in pool {task.pool!r}, which it doesn't describe")
    works = tuple(_work(one, kinds, tenants, duration_s) for one in top.tables("work"))
    if not works and trace is None:
        top.refuse("work", "is missing: [[work]] says what comes; or name a trace")
    if works and trace is not None:
        top.refuse("work", "can't stand beside trace: the trace says what comes")
    cells = top.table("cells", {})
    number = cells.whole("number", 1, least=1)
    scenario = Scenario(
        title=top.text("title") + "".join(f" {one}={value}" for one, value in varied.items()),
        seed=top.whole("seed", 1),
        plan=top.text("plan", "fair", among=(*PLANS, FIRST_COME)),
        duration_s=duration_s,
        end_s=None if top.flag("drain", default=True) else duration_s,
        ci=_in_ci(top, varied),
        cells=number,
        cells_run=min(number, cells.whole("run", number, least=1)),
        pools=pools,
        resources=resources,
        kinds=kinds,
        tenants=tenants,
        works=works,
        pauses=tuple(_pause(one) for one in top.tables("pauses")),
        breakers=tuple(_breaker(one, resources) for one in top.tables("breakers")),
        losses=tuple(_loss(one, pools) for one in top.tables("losses")),
        pressure=top.flag("pressure", default=False),
        said=tuple(_said(one, duration_s) for one in top.tables("readings")),
        phases=_phases(top.tables("phases"), duration_s),
        dispatcher=_dispatcher(top.table("dispatcher", {})),
        measure=_measure(top.table("measure", {}), duration_s),
        expect=_expect(top.table("expect", {})),
        trace=trace,
    )
    cells.done()
    top.done()
    return scenario


def _pools(top: Table, trace: Trace | None) -> dict[str, Steps]:
    pools: dict[str, Steps] = {name: ((0.0, n),) for name, n in trace.pools.items()} if trace else {}
    table = top.table("pools", {} if trace else ...)
    for name in table.names():
        one = table.table(name)
        pools[name] = one.steps("slots")
        one.done()
    if not pools:
        top.refuse("pools", "must name a pool")
    return pools if QUARANTINE in pools else pools | {QUARANTINE: ((0.0, 1),)}


def _resources(top: Table, trace: Trace | None) -> dict[str, Steps]:
    resources: dict[str, Steps] = {name: ((0.0, n),) for name, n in trace.resources.items()} if trace else {}
    table = top.table("resources", {})
    for name in table.names():
        if "," in name or "=" in name:
            table.refuse(name, "must be named without ',' and '=' (they separate a resource signature)")
        one = table.table(name)
        resources[name] = one.steps("capacity")
        one.done()
    return resources


def _kinds(
    top: Table, trace: Trace | None, pools: Mapping[str, Steps], resources: Mapping[str, Steps]
) -> dict[str, Kind]:
    kinds: dict[str, Kind] = {}
    for traced in trace.kinds if trace else ():
        kinds[traced.name] = Kind(
            name=traced.name,
            pool=traced.pool,
            signature=traced.signature,
            law=Law(name="fixed", mean_s=traced.est_s),
            est_s=traced.est_s,
            bundle=traced.bundle,
            costs=traced.costs,
            max_attempts=traced.max_attempts,
        )
    table = top.table("kinds", {} if trace else ...)
    for name in table.names():
        kinds[name] = _kind(name, table.table(name), pools, resources)
    if not kinds:
        top.refuse("kinds", "must name a kind")
    return kinds


def _kind(name: str, table: Table, pools: Mapping[str, Steps], resources: Mapping[str, Steps]) -> Kind:
    law = table.text("law", "fixed", among=("fixed", "exponential", "lognormal"))
    mean_s = table.number("mean_s", above=0)
    sigma = table.number("sigma", 0.0)
    if (law == "lognormal") != (sigma > 0):
        table.refuse("sigma", 'must be above 0 with law = "lognormal", and is of no use with another')
    needs = table.table("needs", {})
    numbers = {one: needs.whole(one, least=1) for one in sorted(needs.names())}
    for resource in numbers:
        _declared(needs, resource, resource, resources, "resources")
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
        pool=_declared(table, "pool", table.text("pool"), pools, "pools"),
        signature=",".join(f"{one}={n}" for one, n in numbers.items()),
        law=Law(name=law, mean_s=mean_s, mu=log(mean_s) - sigma * sigma / 2, sigma=sigma),  # type: ignore[arg-type]  # `among`
        est_s=table.number("est_s", mean_s, above=0),
        bundle=table.flag("bundle", default=False),
        timeout_s=table.number("timeout_s", above=0) if table.has("timeout_s") else None,
        zombie_s=table.number("zombie_s", 0.0),
        max_attempts=table.whole("max_attempts", 4, least=1),
        failures=shares,
        retry_after_s=table.number("retry_after_s") if table.has("retry_after_s") else None,
    )
    table.done()
    return kind


def _tenants(
    top: Table, trace: Trace | None, pools: Mapping[str, Steps], resources: Mapping[str, Steps]
) -> dict[str, TenantGroup]:
    groups: dict[str, TenantGroup] = {}
    for traced in trace.tenants if trace else ():
        name = tenant_name(traced.id)
        groups[name] = TenantGroup(
            name=name,
            cap=traced.cap,
            weight=traced.weight,
            backlog_quota=traced.backlog_quota,
            top_priority=traced.top_priority,
            quotas=traced.quotas,
        )
    table = top.table("tenants", {} if trace else ...)
    for name in table.names():
        one = table.table(name)
        quotas = one.table("quotas", {})
        caps = []
        for scope, known in (("pool", pools), ("resource", resources)):
            scoped = quotas.table(scope, {})
            caps += [
                (scope, _declared(scoped, key, key, known, f"{scope}s"), scoped.whole(key)) for key in scoped.names()
            ]
        quotas.done()
        before = groups.get(name, TenantGroup(name=name))
        caps_then = one.steps("cap") if one.is_steps("cap") else ((0.0, one.whole("cap", before.cap)),)
        weights = (
            one.levels("weight") if one.is_steps("weight") else ((0.0, one.number("weight", before.weight, above=0)),)
        )
        groups[name] = replace(
            before,
            number=one.whole("number", 1, least=1),
            cap=caps_then[0][1],
            weight=weights[0][1],
            later_caps=caps_then[1:],
            later_weights=weights[1:],
            backlog_quota=one.whole("backlog_quota", before.backlog_quota),
            top_priority=one.whole("top_priority", before.top_priority),
            quotas=tuple(caps) or before.quotas,
        )
        one.done()
    if not groups:
        top.refuse("tenants", "must name a tenant")
    if "all" in groups:
        top.refuse("tenants.all", "must be called something else: the report says all of all tenants")
    return groups


def _work(table: Table, kinds: Mapping[str, Kind], tenants: Mapping[str, TenantGroup], duration_s: float) -> Work:
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
        tenants=_declared(table, "tenants", table.text("tenants"), tenants, "tenants"),
        kinds=tuple(_declared(table, "kind", name, kinds, "kinds") for name in names),
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
    )
    if work.fanout_cap is not None and not work.as_run:
        table.refuse("fanout_cap", "is a run's: say run = true")
    table.done()
    return work


def _pause(table: Table) -> Pause:
    pause = Pause(
        scope=table.text("scope", among=("pool", "priority", "pool_priority", "tenant")),
        key=table.text("key"),
        from_s=table.number("from_s", 0.0),
        until_s=table.number("until_s", above=0),
    )
    table.done()
    return pause


def _breaker(table: Table, resources: Mapping[str, Steps]) -> Breaker:
    breaker = Breaker(
        resource=_declared(table, "resource", table.text("resource"), resources, "resources"),
        from_s=table.number("from_s", 0.0),
        until_s=table.number("until_s", above=0),
    )
    table.done()
    return breaker


def _loss(table: Table, pools: Mapping[str, Steps]) -> Loss:
    loss = Loss(
        at_s=table.number("at_s"),
        pool=_declared(table, "pool", table.text("pool"), pools, "pools"),
        slots=table.whole("slots", least=1),
        back_s=table.number("back_s", 1.0),
    )
    table.done()
    return loss


def _said(table: Table, duration_s: float) -> Said:
    from_s = table.number("from_s", 0.0)
    said = Said(
        signal=table.text("signal", among=SAID),
        value=table.number("value"),
        from_s=from_s,
        until_s=table.number("until_s", duration_s, above=from_s),
    )
    table.done()
    return said


def _phases(tables: list[Table], duration_s: float) -> tuple[Phase, ...]:
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


def _in_ci(top: Table, varied: Mapping[str, Value]) -> bool:
    """Whether CI plays it: `ci` is a flag, or says of varied names which of their values."""
    if not top.is_table("ci"):
        return top.flag("ci", default=True)
    only = top.table("ci")
    within = True
    for name in only.names():
        values = only.any(name)
        if name not in varied or not isinstance(values, list):
            only.refuse(name, f"must be an array of values of a name in [vary]; there is {', '.join(varied) or 'none'}")
        within = within and varied[name] in values
    return within


def _dispatcher(table: Table) -> Dispatcher:
    usual = Dispatcher()
    dispatcher = Dispatcher(
        coalesce_s=table.number("coalesce_s", usual.coalesce_s),
        hop_s=table.number("hop_s", usual.hop_s),
        sweep_s=table.number("sweep_s", usual.sweep_s, above=0),
    )
    table.done()
    return dispatcher


def _measure(table: Table, duration_s: float) -> Measure:
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


def _expect(table: Table) -> tuple[Expect, ...]:
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


def _declared(table: Table, key: str, name: str, known: Mapping[str, object], where: str) -> str:
    if name not in known:
        table.refuse(
            key, f"names {name!r}, which [{where}] doesn't have; there is {', '.join(sorted(known)) or 'none'}"
        )
    return name
