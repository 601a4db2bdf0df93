"""Reads a scenario from TOML. What makes no sense is refused by the path of its key, never repaired.

Invariants: no key is ignored; every name that is used is declared.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.policy.errors import Invalid
from harness.policy.settings import QUARANTINE
from harness.sim import compare, sections
from harness.sim import trace as traces
from harness.sim.plans import FIRST_COME, PLANS
from harness.sim.replay import tenant_name
from harness.sim.scenario import Kind, Law, Provider, Scenario, Steps, TenantGroup
from harness.sim.table import Table
from harness.sim.trace import Trace
from harness.sim.vary import Value, variations

FIXED: Mapping[str, Value] = MappingProxyType({})  # nothing is varied


def load(path: Path) -> Scenario:
    """Read a scenario file without variations, or a trace to be replayed as it was. Raises: Invalid."""
    first, *more = load_all(path)
    if more:
        raise Invalid(f"{path.name}: vary makes {1 + len(more)} scenarios of it, where one is wanted", field="vary")
    return first


def load_all(path: Path) -> list[Scenario]:
    """Read a scenario file with all its variations, or a trace to be replayed as it was. Raises: Invalid."""
    found = variations(_read(path), path.name)
    return [parse(one, name=path.name, folder=path.parent, varied=values) for values, one in found]


def load_other(path: Path, other: Path) -> list[Scenario]:
    """Read a scenario as another file would have it: same traffic, other limits, weights, workers, plan (sim.compare).

    Its variations follow in the same order. Raises: Invalid.
    """
    raw = compare.overlaid(_read(path), _read(other), name=other.name)
    found = variations(raw, other.name)
    return [parse(one, name=other.name, folder=path.parent, varied=values) for values, one in found]


def _read(path: Path) -> dict[str, Any]:
    if path.suffix != ".toml":
        return {"trace": path.name, "title": path.name}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Invalid(f"{path}: can't be read: {error.strerror}", field="scenario") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path}: isn't TOML: {error}", field="scenario") from error


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
    table = top.table("providers", {})
    providers = {one: sections.provider(one, table.table(one), resources) for one in table.names()}
    kinds = _kinds(top, trace, pools, resources, providers)
    tenants = _tenants(top, trace, pools, resources)
    for task in trace.tasks if trace else ():
        if task.pool not in pools or task.kind not in kinds:
            top.refuse("trace", f"has a task of kind {task.kind!r} in pool {task.pool!r}, which it doesn't describe")
    works = tuple(sections.work(one, kinds, tenants, duration_s) for one in top.tables("work"))
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
        pauses=tuple(sections.pause(one) for one in top.tables("pauses")),
        breakers=tuple(sections.breaker(one, resources) for one in top.tables("breakers")),
        losses=tuple(sections.loss(one, pools) for one in top.tables("losses")),
        providers=providers,
        pressure=top.flag("pressure", default=False),
        foresee_s=top.number("foresee_s", 0.0),
        admission=top.flag("admission", default=False),
        said=tuple(sections.said(one, duration_s) for one in top.tables("readings")),
        phases=sections.phases(top.tables("phases"), duration_s),
        dispatcher=sections.dispatcher(top.table("dispatcher", {})),
        measure=sections.measure(top.table("measure", {}), duration_s),
        expect=sections.expect(top.table("expect", {})),
        trace=trace,
    )
    if scenario.admission and not scenario.pressure:
        top.refuse("admission", "goes by the level and the waits that pressure = true measures: say that, too")
    if providers and number > 1:
        top.refuse("providers", "can't be split into cells: what they refuse isn't a cell's own")
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
    top: Table,
    trace: Trace | None,
    pools: Mapping[str, Steps],
    resources: Mapping[str, Steps],
    providers: Mapping[str, Provider],
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
        kinds[name] = sections.kind(name, table.table(name), pools, resources, providers)
    if not kinds:
        top.refuse("kinds", "must name a kind")
    return kinds


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
                (scope, sections.declared(scoped, key, key, known, f"{scope}s"), scoped.whole(key))
                for key in scoped.names()
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
