"""A run as its page shows it: read at once, for one viewer. What is said of it stands in run_told."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from harness.engine import expect
from harness.policy.errors import NotFound
from harness.policy.lifecycle import State
from harness.store import pauses, queries, runs
from harness.store.database import Connection
from harness.store.queries import RunView
from harness.web.pages import branches, cells, forms, marks, run_told, times, words
from harness.web.pages.access import Viewer
from harness.web.pages.forms import Button
from harness.web.pages.graph import NODES_MOST
from harness.web.pages.words import counted

CAUSES_MOST = 5
SHOWN_MOST = 3  # tasks of each cause
SLOWEST_MOST, SLOWEST_DRAWN_MOST = 5, 3  # a picture with times beside it has the others
ORDER = tuple(dict.fromkeys(runs.LETTERS.values()))


def facts(connection: Connection, viewer: Viewer, tenant: int, run_id: uuid.UUID) -> Mapping[str, Any]:
    """Return what a run's page is drawn from; the connection is held to its tenant. Raises: NotFound."""
    run = queries.run(connection, run_id)
    if run is None:
        raise NotFound(f"there is no run {run_id}")
    now = datetime.now(UTC)
    letters, last_end = runs.states(connection, run.id)
    counts = cells.counts(letters)
    over = run_told.over(counts)
    stopped = pauses.of(connection, "run", str(run.id)) if not over else []
    failed = counts.get(State.FAILED_TERMINAL, 0)
    gone = failed + counts.get(State.CANCELLED, 0)
    causes = runs.failures(connection, run.id, most=CAUSES_MOST, shown=SHOWN_MOST) if gone else []
    state, sentence = run_told.sentence(counts, paused=bool(stopped))
    answers = [
        run_told.when(run, counts, expect.of_run(connection, run), last_end, now),
        run_told.why(counts, runs.reasons(connection, tenant, run.id) if not over else [], stopped, causes, now),
    ]
    nodes = runs.graph(connection, run.id, most=NODES_MOST) if len(letters) <= NODES_MOST else None
    drawn = branches.rows(nodes, viewer.task_path, now=now)
    path = viewer.run_path(run_id)
    share = run_told.ended(counts) / len(letters) if letters else 1.0
    return {
        "path": path,
        "name": run.name or f"Run of {counted(run.size, 'task')}",
        "title": f"{_short(sentence)} · {run.name or 'Run'}",
        "meta": f"Run of {counted(len(letters), 'task')}, submitted at {times.clock(run.created_at, now)}",
        "over": over,
        "many": len(letters) > cells.SQUARES,
        "mark": marks.mark(state),
        "sentence": sentence,
        "answers": [answer for answer in answers if answer is not None],
        "buttons": buttons(viewer, run, counts, paused=bool(stopped), now=now) if viewer.may_act else [],
        "asking": _asking(counts.get(State.WAITING_APPROVAL, 0)),
        "progress": marks.progress(share, "Tasks that have ended") if not over else "",
        "branches": drawn,
        "grid": cells.grid(letters),
        "counts": [
            {
                "mark": marks.mark(one),
                "n": counts[one],
                "said": words.standing_of(one, counts[one], letters.count(runs.PARKED)),
                "path": f"{path}tasks/?state={one}",
            }
            for one in ORDER
            if counts.get(one)
        ],
        "failed": counted(failed, "task"),
        "causes": [
            {
                **run_told.cause(cause),
                "n": counted(cause.n, "task"),
                "tasks": [viewer.task_path(task) for task in cause.tasks],
            }
            for cause in causes
        ],
        "slowest": [
            {
                "mark": marks.mark(one.state),
                "path": viewer.task_path(one.public_id),
                "name": branches.called(one.title, one.kind),
                "said": words.standing(one.state, parked=one.parked),
                "time": branches.spent(one.began_at, one.ended_at, now),
            }
            for one in runs.slowest(connection, run.id, most=SLOWEST_MOST if drawn is None else SLOWEST_DRAWN_MOST)
        ],
        "share_path": f"{path}share" if viewer.may_act and viewer.link is None else "",
        "run_id": str(run_id),
        "size": run.size,
        "spawned": max(0, len(letters) - run.size),
        "cap": run.fanout_cap,
        "submitted": times.stamp(run.created_at, now, seconds=True),
    }


def buttons(viewer: Viewer, run: RunView, counts: Mapping[State, int], *, paused: bool, now: datetime) -> list[Button]:
    """Return what a viewer can do to a run as it stands, what it needs first."""
    found = []

    def offer(verb: str, label: str, doing: str, look: str = "") -> None:
        # A token is of the run as it stands: the same button after something has ended is another action.
        purpose = f"{verb} run {run.public_id} {'.'.join(str(counts.get(state, 0)) for state in ORDER)}"
        found.append(
            Button(
                id=f"do-{verb}",
                label=label,
                path=f"{viewer.run_path(run.public_id)}{verb}/",
                token=forms.token(viewer, purpose, now=now),
                doing=doing,
                look=look,
            )
        )

    over = run_told.over(counts)
    if failed := counts.get(State.FAILED_TERMINAL):
        offer("redrive", f"Send the {failed:,} failed again" if failed > 1 else "Send the failed one again",
              "Sending", "primary" if over else "")  # fmt: skip
    if not over:
        if counts.get(State.FAILED_RETRYABLE):
            offer("requeue", "Try again now", "Trying")
        offer("resume", "Resume", "Resuming") if paused else offer("pause", "Pause", "Pausing")
        offer("cancel", "Cancel what is left", "Cancelling", "danger")
    return found


def _asking(n: int) -> str:
    return "" if n == 0 else "See the question" if n == 1 else f"See the {counted(n, 'question')}"


def _short(sentence: str) -> str:
    return sentence.partition(",")[0]
