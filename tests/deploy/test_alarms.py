"""Alarms and dashboard: every metric that they name is one that Harness exports, and every alarm has its runbook."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command, get_commands, load_command_class

from harness.ops.management.commands import metrics_doc
from harness.telemetry.metrics import METRICS

NAME = re.compile(r"\bharness_[a-z_]+")
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("",), "gauge": ("",)}
EXPORTED = {name + suffix: one for name, one in METRICS.items() for suffix in SUFFIXES[one.kind]}


def rules(root: Path) -> list[dict[str, Any]]:
    loaded = yaml.safe_load((root / "deploy/prometheus/rules.yml").read_text("utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def expressions(root: Path) -> Iterator[str]:
    """What is asked of Prometheus: alarms, panels, and what scales workers."""
    yield from (rule["expr"] for rule in rules(root))
    board = json.loads((root / "deploy/grafana/dashboards/harness.json").read_text("utf-8"))
    yield from (one["expr"] for panel in board["panels"] for one in panel.get("targets", []))
    for path in (root / "deploy").rglob("*.yaml"):
        yield from re.findall(r"(?m)^\s*query: (.*)$", path.read_text("utf-8"))


def test_every_metric_that_is_asked_for_is_exported_with_the_labels_that_are_asked_for(root: Path) -> None:
    asked = list(expressions(root))
    assert len(asked) > 50
    used = set()
    for expression in asked:
        names = NAME.findall(expression)
        assert names or "up{" in expression, expression
        for name in names:
            assert name in EXPORTED, f"{name} in {expression}"
            used.add(name)
        for name, labels in re.findall(r"(harness_[a-z_]+)\{([^}]*)\}", expression):
            for label in re.findall(r"(\w+)\s*[=!]", labels):
                assert label in EXPORTED[name].labels, (label, expression)
        allowed = {"le"} | {label for name in names for label in EXPORTED[name].labels}
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            assert {label.strip() for label in labels.split(",") if label.strip()} <= allowed, expression
        assert expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}")
    # What nobody draws and nobody is called by is told for nothing.
    shown = {name for name in METRICS if any(one.startswith(name) for one in used)}
    assert len(METRICS.keys() - shown) <= 12, sorted(METRICS.keys() - shown)


def test_rates_are_taken_of_counters_and_histograms_alone_and_quantiles_of_buckets(root: Path) -> None:
    for expression in expressions(root):
        for name in re.findall(r"(?:rate|increase)\((harness_[a-z_]+)", expression):
            assert EXPORTED[name].kind != "gauge", expression
        for inner in re.findall(r"histogram_quantile\([\d.]+, .*?(harness_[a-z_]+)", expression):
            assert inner.endswith("_bucket") and "le)" in expression, expression
        for name in NAME.findall(expression):
            if EXPORTED[name].kind == "counter":
                assert re.search(rf"(rate|increase)\({name}", expression), expression


def test_every_alarm_says_what_it_is_and_has_its_part_of_the_runbook(root: Path) -> None:
    page = (root / "docs/runbook.md").read_text("utf-8")
    parts = dict(re.findall(r"(?ms)^## (\w+)\n(.*?)(?=^## |\Z)", page))
    named = [rule["alert"] for rule in rules(root)]
    assert sorted(named) == sorted(set(named)) == sorted(parts), "one part for each alarm, and none besides"
    for rule in rules(root):
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
        for word in ("**Means**", "**Look**", "**Do**"):
            assert parts[rule["alert"]].count(word) == 1, rule["alert"]


def test_every_command_and_page_that_the_runbook_names_is_there(root: Path) -> None:
    page = (root / "docs/runbook.md").read_text("utf-8")
    commands = get_commands()
    asked = re.findall(r"`manage\.py ([a-z_]+)([^`]*)`", page)
    assert len(asked) >= 15
    for name, rest in asked:
        assert name in commands, name
        parser = load_command_class(commands[name], name).create_parser("manage.py", name)
        known = parser.format_help() + "".join(
            one.format_help()
            for action in parser._actions
            if isinstance(action.choices, dict)
            for one in action.choices.values()
        )
        words = re.findall(r"(?<= )(--[a-z-]+|[a-z]{3,}(?= |$))", f" {rest.strip()}" if rest else "")
        for word in words:
            assert word in known, (name, word)
    for link in re.findall(r"\]\(([^)#]+)", page):
        assert (root / "docs" / link).exists(), link


def test_the_page_of_metrics_is_that_of_the_table(root: Path) -> None:
    assert (root / "docs/reference/metrics.md").read_text("utf-8") == metrics_doc.render()
    call_command("metrics_doc", "--check")


@pytest.mark.parametrize("name", ["queue_depth_by_priority", "task_wait_time", "task_run_time", "retry_count",
                                  "dead_letter_count", "cancellation_rate", "approval_wait_time", "worker_utilization",
                                  "backpressure_trigger_count"])  # fmt: skip
def test_the_nine_metrics_of_the_source_have_its_names(name: str) -> None:
    unit = {"gauge": "", "counter": "_total", "histogram": "_seconds"}
    assert [one for one in METRICS if one in {f"harness_{name}{unit[METRICS[one].kind]}"}], name
