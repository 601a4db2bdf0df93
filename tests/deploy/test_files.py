"""The files under deploy/ say what the Procfile and resources.toml say, whoever starts the processes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.conf import settings

from harness.policy.capacity import OTHER_CONNECTIONS, process_connections
from harness.policy.settings import QUARANTINE, SYSTEM
from harness.telemetry.metrics import METRICS
from harness.worker.process import ZOMBIE_MAX_AGE_S
from tests.deploy import manifests
from tests.deploy.manifests import WAYS

TOPOLOGY = settings.HARNESS_TOPOLOGY
NEED_NAMESPACES = {"browser", "sandbox", "quarantine"}
FORCED_END_S = 5.0  # from the end of the drain until a worker is sure to have ended


def text_of_all(root: Path) -> str:
    files = [path for path in (root / "deploy").rglob("*") if path.is_file()]
    return "\n".join(path.read_text("utf-8") for path in files if "grafana" not in path.parts)


@pytest.mark.parametrize("way", WAYS)
def test_every_command_is_the_procfile_s_and_every_pool_has_a_worker(way: str, root: Path) -> None:
    found = {name: manifests.program(root, words) for name, words in WAYS[way](root).items()}
    assert not [name for name, program in found.items() if program is None]
    pools = {f"worker:{name}" for name in TOPOLOGY.pools}
    assert set(found.values()) == {"migrate", "web", "dispatcher", "beat", "flower", *pools}


def test_a_command_that_differs_from_the_procfile_is_found_out(root: Path) -> None:
    assert manifests.program(root, ["celery", "-A", "config", "worker", "--resource-pool", "llm", "-n", "llm@%h"])
    for words in (
        ["celery", "-A", "config", "worker", "--resource-pool", "llm", "-c", "40", "-n", "llm@%h"],
        ["celery", "-A", "config", "worker", "--resource-pool", "nonsense", "-n", "nonsense@%h"],
        ["python", "manage.py", "dispatcher", "--fast"],
        ["uvicorn", "config.wsgi:application", "--host", "0.0.0.0", "--port", "8000", "--no-access-log"],
    ):
        assert manifests.program(root, words) is None


def test_two_dispatchers_stand_in_each(root: Path) -> None:
    assert manifests.compose(root)["services"]["dispatcher"]["deploy"]["replicas"] == 2
    (deployment,) = [
        one
        for one in manifests.documents(root)
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "dispatcher"
    ]
    assert deployment["spec"]["replicas"] == 2
    assert sum(name.startswith("harness-dispatcher@") for name in manifests.wanted(root)) == 2


def test_nothing_runs_as_root_or_writes_to_its_image(root: Path) -> None:
    for name, one in manifests.compose(root)["services"].items():
        if name in manifests.of_compose(root):
            assert one["read_only"] and one["cap_drop"] == ["ALL"] and "no-new-privileges:true" in one["security_opt"]
    for patch in ("process.yaml", "process-job.yaml"):
        pod = yaml.safe_load((root / "deploy/kubernetes/base" / patch).read_text("utf-8"))["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        context = pod["containers"][0]["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}
    for unit in (root / "deploy/systemd").glob("*.service"):
        text = unit.read_text("utf-8")
        assert "\nUser=harness\n" in text and "\nNoNewPrivileges=yes\n" in text and "\nProtectSystem=strict\n" in text
    stages = re.split(r"(?m)^FROM ", (root / "deploy/Dockerfile").read_text("utf-8"))[2:]
    for stage in stages:  # of the last ones: what runs in them
        assert re.findall(r"(?m)^USER (\S+)$", stage)[-1] == "10001:10001"


def test_what_makes_namespaces_may_and_nobody_else(root: Path) -> None:
    for name, one in manifests.compose(root)["services"].items():
        if name in manifests.of_compose(root):
            tools = name.removeprefix("worker_") in NEED_NAMESPACES
            assert ("seccomp:unconfined" in one["security_opt"]) == tools
            assert one["image"] == ("harness:tools" if tools else "harness:slim")
    kustomization = (root / "deploy/kubernetes/base/kustomization.yaml").read_text("utf-8")
    assert "harness/pool in (browser, sandbox, quarantine)" in kustomization
    dropins = (root / "deploy/systemd").glob("harness-worker@*.service.d")
    assert {path.name.removeprefix("harness-worker@").removesuffix(".service.d") for path in dropins} == NEED_NAMESPACES


def test_a_drain_ends_before_its_supervisor_loses_patience(root: Path) -> None:
    process = manifests.compose(root)["x-process"]
    drain_s = float(process["environment"]["HARNESS_DRAIN_S"])
    assert drain_s + FORCED_END_S < float(process["stop_grace_period"].removesuffix("s"))
    pod = yaml.safe_load((root / "deploy/kubernetes/base/process.yaml").read_text("utf-8"))["spec"]["template"]["spec"]
    overlay = (root / "deploy/kubernetes/overlays/example/kustomization.yaml").read_text("utf-8")
    (drain,) = re.findall(r"HARNESS_DRAIN_S=(\d+)", overlay)
    assert float(drain) + FORCED_END_S < pod["terminationGracePeriodSeconds"]
    (drain,) = re.findall(r"(?m)^HARNESS_DRAIN_S=(\d+)$", (root / "deploy/systemd/harness.env.example").read_text())
    unit = (root / "deploy/systemd/harness-worker@.service").read_text("utf-8")
    (patience,) = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit)
    assert float(drain) + FORCED_END_S < float(patience)
    assert FORCED_END_S < ZOMBIE_MAX_AGE_S


def test_one_worker_for_every_pool_fits_the_budget_and_the_server(root: Path) -> None:
    workers = sum(process_connections([pool]) for pool in TOPOLOGY.pools.values())
    assert workers + OTHER_CONNECTIONS <= TOPOLOGY.database_connections
    command = " ".join(manifests.compose(root)["services"]["postgres"]["command"])
    (most,) = re.findall(r"max_connections=(\d+)", command)
    assert TOPOLOGY.database_connections + 3 <= int(most)


def test_every_variable_that_is_set_is_one_that_something_reads(root: Path) -> None:
    sources = "\n".join(
        path.read_text("utf-8")
        for folder in ("config", "harness", "tasks", "deploy/flower")
        for path in (root / folder).rglob("*.py")
    )
    text = text_of_all(root)
    named = set(re.findall(r"\b(?:HARNESS|LLM)_[A-Z0-9_]+\b", text)) - {"HARNESS_PORT"}  # compose's own
    assert {name for name in named if f'"{name}"' not in sources} == set()
    asked = set(re.findall(r"\$\{([A-Z_]+)", (root / "deploy/compose.yaml").read_text("utf-8")))
    offered = set(re.findall(r"(?m)^([A-Z_]+)=", (root / "deploy/env.example").read_text("utf-8")))
    assert asked - {"GRAFANA_PORT"} == offered


def test_probes_ask_for_the_pool_that_their_worker_serves(root: Path) -> None:
    services = manifests.compose(root)["services"]
    for pool in TOPOLOGY.pools:
        assert services[f"worker_{pool}"]["healthcheck"]["test"][1:] == [
            "python", "-m", "harness.ops.deployment.probe", pool,
        ]  # fmt: skip
    for one in manifests.documents(root):
        if one["kind"] == "Deployment" and "harness/pool" in one["metadata"].get("labels", {}):
            pool = one["metadata"]["labels"]["harness/pool"]
            (container,) = one["spec"]["template"]["spec"]["containers"]
            for probe in ("startupProbe", "livenessProbe"):
                assert container[probe]["exec"]["command"][-1] == pool
            assert container["command"][container["command"].index("--resource-pool") + 1] == pool


def test_every_deployment_has_a_budget_for_disruptions_or_stands_alone(root: Path) -> None:
    found = list(manifests.documents(root))
    deployments = {one["metadata"]["name"] for one in found if one["kind"] == "Deployment"}
    budgets = {one["metadata"]["name"] for one in found if one["kind"] == "PodDisruptionBudget"}
    assert deployments - budgets == {"beat", "flower"}


def test_what_can_be_scaled_is_scaled_within_the_pool_s_bounds(root: Path) -> None:
    keda = root / "deploy/kubernetes/components/keda/scaledobjects.yaml"
    found = {one["metadata"]["name"]: one["spec"] for one in yaml.safe_load_all(keda.read_text("utf-8"))}
    scalable = {name: pool for name, pool in TOPOLOGY.pools.items() if name not in (SYSTEM, QUARANTINE)}
    assert found.keys() == {f"worker-{name.replace('_', '-')}" for name in scalable}
    for name, pool in scalable.items():
        spec = found[f"worker-{name.replace('_', '-')}"]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (pool.processes_least, pool.processes_most)
        assert f'harness_desired_workers{{pool="{name}"}}' in spec["triggers"][0]["metadata"]["query"]


def test_what_scaling_asks_for_is_a_metric_and_what_is_mounted_is_there(root: Path) -> None:
    keda = (root / "deploy/kubernetes/components/keda/scaledobjects.yaml").read_text("utf-8")
    assert set(re.findall(r"harness_[a-z_]+", keda)) <= METRICS.keys()
    mounted = re.findall(r"(?m)\./([\w./-]+):", (root / "deploy/compose.yaml").read_text("utf-8"))
    assert mounted and all((root / "deploy" / path).exists() for path in mounted)
    prometheus = yaml.safe_load((root / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    assert all((root / "deploy/prometheus" / name).exists() for name in prometheus["rule_files"])
    (job,) = prometheus["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["web:8000"]}] and "web" in manifests.compose(root)["services"]


def test_the_image_is_sent_what_it_copies_and_no_more(root: Path) -> None:
    dockerfile = (root / "deploy/Dockerfile").read_text("utf-8")
    copied = [source for line in re.findall(r"(?m)^COPY (?!--from)(.+)$", dockerfile) for source in line.split()[:-1]]
    ignored = (root / "deploy/Dockerfile.dockerignore").read_text("utf-8").split()
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(copied)
    assert all((root / source).exists() for source in copied)
    removed = " ".join(re.findall(r"pip uninstall --yes \\\n(.+?) &&", dockerfile, re.DOTALL)).split()
    locked = set(re.findall(r"(?m)^([a-z0-9-]+)==", (root / "requirements.txt").read_text("utf-8")))
    assert set(removed) - {"\\"} <= locked  # pip ends well when there is nothing to remove


def test_kustomize_builds_what_the_files_say(root: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    overlay = root / "deploy/kubernetes/overlays/example"
    try:
        built = subprocess.run(
            ["kubectl", "kustomize", str(overlay)], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        pytest.skip(f"kubectl can't be run: {error}")
    assert built.returncode == 0, built.stderr
    found: list[dict[str, Any]] = list(yaml.safe_load_all(built.stdout))
    deployments = {one["metadata"]["name"]: one for one in found if one["kind"] == "Deployment"}
    assert len(deployments) == 4 + len(TOPOLOGY.pools)
    for name, one in deployments.items():
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        tools = name.removeprefix("worker-") in NEED_NAMESPACES
        assert container["image"] == f"registry.example/harness:{'tools' if tools else 'slim'}"
        assert ("procMount" in container["securityContext"]) == tools
        scaled = name.startswith("worker-") and name not in ("worker-system", "worker-quarantine")
        assert ("replicas" not in one["spec"]) == scaled
    assert sum(one["kind"] == "ScaledObject" for one in found) == len(TOPOLOGY.pools) - 2
    assert "change-me" not in json.dumps([one for one in found if one["kind"] != "Secret"])


def test_systemd_understands_the_units(root: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for source in (root / "deploy/systemd").glob("*.[st]*e*"):
        if source.is_file():
            # It wants the programs to be there.
            text = source.read_text("utf-8").replace(manifests.BIN, f"{Path(sys.executable).parent}/")
            (tmp_path / source.name).write_text(text, "utf-8")
    names = ["harness.target", *(name for name in manifests.wanted(root) if "@" not in name)]
    names += ["harness-worker@llm.service", "harness-dispatcher@1.service"]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(f"./{name}" for name in names)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "harness" in line]  # it looks at the machine's own, too
    assert (done.returncode, ours) == (0, [])
