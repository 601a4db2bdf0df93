"""URLs: the API with its documentation, and the probes."""

from django.http import HttpRequest, HttpResponse
from django.urls import path

from harness.web import health, problems
from harness.web.api.app import api

urlpatterns = [
    path("api/", api.urls),
    path("health/live", health.live),
    path("health/ready", health.ready),
]


def handler500(request: HttpRequest) -> HttpResponse:
    """What nobody foresaw, outside the API's own handlers."""
    return problems.problem("internal", "something went wrong inside Harness; it has been logged")
