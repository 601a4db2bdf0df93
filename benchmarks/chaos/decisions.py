"""The checker's rules for questions: decided once, by somebody, and what was decided is what the task was told."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from benchmarks.chaos.births import QUESTION
from benchmarks.chaos.history import Finding, TaskRow
from benchmarks.chaos.view import View, token
from harness.policy.approvals import DENIED
from harness.policy.lifecycle import Event
from harness.policy.steps import FINISHED

OK = 200
STEP = "ask-"  # what the names of questions, and of the steps that ask them, begin with
VERDICTS = (Event.APPROVE, Event.DENY)
ASKED = (Event.ASK, Event.REASK)


def once(seen: View) -> Iterator[Finding]:
    """Each asking is decided at most once, and no task goes on past a question that nobody decided."""
    for row in _asking(seen):
        waits = decided = False
        for event in seen.traces.get(row.id, ()):
            if event.event in ASKED:
                waits, decided = True, False
            elif event.event in VERDICTS:
                if not waits:
                    yield _wrong(row, f"{event.event} (number {event.seq}) decided what wasn't asked, or was decided")
                waits, decided = False, True
            elif event.event == FINISHED and (event.detail or "").startswith(STEP):
                if not decided:
                    yield _wrong(row, f"went on (number {event.seq}) without a decision on {event.detail}")
                decided = False
            elif event.event in (Event.APPROVAL_TIMEOUT, Event.REDRIVE):
                waits = decided = False


def told(seen: View) -> Iterator[Finding]:
    """A task is told the choice that was made, one that it offered, and the same at each attempt."""
    rows = {token(row.task): row for row in _asking(seen)}
    questions = {(one.id, one.name): one for one in seen.history.questions}
    answers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for one in seen.history.told:
        if one.what.startswith(STEP):
            answers[one.token, one.what].update(one.values)
    for (name, what), found in answers.items():
        row = rows.get(name)
        question = questions.get((row.id, what)) if row else None
        if row is None or question is None or question.verdict is None:
            yield Finding(column="approvals_wrong", subject=name, what=f"was told {sorted(found)} by nobody, to {what}")
            continue
        if found != {question.choice}:
            yield _wrong(row, f"was told {sorted(found)} to {what}, but {question.choice!r} was decided")
        if question.choice not in (*question.choices, *((DENIED,) if question.deny == "answer" else ())):
            yield _wrong(row, f"{question.choice!r} was decided on {what}, which offers {question.choices}")


def answered(seen: View) -> Iterator[Finding]:
    """Whoever was told that their answer counts is in the trace with it, and so is what others were told stands."""
    rows = {row.task: row for row in _asking(seen)}
    counted: defaultdict[str, Counter[tuple[str | None, str | None]]] = defaultdict(Counter)
    for said in sorted(seen.history.said, key=lambda said: said.status):  # first those whose own answer counts
        if said.told is not None and said.task in rows:
            stands = counted[said.task]
            stands[said.told] = stands[said.told] + 1 if said.status == OK else max(1, stands[said.told])
    for task, stands in counted.items():
        row = rows[task]
        made = Counter((event.event, event.detail) for event in seen.traces.get(row.id, ()) if event.event in VERDICTS)
        for (verdict, choice), n in stands.items():
            if n > made[str(verdict), choice]:
                what = f"{verdict} {choice!r} was told to stand {n} times, and was made {made[str(verdict), choice]}"
                yield _wrong(row, what)


def _asking(seen: View) -> list[TaskRow]:
    return [row for row in seen.rows.values() if row.kind == QUESTION]


def _wrong(row: TaskRow, what: str) -> Finding:
    return Finding(column="approvals_wrong", subject=row.task, what=what)


RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (once, told, answered)
