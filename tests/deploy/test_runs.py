"""What compose.yaml and the image start, started: from what the image holds, in the environment that it gets.

One stack for all: the same commands in the same environment, without Docker. Only addresses, secrets and ports are
those of this machine.
"""

import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from harness.ops.demo.client import Client
from harness.ops.local import ports, supervision
from harness.ops.local.places import open_places
from harness.ops.local.stack import Stack
from tests.deploy import manifests
from tests.stage import wait_until

ENDED_S = 30.0  # for a killed worker to be given up, on a busy machine
LOGIN = ("operator", "long-enough")
NOT_SERVED = {"GRAFANA_PASSWORD", "POSTGRES_PASSWORD", "REDIS_PASSWORD"}


@dataclass
class Deployed:
    """The image's tree, and what runs out of it."""

    tree: Path
    environment: dict[str, str]
    addresses: dict[str, str]
    flower_port: int
    home: Path

    def manage(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("manage.py", *words)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            cwd=self.tree, env=self.environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    def check(self) -> tuple[dict[str, Any], int]:
        done = self.manage("deploy_check", "--json")
        assert done.stdout, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report, done.returncode


@pytest.fixture
def deployed(root: Path, tmp_path: Path, database_url: str, broker_url: str) -> Iterator[Deployed]:
    """Everything that compose.yaml starts of Harness's own."""
    tree = _image(root, tmp_path / "app")
    flower_port = ports.free_port(0)
    environment = _environment(root, database_url, broker_url) | {
        "HARNESS_ARTIFACTS_DIR": str(tmp_path / "artifacts"),
        "HARNESS_FLOWER_ADDRESS": ports.LOOPBACK,
        "HARNESS_FLOWER_PORT": str(flower_port),
    }
    commands = {name: " ".join(words) for name, words in manifests.of_compose(root).items() if name != "migrate"}
    commands["web"] = commands["web"].replace("--port 8000", "--port $PORT")
    commands["beat"] = commands["beat"].replace("/tmp/", "$STACK/")
    commands["flower"] = commands["flower"].replace("/app/", f"{tree}/")
    stack = Stack(tree, home=tmp_path / "home", programs=[], extra=commands, environment=environment)
    try:
        found = stack.start()
        yield Deployed(tree, environment, found, flower_port, tmp_path / "home")
    finally:
        stack.stop()


def test_what_compose_starts_works_and_deploy_check_tells_when_it_does_not(deployed: Deployed) -> None:
    web, before = deployed.addresses["WEB_URL"], _files(deployed.tree)

    # 1. All of it lives; the servers of tests keep nothing through a crash, and that is found.
    def wrong() -> list[str]:
        found = [one for one in deployed.check()[0]["findings"] if one["level"] == "error"]
        return [one["says"] for one in found if "a crash of its machine" not in one["says"]]

    wait_until(lambda: httpx.get(f"{web}/health/ready").status_code == 200, within_s=60)
    wait_until(lambda: not wrong(), within_s=60, every_s=2.0)

    # 2. Work goes through.
    assert deployed.manage("tenant", "create", "acme").returncode == 0
    key = deployed.manage("key", "create", "acme").stdout.split()[-1]
    client = Client(web, key)
    try:
        task = client.post("/tasks", {"kind": "ingest.document", "input": {
            "name": "a.md", "content": "# Hello\n\nA cat.", "content_type": "text/markdown"}})["task_id"]  # fmt: skip
        wait_until(lambda: client.result_of(task) is not None, within_s=60)
        assert (client.result_of(task) or {})["state"] == "succeeded"
    finally:
        client.close()

    # 3. The doors are where compose's proxy and Prometheus look for them.
    token = {"Authorization": f"Bearer {deployed.environment['HARNESS_METRICS_TOKEN']}"}
    assert httpx.get(f"{web}/metrics", headers=token | {"Host": "web:8000"}).status_code == 200
    assert httpx.get(f"{web}/metrics").status_code == 401
    flower = f"http://{ports.LOOPBACK}:{deployed.flower_port}/flower"
    wait_until(lambda: httpx.get(f"{flower}/workers", auth=LOGIN, timeout=15).status_code == 200, within_s=30)
    assert httpx.get(f"{flower}/workers").status_code == 401

    # 4. The probe of each worker says that it lives; one that hangs is missed by probe and deploy_check.
    def probed() -> tuple[int, str]:
        done = deployed.run("-m", "harness.ops.deployment.probe", "llm")
        return done.returncode, done.stdout

    assert probed() == (0, "llm: lives\n")
    (worker,) = [one for one in supervision.ask(open_places(deployed.home)) if one.name == "worker_llm"]
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: probed()[0] == 1, within_s=ENDED_S, every_s=1.0)
        report, code = deployed.check()
        assert code == 1 and "no live worker serves the pool llm: its tasks wait" in [
            one["says"] for one in report["findings"]
        ]
    finally:
        os.kill(worker.pid, signal.SIGCONT)

    # 5. Nothing was written to what is read-only in the image.
    assert _files(deployed.tree) - before == set()


def _image(root: Path, tree: Path) -> Path:
    """What the Dockerfile copies, without what its .dockerignore leaves out."""
    dockerfile = (root / "deploy/Dockerfile").read_text("utf-8")
    tree.mkdir()
    for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", dockerfile):
        source, target = line.split()
        if source == "requirements.txt":
            continue
        if (root / source).is_dir():
            shutil.copytree(root / source, tree / target, ignore=shutil.ignore_patterns("__pycache__", "test_*.py"))
        else:
            shutil.copy2(root / source, tree / target)
    compileall.compile_dir(str(tree), quiet=2)
    (tree / "Procfile").write_text("none: true\n", encoding="utf-8")  # the stack looks for one; the image has none
    return tree


def _environment(root: Path, database_url: str, broker_url: str) -> dict[str, str]:
    """The environment of the image and of compose, with deploy/env.example filled in; nothing of this process's own."""
    dockerfile = (root / "deploy/Dockerfile").read_text("utf-8")
    (block,) = re.findall(r"(?m)^ENV (PATH=(?:.*\\\n)*.*)$", dockerfile)
    image = dict(pair.split("=", 1) for pair in block.replace("\\\n", " ").split())
    example = (root / "deploy/env.example").read_text("utf-8")
    filled = dict(re.findall(r"(?m)^([A-Z_]+)=(.*)$", example))
    filled |= dict.fromkeys(("SECRET_KEY", "HARNESS_METRICS_TOKEN", *NOT_SERVED), "0123456789abcdef" * 4)
    filled["HARNESS_FLOWER_LOGIN"] = ":".join(LOGIN)
    services = manifests.compose(root)["services"]
    written: dict[str, str] = {}
    for one in services.values():
        if str(one["image"]).startswith("harness:"):
            written |= one["environment"]
    given = {
        name: re.sub(r"\$\{([A-Z_]+)[^}]*\}", lambda found: filled[found[1]], value) for name, value in written.items()
    }
    own = {"PATH": f"{Path(sys.executable).parent}:{image['PATH']}", "PYTHONPATH": ""}
    return image | given | own | {"DATABASE_URL": database_url, "BROKER_URL": broker_url}


def _files(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}
