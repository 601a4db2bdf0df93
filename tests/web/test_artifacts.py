"""Files over HTTP, through real sockets: streamed up and down, cut off in the middle, refused before they are sent."""

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from django.conf import settings

from harness.engine import artifacts as engine
from harness.store import artifact_files, keys
from harness.store.database import connect
from tests.stage import wait_until
from tests.web.conftest import Api, assert_problem, start_web

PATH = "/api/v1/artifacts"


def put(api: Api, content: Any, name: str = "a.txt", **query: Any) -> httpx.Response:
    return api.http.post(
        PATH, content=content, params={"name": name, **query}, headers={"Content-Type": "text/plain; charset=utf-8"}
    )


def rows() -> int:
    with connect(settings.DATABASE_URL, "engine", application_name="test") as connection:
        row = connection.execute("SELECT count(*) FROM artifact").fetchone()
        assert row is not None
        return int(row[0])


def files(api: Api) -> list[str]:
    folder = Path(settings.HARNESS_ARTIFACTS_DIR)
    (tenant,) = (one.id for one in keys.tenants() if one.name == api.tenant)
    own = folder / str(tenant)
    return ([path.name for path in own.iterdir()] if own.exists() else []) + spools()


def spools() -> list[str]:
    return [path.name for path in Path(settings.HARNESS_ARTIFACTS_DIR).glob(f"{artifact_files.SPOOL_PREFIX}*")]


def opened(api: Api, head: str) -> socket.socket:
    """A connection on which the head of an upload was sent."""
    at = urlsplit(api.web.url)
    connection = socket.create_connection((at.hostname, at.port), timeout=10)
    lines = f"POST {PATH}?name=a.bin HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {api.key}\r\n{head}\r\n"
    connection.sendall(lines.encode())
    return connection


def test_a_file_goes_up_and_comes_down_as_an_attachment(api: Api) -> None:
    made = put(api, b"hello", 'r\u00e9sum\u00e9 "1".txt')
    assert made.status_code == 201, made.text
    one = made.json()
    assert one["bytes"] == 5 and one["sha256"] == hashlib.sha256(b"hello").hexdigest() and not one["existing"]
    assert one["content_type"] == "text/plain; charset=utf-8" and one["task_id"] is None
    seen = api.http.get(one["links"]["self"]).json()
    assert seen == {name: value for name, value in one.items() if name != "existing"}
    down = api.http.get(one["links"]["content"])
    assert down.content == b"hello" and down.headers["content-length"] == "5"
    assert down.headers["content-type"] == "text/plain; charset=utf-8"
    assert down.headers["content-disposition"] == "attachment; filename*=utf-8''r%C3%A9sum%C3%A9%20%221%22.txt"
    assert down.headers["x-content-type-options"] == "nosniff" and "sandbox" in down.headers["content-security-policy"]
    assert down.headers["etag"] == f'"{one["sha256"]}"'


def test_a_duplicate_upload_returns_the_existing_one(api: Api) -> None:
    one, two = put(api, b"same", "one"), put(api, b"same", "two")
    assert (one.status_code, two.status_code) == (201, 200)
    assert two.json()["existing"] and two.json()["artifact_id"] == one.json()["artifact_id"]
    assert rows() == 1 and len(files(api)) == 1


def test_equal_uploads_at_once_over_http_are_one_artifact(api: Api) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: put(api, b"r" * 300_000), range(4)))
    assert {one.status_code for one in answers} <= {200, 201}
    assert len({one.json()["artifact_id"] for one in answers}) == 1
    assert rows() == 1 and len(files(api)) == 1


def test_a_large_file_passes_without_being_held_in_memory(api: Api) -> None:
    process = psutil.Process(api.web.process.pid)
    put(api, b"warm")
    before = process.memory_info().rss
    size, piece = 96 * 1024 * 1024, os.urandom(1024 * 1024)
    most = before

    def pieces() -> Iterator[bytes]:
        nonlocal most
        for _ in range(size // len(piece)):
            most = max(most, process.memory_info().rss)
            yield piece

    made = put(api, pieces())  # chunked: the server isn't told how much comes
    assert made.status_code == 201, made.text + api.web.log.read_text()[-2000:]
    assert made.json()["bytes"] == size
    sha256 = hashlib.sha256()
    with api.http.stream("GET", made.json()["links"]["content"]) as down:
        for chunk in down.iter_bytes():
            sha256.update(chunk)
            most = max(most, process.memory_info().rss)
    assert sha256.hexdigest() == made.json()["sha256"]
    assert most - before < 24 * 1024 * 1024, f"{(most - before) / 1e6:.0f} MB more"


@pytest.mark.parametrize("head", ["Content-Length: 1000000\r\n", "Transfer-Encoding: chunked\r\n"])
def test_an_upload_cut_off_in_the_middle_leaves_nothing(api: Api, head: str) -> None:
    put(api, b"stays")
    with opened(api, head) as connection:
        piece = b"x" * 400_000
        connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece) if "chunked" in head else piece)
        wait_until(lambda: len(spools()) == 1, within_s=5)
    wait_until(lambda: spools() == [], within_s=5)
    assert rows() == 1 and len(files(api)) == 1
    assert put(api, b"the process goes on").status_code == 201


def test_an_upload_whose_process_is_killed_leaves_only_what_the_sweep_removes(
    root: Path, make_api: Any, tmp_path: Path
) -> None:
    api: Api = make_api("killed")
    web = start_web(root, tmp_path / "web.log")
    try:
        with opened(Api(web, api.tenant, api.key), "Content-Length: 1000000\r\n") as connection:
            connection.sendall(b"x" * 400_000)
            wait_until(lambda: len(spools()) == 1, within_s=5)
            web.process.kill()
            web.process.wait(10)
    finally:
        web.process.kill()
    assert rows() == 0
    (left,) = spools()
    old_s = time.time() - 2 * artifact_files.UNLOCKED_S
    os.utime(Path(settings.HARNESS_ARTIFACTS_DIR) / left, (old_s, old_s))
    assert artifact_files.drop_stale_spools() == 1 and files(api) == []


def test_a_refused_upload_is_not_asked_for(api: Api) -> None:
    """A client that waits for `100 Continue` sends nothing; one that doesn't gets the answer all the same."""
    for head, status in (
        ("Content-Length: 100000000000\r\nExpect: 100-continue\r\n", b"413"),
        ("Content-Length: 100\r\nExpect: 100-continue\r\nContent-Type: multipart/form-data; boundary=x\r\n", b"422"),
        ("Content-Length: 100\r\nExpect: 100-continue\r\nAuthorization: Bearer hk_x\r\n", b"401"),
    ):
        with opened(api, head) as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 " + status), head
    with opened(api, "Content-Length: 2000000\r\nContent-Type: nonsense\r\n") as connection:
        connection.sendall(b"x" * 2_000_000)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 422") and b"content_type" in answer and rows() == 0


def test_a_chunked_body_beyond_the_limit_is_refused(root: Path, make_api: Any, tmp_path: Path) -> None:
    api: Api = make_api("limited")
    web = start_web(root, tmp_path / "web.log", {"HARNESS_ARTIFACT_MAX_BYTES": "500000"})
    try:
        small = Api(web, api.tenant, api.key)
        assert_problem(put(small, iter([b"x" * 300_000] * 2)), 413, "too_large", "body")
        assert_problem(put(small, b"x" * 600_000), 413, "too_large", "body")
        assert put(small, b"x" * 500_000).status_code == 201
        small.http.close()
    finally:
        web.stop()
    assert rows() == 1 and len(files(api)) == 1


def test_the_quota_says_what_is_held_and_how_to_mend_it(make_api: Any) -> None:
    api: Api = make_api("small", artifact_quota_bytes=10)
    assert put(api, b"12345678").status_code == 201
    problem = assert_problem(put(api, b"abc"), 429, "over_quota", "body")
    assert (problem["held_bytes"], problem["quota_bytes"]) == (8, 10) and "Delete" in problem["detail"]
    assert put(api, b"12345678").status_code == 200
    page = api.http.get(PATH).json()
    assert (page["held_bytes"], page["quota_bytes"], len(page["items"])) == (8, 10, 1)
    api.http.delete(page["items"][0]["links"]["self"])
    assert put(api, b"abc").status_code == 201


def test_another_tenants_artifact_is_404_as_one_that_never_was(api: Api, make_api: Any) -> None:
    other: Api = make_api("other")
    theirs = put(other, b"secret").json()["artifact_id"]
    for one in (theirs, "7d444840-9dc0-41d1-b245-5ffdce74fad2"):
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            problem = assert_problem(api.http.request(method, f"{PATH}/{one}{path}"), 404, "not_found")
            assert problem["detail"] == f"there is no artifact {one}"
    assert api.http.get(PATH).json()["items"] == []
    assert other.http.get(f"{PATH}/{theirs}/content").content == b"secret"


def test_a_key_that_may_only_read_neither_uploads_nor_deletes(make_api: Any) -> None:
    writer: Api = make_api("writer")
    reader = writer.web.client(keys.create_key("writer", scopes=["read"]))
    one = put(writer, b"x").json()["links"]
    assert_problem(reader.post(PATH, params={"name": "a"}, content=b"y"), 403, "forbidden")
    assert_problem(reader.delete(one["self"]), 403, "forbidden")
    assert reader.get(one["content"]).content == b"x"
    reader.close()


def test_delete_leaves_no_row_and_no_file_over_http(api: Api) -> None:
    one = put(api, b"gone soon").json()["links"]
    assert api.http.delete(one["self"]).json()["outcome"] == "deleted"
    assert rows() == 0 and files(api) == []
    for answer in (api.http.get(one["self"]), api.http.get(one["content"]), api.http.delete(one["self"])):
        assert_problem(answer, 404, "not_found")


def test_an_expired_artifact_is_404_and_tidied_away(api: Api) -> None:
    one = put(api, b"short", keep_s=60).json()["links"]
    with connect(settings.DATABASE_URL, "engine", application_name="test") as connection:
        connection.execute("UPDATE artifact SET expires_at = clock_timestamp()")
        assert_problem(api.http.get(one["content"]), 404, "not_found")
        assert api.http.get(PATH).json()["items"] == []
        assert engine.sweep(connection) == 1
    assert rows() == 0 and files(api) == []


def test_one_range_and_the_etag_are_understood(api: Api) -> None:
    one = put(api, bytes(range(100))).json()
    at = one["links"]["content"]
    for asked, first, end in (
        ("bytes=0-9", 0, 10),
        ("bytes=90-", 90, 100),
        ("bytes=-7", 93, 100),
        ("bytes=5-999", 5, 100),
    ):
        part = api.http.get(at, headers={"Range": asked})
        assert part.status_code == 206 and part.content == bytes(range(first, end)), asked
        assert part.headers["content-range"] == f"bytes {first}-{end - 1}/100"
    for asked in ("bytes=100-", "bytes=-0"):
        assert_problem(api.http.get(at, headers={"Range": asked}), 416, "bad_range", "Range")
    for asked in ("bytes=9-5", "bytes=0-1,3-4", "items=1-2", "bytes=-"):
        assert api.http.get(at, headers={"Range": asked}).status_code == 200
    assert api.http.get(at, headers={"If-None-Match": f'"{one["sha256"]}"'}).status_code == 304
    assert api.http.get(at, headers={"Range": "bytes=0-1", "If-Range": '"other"'}).status_code == 200


def test_a_list_goes_on_to_its_end(api: Api) -> None:
    made = [put(api, bytes([i])).json()["artifact_id"] for i in range(5)]
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = api.http.get(PATH, params=query).json()
        seen += [one["artifact_id"] for one in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert seen == made[::-1]


@pytest.mark.parametrize(
    ("query", "content", "field"),
    [
        ({}, b"x", "name"),
        ({"name": "a/b"}, b"x", "name"),
        ({"name": "a", "keep_s": "1"}, b"x", "keep_s"),
        ({"name": "a", "keep_s": "nan"}, b"x", "keep_s"),
        ({"name": "a", "sha256": "0" * 64}, b"x", "sha256"),
        ({"name": "a", "sha256": "short"}, b"x", "sha256"),
        ({"name": "a", "filename": "b"}, b"x", "filename"),
        ({"name": "a"}, b"", "body"),
    ],
)
def test_an_upload_that_makes_no_sense_names_the_field(
    api: Api, query: dict[str, str], content: bytes, field: str
) -> None:
    assert_problem(api.http.post(PATH, params=query, content=content), 422, "invalid", field)
    assert rows() == 0 and files(api) == []


def test_a_tenant_has_only_so_many_uploads_under_way_at_once(api: Api, make_api: Any) -> None:
    held = [opened(api, "Content-Length: 100000\r\n") for _ in range(4)]
    try:
        wait_until(lambda: len(spools()) == 4, within_s=5)
        refused = put(api, b"one more")
        assert_problem(refused, 429, "over_quota")
        assert refused.headers["retry-after"] == "2"
        assert put(make_api("other"), b"has its own").status_code == 201
    finally:
        for one in held:
            one.close()
    wait_until(lambda: spools() == [], within_s=5)
    assert put(api, b"one more").status_code == 201
