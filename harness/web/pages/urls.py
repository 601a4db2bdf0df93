"""Where pages stand. Those below /work/ are asked by session; the same ones below /shared/<link>/ by a signed link.

A page that a link may open checks so itself (harness.web.pages.opening).
"""

from django.urls import URLPattern, path

from harness.web.pages.operations import page as operations
from harness.web.pages.operations import verbs

_OF_BOTH: list[URLPattern] = []  # of a task or a run: by session and by link
of_viewers: list[URLPattern] = [*_OF_BOTH]
of_links: list[URLPattern] = [*_OF_BOTH]
of_operators: list[URLPattern] = [
    path("", operations.show),
    path("live", operations.stream),
    path("pause/", verbs.pause),
    path("resume/", verbs.resume),
    path("override/", verbs.override),
    path("drain/", verbs.drain),
]
