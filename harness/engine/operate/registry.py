"""The list of verbs. A new one is a decision in policy.verbs, a statement in sql/transitions, and an entry here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.engine.operate import one, redrive
from harness.engine.operate.done import Done
from harness.engine.operate.redrive import Forecast
from harness.policy import verbs
from harness.policy.holds import OPERATOR
from harness.policy.lifecycle import Event, State
from harness.policy.verbs import Asked, Decide, Stand

__all__ = ("VERBS", "Done", "Verb", "offered")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One verb: the event that it fires, the function over one task, and what it decides of a task as it stands.

    `over`: the tasks that a bulk verb looks at, unfinished (`live`) or `ended` ones. Where more than the task's own row
    decides: `batch` does some of them (as redrive.batch), and `foresee` says what it would do to one.
    """

    event: Event
    help: str
    run: Callable[..., Done]
    decide: Decide
    over: Literal["live", "ended"] = "live"
    batch: Callable[..., list[int] | None] | None = None
    foresee: Callable[..., Forecast] | None = None


VERBS: Mapping[str, Verb] = {
    "cancel": Verb(
        event=Event.CANCEL,
        help="End the task; a running one stops at its next checkpoint.",
        run=one.cancel,
        decide=verbs.cancel,
    ),
    "pause": Verb(
        event=Event.PAUSE,
        help="Hold the task until you resume it; a running one stops at its next checkpoint.",
        run=one.pause,
        decide=verbs.pause,
    ),
    "resume": Verb(
        event=Event.RESUME,
        help="Lift your own hold. The task goes on when nobody else holds it.",
        run=one.resume,
        decide=verbs.resume,
    ),
    "requeue": Verb(
        event=Event.REQUEUE,
        help="Try the failed task again now, instead of when its back-off is over.",
        run=one.requeue,
        decide=verbs.requeue,
    ),
    "priority": Verb(
        event=Event.REPRIORITISE,
        help="Give the waiting task another priority. Its start_by stays.",
        run=one.priority,
        decide=verbs.priority,
    ),
    "redrive": Verb(
        event=Event.REDRIVE,
        help="Send the ended task again. With its old input its token and its finished steps stay; with another one it "
        "begins anew, under a new token.",
        run=redrive.redrive,
        decide=verbs.redrive,
        over="ended",
        batch=redrive.batch,
        foresee=redrive.forecast_one,
    ),
}


def offered(
    state: str, want: str | None, holds: Sequence[str] = (), *, hold: str = OPERATOR, leased: bool = False
) -> tuple[str, ...]:
    """Return the verbs that would do something to a task as it stands. `hold`: whose look it is.

    >>> offered("queued", None), offered("running", "cancel"), offered("succeeded", None)
    (('cancel', 'pause', 'priority'), (), ())
    """
    stand = Stand(state=State(state), want=want, holds=tuple(holds), leased=leased, priority=-1)
    asked = Asked(hold=hold, priority=0)
    return tuple(name for name, verb in VERBS.items() if verb.decide(stand, asked).step is not None)
