"""A worker that must not start says why in one sentence, without a traceback, and exits with a code of its own."""

import uuid

import pytest

from tests.worker.conftest import Floor


def refusal(floor: Floor, *arguments: str, **environment: str) -> tuple[int, str]:
    worker = floor.run(*arguments, **environment)
    code = worker.process.wait(30)
    assert "Traceback" not in worker.text
    return code, worker.text.strip()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--resource-pool is missing; name one or more pools of resources.toml (browser, cpu, db,"),
        (("--resource-pool", "nope"), "there is no pool 'nope'; the pools of resources.toml are browser, cpu"),
        (("--resource-pool", "llm", "-c", "3"), "the concurrency is 3, but pool llm of resources.toml wants 16"),
        (("--resource-pool", "llm", "-P", "solo"), "the pool class is solo"),
        (("--resource-pool", "db", "--autoscale", "3,1"), "--autoscale is refused"),
        (("--resource-pool", "db", "-Q", "cpu.p0"), "the list of queues is cpu.p0"),
    ],
)
def test_a_worker_that_differs_from_its_profile_does_not_start(
    floor: Floor, arguments: tuple[str, ...], says: str
) -> None:
    code, text = refusal(floor, *arguments)
    assert (code, text.count("\n")) == (78, 0)
    assert says in text
    assert floor.db.execute("SELECT count(*) FROM worker_session").fetchone() == (0,)


def test_prefetch_switched_on_in_the_environment_is_refused(floor: Floor) -> None:
    code, text = refusal(floor, "--resource-pool", "db", CELERY_WORKER_PREFETCH_MULTIPLIER="4")
    assert code == 78
    assert "the prefetch multiplier is 4" in text


def test_a_drain_that_is_no_number_of_seconds_is_refused(floor: Floor) -> None:
    code, text = refusal(floor, "--resource-pool", "db", HARNESS_DRAIN_S="soon")
    assert code == 78
    assert "HARNESS_DRAIN_S is 'soon'" in text


def test_a_worker_over_the_budget_of_connections_prints_the_derivation(floor: Floor) -> None:
    floor.db.execute(
        "INSERT INTO worker_session (uuid, host, pid, pools, kinds, connections) "
        "VALUES (%s, 'other', 1, '{}', '{}', 58)",
        (uuid.uuid4(),),
    )
    code, text = refusal(floor, "--resource-pool", "db")
    assert code == 75
    assert "db: 4 (shared by the slots) + 2 (heartbeat, watch) = 6" in text
    assert "58" in text
    assert floor.db.execute("SELECT count(*) FROM worker_session WHERE pid <> 1").fetchone() == (0,)


def test_a_database_that_does_not_exist_is_named_at_once(floor: Floor) -> None:
    url = floor.environment["DATABASE_URL"] + "_missing"
    code, text = refusal(floor, "--resource-pool", "db", DATABASE_URL=url)
    assert code == 69
    assert "DATABASE_URL" in text
    assert "does not exist" in text


def test_a_worker_waits_for_the_room_of_those_that_were_killed_instead_of_beginning_anew(floor: Floor) -> None:
    floor.db.execute(
        "INSERT INTO worker_session (uuid, host, pid, pools, kinds, connections, beat_at) "
        "VALUES (%s, 'here', 1, '{}', '{}', 58, clock_timestamp() - interval '8 s')",
        (uuid.uuid4(),),
    )
    worker = floor.start("db")
    assert worker.text.startswith("waiting for killed workers to be given up: ")
    assert worker.text.count("waiting") == 1
    assert floor.session(worker) is not None
