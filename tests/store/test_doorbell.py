"""The doorbell is a courtesy: what it follows is committed, so one that can't be rung fails nobody."""

from harness.store.database import connect, open_pool
from harness.store.doorbell import CHANNEL, Doorbell
from tests.stage import Stage


def test_a_bell_that_cannot_be_rung_fails_nobody(stage: Stage, database_url: str) -> None:
    connection = connect(database_url, "engine", application_name="test-bell")
    connection.close()
    Doorbell().ring(connection)
    pool = open_pool(database_url, "engine", size=1, application_name="test-bell", wait_s=0.1)
    with pool.connection():  # the only one: nobody else gets it
        Doorbell().ring_from(pool)
    pool.close()


def test_a_bell_is_heard_by_who_sleeps_whichever_connection_rings_it(stage: Stage, database_url: str) -> None:
    stage.connection.execute("UPDATE leader SET sleeping = true")
    pool = open_pool(database_url, "engine", size=1, application_name="test-bell")
    with stage.open() as listening:
        listening.execute(f"LISTEN {CHANNEL}")
        Doorbell().ring_from(pool)
        assert len(list(listening.notifies(timeout=5, stop_after=1))) == 1
    pool.close()
