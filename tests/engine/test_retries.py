"""Row B6 on the real stages: what each class of error makes of a task, how kinds refine it, and repair."""

from typing import Any

import pytest
from pydantic import BaseModel

from harness.engine import execute
from harness.kinds import Context, Permanent, RateLimited, Rule, TimedOut, Transient, Unfit, kind, registry
from harness.policy.errors import Invalid
from tests.stage import Stage


class Nothing(BaseModel):
    """No input."""


class Answer(BaseModel):
    """What a model should have said."""

    words: int


SAID: list[str] = []


def fix(ctx: Context, payload: Nothing, error: Exception) -> Answer:
    """Make an answer of what doesn't fit."""
    SAID.append(type(error).__name__)
    return Answer(words=len(str(getattr(error, "value", None) or "").split()))


def fix_in_vain(ctx: Context, payload: Nothing, error: Exception) -> dict[str, str]:
    """Make something that doesn't fit either."""
    SAID.append("in vain")
    return {"words": "still many"}


@kind("test.unfit", pool="db", input=Nothing, output=Answer, repair=fix)
def unfit(ctx: Context, payload: Nothing) -> Answer:
    raise Unfit("the model said no number", value="a b c")


@kind("test.misread", pool="db", input=Nothing, output=Answer, repair=fix)
def misread(ctx: Context, payload: Nothing) -> Answer:
    return Answer.model_validate({"words": "many"})


@kind("test.misshapen", pool="db", input=Nothing, output=Answer, repair=fix)
def misshapen(ctx: Context, payload: Nothing) -> Any:
    return {"wrods": 3}


@kind("test.unrepaired", pool="db", input=Nothing, output=Answer)
def unrepaired(ctx: Context, payload: Nothing) -> Any:
    return {"wrods": 3}


@kind("test.in_vain", pool="db", input=Nothing, output=Answer, repair=fix_in_vain)
def in_vain(ctx: Context, payload: Nothing) -> Any:
    return {"wrods": 3}


@kind("test.refused", pool="db", input=Nothing, output=Answer, repair=fix)
def refused(ctx: Context, payload: Nothing) -> Answer:
    raise Permanent("404: there is no such thing")


@kind("test.plain", pool="db", input=Nothing, output=Answer)
def plain(ctx: Context, payload: Nothing) -> Any:
    return {"words": 3}


@kind("test.again", pool="db", input=Nothing, retry={"validation": Rule(verdict="retry", most_attempts=2)})
def again(ctx: Context, payload: Nothing) -> None:
    raise Unfit("the model said no number")


@kind("test.proud", pool="db", input=Nothing, retry={"server_error": Rule(verdict="fail"), "bug": Rule(verdict="fail")})
def proud(ctx: Context, payload: Nothing) -> None:
    raise Transient("503")


@kind("test.limit_reached", pool="db", input=Nothing, max_attempts=1)
def limit_reached(ctx: Context, payload: Nothing) -> None:
    raise RateLimited("429", retry_after_s=30.0)


@kind("test.slow", pool="db", input=Nothing)
def slow(ctx: Context, payload: Nothing) -> None:
    raise TimedOut("no answer within 5 s")


def run(stage: Stage, name: str) -> int:
    SAID.clear()
    session = stage.add_session()
    (task,) = stage.submit(name)
    with stage.process(session) as process:
        for message in list(stage.tick()):
            execute.run_lease(process, message.lease, message.token)
    return task


def output_of(stage: Stage, task: int) -> object:
    return stage.one("SELECT output FROM task_body WHERE task_id = %s", task)


@pytest.mark.parametrize(("name", "words"), [("test.unfit", 3), ("test.misread", 0), ("test.misshapen", 2)])
def test_what_does_not_fit_goes_once_to_the_kinds_repair_function(stage: Stage, name: str, words: int) -> None:
    task = run(stage, name)
    assert (stage.state(task), output_of(stage, task)) == ("succeeded", {"words": words})
    assert set(SAID) == {"ValidationError" if name == "test.misread" else "Unfit"} and len(SAID) == 1
    assert stage.row(task)["attempts_used"] == 0 and stage.events(task) == ["submit", "claim", "succeed"]


@pytest.mark.parametrize(
    ("name", "said", "words"),
    [
        ("test.unrepaired", [], "its result is no Answer"),
        ("test.in_vain", ["in vain"], "its result is no Answer"),
        ("test.refused", [], "404"),  # a downstream's refusal is nothing that a repair could mend
    ],
)
def test_without_a_repair_that_helps_it_fails_at_once(stage: Stage, name: str, said: list[str], words: str) -> None:
    task = run(stage, name)
    assert (stage.state(task), SAID) == ("failed_terminal", said)
    error = stage.one("SELECT error FROM task_body WHERE task_id = %s", task)
    assert error["class"] == "validation" and words in error["message"]


def test_a_result_that_fits_is_kept_as_it_is(stage: Stage) -> None:
    assert output_of(stage, run(stage, "test.plain")) == {"words": 3}


@pytest.mark.parametrize(
    ("name", "state", "used"),
    [
        ("test.again", "failed_retryable", 1),
        ("test.proud", "failed_terminal", 1),
        ("test.limit_reached", "queued", 0),
        ("test.slow", "failed_retryable", 1),
    ],
)
def test_each_class_ends_as_the_table_or_the_kind_says(stage: Stage, name: str, state: str, used: int) -> None:
    task = run(stage, name)
    assert (stage.state(task), stage.row(task)["attempts_used"]) == (state, used)


def test_of_a_timeout_the_error_is_kept(stage: Stage) -> None:
    task = run(stage, "test.slow")
    assert stage.one("SELECT error ->> 'class' FROM task_body WHERE task_id = %s", task) == "timeout"
    assert stage.one("SELECT message FROM attempt WHERE task_id = %s", task) == "no answer within 5 s"


def test_a_kind_with_a_rule_that_makes_no_sense_is_refused_when_it_registers() -> None:
    with pytest.raises(Invalid, match=r"kind 'test\.odd': retry\['timeout'\]: the verdict may be fail or retry"):
        kind("test.odd", pool="db", input=Nothing, retry={"timeout": Rule(verdict="postpone")})(plain)
    assert registry.find("test.odd") is None
