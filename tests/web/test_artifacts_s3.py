"""Artifacts in S3 by setting: the same uploads, with their bytes in a bucket.

The server is moto's, in this process; HARNESS_TEST_S3_ENDPOINT names another one, with its credentials in the
environment as boto3 finds them.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from harness.store import keys
from tests.web.conftest import Api, assert_problem, start_web

PATH = "/api/v1/artifacts"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The address of a server that speaks S3."""
    if told := os.environ.get("HARNESS_TEST_S3_ENDPOINT"):
        yield told
        return
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "us-east-1")):
            environment.setenv(f"AWS_{name}", value)
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str) -> Iterator[Any]:
    """A new bucket, as boto3 sees it."""
    made = boto3.resource("s3", endpoint_url=endpoint).Bucket(f"harness-{uuid.uuid4().hex}")
    made.create()
    yield made
    made.objects.all().delete()
    made.delete()


@pytest.fixture
def shop(bucket: Any, endpoint: str, root: Path, tmp_path: Path, database_url: str) -> Iterator[Api]:
    """A tenant of a web process that keeps artifacts in the bucket."""
    environment = {
        "HARNESS_ARTIFACTS_S3_BUCKET": bucket.name,
        "HARNESS_ARTIFACTS_S3_ENDPOINT": endpoint,
        "HARNESS_ARTIFACTS_DIR": str(tmp_path / "spool"),
    }
    web = start_web(root, tmp_path / "web.log", environment)
    keys.create_tenant("alpha")
    api = Api(web, "alpha", keys.create_key("alpha"))
    yield api
    api.http.close()
    assert web.stop() in (0, -15)


def objects(bucket: Any) -> list[str]:
    return [one.key for one in bucket.objects.all()]


def test_an_upload_is_kept_once_in_the_bucket_read_in_parts_and_removed(bucket: Any, shop: Api, tmp_path: Path) -> None:
    content = os.urandom(9 * 1024 * 1024)  # more than one part of a multipart upload
    made = shop.http.post(PATH, content=content, params={"name": "a.bin"})
    assert made.status_code == 201, made.text
    artifact = made.json()["artifact_id"]
    assert shop.http.post(PATH, content=content, params={"name": "b.bin"}).json()["artifact_id"] == artifact
    (key,) = objects(bucket)
    assert key.startswith("artifacts/") and bucket.Object(key).get()["Body"].read() == content

    got = shop.http.get(f"{PATH}/{artifact}/content")
    assert got.status_code == 200 and got.content == content
    part = shop.http.get(f"{PATH}/{artifact}/content", headers={"Range": "bytes=8000000-8000009"})
    assert (part.status_code, part.content) == (206, content[8000000:8000010])

    assert shop.http.delete(f"{PATH}/{artifact}").status_code in (200, 204)
    assert objects(bucket) == []
    assert list((tmp_path / "spool").iterdir()) == []


def test_bytes_that_are_gone_from_the_bucket_are_told_as_missing(bucket: Any, shop: Api) -> None:
    artifact = shop.http.post(PATH, content=b"here", params={"name": "a.txt"}).json()["artifact_id"]
    bucket.objects.all().delete()
    assert_problem(shop.http.get(f"{PATH}/{artifact}/content"), 404, "not_found")
