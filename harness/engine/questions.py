"""Questions of a running task to people: a step whose result is what somebody decided (policy.approvals).

Invariants: the question is written down, fenced, before the attempt ends; what was decided is the answer, whatever is
asked now. Nothing here waits for people: the attempt ends, and the next one comes back.
"""

from dataclasses import replace

from harness.engine import payload
from harness.engine.process import LeaseLost
from harness.engine.steps import Steps
from harness.kinds import models
from harness.kinds.errors import Asked, Permanent
from harness.policy import steps as policy
from harness.policy.approvals import Question, check
from harness.policy.errors import Invalid
from harness.store import approvals
from harness.store.approvals import Asking
from harness.store.transitions import ClaimedTask


def ask(steps: Steps, task: ClaimedTask, question: Question, name: str) -> str:
    """Replay an answer, or ask and end the attempt. Raises: see `kinds.Context.ask`."""
    try:
        check(question)
        payload.refuse_unfit([question.prompt, *question.choices], "prompt")
    except Invalid as error:
        raise Permanent(f"ask: {error.message}") from None

    def answer() -> str:
        asking = Asking(
            task=task.id,
            release_no=task.release_no,
            ordinal=steps.alone(name),
            name=name,
            question=replace(question, prompt=models.redact(question.prompt)),
        )
        found = steps.look(lambda connection: approvals.ask(connection, asking))
        if found is False:
            raise LeaseLost("the task was taken back while it asked")
        if found is not None and found.choice is not None:
            return found.choice
        raise Asked(asking.ordinal, asking.question.prompt, question.timeout_s)

    given: str = steps.run(name, answer, policy.MAIN)
    return given
