"""URLs: the front, the API with its documentation, the pages, the admin, and the probes."""

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import include, path

from harness.web import decide, front, health, metrics, problems
from harness.web.admin.site import site
from harness.web.api.app import api
from harness.web.pages import urls as pages

urlpatterns = [
    path("", front.front),
    path("api/", api.urls),
    path("admin/", site.urls),
    path("decide/<path:link>", decide.decide),
    path("work/", include(pages.of_viewers)),
    path("shared/<str:link>/", include(pages.of_links)),
    path("operations/", include(pages.of_operators)),
    path("metrics", metrics.read),
    path("health/live", health.live),
    path("health/ready", health.ready),
]
handler404 = front.missing


def handler500(request: HttpRequest) -> HttpResponse:
    """What nobody foresaw, outside the API's own handlers."""
    if request.path.startswith("/admin/"):
        return HttpResponse(render_to_string("harness/admin/unavailable.html", {"broken": True}), status=500)
    return problems.problem("internal", "something went wrong inside Harness; it has been logged")
