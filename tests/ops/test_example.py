"""`manage.py example`: the list, what lacks, and a name that isn't there."""

from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from harness.ops.examples import catalogue, run
from harness.ops.examples.example import Example, Outcome
from harness.policy.errors import Refused


def test_the_list_names_every_example_and_whether_it_runs_here() -> None:
    told = StringIO()
    call_command("example", stdout=told)
    for example in catalogue.all_examples():
        assert example.name in told.getvalue() and example.about in told.getvalue()


def test_a_name_that_isnt_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(CommandError, match="there is no example 'nope'; there are"):
        call_command("example", "nope")


def test_an_example_that_lacks_something_says_so_before_anything_is_started(root: Path) -> None:
    lame = Example(name="lame", about="-", play=lambda player: Outcome(), missing=lambda: "install the moon")
    started: list[str] = []
    with pytest.raises(Refused, match="lame can't run here: install the moon"):
        run.run(lame, root, say=started.append)
    assert started == []
