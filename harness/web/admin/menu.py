"""The menu at the side: what is registered and may be seen, by group."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst


def groups(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the groups with their links, as Unfold wants them."""
    from harness.web.admin import letters, resources, retries  # Unfold asks while the site is being made, too
    from harness.web.admin.site import REGISTERED, site

    found: dict[str, list[dict[str, Any]]] = {
        "": [{"title": "Overview", "icon": "dashboard", "link": reverse("admin:index")}]
    }
    for entry in REGISTERED:
        if not site._registry[entry.model].has_view_permission(request):
            continue
        meta = entry.model._meta
        found.setdefault(entry.group, []).append(
            {
                "title": str(capfirst(meta.verbose_name_plural)),
                "icon": entry.icon,
                "link": reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist"),
            }
        )
    if letters.may_see(request):
        work = found.setdefault("Work", [])
        work.insert(1, {"title": "Dead letters", "icon": "mail_off", "link": reverse("admin:dead_letters")})
    if resources.may_see(request):
        own = found.setdefault("Resources", [])
        own.insert(0, {"title": "Resources", "icon": "speed", "link": reverse("admin:resources")})
    if retries.may_see(request):
        own = found.setdefault("Resources", [])
        own.append({"title": "Retries", "icon": "restart_alt", "link": reverse("admin:retries")})
    return [
        {"title": name or None, "separator": bool(name), "collapsible": False, "items": items}
        for name, items in found.items()
    ]
