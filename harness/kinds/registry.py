"""The registry of kinds: `@kind` puts a function under a name; `discover` imports the folders of tasks/.

A kind is a name, a hand-set version, the pool it runs in, the resources it touches, the schema of its input
and output, and its limits. Registering checks nothing against resources.toml; `check_against` does, at start.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from harness.kinds import forms as of_forms
from harness.kinds.forms import Form
from harness.policy import flow
from harness.policy import forms as known_forms
from harness.policy import retry as table
from harness.policy.capacity import Need
from harness.policy.errors import ErrorClass, Invalid
from harness.policy.retry import Rule
from harness.policy.settings import QUARANTINE, SYSTEM, Topology

BUNDLE_EST_S = 0.1  # a bundle's members are expected to take this long together, at most


@dataclass(frozen=True, kw_only=True, slots=True)
class OneOf:
    """One of several resources, by a task's input: `of` the checked input; `every`: those that it may be, usual first.

    Both are asked anew each time: what they look at may be read after the kind is registered.
    """

    of: Callable[[Any], str]
    every: Callable[[], Sequence[str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One registered type of work. Times in seconds; `resources` maps a resource to how many of it one task needs.

    `one_of`: beside those it needs one of one of these.
    `rules`: what follows from each class of error. `repair(ctx, payload, error)`: asked once in place of failing when
    something doesn't fit its schema; what it returns is the result. `degrade`: cheaper forms, from mild to cheap.
    """

    name: str
    version: int
    pool: str
    run: Callable[[Any, Any], Any]
    input: type[BaseModel]
    output: type[BaseModel] | None
    resources: Mapping[str, int] = field(default_factory=dict)
    one_of: OneOf | None = None
    timeout_s: float = 60.0
    max_attempts: int = 4
    bundle: bool = False
    est_s: float = 1.0
    costs: bool = False
    rules: Mapping[ErrorClass, Rule] = field(default_factory=lambda: table.VERDICTS)
    repair: Callable[[Any, Any, Exception], Any] | None = None
    degrade: tuple[Form, ...] = ()

    @property
    def signature(self) -> str:
        """The resource signature, canonical: 'browser=1,llm:default=2'; '' when it needs none. Of a usual input."""
        return self._signature(self.one_of.every()[0] if self.one_of else None)

    @property
    def signatures(self) -> frozenset[str]:
        """Every signature that its tasks may have as a whole."""
        return frozenset(map(self._signature, self.one_of.every() if self.one_of else (None,)))

    @property
    def forms(self) -> tuple[known_forms.Form, ...]:
        """Its cheaper forms, as a plan knows them."""
        return tuple([known_forms.Form(form.name, form.signature) for form in self.degrade])

    def form(self, name: str | None) -> Form | None:
        """Return the form of this name. None: there is none (any more)."""
        return next((form for form in self.degrade if form.name == name), None)

    def signature_of(self, payload: Any) -> str:
        """Return the signature of a task with this input, which has been checked."""
        return self._signature(self.one_of.of(payload) if self.one_of else None)

    def may_need(self) -> dict[str, int]:
        """Return every resource that a task of it may need, in whatever form, with how many."""
        needs = dict(self.resources)
        for name in self.one_of.every() if self.one_of else ():
            needs[name] = self.resources.get(name, 0) + 1
        for form in self.degrade:
            for name, n in (form.needs() or {}).items():
                needs[name] = max(needs.get(name, 0), n)
        return needs

    def _signature(self, chosen: str | None) -> str:
        needs = dict(self.resources)
        if chosen is not None:
            needs[chosen] = needs.get(chosen, 0) + 1
        return of_forms.signature_of(needs)


_KINDS: dict[str, Kind] = {}


def kind(
    name: str,
    *,
    pool: str,
    input: type[BaseModel],
    output: type[BaseModel] | None = None,
    version: int = 1,
    resources: Mapping[str, int] | None = None,
    one_of: OneOf | None = None,
    timeout_s: float = 60.0,
    max_attempts: int = 4,
    bundle: bool = False,
    est_s: float = 1.0,
    costs: bool = False,
    retry: Mapping[str, Rule] | None = None,
    repair: Callable[[Any, Any, Exception], Any] | None = None,
    degrade: Sequence[Form] = (),
) -> Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]:
    """Register `fn(ctx, payload)` as a kind. `est_s` is the expected run time until real ones are known.

    `bundle=True` is a promise: short, no call, step, ask or spawn; `ctx.db` is fine (architecture, decision 10).
    `costs=True`: it spends money (`ctx.spent`), so a tenant's budget holds it; it must declare a resource.
    `one_of`: beside `resources` one more, by the input (which model, which site).
    `retry`: by error class, a rule other than the table's (policy.retry). `repair`: see `Kind`.
    `degrade`: cheaper forms of the work, from mild to cheap, for times of pressure (kinds.forms).
    Raises: Invalid naming the argument.
    """

    def register(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        if name in _KINDS and _KINDS[name].run.__qualname__ != fn.__qualname__:
            raise Invalid(f"kind {name!r} is registered twice", field="name")
        for what, value in (("timeout_s", timeout_s), ("est_s", est_s), ("max_attempts", max_attempts)):
            if not value > 0:
                raise Invalid(f"kind {name!r}: {what} must be above 0, not {value!r}", field=what)
        if bundle and (est_s > BUNDLE_EST_S or resources or one_of):
            raise Invalid(
                f"kind {name!r}: a bundled kind takes at most {BUNDLE_EST_S} s (est_s) and needs no resources",
                field="bundle",
            )
        if costs and not resources and not one_of:
            raise Invalid(f"kind {name!r}: what costs declares the resource that it pays for", field="resources")
        try:
            rules = table.refine(retry or {}, repairs=repair is not None)
        except Invalid as error:
            raise Invalid(f"kind {name!r}: {error.message}", field="retry") from None
        cheaper = of_forms.check(name, degrade, bundle=bundle, costs=costs)
        _KINDS[name] = Kind(
            name=name,
            version=version,
            pool=pool,
            run=fn,
            input=input,
            output=output,
            resources=MappingProxyType(dict(resources or {})),
            one_of=one_of,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
            bundle=bundle,
            est_s=est_s,
            costs=costs,
            rules=rules,
            repair=repair,
            degrade=cheaper,
        )
        return fn

    return register


def discover(*packages: str) -> None:
    """Import `<package>.<folder>.kind` for every folder below the packages, which registers their kinds."""
    for package in packages:
        root = importlib.import_module(package)
        for found in pkgutil.iter_modules(root.__path__):
            if found.ispkg:
                importlib.import_module(f"{package}.{found.name}.kind")


def find(name: str) -> Kind | None:
    """Return the kind registered under this name, if any."""
    return _KINDS.get(name)


def all_kinds() -> tuple[Kind, ...]:
    """Return every registered kind, by name."""
    return tuple(_KINDS[name] for name in sorted(_KINDS))


def needs() -> list[Need]:
    """Return what tasks of the registered kinds need: of a kind whose input chooses, each choice."""
    return [
        Need(kind=one.name, pool=one.pool, resources=dict(flow.needs(signature)) if signature else {})
        for one in all_kinds()
        for signature in sorted(one.signatures)
    ]


def costing(pool: str | None = None) -> tuple[Kind, ...]:
    """Return the kinds that cost money, of one pool or of all."""
    return tuple(one for one in _KINDS.values() if one.costs and pool in (None, one.pool))


def check_against(topology: Topology) -> None:
    """Check that every kind's pool and resources exist. Raises: Invalid naming the kind and the key."""
    for one in all_kinds():
        if one.pool in (SYSTEM, QUARANTINE) or one.pool not in topology.pools:
            raise Invalid(
                f"kind {one.name!r} names pool {one.pool!r}, which resources.toml doesn't offer", field="pool"
            )
        for name, n in one.may_need().items():
            if name not in topology.resources:
                raise Invalid(
                    f"kind {one.name!r} needs resource {name!r}, unknown to resources.toml", field="resources"
                )
            if n > 1 and topology.resources[name].held == "call":
                raise Invalid(
                    f"kind {one.name!r} needs {n} of {name!r}: each call takes one place, and how many a task has "
                    "at once is measured; declare 1",
                    field="resources",
                )
            if not 1 <= n <= topology.resources[name].capacity:
                raise Invalid(
                    f"kind {one.name!r} needs {n} of {name!r}, which has {topology.resources[name].capacity}",
                    field="resources",
                )
