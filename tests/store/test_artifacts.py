"""Artifacts on real PostgreSQL and a real folder: once per content, never over the quota, nothing left behind."""

import io
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from django.conf import settings

from harness.engine import artifacts as engine
from harness.engine.artifacts import Kept
from harness.policy.admission import OverQuota
from harness.policy.errors import Invalid, NotFound, TooLarge, Unavailable
from harness.store import artifact_files, artifacts, queries, sql
from harness.store.database import Connection
from tests.stage import Stage

T = TypeVar("T")


class Shelf:
    """A tenant's artifacts, as web or a worker has them; every step on a connection of its own."""

    def __init__(self, stage: Stage, tenant: int) -> None:
        self.stage = stage
        self.tenant = tenant

    def borrow(self, work: Callable[[Connection], T], /) -> T:
        with self.stage.open("web") as connection:
            return work(connection)

    def put(self, content: bytes, name: str = "a.txt", *, keep_s: float = 3600.0, **more: Any) -> Kept:
        with engine.spool() as spooled:
            spooled.write(content)
            return engine.keep(
                self.borrow,
                spooled,
                tenant=self.tenant,
                task=None,
                name=name,
                content_type="text/plain",
                keep_s=keep_s,
                **more,
            )

    def read(self, kept: Kept) -> bytes:
        with artifact_files.open_bytes(kept.artifact.path) as file:
            return file.read()

    def quota(self, size_bytes: int) -> None:
        self.stage.connection.execute(
            "UPDATE tenant SET artifact_quota_bytes = %s WHERE id = %s", (size_bytes, self.tenant)
        )

    def held(self) -> tuple[int, int]:
        room = artifacts.room(self.stage.connection, self.tenant)
        return room.held_bytes, room.n

    def rows(self) -> int:
        return int(self.stage.one("SELECT count(*) FROM artifact WHERE tenant_id = %s", self.tenant))

    def files(self) -> list[str]:
        folder = Path(settings.HARNESS_ARTIFACTS_DIR) / str(self.tenant)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


@pytest.fixture
def shelf(stage: Stage) -> Iterator[Shelf]:
    yield Shelf(stage, stage.tenant)
    assert spools() == []


def spools() -> list[str]:
    folder = Path(settings.HARNESS_ARTIFACTS_DIR)
    return [path.name for path in folder.glob(f"{artifact_files.SPOOL_PREFIX}*")] if folder.exists() else []


def test_what_was_put_is_read_again_and_its_file_is_private(shelf: Shelf) -> None:
    kept = shelf.put(b"hello", "hello.txt")
    assert not kept.existing and shelf.read(kept) == b"hello"
    assert kept.artifact.sha256 == "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert shelf.held() == (5, 1)
    path = Path(settings.HARNESS_ARTIFACTS_DIR) / kept.artifact.path
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700


def test_the_same_content_again_is_the_same_artifact_kept_longer(shelf: Shelf) -> None:
    one = shelf.put(b"same", "one.txt", keep_s=60)
    two = shelf.put(b"same", "two.txt", keep_s=3600)
    assert two.existing and two.artifact.public_id == one.artifact.public_id and two.artifact.name == "one.txt"
    assert two.artifact.expires_at > one.artifact.expires_at
    assert shelf.put(b"same", keep_s=60).artifact.expires_at == two.artifact.expires_at
    assert shelf.held() == (4, 1) and len(shelf.files()) == 1


def test_two_tenants_with_the_same_content_have_a_file_each(shelf: Shelf) -> None:
    other = Shelf(shelf.stage, shelf.stage.add_tenant("other"))
    one, two = shelf.put(b"same"), other.put(b"same")
    assert one.artifact.public_id != two.artifact.public_id and not two.existing
    assert engine.delete(shelf.borrow, tenant=shelf.tenant, public_id=one.artifact.public_id)
    assert other.read(two) == b"same" and shelf.files() == []


def test_equal_uploads_at_once_become_one(shelf: Shelf) -> None:
    start = threading.Barrier(6)

    def put(_: int) -> Kept:
        return shelf.put(b"raced" * 1000, fence=lambda: start.wait(10) and None)

    # All meet before they reserve, and again before they publish: each has brought its bytes by then.
    with ThreadPoolExecutor(6) as pool:
        kept = list(pool.map(put, range(6)))
    assert len({one.artifact.public_id for one in kept}) == 1
    assert [one.existing for one in kept].count(False) == 1
    assert shelf.held() == (5000, 1) and shelf.rows() == 1 and len(shelf.files()) == 1
    assert shelf.read(kept[0]) == b"raced" * 1000


def test_uploads_at_once_never_exceed_the_quota(shelf: Shelf) -> None:
    shelf.quota(3500)
    start = threading.Barrier(8)

    def put(i: int) -> bool:
        start.wait(10)
        try:
            shelf.put(bytes([i]) * 1000)
        except OverQuota as error:
            refusals.append((error.field, error.facts["quota_bytes"]))
            return False
        return True

    refusals: list[tuple[str | None, object]] = []

    with ThreadPoolExecutor(8) as pool:
        fitted = sum(pool.map(put, range(8)))
    assert fitted == 3 and shelf.held() == (3000, 3) and refusals == [("body", 3500)] * 5
    assert shelf.rows() == 3 and len(shelf.files()) == 3


def test_content_that_is_there_needs_no_room(shelf: Shelf) -> None:
    shelf.put(b"x" * 100)
    shelf.quota(100)
    assert shelf.put(b"x" * 100).existing
    with pytest.raises(OverQuota):
        shelf.put(b"y")


def test_an_equal_upload_under_way_is_no_reason_to_refuse_for_the_quota(shelf: Shelf) -> None:
    shelf.quota(150)

    def race() -> None:
        if shelf.rows() == 1:  # asked the second time: its room is reserved
            with pytest.raises(Unavailable, match="just now"):
                shelf.put(b"z" * 100)

    assert not shelf.put(b"z" * 100, fence=race).existing
    assert shelf.put(b"z" * 100).existing


def test_what_breaks_off_between_the_steps_leaves_nothing(shelf: Shelf) -> None:
    class Gone(BaseException):
        pass

    for when in (1, 2):
        calls = 0

        def fence(when: int = when) -> None:
            nonlocal calls
            calls += 1
            if calls == when:
                raise Gone

        with pytest.raises(Gone):
            shelf.put(b"broken", fence=fence)
        assert shelf.rows() == 0 and shelf.files() == []


def test_a_store_that_fails_leaves_nothing_and_says_so(shelf: Shelf) -> None:
    folder = Path(settings.HARNESS_ARTIFACTS_DIR) / str(shelf.tenant)
    folder.write_bytes(b"in the way")
    with pytest.raises(Unavailable, match="store of artifacts"):
        shelf.put(b"nowhere")
    assert shelf.held() == (7, 0)  # the row stays while the store can't say that the bytes are gone
    folder.unlink()
    assert engine.sweep(shelf.stage.connection) == 1
    assert shelf.rows() == 0


def test_a_killed_uploads_reservation_is_swept_with_its_bytes(shelf: Shelf) -> None:
    new = artifacts.NewArtifact(
        tenant=shelf.tenant, task=None, name="a", content_type="a/b", sha256="0" * 64, bytes=4, keep_s=3600
    )
    reserved = shelf.borrow(lambda connection: artifacts.reserve(connection, new))
    assert isinstance(reserved, artifacts.Reserved)
    with engine.spool() as spooled:
        spooled.write(b"half")
        spooled.keep(reserved.path)
    assert shelf.held() == (4, 0) and shelf.files()
    assert engine.sweep(shelf.stage.connection) == 0  # it may still be under way
    shelf.stage.connection.execute("UPDATE artifact SET created_at = created_at - interval '2 hours'")
    assert engine.sweep(shelf.stage.connection) == 1
    assert shelf.rows() == 0 and shelf.files() == []
    with pytest.raises(Unavailable, match="given up"):
        shelf.borrow(lambda connection: artifacts.publish(connection, reserved, new))


def test_a_killed_processs_spool_is_swept_and_a_living_ones_is_not(shelf: Shelf) -> None:
    folder = Path(settings.HARNESS_ARTIFACTS_DIR)
    dead = folder / f"{artifact_files.SPOOL_PREFIX}dead"
    dead.write_bytes(b"left")
    old_s = time.time() - 2 * artifact_files.UNLOCKED_S
    with engine.spool() as living:
        living.write(b"on its way")
        for path in (dead, Path(living.path)):
            os.utime(path, (old_s, old_s))
        assert artifact_files.drop_stale_spools() == 1
        assert Path(living.path).exists()


def test_an_expired_artifact_is_not_seen_takes_no_room_and_is_swept(shelf: Shelf) -> None:
    old, young = shelf.put(b"old"), shelf.put(b"young")
    shelf.quota(8)
    shelf.stage.connection.execute(
        "UPDATE artifact SET expires_at = clock_timestamp() WHERE id = %s", (old.artifact.id,)
    )
    with pytest.raises(NotFound):
        shelf.borrow(lambda connection: artifacts.one(connection, shelf.tenant, old.artifact.public_id))
    assert not engine.delete(shelf.borrow, tenant=shelf.tenant, public_id=old.artifact.public_id)
    again = shelf.put(b"old")  # before the sweep came
    assert not again.existing and again.artifact.public_id != old.artifact.public_id
    assert engine.sweep(shelf.stage.connection) == 1
    assert shelf.read(again) == b"old" and shelf.read(young) == b"young" and len(shelf.files()) == 2


def test_delete_leaves_no_row_and_no_file(shelf: Shelf) -> None:
    kept = shelf.put(b"gone soon")
    assert engine.delete(shelf.borrow, tenant=shelf.tenant, public_id=kept.artifact.public_id)
    assert shelf.rows() == 0 and shelf.files() == [] and shelf.held() == (0, 0)
    assert not engine.delete(shelf.borrow, tenant=shelf.tenant, public_id=kept.artifact.public_id)
    with pytest.raises(NotFound, match="gone"):
        artifact_files.open_bytes(kept.artifact.path)


def test_another_tenant_neither_sees_nor_deletes(shelf: Shelf) -> None:
    other = Shelf(shelf.stage, shelf.stage.add_tenant("other"))
    kept = shelf.put(b"mine")
    with pytest.raises(NotFound):
        other.borrow(lambda connection: artifacts.one(connection, other.tenant, kept.artifact.public_id))
    assert not engine.delete(other.borrow, tenant=other.tenant, public_id=kept.artifact.public_id)
    with shelf.stage.open("web") as web:
        assert web.execute("SELECT count(*) FROM artifact").fetchone() == (0,)
        with queries.as_tenant(web, other.tenant):
            assert web.execute("SELECT count(*) FROM artifact").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), queries.as_tenant(web, other.tenant):
            web.execute(
                "INSERT INTO artifact (tenant_id, state, sha256, bytes, name, content_type, path, expires_at) "
                "VALUES (%s, 'stored', '', 0, '', '', 'x', now())",
                (shelf.tenant,),
            )
        with pytest.raises(psycopg.errors.InsufficientPrivilege), queries.as_tenant(web, other.tenant):
            web.execute("SELECT * FROM audit_entry")
    assert shelf.read(kept) == b"mine"


def test_a_spool_refuses_what_is_larger_than_an_artifact_may_be() -> None:
    with artifact_files.Spool(max_bytes=10) as spooled:
        spooled.write(b"12345")
        with pytest.raises(TooLarge, match="10 bytes"):
            spooled.write(b"678901")
    with pytest.raises(Unavailable):
        spooled.write(b"1")
    assert spools() == []


@pytest.mark.parametrize(
    ("name", "content_type", "keep_s", "field"),
    [
        ("", "a/b", None, "name"),
        ("a\nb", "a/b", None, "name"),
        ("../a", "a/b", None, "name"),
        ("..", "a/b", None, "name"),
        ("a" * 256, "a/b", None, "name"),
        ("a\udc80", "a/b", None, "name"),
        ("a", "pdf", None, "content_type"),
        ("a", "a/b\r\nX: y", None, "content_type"),
        ("a", "a/b; x=" + "y" * 200, None, "content_type"),
        ("a", "a/b", 1, "keep_s"),
        ("a", "a/b", float("nan"), "keep_s"),
        ("a", "a/b", float("inf"), "keep_s"),
    ],
)
def test_a_name_or_type_that_does_not_fit_is_refused(
    name: str, content_type: str, keep_s: float | None, field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        engine.check(name, content_type, keep_s)
    assert refused.value.field == field


def test_the_statements_use_their_indexes(stage: Stage) -> None:
    stage.connection.execute(
        "INSERT INTO artifact (tenant_id, state, sha256, bytes, name, content_type, path, expires_at) "
        "SELECT i % 4 + 1000, 'stored', md5(i::text), 1, 'a', 'a/b', i::text, now() + interval '1 day' "
        "FROM generate_series(1, 20000) i",
    )
    stage.connection.execute("RESET ROLE")
    stage.connection.execute("ANALYZE artifact")
    public_id = uuid.uuid4()
    for name, parameters, index in (
        ("room", {"tenant": 1001}, "artifact_of_tenant"),
        ("same", {"tenant": 1001, "sha256": "a", "keep_s": 1.0}, "artifact_once"),
        ("one", {"tenant": 1001, "artifact": public_id}, "artifact_public_id"),
        ("page", {"tenant": 1001, "before": 2**62, "most": 50}, "artifact_of_tenant"),
        ("page_of_task", {"tenant": 1001, "task": public_id, "before": 2**62, "most": 50}, "artifact_of_task"),
        ("leftovers", {"tenant": None, "abandoned_s": 1.0, "limit": 10}, "artifact_expires"),
    ):
        plan = "\n".join(
            row[0]
            for row in stage.connection.execute("EXPLAIN " + sql.load(f"artifacts/{name}"), parameters, prepare=False)
        )
        assert index in plan and "Seq Scan on artifact" not in plan, name + "\n" + plan


def test_streams_and_pieces_are_cut_into_chunks() -> None:
    assert list(engine._chunks(b"")) == []
    assert list(engine._chunks(memoryview(b"abc"))) == [b"abc"]
    assert list(engine._chunks(io.BytesIO(b"abc"))) == [b"abc"]
    assert list(engine._chunks([b"a", b"b"])) == [b"a", b"b"]
