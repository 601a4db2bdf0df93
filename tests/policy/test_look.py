"""A look leaves out what can't run before the page is cut, and goes on while slots remain."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.policy.dispatch import FlowFacts, Head
from harness.policy.look import FLOWS_A_PAGE_LEAST, Asked, Seen, Standing, blocked, decide, know
from harness.policy.room import InFlight, Room, count, measure, note_full


@dataclass(frozen=True, kw_only=True)
class Kind:
    name: str = "work"
    pool: str = "llm"
    signature: str = ""
    est_s: float = 5.0
    bundle: bool = False
    costs: bool = False


KINDS = know([Kind(), Kind(name="call", signature="model=1"), Kind(name="paid", signature="model=2", costs=True)], {})


def flow(number: int, *, heads: int = 1, signature: str = "") -> FlowFacts:
    return FlowFacts(
        id=number,
        priority=2,
        tenant=number,
        run=0,
        signature=signature,
        rank=float(number),
        tenant_cap=10,
        run_cap=None,
        heads=tuple(Head(number * 1000 + i, "work") for i in range(heads)),
    )


def room(free: int, *, flight: Sequence[InFlight] = (), **more: object) -> Room:
    pauses = more.pop("pauses", ())
    quotas = more.pop("quotas", ())
    assert not more
    return measure({"llm": free}, pauses=pauses, capacities={"model": 2}, quotas=quotas, flight=flight)  # type: ignore[arg-type]


def use(members: int = 1, *, tenant_cap: int = 10, run: int = 0, run_cap: int | None = None) -> InFlight:
    return InFlight("llm", None, 1, run, "model=1", 1, members, tenant_cap, run_cap)


def test_pages_follow_each_other_until_the_flows_end() -> None:
    flows = [flow(i) for i in range(1, 60)]
    asked: list[Asked] = []

    def look(page: Asked) -> list[FlowFacts]:
        asked.append(page)
        return [one for one in flows if (one.priority, one.rank, one.id) > page.after][: page.flows]

    left = room(1000)
    decided = decide("llm", left, Standing(kinds=KINDS), Seen(), look)
    assert [pick.flow.id for pick in decided.picks] == list(range(1, 60))
    assert left.free["llm"] == 1000 - 59
    left = room(1)
    asked.clear()
    decided = decide("llm", left, Standing(kinds=KINDS), Seen(), look)
    assert len(decided.picks) == 1
    assert [page.flows for page in asked] == [FLOWS_A_PAGE_LEAST]


def test_a_full_page_of_empty_flows_does_not_end_the_look() -> None:
    flows = [flow(i, heads=0) for i in range(1, FLOWS_A_PAGE_LEAST + 1)] + [flow(99)]

    def look(page: Asked) -> list[FlowFacts]:
        return [one for one in flows if (one.priority, one.rank, one.id) > page.after][: page.flows]

    decided = decide("llm", room(1), Standing(kinds=KINDS), Seen(), look)
    assert [pick.flow.id for pick in decided.picks] == [99]
    assert decided.empty == list(range(1, FLOWS_A_PAGE_LEAST + 1))


def test_what_is_at_its_cap_paused_or_out_of_a_resource_is_left_out() -> None:
    left = room(5, flight=[use(tenant_cap=2, run=7, run_cap=1), use(tenant_cap=2)], quotas=[(3, "pool", "llm", 0)])
    pauses = [("tenant", "4", "operator", ""), ("priority", "p3", "operator", ""), ("pool_priority", "llm.p2", "", "")]
    out = blocked("llm", left, Standing(kinds=KINDS, pauses=pauses, beyond=[9]))
    assert out.tenants == {1, 3, 4}
    assert out.runs == {7}
    assert out.priorities == {3, 2}
    assert out.signatures == {"model=1", "model=2"}
    assert out.pairs == {(9, "model=2")}
    assert blocked("llm", room(5, quotas=[(3, "resource", "model", 1)]), Standing(kinds=KINDS)).pairs == {
        (3, "model=2")
    }
    assert room(5, pauses=[("pool", "llm", "operator", "")]).free == {}


def test_taking_a_use_off_again_leaves_the_room_as_it_was() -> None:
    before = room(5, quotas=[(1, "resource", "model", 3), (1, "pool", "llm", 9)])
    after = room(5, quotas=[(1, "resource", "model", 3), (1, "pool", "llm", 9)])
    count(after, use(3, run=7))
    note_full(after, 1, 3, 7, 3)
    assert (after.full_tenants, after.full_runs) == ({1}, {7})
    count(after, InFlight("llm", None, 1, 7, "model=1", -1, -3, 3, 3))
    note_full(after, 1, 3, 7, 3)
    assert (after.tenants.pop(1), after.runs.pop(7)) == (0, 0)
    assert after == before
