"""A target's limit is what it has free: never more, back without a wave, and 0 when nobody can tell."""

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.policy.errors import Invalid
from harness.policy.settings import parse
from harness.policy.targets import (
    AWAY_AFTER,
    EVERY_S,
    SETTLED_S,
    YIELD_S,
    Away,
    Ceiling,
    Full,
    Seen,
    State,
    Target,
    follow,
)

TARGET = Target(name="db:main", dsn_env="TARGET_URL", pool=20)


def seen(others: int = 0, *, ours: int = 0, hard: int | None = None) -> Seen:
    ceilings = () if hard is None else (Ceiling(of="role", limit=hard, others=others),)
    return Seen(others=others, ours=ours, ceilings=ceilings)


class Watched:
    """A target that is looked at once a second."""

    def __init__(self, *, capacity: int = 20) -> None:
        self.state = State()
        self.capacity = capacity
        self.now_s = 1000.0

    def look(self, at: Seen | Full | Away, *, leases: int = 0) -> int:
        self.state = follow(self.state, TARGET, at, capacity=self.capacity, leases=leases, now_s=self.now_s)
        self.now_s += EVERY_S
        assert self.state.limit is not None
        return self.state.limit

    def looks(self, *some: Seen | Full | Away, leases: int = 0) -> list[int]:
        return [self.look(one, leases=leases) for one in some]


def test_ten_of_twenty_that_others_take_are_gone_at_the_next_look_and_back_when_they_have_stayed_away() -> None:
    watched = Watched()
    assert watched.looks(seen(0), seen(10)) == [20, 10]
    came = watched.state
    back = watched.looks(*[seen(0)] * 4)
    assert back == [10, 10, 20, 20]  # the last look with them was SETTLED_S before
    assert (came.reason, watched.state.reason) == ("others_came", "others_left")


def test_a_foreign_pool_that_opens_and_closes_makes_no_waves() -> None:
    watched = Watched()
    limits = watched.looks(*[seen(4 * (n % 2)) for n in range(20)])
    assert limits[1:] == [16] * 19


def test_where_the_server_refuses_one_stays_free_and_newcomers_are_given_way_faster_and_faster() -> None:
    """Ten clients that try again and again take what is free; our tasks end by themselves within two looks."""
    watched = Watched()
    assert watched.look(seen(0, hard=20)) == 19
    ours, others, took, limits = 19, 0, 0, []
    while others < 10:
        others = min(10, others + 20 - ours - others)
        limit = watched.look(seen(others, ours=ours, hard=20), leases=ours)
        limits.append(limit)
        ours = max(limit, ours - 10)
        took += 1
        assert took < 10
    assert took <= 5
    for _ in range(4):
        limits.append(watched.look(seen(10, ours=min(ours, limits[-1]), hard=20), leases=limits[-1]))
    assert limits[-1] == 9
    assert min(limits) >= 5
    assert (watched.state.spare, watched.state.mode) == (1, "follow")


def test_a_spare_that_nobody_can_be_seen_to_want_goes_after_a_while() -> None:
    watched = Watched()
    watched.looks(seen(0, ours=19, hard=20), seen(1, ours=19, hard=20))
    assert watched.state.spare == 2
    watched.looks(*[seen(1, ours=19, hard=20)] * int(YIELD_S), leases=19)  # our own work has not ended yet
    assert watched.state.spare == 1


def test_a_server_with_far_more_places_than_the_pool_needs_no_spare_one() -> None:
    watched = Watched()
    assert watched.looks(seen(0, hard=100), seen(3, hard=100)) == [20, 17]


def test_a_target_that_lets_nobody_in_is_given_way_until_it_does() -> None:
    watched = Watched()
    watched.look(seen(0, hard=20))
    limits = []
    leases = 19
    for _ in range(5):
        limits.append(watched.look(Full(), leases=leases))
        leases = min(leases, limits[-1])
    assert limits[0] < 19
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] == 0
    assert watched.state.mode == "full"
    assert watched.looks(*[seen(12, hard=20)] * 30)[-1] == 7


def test_a_target_that_cannot_be_asked_twice_blocks_and_comes_back_by_doubling() -> None:
    watched = Watched()
    away = Away(mode="unreachable", why="connection refused")
    assert watched.looks(seen(0), away, away) == [20, 20, 0]
    assert AWAY_AFTER == 2
    assert (watched.state.mode, watched.state.reason) == ("unreachable", "unreachable")
    assert watched.looks(*[seen(0)] * 6) == [1, 2, 4, 8, 16, 20]
    assert watched.state.reason == "back"


@pytest.mark.parametrize("mode", ["unset", "invalid"])
def test_a_target_without_an_address_blocks_at_once(mode: Any) -> None:
    assert Watched().look(Away(mode=mode, why="x")) == 0


def test_a_target_that_never_answered_blocks_at_once() -> None:
    assert Watched().look(Away(mode="unreachable", why="x")) == 0


def test_connections_that_a_killed_worker_left_behind_are_not_ours_to_use() -> None:
    watched = Watched()
    limits = [watched.look(seen(0, ours=12), leases=7) for _ in range(4)]
    assert limits == [20, 20, 15, 15]
    assert watched.state.reason == "left_behind"
    # One look with more at work than leases is a task that ended in between.
    watched = Watched()
    assert [watched.look(seen(0, ours=8), leases=leases) for leases in (8, 7, 8, 7)] == [20] * 4


def test_an_operator_s_lower_capacity_binds_and_says_so() -> None:
    watched = Watched()
    watched.look(seen(0))
    watched.capacity = 5
    assert watched.look(seen(0)) == 5
    assert watched.state.reason == "capacity"
    watched.capacity = 0
    assert watched.look(seen(0)) == 0


@given(
    st.lists(
        st.one_of(
            st.builds(seen, st.integers(0, 60), ours=st.integers(0, 40), hard=st.none() | st.integers(0, 60)),
            st.just(Full()),
            st.builds(Away, mode=st.sampled_from(["unreachable", "unset", "invalid"]), why=st.just("x")),
        ),
        max_size=40,
    ),
    st.integers(0, 25),
    st.integers(0, 25),
)
def test_the_limit_stays_within_its_bounds_whatever_is_seen(
    looks: list[Seen | Full | Away], capacity: int, leases: int
) -> None:
    watched = Watched(capacity=capacity)
    before: int | None = None
    for look in looks:
        limit = watched.look(look, leases=leases)
        unsure = isinstance(look, Away) and look.mode == "unreachable" and watched.state.failures < AWAY_AFTER
        assert 0 <= limit <= capacity or unsure
        if isinstance(look, Seen):
            assert limit <= max(0, TARGET.pool - look.others)
            for one in look.ceilings:
                assert limit <= max(0, one.limit - one.others - watched.state.spare)
        if before is not None and limit > before:
            assert limit <= max(1, 2 * before)
        before = limit


@given(st.lists(st.integers(0, 30), min_size=1, max_size=30), st.integers(0, 30))
def test_the_limit_is_what_is_free_once_the_others_stand_still(history: list[int], others: int) -> None:
    watched = Watched()
    watched.looks(*[seen(one) for one in history])
    assert watched.looks(*[seen(others)] * 10)[-1] == max(0, 20 - others)


@pytest.fixture
def raw(root: Path) -> dict[str, Any]:
    return copy.deepcopy(tomllib.loads((root / "config" / "resources.toml").read_text()))


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({}, "targets.db:main.dsn_env"),
        ({"dsn_env": 5}, "targets.db:main.dsn_env"),
        ({"dsn_env": ""}, "targets.db:main.dsn_env"),
        ({"dsn_env": "NOT A NAME"}, "targets.db:main.dsn_env"),
        ({"dsn_env": "X", "pool": 0}, "targets.db:main.pool"),
        ({"dsn_env": "X", "pool": True}, "targets.db:main.pool"),
        ({"dsn_env": "X", "pool": 19}, "targets.db:main.pool"),
        ({"dsn_env": "X", "follow": "yes"}, "targets.db:main.follow"),
        ({"dsn_env": "X", "size": 3}, "targets.db:main.size"),
        ([], "targets.db:main"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused_by_its_key(raw: dict[str, Any], table: object, key: str) -> None:
    raw["resources"]["db:main"] = {"held": "task", "capacity": 20}
    raw["targets"] = {"db:main": table}
    with pytest.raises(Invalid, match=r"resources\.toml") as caught:
        parse(raw)
    assert caught.value.field == key


def test_an_address_in_place_of_a_variable_is_refused_without_showing_it(raw: dict[str, Any]) -> None:
    raw["resources"]["db:main"] = {"held": "task", "capacity": 20}
    raw["targets"] = {"db:main": {"dsn_env": "postgresql://harness:s3cret-word@db/main"}}
    with pytest.raises(Invalid, match="environment variable") as caught:
        parse(raw)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["llm:default", "nowhere"])
def test_a_target_is_a_resource_that_tasks_hold(raw: dict[str, Any], name: str) -> None:
    raw["targets"] = {name: {"dsn_env": "X"}}
    with pytest.raises(Invalid, match='held = "task"'):
        parse(raw)


def test_the_pool_of_a_target_is_its_resource_s_capacity_unless_it_is_said(raw: dict[str, Any]) -> None:
    raw["resources"]["db:main"] = {"held": "task", "capacity": 7}
    raw["targets"] = {"db:main": {"dsn_env": "X"}}
    assert parse(raw).targets["db:main"] == Target(name="db:main", dsn_env="X", pool=7)
    raw["targets"] = {"db:main": {"dsn_env": "X", "pool": 5, "follow": False}}
    assert parse(raw).targets["db:main"].follow is False


def test_settling_takes_longer_than_two_looks() -> None:
    assert SETTLED_S > 2 * EVERY_S
