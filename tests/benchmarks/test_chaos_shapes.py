"""The rules for families, questions, streams and runs find each planted fault, and nothing in a sound history."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.chaos import people, streams
from benchmarks.chaos.births import FAMILY, QUESTION, TALK, families_of, leaves_of
from benchmarks.chaos.checker import check
from benchmarks.chaos.followers import Followers
from benchmarks.chaos.history import (
    Accepted,
    Caps,
    Fault,
    Frame,
    History,
    Question,
    Said,
    Sample,
    TaskRow,
    Told,
    TraceEvent,
)
from benchmarks.chaos.people import People
from benchmarks.chaos.speech import spoken
from benchmarks.chaos.view import view

Event = tuple[str, str | None, str, str | None]  # event, from, to, detail
PARENT, LEAF, BELOW, ASKING, TALKING, FIRST, SECOND = "parent", "leaf", "below", "asking", "talking", "first", "second"
LEAF_I, BELOW_I = leaves_of(1, 1)[0], families_of(1, 1)[0]
RUN: tuple[Event, ...] = (
    ("submit", None, "queued", None),
    ("claim", "queued", "running", None),
    ("succeed", "running", "succeeded", None),
)


def row(id: int, task: str, kind: str, i: int, events: int, state: str = "succeeded", **more: int) -> TaskRow:
    usual = TaskRow(
        id=id,
        task=task,
        tenant="alpha",
        kind=kind,
        pool="tool_read",
        priority=2,
        i=i,
        effects=0,
        state=state,
        event_no=events,
        holds=(),
        due_in_s=None,
        leased=False,
    )
    return replace(usual, **more)  # type: ignore[arg-type]  # each name is a field's


def trace(id: int, *events: Event, from_s: float = 1.0) -> tuple[TraceEvent, ...]:
    """A trace, an event a second."""
    return tuple(
        TraceEvent(id=id, seq=n, at_s=from_s + n, event=event, source=source, target=target, step=None, detail=detail)
        for n, (event, source, target, detail) in enumerate(events, start=1)
    )


GATHERING: tuple[Event, ...] = (
    ("submit", None, "queued", None),
    ("claim", "queued", "running", None),
    ("step_finished", "running", "running", "leaves"),
    ("step_finished", "running", "running", "families"),
    ("park", "running", "paused", None),
    ("unpark", "paused", "queued", None),
    ("claim", "queued", "running", None),
    ("step_finished", "running", "running", "gather"),
    ("succeed", "running", "succeeded", None),
)
ASKED: tuple[Event, ...] = (
    ("submit", None, "queued", None),
    ("claim", "queued", "running", None),
    ("ask", "running", "waiting_approval", None),
    ("approval_timeout", "waiting_approval", "paused", None),
    ("reask", "paused", "waiting_approval", None),
    ("approve", "waiting_approval", "waiting_approval", "left"),
    ("claim", "waiting_approval", "running", None),
    ("step_finished", "running", "running", "ask-0"),
    ("succeed", "running", "succeeded", None),
)
CHILDREN = (f"{LEAF}:succeeded:{LEAF_I}", f"{BELOW}:failed_terminal:-")


def state(seq: int, name: str, connection: int = 1) -> Frame:
    return Frame(task=TALKING, connection=connection, at_s=1.5 + seq, event="state", seq=seq, name=name)


def piece(offset: int, chars: int, attempt: int = 1, connection: int = 1) -> Frame:
    return Frame(
        task=TALKING,
        connection=connection,
        at_s=3.2,
        event="output",
        attempt=attempt,
        offset=offset,
        text=spoken(offset, chars),
    )


END = Frame(task=TALKING, connection=2, at_s=5.0, event="end")
STREAM = (
    state(1, "submit"),
    state(2, "claim"),
    piece(0, 14),
    piece(14, 7, connection=2),
    state(3, "succeed", connection=2),
    END,
)
SOUND = History(
    ended_s=100.0,
    accepted=tuple(
        Accepted(i=i, task=task, tenant="alpha")
        for i, task in ((1, PARENT), (2, ASKING), (3, TALKING), (4, FIRST), (5, SECOND))
    ),
    tasks=(
        row(1, PARENT, FAMILY, 1, 9, children=1, families=1),
        row(2, LEAF, "bench.steps.tool_write", LEAF_I, 3, parent=1),
        row(3, BELOW, FAMILY, BELOW_I, 3, "failed_terminal", parent=1, children=1),
        row(4, ASKING, QUESTION, 2, 9),
        row(5, TALKING, TALK, 3, 3),
        row(6, FIRST, "bench.effect.tool_read", 4, 3),
        row(7, SECOND, "bench.effect.tool_read", 5, 3),
    ),
    trace=(
        *trace(1, *GATHERING),
        *trace(2, *RUN),
        *trace(3, *RUN[:2], ("bury", "running", "failed_terminal", None)),
        *trace(4, *ASKED),
        *trace(5, *RUN),
        *trace(6, *RUN),
        *trace(7, *RUN, from_s=10.0),
    ),
    visits=(),
    effects=(),
    samples=(Sample(at_s=7.0, slots={}, leases=(), waiting=2),),
    faults=(),
    caps=Caps(tenants={}, runs={}, resources={}),
    leases_left=0,
    told=(
        Told(token="harness-parent", what="gathered", at_s=9.1, values=CHILDREN),
        Told(token="harness-parent", what="gathered", at_s=9.5, values=CHILDREN),  # a later attempt
        Told(token="harness-asking", what="ask-0", at_s=9.2, values=("left",)),
    ),
    questions=(
        Question(
            id=4,
            name="ask-0",
            choices=("left", "right"),
            deny="answer",
            asks=2,
            open=False,
            verdict="approve",
            choice="left",
        ),
    ),
    said=(
        Said(task=ASKING, verb="approve", choice="left", status=200, at_s=6.9, told=("approve", "left")),
        Said(task=ASKING, verb="approve", choice="right", status=409, at_s=7.0, told=("approve", "left")),
        Said(task=ASKING, verb="deny", choice=None, status=409, at_s=7.1, told=None),
    ),
    frames=STREAM,
    followed=(TALKING,),
    edges=((5, 4),),
)


def columns(history: History) -> list[str]:
    return [finding.column for finding in check(history)]


def with_row(changed: TaskRow) -> tuple[TaskRow, ...]:
    return tuple(changed if one.id == changed.id else one for one in SOUND.tasks)


def retraced(id: int, *events: Event, from_s: float = 1.0) -> tuple[TraceEvent, ...]:
    return tuple(event for event in SOUND.trace if event.id != id) + trace(id, *events, from_s=from_s)


def told(*values: str, of: str = "harness-parent", what: str = "gathered") -> tuple[Told, ...]:
    """What is told in place of that."""
    kept = tuple(one for one in SOUND.told if (one.token, one.what) != (of, what))
    return (*kept, Told(token=of, what=what, at_s=9.1, values=values))


def twin() -> History:
    born = row(8, "twin", "bench.steps.tool_write", LEAF_I, 3, parent=1)
    values = (*CHILDREN, f"twin:succeeded:{LEAF_I}")
    return replace(SOUND, tasks=(*SOUND.tasks, born), trace=(*SOUND.trace, *trace(8, *RUN)), told=told(*values))


def asked(*events: Event, state: str = "succeeded") -> History:
    return replace(
        SOUND,
        trace=retraced(4, *events),
        tasks=with_row(row(4, ASKING, QUESTION, 2, len(events), state)),
    )


def followed(*frames: Frame) -> History:
    return replace(SOUND, frames=frames)


PLANTED: dict[str, tuple[str, Callable[[], History]]] = {
    "a child that was made twice": ("children_doubled", twin),
    "a child that no finished step made": (
        "children_doubled",
        lambda: replace(
            SOUND,
            trace=tuple(replace(one, detail="else") if one.detail == "families" else one for one in SOUND.trace),
        ),
    ),
    "a child that isn't there": (
        "lost",
        lambda: replace(
            SOUND, tasks=tuple(one for one in SOUND.tasks if one.id != 2), told=told(f"{BELOW}:failed_terminal:-")
        ),
    ),
    "a parent that succeeded without its children": (
        "children_wrong",
        lambda: replace(SOUND, told=SOUND.told[2:]),
    ),
    "a parent that was told something else at its next attempt": (
        "children_wrong",
        lambda: replace(SOUND, told=(*SOUND.told, replace(SOUND.told[0], values=(CHILDREN[1], CHILDREN[0])))),
    ),
    "a child that was told twice": ("children_wrong", lambda: replace(SOUND, told=told(*CHILDREN, CHILDREN[0]))),
    "a child that wasn't told": ("children_wrong", lambda: replace(SOUND, told=told(CHILDREN[0]))),
    "a child of somebody else": (
        "children_wrong",
        lambda: replace(SOUND, told=told(*CHILDREN, f"{ASKING}:succeeded:2")),
    ),
    "a child's end that it didn't have": (
        "children_wrong",
        lambda: replace(SOUND, told=told(f"{LEAF}:cancelled:-", CHILDREN[1])),
    ),
    "another child's result": (
        "children_wrong",
        lambda: replace(SOUND, told=told(f"{LEAF}:succeeded:{BELOW_I}", CHILDREN[1])),
    ),
    "a parent that nobody wakes": (
        "lost",
        lambda: replace(
            SOUND,
            trace=retraced(1, *GATHERING[:5]),
            tasks=with_row(replace(SOUND.tasks[0], state="paused", event_no=5, holds=("children",))),
        ),
    ),
    "a question that was decided twice": (
        "approvals_wrong",
        lambda: asked(*ASKED[:6], ("approve", "waiting_approval", "waiting_approval", "right"), *ASKED[6:]),
    ),
    "an approval that nobody gave": (
        "approvals_wrong",
        lambda: replace(asked(*ASKED[:3], ("claim", "waiting_approval", "running", None), *ASKED[7:]), said=()),
    ),
    "a choice that wasn't the one that was made": (
        "approvals_wrong",
        lambda: replace(SOUND, told=told("right", of="harness-asking", what="ask-0")),
    ),
    "two answers to one question": (
        "approvals_wrong",
        lambda: replace(SOUND, told=(*SOUND.told, replace(SOUND.told[2], values=("right",)))),
    ),
    "a choice that wasn't offered": (
        "approvals_wrong",
        lambda: replace(SOUND, questions=(replace(SOUND.questions[0], choices=("right",)),)),
    ),
    "an answer to what isn't there": ("approvals_wrong", lambda: replace(SOUND, questions=())),
    "two people who were both told that theirs counts": (
        "approvals_wrong",
        lambda: replace(SOUND, said=(*SOUND.said, replace(SOUND.said[0], at_s=7.2))),
    ),
    "somebody who was told of a decision that isn't there": (
        "approvals_wrong",
        lambda: replace(SOUND, said=(*SOUND.said, replace(SOUND.said[1], told=("approve", "right")))),
    ),
    "a stream that leaves an event out": ("stream_gaps", lambda: followed(STREAM[0], *STREAM[2:])),
    "a stream that tells an event twice": ("stream_gaps", lambda: followed(*STREAM[:2], STREAM[1], *STREAM[2:])),
    "a stream that tells of another event": (
        "stream_gaps",
        lambda: followed(STREAM[0], state(2, "cancel"), *STREAM[2:]),
    ),
    "a stream that never tells of the end": ("stream_gaps", lambda: followed(*STREAM[:-1])),
    "a stream of which nothing came": ("stream_gaps", followed),
    "a stream that goes on after its end": ("stream_gaps", lambda: followed(*STREAM, END)),
    "an end before the end": ("stream_gaps", lambda: followed(*STREAM[:2], END)),
    "output that came twice": ("stream_gaps", lambda: followed(*STREAM[:3], STREAM[2], *STREAM[3:])),
    "output that never came": ("stream_gaps", lambda: followed(*STREAM[:2], *STREAM[3:])),
    "output of an attempt that was over": (
        "stream_gaps",
        lambda: followed(*STREAM[:2], piece(0, 7, attempt=2), piece(0, 7, attempt=1), *STREAM[4:]),
    ),
    "output that stands elsewhere": (
        "stream_gaps",
        lambda: followed(*STREAM[:2], replace(STREAM[2], text=spoken(7, 14)), *STREAM[3:]),
    ),
    "a parked task on a lease": (
        "leases_while_waiting",
        lambda: replace(SOUND, samples=(replace(SOUND.samples[0], leased_waiting=(1,)),)),
    ),
    "a node that didn't wait for another": (
        "dependencies_wrong",
        lambda: replace(SOUND, trace=retraced(7, *RUN, from_s=1.0)),
    ),
    "a node that ran though the other failed": (
        "dependencies_wrong",
        lambda: replace(
            SOUND,
            tasks=with_row(row(6, FIRST, "bench.effect.tool_read", 4, 3, "failed_terminal")),
            trace=retraced(6, *RUN[:2], ("bury", "running", "failed_terminal", None)),
        ),
    ),
}


def test_a_history_with_all_shapes_in_it_is_sound_and_survives_being_written() -> None:
    assert check(SOUND) == []
    assert History.from_json(json.loads(json.dumps(SOUND.as_json()))) == SOUND
    assert (streams.connections(view(SOUND)), streams.missing_chars(view(SOUND))) == (2, 0)


@pytest.mark.parametrize("fault", PLANTED)
def test_each_planted_fault_of_the_shapes_is_found_and_nothing_else(fault: str) -> None:
    column, plant = PLANTED[fault]
    assert set(columns(plant())) == {column}


def test_it_is_no_fault_that_the_second_hears_sooner_than_the_first_whose_answer_stands() -> None:
    assert check(replace(SOUND, said=tuple(reversed(SOUND.said)))) == []


def test_output_that_redis_lost_is_counted_but_no_fault() -> None:
    flushed = Fault(what="server", role="redis_flush", pid=0, at_s=2.5, until_s=2.6)
    gone = replace(followed(*STREAM[:2], *STREAM[3:]), faults=(flushed,))
    assert check(gone) == [] and streams.missing_chars(view(gone)) == 14
    before = replace(flushed, at_s=1.0, until_s=1.1)  # it held nothing of the task's yet
    assert columns(replace(gone, faults=(before,))) == ["stream_gaps"]


def test_people_answer_alike_for_a_seed_and_leave_no_question_without_a_time_unanswered() -> None:
    def question(n: int, deadline: str | None, asks: int = 1) -> dict[str, object]:
        asked = {"prompt": f"Work {n}: which way?", "name": "ask-0", "choices": ["a", "b"]}
        return {**asked, "asks": asks, "deadline": deadline}

    some = [people.answers(7, question(n, None)) for n in range(200)]
    assert some == [people.answers(7, question(n, None)) for n in range(200)]
    assert {len(one) for one in some} == {1, 2}
    assert {answer.choice for one in some for answer in one} == {None, "a", "b"}
    timed = [people.answers(7, question(n, "2026-01-01T00:00:00Z")) for n in range(200)]
    assert {len(one) for one in timed} == {0, 1, 2}
    assert all(people.answers(7, question(n, "2026-01-01T00:00:00Z", asks=2)) for n in range(200))


@contextmanager
def server(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}"
        finally:
            http.shutdown()
            thread.join()


def sse(place: str, frame: str, **data: object) -> bytes:
    return f"id: {place}\nevent: {frame}\ndata: {json.dumps(data)}\n\n".encode()


def test_a_follower_goes_on_behind_the_last_whole_event_until_the_end() -> None:
    came: list[str | None] = []
    whole = sse("1.0-0", "state", seq=1, event="submit")
    last = sse("1.1-1", "output", attempt=1, offset=0, text="0") + sse("2.1-1", "end", state="succeeded")
    broken_off = b"retry: 1000\n\n" + whole + last[: len(last) // 4]
    answers = [broken_off, None, b": beat\n\n" + last]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            came.append(self.headers.get("Last-Event-ID"))
            text = answers[len(came) - 1]
            self.send_response(200 if text else 503)
            self.end_headers()
            self.wfile.write(text or b"")

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with server(Handler) as url:
        followers = Followers(url, {"alpha": "key"})
        followers.follow("t", "alpha")
        followers.finish(20.0)
    assert came == [None, "1.0-0", "1.0-0"] and followers.errors == []
    assert [(one.connection, one.event) for one in followers.frames] == [(1, "state"), (3, "output"), (3, "end")]


def test_people_answer_what_waits_again_until_they_are_answered_and_note_what_stands() -> None:
    asked = {
        "task_id": "t", "prompt": "Work 3: which way?", "name": "ask-0", "asks": 1, "deadline": None, "choices": ["a"],
        "asked_at": "now", "waits": True,
    }  # fmt: skip
    posts: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"items": [asked]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            posts.append(self.path)
            if len(posts) == 1:
                self.answer(503, {})
            elif len(posts) == 2:
                self.answer(200, {"outcome": "approved", "choice": "a"})
            else:
                self.answer(409, {"verdict": "deny"})  # what is null isn't there

        def answer(self, status: int, body: object) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    seed = next(n for n in range(1000) if [one.choice for one in people.answers(n, asked)] == ["a", "a"])
    with server(Handler) as url, People(url, {"alpha": "key"}, seed) as some:
        until_s = time.monotonic() + 30.0
        while len(some.said) < 2 and time.monotonic() < until_s:
            time.sleep(0.05)
    assert some.error is None and set(posts) == {"/api/v1/tasks/t/approve"}
    assert sorted((one.status, one.told) for one in some.said) == [(200, ("approve", "a")), (409, ("deny", None))]
