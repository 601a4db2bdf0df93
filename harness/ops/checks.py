"""What `manage.py check` says of resources.toml: what doesn't add up, from the file and the kinds alone.

Imports the kinds only when it is asked: every process of Django loads this module.
"""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core import checks

IDS = {"slots": "harness.capacity.W001", "connections": "harness.capacity.E001"}
KINDS = "harness.capacity.E002"


@checks.register
def capacity_adds_up(app_configs: Any = None, **_: Any) -> Sequence[checks.CheckMessage]:
    """Pools with more slots than their downstreams carry; a budget that holds not even one process of each."""
    from harness.kinds import registry
    from harness.policy import capacity
    from harness.policy.errors import Invalid

    try:
        registry.discover(*settings.HARNESS_TASK_PACKAGES)
        registry.check_against(settings.HARNESS_TOPOLOGY)
    except Invalid as error:
        return [checks.Error(error.message, id=KINDS)]
    return [
        (checks.Error if one.error else checks.Warning)(one.message, hint=one.hint, id=IDS[one.id])
        for one in capacity.objections(settings.HARNESS_TOPOLOGY, registry.needs())
    ]
