"""The Django app that owns Harness's tables."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    """Models and migrations; label `store`."""

    name = "harness.store"
    label = "store"
    verbose_name = "Harness"
