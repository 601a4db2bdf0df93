"""Entry point of the web process: `uvicorn config.asgi:application`."""

import logging
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import TooManyFieldsSent, TooManyFilesSent

from harness.telemetry import logs, traces

logs.configure(settings.HARNESS_LOG_LEVEL, process="web")
traces.configure(process="web")
# A line for each request that a client got wrong would let clients fill the log.
logging.getLogger("django.request").setLevel(logging.ERROR)
for _error in (TooManyFieldsSent, TooManyFilesSent):
    logging.getLogger(f"django.security.{_error.__name__}").setLevel(logging.CRITICAL)
_django = get_asgi_application()

from harness.web import service  # noqa: E402  (models load only after Django is set up)
from harness.web.edge import Lifespan, SizeLimit  # noqa: E402
from harness.web.threads import SharedThread  # noqa: E402
from harness.web.upload import OpenBodies  # noqa: E402

_threaded = SharedThread(_django, pattern=r"/api/v1/tasks/[^/]+/stream|/(work|shared|operations)/(.+/)?live")
# A payload at its limit may take six times as many bytes on its way, with every character escaped.
_sized = SizeLimit(
    _threaded,
    default_bytes=6 * settings.HARNESS_BODY_MAX_BYTES + 64 * 1024,
    limits={
        "/api/v1/runs": settings.HARNESS_RUN_MAX_BYTES,
        "/api/v1/artifacts": settings.HARNESS_ARTIFACT_MAX_BYTES,
    },
)
_opened = OpenBodies(_sized, paths=["/api/v1/artifacts"])
application = Lifespan(_opened, startup=service.service, shutdown=service.close)
