"""The door of a simulated world: dead work isn't taken, what is deferred starts when it may, P0 is always taken."""

from typing import Any

from harness.sim.parse import parse
from harness.sim.run import play
from tests.sim.scenes import played

DOOR: dict[str, Any] = {
    "pressure": True,
    "admission": True,
    "pools": {"llm": {"slots": 4}},
    "kinds": {"step": {"pool": "llm", "mean_s": 2.0}},
    "duration_s": 200.0,
    "drain": False,
    "tenants": {"a": {}, "b": {}},
}


def poisson(tenant: str, rate_per_s: float, **more: Any) -> dict[str, Any]:
    return {"tenants": tenant, "kind": "step", "arrivals": "poisson", "rate_per_s": rate_per_s} | more


def test_what_cannot_make_its_deadline_is_refused_and_what_is_taken_makes_it() -> None:
    counts = played(**DOOR, work=[poisson("a", 6.0, deadline_s=30.0)]).figures["counts"]
    assert counts["refused_deadline"] > 0.5 * counts["submitted"], "three times what can be done came"
    assert counts["late"] <= 0.01 * counts["in_time"]
    assert counts["in_time"] >= 0.9 * 200 * 2.0, "and the slots were used for work that was in time"


def test_without_a_door_the_same_load_is_taken_and_most_of_it_expires() -> None:
    counts = played(**DOOR | {"admission": False}, work=[poisson("a", 6.0, deadline_s=30.0)]).figures["counts"]
    assert counts["submitted"] > 1000
    assert counts["expire"] > 0.5 * counts["submitted"]


def test_what_was_deferred_is_let_in_early_where_there_is_room_again() -> None:
    raw = DOOR | {
        "title": "t",
        "duration_s": 1200.0,
        "work": [
            {"tenants": "a", "kind": "step", "arrivals": "at", "at_s": [60.0], "batch": 1500, "priority": "p2"},
            poisson("b", 0.1, priority="p2", from_s=70.0, until_s=200.0, batch=100),
        ],
        "readings": held(0.75),
    }
    found = play(parse(raw, name="t.toml"), seed=1)
    assert found.counts["deferred"] > 0
    assert found.counts["let_in_early"] > 0
    assert found.counts["succeed"] + sum(1 for _ in found.world.tasks) == found.counts["submitted"]


def test_p0_is_taken_at_every_level() -> None:
    for busy in (0.75, 0.97):
        counts = played(**DOOR, work=[poisson("a", 5.0, priority="p0", until_s=100.0)], readings=held(busy)).figures[
            "counts"
        ]
        assert not any(name.startswith("refused_") and n for name, n in counts.items()), busy


def held(busy: float) -> list[dict[str, Any]]:
    """Readings that hold the level by themselves: normal, elevated, high or critical."""
    return [{"signal": "db_connection_usage", "value": busy}]
