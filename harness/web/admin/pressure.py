"""Changes of the level of pressure in the admin: to look at, for who sees every tenant."""

from typing import ClassVar

from django.contrib import admin

from harness.store.models import LevelChange
from harness.web.admin.inspected import Inspected


class LevelChangeAdmin(Inspected):
    """Changes of the level."""

    tenant_path = None
    empty = "The level has never changed."
    list_display = ("at", "turn", "by", "done")
    list_display_links: ClassVar[tuple[str, ...]] = ("at",)
    ordering = ("-id",)

    @admin.display(description="level")
    def turn(self, change: LevelChange) -> str:
        """Return from what to what."""
        return f"{change.get_before_display()} → {change.get_after_display()}"

    @admin.display(description="by")
    def by(self, change: LevelChange) -> str:
        """Return the signals that asked for it, the worst first."""
        worst = sorted(change.signals.items(), key=lambda item: (-item[1]["score"], item[0]))
        return ", ".join(f"{name} {one['value']:,.4g}" for name, one in worst) or "–"
