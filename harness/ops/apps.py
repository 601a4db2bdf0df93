"""The Django app of the ops ring."""

from django.apps import AppConfig


class OpsConfig(AppConfig):
    """Management commands, metrics, the local stack."""

    name = "harness.ops"
    label = "ops"
