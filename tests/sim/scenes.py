"""Small scenarios, made of what a test says and else of one pool `llm`, one kind `step`, one tenant `a`."""

from typing import Any

from harness.sim.parse import parse
from harness.sim.report import Report, simulate
from harness.sim.scenario import Scenario


def scene(**more: Any) -> Scenario:
    """Return a scenario. Lists and tables given replace the usual ones."""
    raw: dict[str, Any] = {
        "title": "test",
        "duration_s": 100.0,
        "pools": {"llm": {"slots": 2}},
        "kinds": {"step": {"pool": "llm", "mean_s": 1.0}},
        "tenants": {"a": {}},
        "work": [{"tenants": "a", "kind": "step", "arrivals": "at", "batch": 10}],
    }
    return parse(raw | more, name="test.toml")


def played(**more: Any) -> Report:
    """Simulate such a scenario."""
    return simulate(scene(**more))
