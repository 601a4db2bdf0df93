"""The decision whether an ended task may be sent again, and what that changes. Who admits it is policy.admission.

V1  In which states a task is sent again, verbs.redrive decides.
V2  With the old input: the version must be the one that runs now; the idempotency token stays, so an effect that
    was made isn't made twice, and so do the finished steps: they are replayed.
V3  With another input: the version that runs now, and the token changes (a new epoch): an effect of the old input must
    not answer for the new one. Its steps are dropped with it.
V4  Attempts, lost starts and postponements begin at 0; release_no, the fence, never goes back.
"""

from dataclasses import dataclass
from typing import Literal

from harness.policy import verbs
from harness.policy.lifecycle import State
from harness.policy.verbs import ALREADY, Asked, Stand

Why = Literal["state", "kind", "version"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Go:
    """Send it again, at `version`. `anew`: with another input, under another token."""

    version: int
    anew: bool


@dataclass(frozen=True, slots=True)
class Already:
    """It waits in line already."""


@dataclass(frozen=True, kw_only=True, slots=True)
class No:
    """It can't be sent again as it stands."""

    why: Why
    message: str


def decide(*, state: str, kind: str, version: int, known_version: int | None, changed: bool) -> Go | Already | No:
    """Decide on one task. `known_version`: of its kind, here and now (None: no such kind); `changed`: its input.

    >>> decide(state="failed_terminal", kind="k", version=1, known_version=1, changed=False)
    Go(version=1, anew=False)
    >>> decide(state="cancelled", kind="k", version=1, known_version=2, changed=True)
    Go(version=2, anew=True)
    >>> decide(state="failed_terminal", kind="k", version=1, known_version=2, changed=False).why
    'version'
    >>> decide(state="queued", kind="k", version=1, known_version=1, changed=False)
    Already()
    """
    stands = verbs.redrive(Stand(state=State(state)), Asked())
    if stands.step is None:
        if stands == ALREADY and not changed:
            return Already()
        why = stands.why or "it is in line already, and one in line keeps its input"
        return No(why="state", message=f"the task {why.removeprefix('it ')}")
    if known_version is None:
        return No(why="kind", message=f"there is no kind {kind!r} any more, so nothing could run the task")
    if version != known_version and not changed:
        return No(
            why="version",
            message=f"the task was made for version {version} of {kind}, and version {known_version} runs now: "
            "send it with an input, which begins anew at that version",
        )
    return Go(version=known_version, anew=changed)
