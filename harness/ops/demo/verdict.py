"""Whether the demo ended as meant. Pure: figures in, a sentence and an exit code out."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How it ended. `code`: what the process exits with."""

    code: int
    sentence: str


def judge(
    *, states: Mapping[str, int], meant: int, tokens: int, most: Mapping[str, int], slots: Mapping[str, int]
) -> Verdict:
    """Judge by the tasks' states: all succeeded but `meant`, no pool over its slots, one token for one webhook.

    >>> judge(states={"succeeded": 3, "failed_terminal": 1}, meant=1, tokens=1, most={"llm": 2}, slots={"llm": 2}).code
    0
    """
    succeeded = states.get("succeeded", 0)
    over = {pool: n for pool, n in most.items() if n > slots.get(pool, 0)}
    # Under the schedule of a minute a second rollup may come; it counts like the others.
    as_meant = states.get("failed_terminal", 0) == meant and sum(states.values()) == succeeded + meant
    if as_meant and tokens == 1 and not over:
        return Verdict(code=0, sentence=f"{succeeded} tasks succeeded; {meant} were meant to fail and did.")
    return Verdict(
        code=1,
        sentence=f"not as meant: {dict(states)}, {meant} were meant to fail; over their slots: {over or 'none'}; "
        f"tokens that the webhook was delivered under: {tokens}",
    )
