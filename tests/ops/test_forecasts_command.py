"""`manage.py forecasts`: when forecasts were made, and how earlier ones were borne out."""

import json

from tests.ops.test_operators import run
from tests.stage import Stage


def test_before_any_pass_it_says_so(database_url: str) -> None:
    assert "No forecast has been made yet" in run("forecasts")
    assert json.loads(run("forecasts", "--json"))["trust"] == "learning"


def test_it_makes_a_pass_and_tells_what_it_looked_at(stage: Stage) -> None:
    stage.hold_lead()
    stage.add_session({"db": 1})
    stage.submit(n=3)
    told = run("forecasts", "--now")
    assert "of 3 tasks (3 wait)" in told and "learning: too few have been borne out" in told
    found = json.loads(run("forecasts", "--json"))
    assert (found["looked_at"], found["stale"], found["n"]) == (3, False, 0)


def test_it_tells_the_shares_that_were_covered(stage: Stage) -> None:
    ended = stage.submit(n=80)
    stage.connection.execute(
        "INSERT INTO forecast_borne (task_id, priority, at, raw_p50_s, raw_p90_s, shown_p50_s, shown_p90_s, plain_s, "
        "actual_s) SELECT id, 2, clock_timestamp() - interval '1 second' * (60 * (n / 8)), 10, 20, 10, 20, 40, "
        "CASE WHEN n %% 2 = 0 THEN 8 WHEN n %% 10 = 1 THEN 30 ELSE 15 END "
        "FROM unnest(%s::bigint[]) WITH ORDINALITY AS x(id, n)",
        (ended,),
    )
    told = run("forecasts", "--now")
    assert "good: they are borne out as they should be" in told
    assert "of the last 80 the P50 covered 50% and the P90 90%; median P90/P50 2.00" in told
