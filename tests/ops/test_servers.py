"""The embedded servers' life: first start, second start, kill -9, neighbours, odd paths, things in the way."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from harness.ops.local import places, processes, valkey
from harness.ops.local.places import Places, open_places
from harness.ops.local.postgres import PROGRAM
from harness.ops.local.servers import Servers, check_broker, check_database
from harness.policy.errors import Invalid, Refused, Unavailable

NOTHING: dict[str, str] = {}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A state folder of its own; pytest's temporary folder is closed to the servers' user, as a home folder is."""
    home = tmp_path_factory.mktemp("checkout") / ".harness"
    yield home
    remove(home)


def remove(home: Path) -> None:
    here = open_places(home)
    processes.end(_left(here), first=signal.SIGKILL, patience_s=5.0)
    for folder in {here.servers, here.socket_folder("x" * 200, for_servers=True)}:
        shutil.rmtree(folder, ignore_errors=True)


def start(home: Path) -> tuple[Servers, dict[str, str]]:
    one = Servers(open_places(home), throwaway=True)
    return one, one.start(NOTHING)


def test_a_second_start_has_the_data_the_passwords_and_the_ports_of_the_first(home: Path) -> None:
    one, first = start(home)
    with psycopg.connect(first["DATABASE_URL"]) as db:
        db.execute("create table kept as select 42 as answer")
    with redis.Redis.from_url(first["BROKER_URL"]) as broker:
        broker.rpush("queue", "message")
    one.stop()

    again, second = start(home)
    assert second == first
    with psycopg.connect(second["DATABASE_URL"]) as db:
        assert db.execute("select answer from kept").fetchone() == (42,)
    with redis.Redis.from_url(second["BROKER_URL"]) as broker:
        assert broker.lrange("queue", 0, -1) == [b"message"]
    again.stop()
    assert not _left(open_places(home))


def test_after_a_kill_of_everything_the_next_start_finds_nothing_in_its_way(home: Path) -> None:
    killed, first = start(home)
    here = open_places(home)
    busy = psycopg.connect(first["DATABASE_URL"], autocommit=True)
    busy.execute("set synchronous_commit = on")
    busy.execute("create table survivor as select 42 as answer")
    busy.pgconn.send_query(b"select count(*) from generate_series(1, 100000000000)")
    postmaster = int((here.servers / "postgres" / "postmaster.pid").read_text().split()[0])
    # Only the parents: the busy backend lives on, holding the shared memory.
    for pid in (postmaster, *(process.pid for process in processes.working_in(here.servers / "valkey", name="valkey"))):
        os.kill(pid, signal.SIGKILL)
    assert processes.working_in(here.servers / "postgres", name=PROGRAM)

    again, second = start(home)
    with psycopg.connect(second["DATABASE_URL"]) as db:
        assert db.execute("select answer from survivor").fetchone() == (42,)
    again.stop()
    busy.close()
    killed.stop()
    assert not _left(here)


def test_a_pid_file_that_names_a_living_stranger_does_not_block(home: Path) -> None:
    one, _ = start(home)
    one.stop()
    here = open_places(home)
    stranger = subprocess.Popen(["sleep", "60"], user=here.account.uid if here.account else None)
    pid_file = here.servers / "postgres" / "postmaster.pid"
    pid_file.write_text(f"{stranger.pid}\n{pid_file.parent}\n{int(time.time())}\n5432\n\n\n")
    try:
        again, _ = start(home)
        again.stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_two_stand_side_by_side_one_of_them_in_a_long_path_with_a_space(home: Path, tmp_path: Path) -> None:
    far = tmp_path / ("a folder with a very long name " * 4).strip() / "check out" / ".harness"
    (one, first), (other, second) = start(home), start(far)
    try:
        for urls in (first, second):
            with psycopg.connect(urls["DATABASE_URL"]) as db:
                db.execute("create table mine ()")
        sockets = open_places(far).socket_folder(".s.PGSQL.65535.lock", for_servers=True)
        assert len(str(sockets / ".s.PGSQL.65535.lock")) <= places.SOCKET_BYTES
        assert sockets.stat().st_mode & 0o077 == 0
    finally:
        one.stop()
        other.stop()
        remove(far)


def test_a_port_that_someone_else_took_meanwhile_is_replaced(home: Path) -> None:
    one, first = start(home)
    one.stop()
    port = psycopg.conninfo.conninfo_to_dict(first["DATABASE_URL"])["port"]
    with socket.create_server(("127.0.0.1", int(str(port)))):
        again, second = start(home)
    assert second["DATABASE_URL"] != first["DATABASE_URL"]
    assert second["BROKER_URL"] == first["BROKER_URL"]
    again.stop()


def test_the_login_owns_its_database_and_may_create_roles_but_is_no_superuser(home: Path) -> None:
    one = Servers(open_places(home))
    url = one.start(NOTHING)["DATABASE_URL"]
    password = str(psycopg.conninfo.conninfo_to_dict(url)["password"])
    try:
        with psycopg.connect(url) as db:
            rights = db.execute(
                "select rolsuper, rolcreaterole, rolcreatedb, rolbypassrls from pg_roles where rolname = current_user"
            ).fetchone()
            owner = db.execute("select datdba = current_user::regrole from pg_database where datname = 'harness'")
            assert rights == (False, True, False, False)
            assert owner.fetchone() == (True,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(url.replace(password, "wrong"))
    finally:
        one.stop()


def test_a_server_that_ends_is_started_again_where_it_was(home: Path) -> None:
    one, first = start(home)
    for process in processes.working_in(open_places(home).servers / "valkey", name=valkey.PROGRAM):
        process.kill()
        psutil.wait_procs([process], timeout=5)
    assert one.mend() == ["valkey"]
    with redis.Redis.from_url(first["BROKER_URL"]) as broker:
        assert broker.ping()
    one.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test of this file runs as a normal user already")
def test_a_normal_user_starts_the_same_servers(root: Path) -> None:
    account = open_places_account()
    interpreter = Path(sys.executable).resolve()
    if not places.can_reach(account, interpreter) or not places.can_reach(account, root / "harness"):
        pytest.skip(f"{account.name} can't reach the interpreter or the checkout")
    with tempfile.TemporaryDirectory(prefix="harness-user-") as folder:
        os.chown(folder, account.uid, account.gid)
        script = (
            "import pathlib, sys; from harness.ops.local.places import open_places;"
            "from harness.ops.local.servers import Servers; one = Servers(open_places(pathlib.Path(sys.argv[1])));"
            "print(sorted(one.start({}))); one.stop()"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, f"{folder}/.harness"],
            cwd=root,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            env={"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("['BROKER_URL', 'DATABASE_URL']\n", "")


def open_places_account() -> places.Account:
    with tempfile.TemporaryDirectory() as folder:
        account = open_places(Path(folder) / ".harness").account
    assert account
    return account


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Refused, match=r"cannot write to .*file.*HARNESS_LOCAL_DIR"):
        open_places(tmp_path / "file" / ".harness")


def test_a_folder_that_others_could_read_is_refused(tmp_path: Path) -> None:
    home = tmp_path / ".harness"
    (home / "stack").mkdir(parents=True, mode=0o755)
    with pytest.raises(Refused, match="not a private folder"):
        open_places(home)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://someone:hidden-word@127.0.0.1:1/nowhere", "cannot log in as someone at 127.0.0.1:1"),
        ("mysql://someone:hidden-word@127.0.0.1/nowhere", "not a PostgreSQL address"),
        ("nonsense", "not a PostgreSQL address"),
    ],
)
def test_a_wrong_database_url_is_told_without_its_password(url: str, words: str) -> None:
    with pytest.raises((Invalid, Unavailable), match=words) as told:
        check_database(url)
    assert told.value.field == "DATABASE_URL"
    assert "hidden-word" not in str(told.value)


@pytest.mark.parametrize(
    "url", ["redis://:hidden-word@127.0.0.1:1/0", "amqp://a:hidden-word@127.0.0.1:1", "http://x", "redis:"]
)
def test_a_wrong_broker_url_is_told_without_its_password(url: str) -> None:
    with pytest.raises((Invalid, Unavailable)) as told:
        check_broker(url)
    assert told.value.field == "BROKER_URL"
    assert "hidden-word" not in str(told.value)


def _left(here: Places) -> list[psutil.Process]:
    return [
        process
        for name, program in (("postgres", PROGRAM), ("valkey", valkey.PROGRAM))
        for process in processes.working_in(here.servers / name, name=program)
    ]
