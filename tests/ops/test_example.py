"""`manage.py example`: the list, what lacks, a name that isn't there, and one played from the submit to its files."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from harness.kinds import sandbox
from harness.ops.examples import catalogue, run
from harness.ops.examples.example import Example, Outcome
from harness.ops.local import processes
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


@pytest.mark.skipif(sandbox.lack() is not None, reason=f"no sandbox here: {sandbox.lack()}")
def test_csv_analysis_is_played_on_a_stack_of_its_own_and_leaves_its_files_and_no_process(
    root: Path, tmp_path: Path
) -> None:
    own = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "BROKER_URL")}
    done = subprocess.run(
        [sys.executable, "manage.py", "example", "csv_analysis", "--json"],
        cwd=root,
        env=own | {"HARNESS_LOCAL_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    told = json.loads(done.stdout)
    files = {Path(one).name: Path(one) for one in told["files"]}
    assert set(files) == {"result.json", "chart.svg", "program.py"} and told["programs"] == 1
    figures = json.loads(files["result.json"].read_text())
    assert (figures["value"], figures["by"]) == ("revenue", "region")
    assert sum(one["rows"] for one in figures["groups"]) == 20_000
    assert figures["groups"][0]["group"] in told["answer"]
    assert processes.marked(tmp_path / "example" / "stack") == []
