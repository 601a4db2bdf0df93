"""Tasks work on a target over no more connections than leases; its limit is what is free; nothing tells a password."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel

from harness.engine import execute, follow, watch
from harness.engine.process import ProcessState
from harness.kinds import Context, kind, models
from harness.kinds.errors import Cancelled
from harness.store import resources, targets
from tests.stage import Stage, wait_until
from tests.target_database import PASSWORD, VARIABLE, TargetDatabase, target_database

DB = "db:main"


class Asked(BaseModel):
    """A statement for the target."""

    statement: str


@kind("test.target", pool="db", input=Asked, resources={DB: 1}, timeout_s=30)
def asks(ctx: Context, payload: Asked) -> list[object]:
    with ctx.target(DB) as connection:
        return [list(row) for row in connection.execute(payload.statement.encode()).fetchall()]


@kind("test.target_twice", pool="db", input=Asked, resources={DB: 1}, timeout_s=30)
def asks_twice(ctx: Context, payload: Asked) -> list[object]:
    backends = []
    for _ in range(3):
        with ctx.target(DB) as connection:
            backends += [row[0] for row in connection.execute("SELECT pg_backend_pid()").fetchall()]
    return [len(set(backends))]


@kind("test.target_in_parallel", pool="db", input=Asked, resources={DB: 2}, timeout_s=30)
def asks_in_parallel(ctx: Context, payload: Asked) -> list[object]:
    backends: list[int] = []

    def ask() -> None:
        with ctx.target(DB) as connection:
            backends.extend(row[0] for row in connection.execute("SELECT pg_backend_pid(), pg_sleep(0.2)::text"))

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [len(backends), len(set(backends))]


@kind("test.target_of_others", pool="db", input=Asked, timeout_s=30)
def asks_undeclared(ctx: Context, payload: Asked) -> None:
    with ctx.target(DB):
        raise AssertionError("it declares nothing")


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetDatabase]:
    with target_database() as made:
        monkeypatch.setenv(VARIABLE, made.url)
        yield made


@pytest.fixture
def process(stage: Stage) -> Iterator[ProcessState]:
    with stage.process(stage.add_session()) as process:
        yield process
        process.targets.keep({}, until_s=0.0)


def submit(stage: Stage, statement: str, kind: str = "test.target", **more: Any) -> list[int]:
    return stage.submit(kind, input=json.dumps({"statement": statement}), **more)


def begin(stage: Stage, process: ProcessState) -> list[threading.Thread]:
    """Release what has room, and run each on a thread of its own."""
    threads = [
        threading.Thread(target=execute.run_lease, args=(process, message.lease, message.token))
        for message in stage.tick()
    ]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive()


def told(stage: Stage, task: int) -> str:
    """Everything that anybody may read of a task."""
    rows = stage.connection.execute(
        "SELECT to_jsonb(e)::text FROM event e WHERE task_id = %(t)s "
        "UNION ALL SELECT to_jsonb(b)::text FROM task_body b WHERE task_id = %(t)s "
        "UNION ALL SELECT to_jsonb(a)::text FROM attempt a WHERE task_id = %(t)s",
        {"t": task},
    ).fetchall()
    return "\n".join(row[0] for row in rows)


def look(stage: Stage, following: follow.Following, now_s: float) -> None:
    follow.pass_over(
        stage.connection,
        settings.HARNESS_TOPOLOGY,
        following,
        follow.looks(settings.HARNESS_TOPOLOGY, following),
        now_s=now_s,
    )


def changes(stage: Stage) -> list[tuple[int | None, int, str, str]]:
    cursor = stage.connection.execute(
        "SELECT old, new, reason, mode FROM limit_change WHERE resource = %s ORDER BY id", (DB,)
    )
    return [(row[0], row[1], row[2], row[3]) for row in cursor]


def test_a_task_works_on_a_connection_that_is_gone_before_its_lease_is(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    (task,) = submit(stage, "SELECT current_database()::text, 7")
    stage.run_all(process)
    assert stage.state(task) == "succeeded"
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == [[target.name, 7]]
    assert process.targets.open == 0
    wait_until(lambda: target.ours() == 0, within_s=5)
    assert process.waits.read()[DB]["n"] == 1


def test_uses_of_one_task_share_one_connection(stage: Stage, process: ProcessState, target: TargetDatabase) -> None:
    (task,) = submit(stage, "", kind="test.target_twice")
    stage.run_all(process)
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == [1]


def test_threads_of_a_kind_share_as_many_connections_as_it_declares(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    (task,) = submit(stage, "", kind="test.target_in_parallel", signature=f"{DB}=2")
    stage.run_all(process)
    assert stage.one("SELECT output FROM task_body WHERE task_id = %s", task) == [5, 2]


def test_there_are_never_more_connections_than_leases_whatever_the_threads(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    submit(stage, "SELECT pg_sleep(0.05)::text", n=24)
    most, over = [0], threading.Event()

    def count() -> None:
        while not over.wait(0.005):
            most[0] = max(most[0], target.ours())

    counting = threading.Thread(target=count)
    counting.start()
    while threads := begin(stage, process):  # four slots in the stage's session
        join(threads)
    over.set()
    counting.join()
    assert stage.one("SELECT count(*) FROM task WHERE state = 'succeeded'") == 24
    assert 1 <= most[0] <= 4


def test_what_a_task_wrote_counts_only_if_it_went_well(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"].rsplit("/", 1)[0] + f"/{target.name}", autocommit=True) as owner:
        owner.execute("CREATE TABLE kept (n integer)")
        owner.execute("GRANT ALL ON kept TO PUBLIC")
    submit(stage, "WITH i AS (INSERT INTO kept VALUES (1) RETURNING n) SELECT n FROM i")
    submit(stage, "WITH i AS (INSERT INTO kept VALUES (2) RETURNING n) SELECT n / 0 FROM i")
    stage.run_all(process)
    with target.foreign() as somebody:
        assert [row[0] for row in somebody.execute("SELECT n FROM kept")] == [1]


@pytest.mark.parametrize(
    ("statement", "state", "error_class"),
    [
        ("SELECT nothing FROM nowhere", "failed_terminal", "validation"),
        ("SELECT 1 / 0", "failed_terminal", "validation"),
        ("SELECT pg_read_file('/etc/passwd')", "failed_terminal", "permission"),
        ("SELECT pg_terminate_backend(pg_backend_pid())", "failed_retryable", "network"),
    ],
)
def test_what_the_target_says_decides_what_follows(
    stage: Stage, process: ProcessState, target: TargetDatabase, statement: str, state: str, error_class: str
) -> None:
    (task,) = submit(stage, statement)
    stage.run_all(process)
    assert stage.state(task) == state
    assert stage.one("SELECT error_class FROM attempt WHERE task_id = %s", task) == error_class
    assert PASSWORD not in told(stage, task)
    assert process.targets.open == 0


def test_a_wish_to_cancel_ends_the_statement_on_the_server(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    (task,) = submit(stage, "SELECT pg_sleep(60)::text")
    threads = begin(stage, process)
    wait_until(lambda: target.ours() == 1, within_s=5)
    began_s = time.monotonic()
    stage.connection.execute("UPDATE task SET want = 'cancel' WHERE id = %s", (task,))
    watch.read_wishes(process, stage.connection)
    join(threads)
    assert time.monotonic() - began_s < 3.0
    assert stage.state(task) == "cancelled"
    wait_until(lambda: target.ours() == 0, within_s=5)


def test_a_target_that_lets_nobody_in_costs_no_attempt(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        target_database(limit=1) as target,
        stage.process(stage.add_session()) as process,
        target.foreign(),
    ):
        monkeypatch.setenv(VARIABLE, target.url)
        (task,) = submit(stage, "SELECT 1")
        began_s = time.monotonic()
        stage.run_all(process)
        assert 1.5 < time.monotonic() - began_s < 5.0
        row = stage.row(task)
        assert (row["state"], row["attempts_used"], row["postponements"]) == ("queued", 0, 1)
        assert "takes no more connections" in told(stage, task)


def test_a_place_that_gets_free_soon_is_waited_for(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with target_database(limit=1) as target, stage.process(stage.add_session()) as process:
        monkeypatch.setenv(VARIABLE, target.url)
        (task,) = submit(stage, "SELECT 1")
        somebody = target.foreign()
        threads = begin(stage, process)
        time.sleep(0.3)
        somebody.close()
        join(threads)
        assert stage.state(task) == "succeeded"
        assert process.waits.read()[DB]["max_s"] >= 0.2


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("", "is not set"),
        (f"postgres//harness:{PASSWORD}@db/main", "holds no address"),
        (f"host=/nowhere user=harness password={PASSWORD}", "can't be reached"),
        (f"postgresql://harness:{PASSWORD}@127.0.0.1:1/main", "can't be reached"),
        (f"postgresql://harness:{PASSWORD}@127.0.0.1:99999/main", "can't be reached"),
    ],
)
def test_a_target_that_cannot_be_opened_costs_no_attempt_and_tells_no_password(
    stage: Stage,
    process: ProcessState,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    address: str,
    words: str,
) -> None:
    monkeypatch.setenv(VARIABLE, address)
    (task,) = submit(stage, "SELECT 1")
    stage.run_all(process)
    row = stage.row(task)
    assert (row["state"], row["attempts_used"]) == ("queued", 0)
    assert words in told(stage, task)
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    for now_s in (0.0, 1.0):
        look(stage, following, now_s)
    assert changes(stage)[-1][1] == 0
    out = capfd.readouterr()
    assert PASSWORD not in told(stage, task) + out.out + out.err + repr(following) + str(changes(stage))


def test_a_password_that_an_error_brings_along_is_taken_out(target: TargetDatabase) -> None:
    assert models.redact(f"it was {PASSWORD}, wasn't it") == "it was [redacted], wasn't it"


def test_a_kind_uses_only_targets_that_it_declares(stage: Stage, process: ProcessState, target: TargetDatabase) -> None:
    (task,) = submit(stage, "", kind="test.target_of_others")
    stage.run_all(process)
    assert "declares no target" in told(stage, task)


def test_the_limit_follows_what_others_leave_free_and_each_change_is_a_row(
    stage: Stage, target: TargetDatabase
) -> None:
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    look(stage, following, 0.0)
    with ExitStack() as others:
        for _ in range(10):
            others.enter_context(target.foreign())
        look(stage, following, 1.0)
        assert resources.kept(stage.connection)[DB].limit_now == 10
    wait_until(lambda: foreign(target) == 0, within_s=5)
    for now_s in (2.0, 3.0, 4.0, 5.0):
        look(stage, following, now_s)
    assert changes(stage) == [
        (None, 20, "began", "follow"),
        (20, 10, "others_came", "follow"),
        (10, 20, "others_left", "follow"),
    ]


def foreign(target: TargetDatabase) -> int:
    with psycopg.connect(os.environ["DATABASE_URL"]) as owner:
        row = owner.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'somebody-else' AND datname = %s",
            (target.name,),
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_our_own_connections_are_not_others(stage: Stage, process: ProcessState, target: TargetDatabase) -> None:
    submit(stage, "SELECT pg_sleep(1)::text", n=4)
    threads = begin(stage, process)
    wait_until(lambda: target.ours() == 4, within_s=5)
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    look(stage, following, 0.0)
    join(threads)
    kept = resources.kept(stage.connection)[DB]
    assert (kept.limit_now, kept.in_flight) == (20, 4)


def test_what_the_server_refuses_beyond_is_found_out(stage: Stage, target: TargetDatabase) -> None:
    target.set_limit(8)
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    with target.foreign(), target.foreign():
        look(stage, following, 0.0)
    assert resources.kept(stage.connection)[DB].limit_now == 5  # 8, less two others and one that stays free


def test_a_new_leader_goes_on_where_the_last_one_stopped(stage: Stage, target: TargetDatabase) -> None:
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    look(stage, following, 0.0)
    again = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    look(stage, again, 0.0)
    assert len(changes(stage)) == 1


def test_a_look_that_hangs_holds_nobody_up_and_counts_as_out_of_reach(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and says nothing
        monkeypatch.setenv(VARIABLE, f"postgresql://u:p@127.0.0.1:{silent.getsockname()[1]}/x")
        following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
        began_s = time.monotonic()
        assert follow.looks(settings.HARNESS_TOPOLOGY, following) == {}
        assert time.monotonic() - began_s < 2.0
        following.under_way[DB] -= follow.HANGS_S
        found = follow.looks(settings.HARNESS_TOPOLOGY, following)
        follow.pass_over(stage.connection, settings.HARNESS_TOPOLOGY, following, found, now_s=0.0)
        assert changes(stage) == [(None, 0, "unreachable", "unreachable")]


def test_a_target_that_is_not_followed_any_more_has_its_capacity_again(stage: Stage, target: TargetDatabase) -> None:
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    look(stage, following, 0.0)
    topology = replace(
        settings.HARNESS_TOPOLOGY, targets={DB: replace(settings.HARNESS_TOPOLOGY.targets[DB], follow=False)}
    )
    assert follow.looks(topology, follow.begin(stage.connection, topology)) == {}
    assert DB not in resources.kept(stage.connection)


def test_two_deployments_on_one_target_are_told_apart(stage: Stage, target: TargetDatabase) -> None:
    own = targets.mark(stage.connection)
    assert own == targets.mark(stage.connection)
    with psycopg.connect(target.url, autocommit=True, application_name=targets.task_name("ffffffff", DB)):
        found = targets.look(
            {key: str(value) for key, value in conninfo_to_dict(target.url).items()}, own_mark=own, target=DB
        )
    assert getattr(found, "others", None) == 1


def test_a_wish_that_is_there_before_the_statement_begins_nothing(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    with pytest.raises(Cancelled):
        process.targets.connect(DB, statement_s=5.0, look=_cancelled)
    assert target.ours() == 0


def _cancelled() -> None:
    raise Cancelled("cancel")


# What the one home keeps


def keep(process: ProcessState, number: int, *, for_s: float = 60.0) -> None:
    process.targets.keep({DB: number}, until_s=time.monotonic() + for_s)


def backends(stage: Stage) -> set[int]:
    cursor = stage.connection.execute("SELECT output FROM task_body WHERE output IS NOT NULL")
    return {row[0][0][0] for row in cursor}


def test_the_home_of_a_target_uses_its_connections_again(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    keep(process, 4)
    submit(stage, "SELECT pg_backend_pid()", n=9)
    stage.run_all(process)
    assert len(backends(stage)) == 1
    assert (process.targets.open, target.ours()) == (1, 1)


def test_what_was_kept_is_closed_when_it_may_not_be_kept_any_more(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    keep(process, 4)
    submit(stage, "SELECT pg_sleep(0.3)::text", n=4)
    join(begin(stage, process))
    assert process.targets.open == 4
    keep(process, 2)  # others have come
    assert process.targets.open == 2
    process.targets.keep({}, until_s=time.monotonic())
    assert process.targets.open == 0
    wait_until(lambda: target.ours() == 0, within_s=5)


def test_a_home_that_has_not_looked_for_long_keeps_nothing(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    keep(process, 4, for_s=-1.0)
    submit(stage, "SELECT pg_backend_pid()", n=2)
    stage.run_all(process)
    assert process.targets.open == 0
    assert len(backends(stage)) == 2


def test_the_next_task_finds_nothing_of_the_one_before(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    keep(process, 4)
    submit(stage, "SELECT pg_backend_pid(), set_config('work_mem', '7MB', false)")
    stage.run_all(process)
    submit(stage, "SELECT pg_backend_pid(), current_setting('work_mem'), current_setting('statement_timeout')")
    stage.run_all(process)
    told_by = [row[0][0] for row in stage.connection.execute("SELECT output FROM task_body ORDER BY task_id")]
    assert told_by[0][0] == told_by[1][0]
    assert told_by[1][1] != "7MB"
    assert told_by[1][2] == "30s"


def test_a_kept_connection_that_the_server_has_closed_is_replaced(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    keep(process, 4)
    submit(stage, "SELECT pg_backend_pid()")
    stage.run_all(process)
    with target.foreign() as somebody:
        somebody.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'harness-%:db:main'"
        )
    wait_until(lambda: target.ours() == 0, within_s=5)
    (task,) = submit(stage, "SELECT pg_backend_pid()")
    stage.run_all(process)
    assert stage.state(task) == "succeeded"
    assert stage.row(task)["attempts_used"] == 0
    assert process.targets.open == 1


def test_connections_that_are_kept_are_neither_others_nor_left_behind(
    stage: Stage, process: ProcessState, target: TargetDatabase
) -> None:
    keep(process, 4)
    submit(stage, "SELECT pg_sleep(0.3)::text", n=4)
    join(begin(stage, process))
    following = follow.begin(stage.connection, settings.HARNESS_TOPOLOGY)
    for now_s in range(4):
        look(stage, following, float(now_s))
    assert changes(stage) == [(None, 20, "began", "follow")]
