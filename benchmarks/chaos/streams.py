"""The checker's rules for streams: no event of a task is left out or comes twice, over however many connections.

States are promised, output is best effort: what of it was in Redis when that was emptied or restarted may be missing,
and its place says so. Nothing excuses a piece that comes again, out of order, or under a wrong place.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from benchmarks.chaos import speech
from benchmarks.chaos.births import TALK
from benchmarks.chaos.history import Finding, Frame
from benchmarks.chaos.view import View, token
from harness.policy.lifecycle import TERMINAL

END, STATE, OUTPUT = "end", "state", "output"


def states(seen: View) -> Iterator[Finding]:
    """The states of a stream are the events of the trace, from 1, up to an end of the task."""
    for task, frames in _streams(seen).items():
        row = seen.rows.get(token(task))
        trace = seen.traces.get(row.id, ()) if row else ()
        last = 0
        for frame in frames:
            if frame.event != STATE or frame.seq is None:
                continue
            if frame.seq != last + 1:
                yield _gap(task, f"event {frame.seq} came after {last} (connection {frame.connection})")
            elif frame.seq > len(trace) or trace[frame.seq - 1].event != frame.name:
                yield _gap(task, f"event {frame.seq} was called {frame.name}, which isn't in the trace there")
            last = frame.seq
        ends = [at for at, frame in enumerate(frames) if frame.event == END]
        if ends and ends != [len(frames) - 1]:
            yield _gap(task, f"{len(ends)} ends came, and {len(frames) - 1 - ends[0]} events after the first")
        if ends and 0 < last <= len(trace) and trace[last - 1].target not in TERMINAL:
            yield _gap(task, f"it ended after event {last}, where the task went on")
        if not ends and row is not None and row.state in TERMINAL:
            yield _gap(task, f"it never told of the end (the last was event {last} of {len(trace)})")


def output(seen: View) -> Iterator[Finding]:
    """Each piece of output comes once, in order, at its place; one is missing only if Redis lost it."""
    for task, frames in _streams(seen).items():
        row = seen.rows.get(token(task))
        for frame, (attempt, end) in _pieces(frames):
            assert frame.attempt is not None and frame.offset is not None and frame.text is not None
            if frame.attempt < attempt:
                yield _gap(task, f"output of attempt {frame.attempt} came after that of {attempt}")
                continue
            due = end if frame.attempt == attempt else 0
            if frame.offset < due:
                yield _gap(task, f"characters {frame.offset} to {due} of attempt {frame.attempt} came twice")
            elif frame.offset > due and not _lost_by_redis(seen, task, frame):
                yield _gap(task, f"characters {due} to {frame.offset} of attempt {frame.attempt} never came")
            if row is not None and row.kind == TALK and frame.text != speech.spoken(frame.offset, len(frame.text)):
                yield _gap(task, f"{frame.text[:40]!r} isn't what stands at {frame.offset}")


def missing_chars(seen: View) -> int:
    """Return how many characters of output are known to be missing, of all streams."""
    missing = 0
    for frames in _streams(seen).values():
        for frame, (attempt, end) in _pieces(frames):
            assert frame.attempt is not None and frame.offset is not None
            missing += max(0, frame.offset - (end if frame.attempt == attempt else 0))
    return missing


def connections(seen: View) -> int:
    """Return how many connections the streams took."""
    return sum(max(frame.connection for frame in frames) for frames in _streams(seen).values() if frames)


def _pieces(frames: Sequence[Frame]) -> Iterator[tuple[Frame, tuple[int, int]]]:
    """Yield output with where the piece before it ended: attempt, and characters."""
    before = (0, 0)
    for frame in frames:
        if frame.event == OUTPUT and frame.attempt is not None and frame.offset is not None:
            yield frame, before
            before = (frame.attempt, frame.offset + len(frame.text or ""))


def _lost_by_redis(seen: View, task: str, frame: Frame) -> bool:
    row = seen.rows.get(token(task))
    trace = seen.traces.get(row.id, ()) if row else ()
    since_s = trace[0].at_s if trace else 0.0
    return any(
        fault.role.startswith("redis") and since_s <= (fault.until_s or fault.at_s) and fault.at_s <= frame.at_s
        for fault in seen.history.faults
        if fault.what == "server"
    )


def _streams(seen: View) -> dict[str, list[Frame]]:
    found: defaultdict[str, list[Frame]] = defaultdict(list, {task: [] for task in seen.history.followed})
    for frame in seen.history.frames:
        found[frame.task].append(frame)
    return dict(found)


def _gap(task: str, what: str) -> Finding:
    return Finding(column="stream_gaps", subject=task, what=what)


RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (states, output)
