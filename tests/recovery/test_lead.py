"""The leading dispatcher dies, or stops and comes back when another leads."""

import signal
import subprocess
import time
from collections.abc import Iterator

import psutil
import psycopg
import pytest

from tests.recovery.conftest import Ward
from tests.stage import wait_until

FOLLOWED_S = 5.0
WATCHED = ("task", "lease", "lease_member", "flow", "leader", "worker_session", "charge", "event", "estimate")


@pytest.fixture
def written(database_url: str) -> Iterator[str]:
    """A table that notes, for each change of a row, which connection made it."""
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.execute("DROP TABLE IF EXISTS recovery_written")
        owner.execute(
            "CREATE TABLE recovery_written (what text, pid integer, at timestamptz DEFAULT clock_timestamp())"
        )
        owner.execute(
            "CREATE OR REPLACE FUNCTION recovery_note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS "
            "$$ BEGIN INSERT INTO public.recovery_written VALUES (TG_TABLE_NAME, pg_backend_pid()); RETURN NULL; END $$"
        )
        for table in WATCHED:
            owner.execute(
                f"CREATE TRIGGER recovery_note AFTER INSERT OR UPDATE OR DELETE ON {table} "
                "FOR EACH ROW EXECUTE FUNCTION recovery_note()"
            )
    yield "recovery_written"
    with psycopg.connect(database_url, autocommit=True) as owner:
        for table in WATCHED:
            owner.execute(f"DROP TRIGGER recovery_note ON {table}")
        owner.execute("DROP FUNCTION recovery_note")
        owner.execute("DROP TABLE recovery_written")


def backends(ward: Ward, process: "subprocess.Popen[bytes]") -> set[int]:
    """The connections that PostgreSQL has with a process."""
    ports = [at.laddr.port for at in psutil.Process(process.pid).net_connections() if at.raddr]
    with psycopg.connect(ward.stage.url) as owner:  # the engine's role doesn't see other connections' ports
        rows = owner.execute("SELECT pid FROM pg_stat_activity WHERE client_port = ANY(%s)", (ports,)).fetchall()
    return {row[0] for row in rows}


def two_dispatchers(ward: Ward) -> tuple["subprocess.Popen[bytes]", "subprocess.Popen[bytes]"]:
    """One that leads, and one that stands by."""
    first = ward.dispatcher()
    wait_until(lambda: ward.leads(first), within_s=15)
    second = ward.dispatcher()
    wait_until(lambda: backends(ward, second), within_s=15, every_s=0.001)
    return first, second


def feed(ward: Ward, condition: object, *, within_s: float) -> int:
    """Submit ten tasks every tenth of a second until the condition holds. Returns how many."""
    assert callable(condition)
    until_s, n = time.monotonic() + within_s, 0
    while not condition():
        assert time.monotonic() < until_s, f"not within {within_s} s"
        ward.stage.submit("noop.single", n=10)
        n += 10
        time.sleep(0.1)
    return n


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_leader_that_is_gone_is_followed_within_five_seconds_and_nothing_is_released_twice(
    ward: Ward, written: str, how: signal.Signals
) -> None:
    stage = ward.stage
    ward.worker("db")
    first, second = two_dispatchers(ward)
    n = feed(ward, lambda: ward.count("succeeded") >= 50, within_s=15)
    of_first = backends(ward, first)
    assert of_first
    first.send_signal(how)
    gone_s = time.monotonic()
    n += feed(ward, lambda: ward.leads(second), within_s=10)
    assert time.monotonic() - gone_s < FOLLOWED_S
    done = ward.count("succeeded")
    n += feed(ward, lambda: ward.count("succeeded") > done, within_s=5)
    if how is signal.SIGSTOP:
        epoch = ward.leader()[1]
        went_on = stage.one("SELECT clock_timestamp()")
        first.send_signal(signal.SIGCONT)
        n += feed(ward, lambda: "lead_lost" in ward.text(first) or "lead_ended" in ward.text(first), within_s=10)
        seen = ward.count("succeeded")
        n += feed(ward, lambda: ward.count("succeeded") >= seen + 50, within_s=10)
        with psycopg.connect(stage.url) as owner:
            late = owner.execute(
                f"SELECT what, count(*) FROM {written} WHERE at > %s AND pid = ANY(%s) GROUP BY what",
                (went_on, list(of_first)),
            ).fetchall()
        assert late == []
        assert (ward.leads(second), ward.leader()[1]) == (True, epoch)
    wait_until(lambda: ward.count("succeeded") == n, within_s=30)
    assert stage.one("SELECT count(*) FROM event WHERE event = 'claim'") == n
    assert stage.one("SELECT max(attempts_used) + max(lost_starts) FROM task") == 0


def test_a_leader_killed_between_commit_and_publish_costs_no_attempt_and_repeats_nothing(
    ward: Ward,
) -> None:
    stage = ward.stage
    ward.worker("tool_read")
    killed = ward.start("-m", "tests.recovery.unpublished")
    wait_until(lambda: ward.leads(killed), within_s=20)
    tasks = ward.submit("recovery.thread", *[{"i": i, "effects": 2} for i in range(3)])
    assert killed.wait(timeout=20) == -signal.SIGKILL
    # What it had committed stands, and nobody knows: as many as its last tick saw, each charged for at its release.
    released = stage.one("SELECT count(*) FROM lease WHERE claimed_at IS NULL")
    assert released >= 1
    charged_s = stage.one("SELECT sum(v) FROM clock WHERE tenant_id = %s", stage.tenant)
    assert charged_s == stage.one("SELECT sum(est_s * cost) FROM lease"), "the clock went with the leases"

    follower = ward.dispatcher()
    wait_until(lambda: ward.leads(follower), within_s=20)
    assert ward.count("running") <= len(tasks) - released
    stage.connection.execute("UPDATE lease SET released_at = released_at - interval '11 s' WHERE claimed_at IS NULL")
    wait_until(lambda: ward.count("succeeded") == len(tasks), within_s=30)

    for i, task in enumerate(tasks):
        assert [line.number for line in ward.lines("effect", i)] == [0, 1]
        row = stage.row(task)
        assert (row["attempts_used"], row["lost_starts"]) == (0, 0)
    assert stage.one("SELECT sum(release_no) FROM task") == len(tasks) + released
