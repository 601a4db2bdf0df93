"""Where pages stand. Those below /work/ are asked by session; the same ones below /shared/<link>/ by a signed link.

A page that a link may open checks so itself (harness.web.pages.opening).
"""

from django.urls import URLPattern, path

from harness.web.pages import parts, task

# Of a task or a run: by session and by link.
_OF_BOTH: list[URLPattern] = [
    path("tasks/<uuid:task_id>/", task.show),
    path("tasks/<uuid:task_id>/live", task.stream),
    path("tasks/<uuid:task_id>/do/<str:verb>", task.press),
    path("tasks/<uuid:task_id>/result", parts.result),
    path("tasks/<uuid:task_id>/files/<uuid:artifact_id>", parts.file),
    path("tasks/<uuid:task_id>/trace", parts.trace),
    path("tasks/<uuid:task_id>/share", parts.share),
]
of_viewers: list[URLPattern] = [*_OF_BOTH]
of_links: list[URLPattern] = [*_OF_BOTH]
of_operators: list[URLPattern] = []
