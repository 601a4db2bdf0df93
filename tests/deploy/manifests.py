"""What the files under deploy/ start: commands by name, read from compose, systemd and Kubernetes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from harness.ops.local import procfile

Command = list[str]
BIN = "/opt/harness/.venv/bin/"


def compose(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((root / "deploy" / "compose.yaml").read_text("utf-8"))
    return found


def of_compose(root: Path) -> dict[str, Command]:
    """The commands of Harness's own services."""
    services = compose(root)["services"]
    return {name: one["command"] for name, one in services.items() if str(one["image"]).startswith("harness:")}


def documents(root: Path) -> Iterator[dict[str, Any]]:
    """Every object of the base, as it is written."""
    base = root / "deploy" / "kubernetes" / "base"
    for name in yaml.safe_load((base / "kustomization.yaml").read_text("utf-8"))["resources"]:
        yield from yaml.safe_load_all((base / name).read_text("utf-8"))


def of_kubernetes(root: Path) -> dict[str, Command]:
    """The commands of Deployments and Jobs."""
    found = {}
    for one in documents(root):
        if one["kind"] in ("Deployment", "Job"):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            assert container["name"] == "harness", one["metadata"]["name"]  # patches go by this name
            found[one["metadata"]["name"]] = container["command"]
    return found


def wanted(root: Path) -> list[str]:
    """The units that harness.target starts."""
    text = (root / "deploy" / "systemd" / "harness.target").read_text("utf-8")
    return re.findall(r"^Wants=(\S+)$", text, re.MULTILINE)


def of_systemd(root: Path) -> dict[str, Command]:
    """The commands of the units that harness.target starts, instances filled in."""
    found = {}
    for name in wanted(root):
        stem, _, instance = name.removesuffix(".service").partition("@")
        file = root / "deploy" / "systemd" / f"{stem}{'@' if instance else ''}.service"
        lines = re.findall(r"^ExecStart=(.+)$", file.read_text("utf-8"), re.MULTILINE)
        words = shlex.split(lines[0].replace("%i", instance).replace("%%", "%"))
        assert words[0].startswith(BIN), f"{file.name}: {words[0]}"  # systemd looks nothing up in the PATH of its file
        found[name.removesuffix(".service")] = [words[0].removeprefix(BIN), *words[1:]]
    return found


WAYS = {"compose": of_compose, "systemd": of_systemd, "kubernetes": of_kubernetes}
MIGRATE = ["python", "manage.py", "migrate", "--no-input"]


def program(root: Path, words: Command) -> str | None:
    """Which program of the Procfile a command is: its name, `worker:POOL`, `migrate`; None: it is none of them.

    Only what has to differ may: the port and the folder that the stack fills in, the address listened on, and a worker
    of several pools may be as many workers of one.
    """
    if words == MIGRATE:
        return "migrate"
    programs = procfile.read(root / "Procfile")
    for name, line in programs.items():
        template = shlex.split(line)
        if name.startswith("worker_"):
            pools, host = template.index("--resource-pool") + 1, template.index("-n") + 1
            if len(words) == len(template) and words[pools] in template[pools].split(","):
                template[pools], template[host] = words[pools], f"{words[pools]}@%h"
                if words == template:
                    return f"worker:{words[pools]}"
        elif len(words) == len(template) and all(
            _fits(word, like) or template[at - 1] == "--host"
            for at, (word, like) in enumerate(zip(words, template, strict=True))
        ):
            return name
    return None


def _fits(word: str, like: str) -> bool:
    pattern = re.escape(like).replace(r"\$PORT", r"[0-9]+").replace(r"\$STACK", r"/[a-z/-]+")
    return re.fullmatch(pattern, word) is not None
