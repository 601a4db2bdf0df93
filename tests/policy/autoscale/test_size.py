"""How many workers would be enough, over all loads and downstreams; and what each rule says."""

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from harness.policy.autoscale import Crew, Downstream, Size, Work, size

NAMES = ("a", "b", "c")

works = st.lists(
    st.builds(
        Work,
        needs=st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), max_size=2),
        waiting=st.integers(0, 100_000),
        urgent=st.integers(0, 100_000),
        leases=st.integers(0, 60),
        a_second=st.floats(0, 200),
        mean_s=st.floats(0.01, 4000),
    ).map(lambda one: replace(one, urgent=min(one.urgent, one.waiting))),
    max_size=5,
)
states = st.builds(
    Downstream,
    name=st.just("x"),
    held=st.sampled_from(["task", "call"]),
    limit=st.integers(0, 60),
    ceiling=st.integers(60, 120),
    phi=st.floats(0.1, 1.0),
    leases=st.integers(0, 60),
    others=st.integers(0, 20),
    in_use=st.integers(0, 60),
    waiting=st.integers(0, 20),
    refuses=st.sampled_from(["", "", "answers 429"]),
    seeking=st.booleans(),
    settled=st.booleans(),
)


def named(name: str) -> st.SearchStrategy[Downstream]:
    return states.map(lambda one: replace(one, name=name))


downstreams = st.fixed_dictionaries({name: named(name) for name in NAMES})
crews = st.builds(
    Crew,
    pool=st.just("llm"),
    each=st.integers(1, 50),
    workers=st.integers(0, 12),
    in_use=st.integers(0, 60),
    least=st.integers(0, 2),
    most=st.integers(2, 64),
    connections=st.integers(2, 64),
)


def llm(limit: int = 50, **more: object) -> Mapping[str, Downstream]:
    one = Downstream(name="llm", held="call", limit=limit, ceiling=50)
    return {"llm": replace(one, **more)}  # type: ignore[arg-type]  # fields by name


def calls(waiting: int = 10_000, **more: object) -> Work:
    return replace(Work(needs={"llm": 1}, waiting=waiting, mean_s=5.0), **more)  # type: ignore[arg-type]  # by name


def enough(found: Mapping[str, Downstream], *, workers: int = 1, each: int = 8, work: Work | None = None) -> Size:
    return size(Crew(pool="llm", each=each, workers=workers), [work or calls()], found)


# -- over all loads


@given(crews, works, downstreams, st.integers(0, 4), st.integers(1, 50_000), st.floats(0, 50))
def test_more_work_never_asks_for_fewer_and_where_a_downstream_binds_not_for_more(
    crew: Crew, work: list[Work], found: Mapping[str, Downstream], at: int, more: int, faster: float
) -> None:
    before = size(crew, work, found)
    grown = [
        replace(one, waiting=one.waiting + more, a_second=one.a_second + faster) if at == n else one
        for n, one in enumerate(work)
    ]
    after = size(crew, grown, found)
    assert after.workers >= before.workers
    if before.binds in NAMES and before.cap is not None and all(before.binds in one.needs for one in work):
        assert after.workers == before.workers


@given(crews, works, downstreams)
def test_while_what_all_work_needs_refuses_nobody_is_asked_for_beyond_those_that_run(
    crew: Crew, work: list[Work], found: Mapping[str, Downstream]
) -> None:
    refusing = {**found, "a": replace(found["a"], refuses="answers 429")}
    same = [replace(one, needs={**one.needs, "a": 1}) for one in work]
    assert size(crew, same, refusing).workers <= max(crew.workers, crew.least, 1)


@given(crews, works, downstreams)
def test_it_stays_within_its_bounds_and_says_what_binds(
    crew: Crew, work: list[Work], found: Mapping[str, Downstream]
) -> None:
    got = size(crew, work, found)
    assert got.workers <= max(crew.most, crew.least, 1) and got.workers <= max(crew.connections, crew.least, 1)
    assert got.reason and got.binds
    if any(one.waiting for one in work):
        assert got.workers >= 1
    strained = size(replace(crew, strained=("db_pool_wait",)), work, found)
    assert strained.workers <= max(crew.workers, crew.least, 1)


# -- each rule


def test_what_waits_and_comes_asks_for_slots_and_some_are_left_for_what_comes_unevenly() -> None:
    assert enough({}, work=Work(a_second=4.0, mean_s=5.0)).workers == 3  # 20 / 0.85 = 23.5 slots
    assert enough({}, work=Work(waiting=600, mean_s=20.0)).workers == 6  # 40 slots for five minutes / 0.85
    assert enough({}, work=Work(waiting=600, urgent=300, mean_s=20.0)).workers == 18  # 20 + 100, for a minute / 0.85
    assert enough({}, work=Work(waiting=2, leases=16, mean_s=3600.0)).workers == 6  # 16 stay + 24: all of it / 0.85


def test_a_quota_binds_however_much_waits_and_the_reason_says_so() -> None:
    found = enough(llm(20, ceiling=20, in_use=20), workers=3)
    assert (found.workers, found.binds) == (3, "llm")
    assert found.reason == "adding workers will not help: llm limit 20, in use 20"
    assert enough(llm(20, ceiling=20, in_use=8), workers=1).workers == 3
    assert enough(llm(20, ceiling=20, others=12, in_use=20), workers=1).workers == 1  # another pool calls, too


def test_tasks_that_call_for_half_their_time_need_twice_the_slots() -> None:
    assert enough(llm(20, ceiling=20, phi=0.5)).workers == 5


def test_a_provider_that_answers_429_gets_nobody_more() -> None:
    found = enough(llm(20, refuses="answers 429", leases=8, in_use=3), workers=1)
    assert (found.workers, found.holds) == (1, True)
    assert found.reason == "adding workers will not help: llm answers 429; limit 20, in use 3"


def test_tasks_that_wait_in_their_slots_for_a_permit_show_that_slots_are_enough() -> None:
    assert enough(llm(30, waiting=9, leases=16), workers=2).workers == 2
    assert enough(llm(30, waiting=1, leases=16), workers=2).workers == 4


def test_while_the_limiter_seeks_and_slots_bind_twice_those_are_tried() -> None:
    assert enough(llm(9, seeking=True), workers=1).workers == 2
    assert enough(llm(18, seeking=True), workers=2).workers == 4
    assert enough(llm(46, seeking=True), workers=6, each=8).workers == 7  # never beyond what is configured
    assert enough(llm(4, seeking=True), workers=1).workers == 1  # here the limit binds, not the slots


def test_work_that_does_not_touch_a_full_downstream_still_gets_workers() -> None:
    work = [calls(), Work(waiting=3000, mean_s=4.0)]
    found = size(Crew(pool="llm", each=8, workers=1), work, llm(8, ceiling=8, leases=8, in_use=8))
    assert (found.workers, found.binds) == (7, "llm")  # 8 + 40 / 0.85 slots


def test_connections_and_the_pools_own_bounds_bind_by_their_names() -> None:
    work = [Work(waiting=100_000, mean_s=10.0)]
    one = Crew(pool="llm", each=8, workers=1)
    for crew, name in ((replace(one, connections=4), "connections"), (replace(one, most=4), "most")):
        found = size(crew, work, {})
        assert (found.workers, found.binds) == (4, name)
    assert size(Crew(pool="llm", each=8, workers=2, least=2), [], {}).binds == "least"
    assert size(Crew(pool="llm", each=8, workers=0), [], {}).workers == 0, "nothing runs and nothing is to run"
    assert size(Crew(pool="llm", each=8, workers=0, least=0), [calls(1)], {}).workers == 1
