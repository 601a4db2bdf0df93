"""What the templates of a task's page are given: each part's facts, in words, from what was read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.safestring import SafeString

from harness.engine.why import Spent
from harness.policy import money
from harness.policy.lifecycle import TERMINAL, State
from harness.policy.reasons import Code
from harness.policy.steps import FINISHED, REPLAYED, STARTED
from harness.store.queries import EventView
from harness.web.pages import acting, cells, marks, results, ribbon, telling, times, words
from harness.web.pages.access import Viewer
from harness.web.pages.seen import Seen, said
from harness.web.pages.times import lasted

TRACE_SHOWN = 7
LEAST_S = 0.05  # of a reason that is told
DETAIL_CHARS = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A line of a list or table: a mark or swatch, what it is, what more there is to say, and a figure."""

    mark: SafeString = SafeString("")  # noqa: RUF009  # it never changes
    text: str
    detail: str = ""
    figure: str = ""
    look: str = ""


def of(seen: Seen, viewer: Viewer) -> dict[str, object]:
    """Return all facts of the page."""
    task = seen.task
    buttons = acting.buttons(seen, viewer)
    failed = seen.state is State.FAILED_TERMINAL
    parts, whole = results.parts_of(task.output) if seen.state is State.SUCCEEDED else ([], True)
    failure = words.failure(telling.error_class(seen)) if failed else None
    over_at = task.finished_at if seen.over and task.finished_at else seen.now
    past = ribbon.parts(seen.events, created=task.created_at, until=over_at, own=_own(seen))
    path = viewer.task_path(task.public_id)
    return {
        "name": seen.name,
        "task_id": task.public_id,
        "kind": task.kind if task.title else "",
        "above": [(viewer.task_path(one), name) for one, name in seen.above],
        "mark": marks.mark(task.state),
        "sentence": telling.sentence(seen),
        "question": acting.question(seen, viewer),
        "asked": seen.question,
        "asks": seen.undecided,
        "asked_said": _asked(seen),
        "viewer_acts": viewer.may_act,
        "when": telling.when(seen),
        "why": telling.why(seen),
        "failure": failure,
        "buttons": buttons,
        "explained": acting.explained(seen, viewer),
        "degraded": _degraded(seen),
        "parts": parts,
        "parts_whole": whole,
        "done": seen.state is State.SUCCEEDED,
        "result_path": f"{path}result",
        "files": [_file(one, path) for one in results.files_of(task.output, seen.files)],
        "ribbon": ribbon.drawn(past, now=seen.now, over=seen.over, eta=seen.eta),
        "took": lasted((over_at - task.created_at).total_seconds()),
        "spent": _spent(seen, past),
        "steps": _steps(seen),
        "steps_before": seen.steps_before,
        **_children(seen, viewer),
        "trace": [_event(one, seen.now) for one in seen.trace[:TRACE_SHOWN]],
        "trace_more": len(seen.trace) > TRACE_SHOWN,
        "trace_path": f"{path}trace",
        "rows": _facts(seen),
        "run_path": viewer.run_path(task.run) if task.run and _opens_runs(viewer) else "",
        "share_path": f"{path}share" if viewer.may_act and viewer.link is None else "",
    }


def _opens_runs(viewer: Viewer) -> bool:
    return viewer.link is None or viewer.link.what == "run"


def _own(seen: Seen) -> bool:
    """Whether most of what it waited in line was for its tenant's own tasks and caps."""
    mine = sum(one.seconds for one in seen.why.spent if one.who == "you")
    return mine > sum(one.seconds for one in seen.why.spent if one.who == "system")


def _asked(seen: Seen) -> str:
    asked = seen.question
    if asked is None:
        return ""
    said_at = times.clock(asked.asked_at, seen.now)
    if seen.undecided:
        until = f", until {times.clock(asked.deadline, seen.now)}" if asked.deadline else ""
        return f"Asked at {said_at}{until}. The first answer counts."
    if asked.verdict is None or asked.decided_at is None:
        return f"Asked at {said_at}; nobody answered in time."
    what = "denied" if asked.verdict == "deny" else f"answered “{asked.choice}”"
    note = f": “{asked.note}”" if asked.note else ""
    return f"{words.person(asked.decided_by or '')} {what} at {times.clock(asked.decided_at, seen.now)}{note}"


def _degraded(seen: Seen) -> str:
    if not seen.task.degraded:
        return ""
    tense = "ran" if seen.over else "runs"
    return f"It {tense} in its cheaper form “{seen.task.degraded}”, because there was pressure."


def _file(one: Any, path: str) -> dict[str, object]:
    return {
        "name": one.name,
        "path": f"{path}files/{one.public_id}",
        "size": _bytes(one.bytes),
        "type": one.content_type,
        "picture": one.content_type in results.PICTURES,
    }


def _spent(seen: Seen, past: Sequence[ribbon.Part]) -> list[Row]:
    worked_s = sum((part.until - part.since).total_seconds() for part in past if part.kind == "work")
    rows = [(one.seconds, _waited(one)) for one in seen.why.spent if one.seconds >= LEAST_S]
    if worked_s >= LEAST_S:
        rows.append((worked_s, Row(mark=marks.swatch("work"), text="Working", figure=lasted(worked_s))))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _waited(one: Spent) -> Row:
    swatch = marks.swatch(ribbon.kind_of(one.code, one.who))
    if one.code == Code.UNNOTED:
        return Row(mark=swatch, text="In line", detail="what held it wasn’t noted", figure=lasted(one.seconds))
    return Row(mark=swatch, text=one.label, detail=words.WHO[one.who], figure=lasted(one.seconds))


def _steps(seen: Seen) -> list[Row]:
    rows = []
    for one in seen.steps:
        name = one.name.replace("_", " ") + (f" ({one.key})" if one.key else "")
        again = f"begun {one.begun} times" if one.begun > 1 else ""
        if one.finished_at is not None:
            took = lasted((one.finished_at - one.began_at).total_seconds())
            rows.append(Row(mark=marks.mark("succeeded"), text=name, detail=again, figure=took))
            continue
        running = seen.state is State.RUNNING
        state = seen.task.state if not seen.over else "queued"
        took = lasted((seen.now - one.began_at).total_seconds()) if running else ""
        rows.append(Row(mark=marks.mark(state), text=name, detail=again, figure=took, look="cur" if running else ""))
    return rows


def _children(seen: Seen, viewer: Viewer) -> dict[str, object]:
    if not seen.children:
        return {"children": ""}
    counts = cells.counts(seen.children)
    ended = sum(n for state, n in counts.items() if state in TERMINAL)
    whole = len(seen.children)
    rows = []
    for one in seen.some_children:
        end = one.finished_at or seen.now
        took = lasted((end - one.began_at).total_seconds()) if one.began_at and one.finished_at else ""
        said = words.STATES[one.state] + (f" after {took}" if took else "")
        rows.append((marks.mark(one.state), viewer.task_path(one.public_id), one.name, said))
    return {
        "children": words.counted(whole, "child", "children"),
        "children_ended": f"{ended:,} of {whole:,} ended",
        "progress": marks.progress(ended / whole, "Children that have ended"),
        "grid": cells.grid(seen.children),
        "counted": [(marks.mark(state), f"{n:,} {words.STATES[state]}") for state, n in counts.items()],
        "child_rows": rows,
        "more_children": whole - len(rows),
    }


EVENTS = {
    "submit": "Submitted",
    "ripen": "In line",
    "claim": "Attempt began",
    "ask": "Asked for a decision",
    "approve": "Approved",
    "deny": "Denied",
    "approval_timeout": "Nobody decided in time",
    "reask": "Asked again",
    "pause": "Paused",
    "park": "Parked, waiting for its children",
    "unpark": "Its children have ended",
    "mismatch": "No worker knew this version",
    "resume": "Resumed",
    "succeed": "Done",
    "fail": "The attempt failed",
    "lose": "Its worker was lost",
    "requeue": "Back in line",
    "postpone": "Sent back for a while",
    "interrupt": "Handed back, its worker stops",
    "bury": "Failed for good",
    "expire": "Its time was over",
    "cancel": "Cancelled",
    "abort": "Stopped, as it was cancelled",
    "halt": "Stopped, as it was paused",
    "redrive": "Sent again",
    "reprioritise": "Its priority was changed",
    "wish": "Asked to stop",
    STARTED: "Step began",
    FINISHED: "Step finished",
    REPLAYED: "Finished steps were taken over",
}


def _event(event: EventView, now: datetime) -> dict[str, object]:
    detail = said(event, "step") or said(event, "reason") or said(event, "deferred") or said(event, "prompt")
    by = "" if event.actor.startswith(("worker", "dispatcher", "sweep")) else f"by {words.person(event.actor)}"
    parts = [part for part in (detail.replace("\n", " "), by) if part]
    text = " · ".join(parts)
    return {
        "at": times.stamp(event.at, now, seconds=True),
        "text": EVENTS.get(event.event, event.event.replace("_", " ").capitalize()),
        "detail": text if len(text) <= DETAIL_CHARS else f"{text[: DETAIL_CHARS - 1]}…",
    }


def event_row(event: EventView, now: datetime) -> dict[str, object]:
    """Return a trace event as a row."""
    return _event(event, now)


def _facts(seen: Seen) -> list[tuple[str, str]]:
    task, now = seen.task, seen.now
    failed = seen.state is State.FAILED_TERMINAL
    rows = [
        ("Kind", f"{task.kind}, version {task.version}"),
        ("State", task.state + (f" ({', '.join(task.holds)})" if task.holds else "")),
        ("Priority", words.PRIORITIES[task.priority]),
        ("Pool", task.pool),
        (
            "Attempt",
            f"{task.attempts_used + (0 if failed else 1)}" + (f", {task.lost_starts} lost" if task.lost_starts else ""),
        ),
        ("Form", f"cheaper: {task.degraded}" if task.degraded else "full"),
    ]
    if seen.eta is not None and seen.eta.position is not None:
        rows.append(("Place", f"{telling.ordinal(seen.eta.position)} of what waits in {task.pool}"))
    if seen.used.tokens or seen.used.usd:
        cost = "" if seen.used.unpriced_tokens else f"{money.shown(seen.used.usd)}, "
        rows.append(("Spent", f"{cost}{seen.used.tokens:,} tokens"))
    if task.tags:
        rows.append(("Tags", ", ".join(task.tags)))
    rows.append(("Submitted", times.clock(task.created_at, now, seconds=True)))
    if task.start_by is not None and task.first_claimed_at is None and not seen.over:
        rows.append(("Start by", times.clock(task.start_by, now)))
    if task.deadline is not None:
        rows.append(("Deadline", times.clock(task.deadline, now)))
    rows.append(("Times", "UTC"))
    return rows


def _bytes(n: int) -> str:
    size = float(n)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f}{times.NB}{unit}"
        size /= 1000
    return f"{size:.1f}{times.NB}GB"
