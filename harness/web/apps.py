"""The Django app of the web ring."""

from django.apps import AppConfig


class WebConfig(AppConfig):
    """HTTP API, pages, streams."""

    name = "harness.web"
    label = "web"
