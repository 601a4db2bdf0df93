"""The Django app of the ops ring."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    """Management commands, metrics, the local stack."""

    name = "harness.ops"
    label = "ops"

    def ready(self) -> None:
        """Register the system check."""
        from harness.ops import checks  # noqa: F401  # importing it registers it
