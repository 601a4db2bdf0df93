"""`manage.py metrics_doc [--check]`: docs/reference/metrics.md, written from the table of metrics."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.policy.tally import SHOWN_MOST
from harness.telemetry.metrics import METRICS

HEAD = f"""# Metrics

Generated from `harness/telemetry/metrics.py` by `manage.py metrics_doc`; don't edit.

`GET /metrics` of any web process, with the bearer token of `HARNESS_METRICS_TOKEN`. The leading dispatcher counts
every 5 s, whatever the number of processes, so each web process gives the same answer: ask one of them (ADR 0034).
Counters and histograms are totals since Harness began and survive restarts of everything. The wait of a task is
counted when its first attempt ends, its run time when an attempt ends. Pools, kinds, priorities (0 to 3), resources
and reasons are closed sets; of tenants the {SHOWN_MOST} that used most slots of late have their name, all others
are `other`.

Rules and a dashboard stand in `deploy/prometheus/rules.yml` and `deploy/grafana/dashboards/harness.json`; what to
do when a rule calls stands in the [runbook](../runbook.md).

| metric | kind | labels | what it is |
|---|---|---|---|
"""


def render() -> str:
    """Return the text of docs/reference/metrics.md."""
    lines = [
        f"| `{name}` | {one.kind} | {', '.join(f'`{label}`' for label in one.labels)} | {one.what} |"
        for name, one in METRICS.items()
    ]
    return HEAD + "\n".join(lines) + "\n"


class Command(BaseCommand):
    """Writes the page, or with --check says whether it is stale."""

    help = "Write docs/reference/metrics.md from the table of metrics."
    requires_system_checks: list[str] = []  # noqa: RUF012  # Django's own attribute

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail when the page is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        page = Path(settings.BASE_DIR) / "docs" / "reference" / "metrics.md"
        text = render()
        if not options["check"]:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            raise CommandError("docs/reference/metrics.md is stale: run `python manage.py metrics_doc` and commit it")
