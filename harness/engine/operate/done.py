"""What a verb on one task did."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What a verb did, by its own name (`cancelled`, `paused`, `resumed`, `requeued`, `reprioritised`, `redriven`), or:

    `wished`: the task runs, and stops at its next checkpoint; `held`: your hold is lifted, another's remains;
    `already`: nothing was left to do. `anew`: of a redrive, with another input and so under another token.
    """

    outcome: str
    anew: bool = False
