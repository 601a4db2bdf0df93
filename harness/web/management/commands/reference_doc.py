"""`manage.py reference_doc [--check]`: the pages of docs/reference that are written from the code."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser


class Command(BaseCommand):
    """Writes the pages, or with --check says which are stale."""

    help = "Write docs/reference/{settings,api,errors}.md from the code."
    requires_system_checks: list[str] = []  # noqa: RUF012  # Django's own attribute

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--check", action="store_true", help="change nothing; fail when a page is stale")

    def handle(self, *args: Any, **options: Any) -> None:
        """Write or check. Raises: CommandError naming the stale pages."""
        folder = Path(settings.BASE_DIR) / "docs" / "reference"
        stale = []
        for name, text in pages().items():
            page = folder / name
            if page.exists() and page.read_text(encoding="utf-8") == text:
                continue
            stale.append(f"docs/reference/{name}")
            if not options["check"]:
                folder.mkdir(exist_ok=True)
                page.write_text(text, encoding="utf-8")
        if stale and options["check"]:
            raise CommandError(f"stale: {', '.join(stale)}: run `python manage.py reference_doc` and commit it")


def pages() -> dict[str, str]:
    """Return the pages by file name."""
    from harness.web import problems
    from harness.web.api.app import api
    from harness.web.reference import api as calls
    from harness.web.reference import errors
    from harness.web.reference import settings as variables

    return {
        "settings.md": variables.page(Path(settings.BASE_DIR)),
        "api.md": calls.render(api.get_openapi_schema()),
        "errors.md": errors.render(problems.STATUS),
    }
