"""The checker's rules for parents: each child is made once, and its parent got its result, once and as it was."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from benchmarks.chaos.births import FAMILY, families_of, leaves_of
from benchmarks.chaos.history import Finding, TaskRow
from benchmarks.chaos.view import View, token
from harness.policy.lifecycle import TERMINAL, State
from harness.policy.steps import FINISHED

GATHERED = "gathered"


def doubled(seen: View) -> Iterator[Finding]:
    """No two children of a parent have one number, and none is there without the step that made it, or beside it."""
    for parent, children in _children(seen).items():
        row = seen.by_id.get(parent)
        if row is None or row.kind != FAMILY:
            continue
        numbers = Counter(child.i for child in children)
        for i, n in numbers.items():
            if n > 1:
                yield Finding(column="children_doubled", subject=row.task, what=f"child {i} was made {n} times")
        for i in sorted(numbers.keys() - set(_made(seen, row))):
            what = f"child {i} is there, but no finished step made it"
            yield Finding(column="children_doubled", subject=row.task, what=what)


def missing(seen: View) -> Iterator[Finding]:
    """Every child that a finished step made is there."""
    children = _children(seen)
    for row in _parents(seen):
        gone = set(_made(seen, row)) - {child.i for child in children.get(row.id, ())}
        if gone:
            what = f"its children {sorted(gone)} were made, and aren't there"
            yield Finding(column="lost", subject=row.task, what=what)


def results(seen: View) -> Iterator[Finding]:
    """A parent is told of each child once, the same at each attempt, and what the child came to."""
    children, told = _children(seen), defaultdict(list)
    for one in seen.history.told:
        if one.what == GATHERED:
            told[one.token].append(one.values)
    for row in _parents(seen):
        found = told[token(row.task)]
        if row.state == State.SUCCEEDED and not found:
            yield _wrong(row, "succeeded, but was never told of its children")
        if any(values != found[0] for values in found):
            yield _wrong(row, f"was told {len(set(found))} different things of its children")
        if found:
            yield from _compared(row, found[0], {child.task: child for child in children.get(row.id, ())})


def _compared(row: TaskRow, values: tuple[str, ...], children: dict[str, TaskRow]) -> Iterator[Finding]:
    seen: Counter[str] = Counter()
    for value in values:
        task, state, i = value.split(":")
        seen[task] += 1
        child = children.get(task)
        if child is None:
            yield _wrong(row, f"was told of {task}, which isn't a child of it")
        elif state in TERMINAL and state != child.state:
            yield _wrong(row, f"was told that {task} is {state}, and it is {child.state}")
        elif state == State.SUCCEEDED and i != str(child.i):
            yield _wrong(row, f"was told of {task}, which is number {child.i}, the result of {i}")
    for task, n in seen.items():
        if n > 1:
            yield _wrong(row, f"was told of {task} {n} times")
    for task in children.keys() - seen.keys():
        yield _wrong(row, f"was not told of {task}")


def _children(seen: View) -> dict[int, list[TaskRow]]:
    found: defaultdict[int, list[TaskRow]] = defaultdict(list)
    for row in seen.rows.values():
        if row.parent is not None:
            found[row.parent].append(row)
    return dict(found)


def _parents(seen: View) -> list[TaskRow]:
    return [row for row in seen.rows.values() if row.kind == FAMILY]


def _made(seen: View, row: TaskRow) -> list[int]:
    """Return the numbers of the children that the finished steps of a parent made."""
    finished = {event.detail for event in seen.traces.get(row.id, ()) if event.event == FINISHED}
    return [
        *(leaves_of(row.i, row.children) if "leaves" in finished else ()),
        *(families_of(row.i, row.families) if "families" in finished else ()),
    ]


def _wrong(row: TaskRow, what: str) -> Finding:
    return Finding(column="children_wrong", subject=row.task, what=what)


RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (doubled, missing, results)
