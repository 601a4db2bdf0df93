"""The checker's rules for steps: an effect has one token however often it comes, and what is finished isn't redone."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

from benchmarks.chaos.history import Finding
from benchmarks.chaos.schedule import STEPS
from benchmarks.chaos.view import CLOCK_S, View
from harness.policy.lifecycle import State
from harness.policy.steps import FINISHED, STARTED


def tokens(seen: View) -> Iterator[Finding]:
    """Each effect of a step has one token over all attempts, and no other effect has it."""
    of_effect: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    of_token: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
    for effect in seen.history.effects:
        if effect.step:
            of_effect[effect.token, effect.n].add(effect.step)
            of_token[effect.step].add((effect.token, effect.n))
    for (task, n), found in of_effect.items():
        if len(found) > 1:
            what = f"effect {n} was done under {len(found)} tokens: {', '.join(sorted(found))}"
            yield Finding(column="duplicated_effects", subject=task, what=what)
    for token, shared in of_token.items():
        if len(shared) > 1:
            what = f"was the token of {len(shared)} effects: {sorted(shared)}"
            yield Finding(column="duplicated_effects", subject=token, what=what)


def redone(seen: View) -> Iterator[Finding]:
    """A step ends once, begins not again after that, and no effect of it is begun after that."""
    ended_s: dict[tuple[str, int], float] = {}
    for task, row in seen.rows.items():
        for event in seen.traces.get(row.id, ()):
            if event.step is None or event.event not in (STARTED, FINISHED):
                continue
            if (task, event.step) in ended_s:
                what = f"{event.event} of step {event.step} (number {event.seq}), which had finished"
                yield Finding(column="duplicated_effects", subject=task, what=what)
            elif event.event == FINISHED:
                ended_s[task, event.step] = event.at_s
    for effect in seen.history.effects:
        over_s = ended_s.get((effect.token, _place(effect.step)))
        if over_s is not None and effect.sent_s > over_s + CLOCK_S:
            what = f"effect {effect.n} was begun at {effect.sent_s:.3f}, after its step had finished at {over_s:.3f}"
            yield Finding(column="duplicated_effects", subject=effect.token, what=what)


def unrecorded(seen: View) -> Iterator[Finding]:
    """What succeeded has finished all its steps."""
    for task, row in seen.rows.items():
        if row.state == State.SUCCEEDED and row.kind.startswith(STEPS):
            finished = {event.step for event in seen.traces.get(row.id, ()) if event.event == FINISHED}
            if finished != set(range(1, row.effects + 1)):
                what = f"succeeded with the steps {sorted(filter(None, finished))} of {row.effects}"
                yield Finding(column="lost", subject=task, what=what)


def _place(step: str) -> int:
    """Return the place of a step in its task, which its token tells (policy.steps, T5); 0: of no step.

    >>> _place("harness-7-s2-8c35561de17f"), _place("harness-7")
    (2, 0)
    """
    found = re.search(r"-s(\d+)(?:-[0-9a-f]+)?$", step)
    return int(found.group(1)) if found else 0


RULES: tuple[Callable[[View], Iterator[Finding]], ...] = (tokens, redone, unrecorded)
