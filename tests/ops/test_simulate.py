"""`manage.py simulate` and `manage.py export_trace`: what they print, and what they say when it can't be done."""

import io
import json
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.stage import Stage

SCENE = """
title = "small"
duration_s = 10
[pools.llm]
slots = 2
[kinds.step]
pool = "llm"
mean_s = 1.0
law = "exponential"
[tenants.a]
[[work]]
tenants = "a"
kind = "step"
arrivals = "at"
batch = 8
[expect]
"counts.succeed" = {range}
"""


def run(*words: object) -> str:
    out = io.StringIO()
    call_command(*[str(word) for word in words], stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_a_scenario_is_played_without_a_database_and_told_as_text_or_json(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SCENE.replace("{range}", "[8, 8]"))
    text = run("simulate", path)
    assert "small (seed 1, plan fair)" in text and "8 succeed" in text
    one, again, other = (json.loads(run("simulate", path, "--json", "--seed", seed)) for seed in (1, 1, 2))
    assert one["missed"] == []
    assert one["makespan_s"] == again["makespan_s"] != other["makespan_s"]


def test_a_missed_range_fails_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SCENE.replace("{range}", "[9, 9]"))
    with pytest.raises(CommandError, match=r"missed:\n  counts.succeed: 8 is not in \[9, 9\]") as failed:
        run("simulate", path)
    assert failed.value.returncode == 1
    with pytest.raises(CommandError, match=r"nothing\.toml: can't be read"):
        run("simulate", tmp_path / "nothing.toml")


def test_a_scenario_that_comes_with_harness_is_found_by_its_name() -> None:
    assert "elephant and victims" in run("simulate", "elephant")
    with pytest.raises(CommandError, match=r"no file elefant, and no scenario of that name; there are .*, elephant,"):
        run("simulate", "elefant")


def test_a_run_is_exported_and_replayed(stage: Stage, tmp_path: Path) -> None:
    run_id, public_id = stage.connection.execute(
        "INSERT INTO run (public_id, tenant_id, size) VALUES (gen_random_uuid(), %s, 3) RETURNING id, public_id",
        (stage.tenant,),
    ).fetchone() or (0, "")
    stage.submit(n=3, run=run_id)
    stage.submit(n=2)
    session = stage.add_session()
    with stage.process(session) as process:
        stage.run_all(process)
    path = tmp_path / "run.jsonl.gz"
    assert f"{path}: 3 tasks of 1 tenants, 3 attempts" in run("export_trace", path, "--run", public_id)
    assert json.loads(run("simulate", path, "--json"))["counts"]["succeed"] == 3
    assert "5 tasks" in run("export_trace", path, "--since", "2020-01-01")
    for words, says in (
        (("--run", "x"), "--run: must be the id of a run"),
        (("--since", "yesterday"), "--since: must be an ISO time"),
        (("--since", "2020-01-01", "--until", "2020-01-02"), "no task was submitted there"),
    ):
        with pytest.raises(CommandError, match=says):
            run("export_trace", path, *words)
    with pytest.raises(CommandError, match="a trace isn't TOML"):
        run("export_trace", tmp_path / "x.toml", "--run", public_id)


def test_another_file_says_what_is_other_and_the_differences_are_told_and_drawn(tmp_path: Path) -> None:
    path, other, picture = tmp_path / "small.toml", tmp_path / "other.toml", tmp_path / "both.svg"
    path.write_text(SCENE.replace("{range}", "[8, 8]"))
    other.write_text('title = "eight slots"\n[pools.llm]\nslots = 8\n')
    text = run("simulate", path, "--compare", other, "--chart", picture)
    assert "first: small" in text and "other: eight slots" in text and "waits.all.all.max_s" in text
    assert "counts.succeed" not in text, "what is alike is only counted"
    assert picture.read_text().startswith("<svg") and "eight slots" in picture.read_text()
    figures = json.loads(run("simulate", path, "--compare", other, "--json"))["figures"]
    assert figures["counts.succeed"] == [8, 8] and figures["waits.all.all.max_s"][1] < 1.0
    other.write_text('title = "no"\nduration_s = 5\n')
    with pytest.raises(CommandError, match=r"other\.toml: duration_s must be that of the first scenario"):
        run("simulate", path, "--compare", other)


def test_a_chart_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SCENE.replace("{range}", "[8, 8]"))
    with pytest.raises(CommandError, match=r"--chart: .*can't be written"):
        run("simulate", path, "--chart", tmp_path / "nowhere" / "x.svg")
