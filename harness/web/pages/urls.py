"""Where pages stand. Those below /work/ are asked by session; the same ones below /shared/<link>/ by a signed link.

A page that a link may open checks so itself (harness.web.pages.opening).
"""

from django.urls import URLPattern, path

from harness.web.pages import lists, parts, run, start, task
from harness.web.pages.operations import page as operations
from harness.web.pages.operations import verbs

_RUN_VERBS = ("cancel", "pause", "resume", "requeue", "redrive")
# Of a task or a run: by session and by link.
_OF_BOTH: list[URLPattern] = [
    path("tasks/<uuid:task_id>/", task.show),
    path("tasks/<uuid:task_id>/live", task.stream),
    path("tasks/<uuid:task_id>/do/<str:verb>", task.press),
    path("tasks/<uuid:task_id>/result", parts.result),
    path("tasks/<uuid:task_id>/files/<uuid:artifact_id>", parts.file),
    path("tasks/<uuid:task_id>/trace", parts.trace),
    path("tasks/<uuid:task_id>/share", parts.share),
    path("runs/<uuid:run_id>/", run.show),
    path("runs/<uuid:run_id>/live", run.stream),
    path("runs/<uuid:run_id>/tasks/", lists.of_run),
    path("runs/<uuid:run_id>/share", run.share),
    *(path(f"runs/<uuid:run_id>/{verb}/", run.act, {"verb": verb}) for verb in _RUN_VERBS),
]
of_viewers: list[URLPattern] = [
    path("", start.show),
    path("live", start.stream),
    path("tasks/", lists.of_tenant),
    *_OF_BOTH,
]
of_links: list[URLPattern] = [*_OF_BOTH]
of_operators: list[URLPattern] = [
    path("", operations.show),
    path("live", operations.stream),
    path("pause/", verbs.pause),
    path("resume/", verbs.resume),
    path("override/", verbs.override),
    path("drain/", verbs.drain),
]
