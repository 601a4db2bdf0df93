"""`manage.py lifecycle_doc [--check]`: docs/lifecycle.md, written from the state table."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from harness.policy.lifecycle import LIVE, TABLE, TERMINAL, Row, State
from harness.policy.retry import VERDICTS

HEAD = """# The life of a task

Generated from `harness/policy/lifecycle.py` and `harness/policy/retry.py` by `manage.py lifecycle_doc`; don't edit.

A task is always in one of eight states. A released task is still `queued`: that it was released is its lease, not a
state. Only the arcs below exist; a trigger in the database refuses every other change of state.
"""


def _arcs(row: Row) -> str:
    by_target: dict[State, list[str]] = {}
    for source, target in sorted(row.arcs, key=lambda arc: (arc[1], arc[0] or "")):
        by_target.setdefault(target, []).append(f"`{source}`" if source else "-")
    return "; ".join(f"{', '.join(sources)} -> `{target}`" for target, sources in by_target.items())


def render() -> str:
    """Return the text of docs/lifecycle.md."""
    lines = [HEAD]
    lines.append(f"Live: {', '.join(f'`{s}`' for s in State if s in LIVE)}. ")
    lines.append(f"Over: {', '.join(f'`{s}`' for s in State if s in TERMINAL)}.\n")
    lines.append("## Events\n")
    lines.append("| event | from -> to | fired by | costs an attempt | note |\n|---|---|---|---|---|")
    lines += [f"| {row.event} | {_arcs(row)} | {row.by} | {row.costs_attempt} | {row.note} |" for row in TABLE.values()]
    lines.append("\n## What follows from an error\n")
    lines.append("| error class | verdict | attempts at most | why |\n|---|---|---|---|")
    lines += [
        f"| {name} | {rule.verdict} | {rule.most_attempts or 'as the kind says'} | {rule.why} |"
        for name, rule in VERDICTS.items()
    ]
    lines.append("\n## Drawn\n\n```mermaid\nstateDiagram-v2\n    [*] --> queued: submit")
    lines += sorted(
        f"    {source} --> {target}: {row.event}"
        for row in TABLE.values()
        for source, target in row.arcs
        if source is not None and source != target
    )
    lines.append("```\n")
    return "\n".join(lines)


class Command(BaseCommand):
    """Writes the page, or with --check says whether it is stale."""

    help = "Write docs/lifecycle.md from the state table."
    requires_system_checks: list[str] = []  # noqa: RUF012  # Django's own attribute

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail when the page is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        page = Path(settings.BASE_DIR) / "docs" / "lifecycle.md"
        text = render()
        if not options["check"]:
            page.write_text(text, encoding="utf-8")
        elif not page.exists() or page.read_text(encoding="utf-8") != text:
            raise CommandError("docs/lifecycle.md is stale: run `python manage.py lifecycle_doc` and commit it")
