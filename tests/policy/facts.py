"""Any state that a planner may find: flows with their tasks, what is in flight, limits; and a plan of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from hypothesis import strategies as st

from harness.policy import ramp
from harness.policy.flow import Asked, FlowFacts, Head, needs
from harness.policy.forms import Form, others
from harness.policy.known import Kinds, Standing
from harness.policy.line import Line
from harness.policy.look import decide
from harness.policy.owners import Owners
from harness.policy.plan import Plan
from harness.policy.pressure import Level
from harness.policy.room import InFlight, Pause, Room, measure

POOL = "db"
KINDS = {"short": 0.002, "middle": 0.03, "long": 5.0}
BUNDLING = frozenset({"short", "middle"})
FORMS = {"long": (Form("brief"), Form("small", "browser=1")), "middle": (Form("rough"),)}
NOW_S = 1000.0


def flow(number: int, tenant: int, *, priority: int = 2, run: int = 0, signature: str = "") -> FlowFacts:
    """A flow."""
    return FlowFacts(id=number, priority=priority, tenant=tenant, run=run, signature=signature)


def heads(number: int, n: int, kind: str = "long") -> tuple[Head, ...]:
    """Tasks of a flow."""
    return tuple(Head(number * 1_000_000 + i, kind, ready_s=NOW_S) for i in range(n))


@dataclass(kw_only=True)
class Given:
    """One pool at one moment. `looks` collects what was asked."""

    slots: int
    tasks: dict[FlowFacts, tuple[Head, ...]]
    quarantine: int = 1
    caps: Mapping[int, int] = field(default_factory=dict)
    weights: Mapping[int, float] = field(default_factory=dict)
    run_caps: Mapping[int, int | None] = field(default_factory=dict)
    capacities: Mapping[str, int] = field(default_factory=dict)
    quotas: tuple[tuple[int, str, str, int], ...] = ()
    flight: tuple[InFlight, ...] = ()
    pauses: tuple[Pause, ...] = ()
    ramps: ramp.Left = field(default_factory=dict)
    estimates: Mapping[str, float] = field(default_factory=lambda: KINDS)
    bundling: frozenset[str] = BUNDLING
    forms: Mapping[str, tuple[Form, ...]] = field(default_factory=dict)
    level: Level = Level.NORMAL
    whole: frozenset[int] = frozenset()  # tenants that forbid cheaper forms
    looks: list[Asked] = field(default_factory=list)

    def room(self) -> Room:
        """Return the room before the plan."""
        room = measure(
            {POOL: self.slots, "quarantine": self.quarantine},
            pauses=self.pauses,
            capacities=self.capacities,
            quotas=self.quotas,
            flight=self.flight,
            level=self.level,
        )
        room.ramps = {POOL: dict(self.ramps)} if self.ramps else {}
        return room

    def line(self, flows: Iterable[FlowFacts] | None = None) -> Line:
        """Return a line of these flows, in this order."""
        owners = Owners()
        for tenant in self.caps.keys() | self.weights.keys() | self.whole:
            cap, weight = self.caps.get(tenant, 1000), self.weights.get(tenant, 1.0)
            owners.set_tenant(tenant, cap=cap, weight=weight, degrade=tenant not in self.whole)
        for run, most in self.run_caps.items():
            owners.set_run(run, most)
        line = Line(POOL, owners)
        for one in self.tasks if flows is None else flows:
            line.add(one, NOW_S)
        return line

    def look(self, asked: Asked) -> dict[int, list[Head]]:
        """Answer a look."""
        self.looks.append(asked)
        by_id = {one.id: found for one, found in self.tasks.items()}
        return {
            number: list(islice((head for head in by_id[number] if head.lost_starts < asked.lost_below), n))
            for number, n in zip(asked.flows, asked.heads, strict=True)
        }

    def plan(self, line: Line | None = None, room: Room | None = None, now_s: float = NOW_S) -> Plan:
        """Decide a tick; as the callers do, only if a slot is free."""
        room = room or self.room()
        line = line or self.line()
        signatures = {one.signature for one in self.tasks}
        kinds = Kinds(
            estimates=self.estimates,
            bundling=self.bundling,
            costing_in={},
            forms=self.forms,
            also_in={POOL: others((signatures, forms) for forms in self.forms.values())},
        )
        standing = Standing(kinds=kinds, pauses=self.pauses)
        return decide(POOL, now_s, room=room, standing=standing, line=line, look=self.look)


@st.composite
def given_facts(draw: st.DrawFn) -> Given:
    slots = draw(st.sampled_from([1, 2, 4, 10, 50]))
    tasks: dict[FlowFacts, tuple[Head, ...]] = {}
    keys = set()
    task = 0
    for number in range(draw(st.integers(0, 12))):
        signature = draw(st.sampled_from(["", "", "llm=1", "browser=1,llm=2"]))
        one = flow(
            number + 1,
            draw(st.integers(1, 4)),
            priority=draw(st.integers(0, 3)),
            run=draw(st.sampled_from([0, 0, 11, 12])),
            signature=signature,
        )
        key = (one.priority, one.tenant, one.run, one.signature)
        if key in keys:
            continue
        keys.add(key)
        found = []
        for _ in range(draw(st.integers(0, 8))):
            task += 1
            kind = draw(st.sampled_from(sorted(KINDS)))
            ready_s = NOW_S - draw(st.sampled_from([0.0, 10.0, 500.0, 900.0]))
            single, lost = draw(st.booleans()), draw(st.sampled_from([0, 0, 0, 1, 2]))
            found.append(Head(task, kind, single, lost, ready_s, draw(st.booleans())))
        tasks[one] = tuple(found)
    flight = [
        InFlight(
            POOL,
            draw(st.sampled_from([None, None, "quarantine"])),
            draw(st.integers(1, 4)),
            draw(st.sampled_from([0, 11, 12])),
            signature := draw(st.sampled_from(["", "llm=1"])),
            leases := draw(st.integers(1, 3)),
            leases * draw(st.integers(1, 2)),
            draw(st.integers(0, 3)),
            draw(st.integers(0, 4)),
            float(leases),
            draw(st.floats(0, 5)),
            (NOW_S + 1.0,) * leases if signature else (),
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    scopes = [(1, "pool", POOL), (2, "resource", "llm"), (3, "resource", "browser")]
    return Given(
        slots=slots,
        tasks=tasks,
        quarantine=draw(st.integers(0, 3)),
        caps={tenant: draw(st.integers(0, 20)) for tenant in range(1, 5)},
        weights={tenant: draw(st.sampled_from([0.5, 1.0, 4.0])) for tenant in range(1, 5)},
        run_caps={run: draw(st.sampled_from([None, 0, 1, 5])) for run in (11, 12)},
        capacities={"llm": draw(st.integers(0, 8)), "browser": draw(st.integers(0, 2))},
        quotas=tuple((*scope, draw(st.integers(0, 5))) for scope in scopes if draw(st.booleans())),
        flight=tuple(flight),
        forms=draw(st.sampled_from([{}, FORMS])),
        level=draw(st.sampled_from(list(Level))),
        whole=draw(st.sampled_from([frozenset(), frozenset({1, 2})])),
    )


def uses(given: Given, plan: Plan) -> list[InFlight]:
    """Return what is in flight after a plan, counted from the picks."""
    return [
        *given.flight,
        *(
            InFlight(
                POOL,
                "quarantine" if pick.quarantine else None,
                pick.flow.tenant,
                pick.flow.run,
                pick.signature,
                1,
                len(pick.tasks),
                pick.flow.priority,
            )
            for pick in plan.picks
        ),
    ]


def held(flight: Iterable[InFlight], resource: str, tenant: int | None = None) -> int:
    """Return how many of a resource are held."""
    return sum(
        dict(needs(use.signature)).get(resource, 0) * use.leases
        for use in flight
        if tenant is None or use.tenant == tenant
    )
