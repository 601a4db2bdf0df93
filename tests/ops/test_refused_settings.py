"""A configuration that can't be used: whatever starts refuses in one line that names the place and what would do."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from config import given

PLAIN = ("manage.py", "capacity")
WORKER = ("-m", "celery", "-A", "config", "worker", "--resource-pool", "llm")
WEB = ("-m", "uvicorn", "config.asgi:application", "--port", "1")
DISPATCHER = ("manage.py", "dispatcher")
KIND = """
from pydantic import BaseModel
from harness.kinds import kind
@kind("lost", pool="nowhere", input=BaseModel)
def lost(ctx, payload): ...
"""


@pytest.fixture
def checkout(root: Path, tmp_path: Path) -> Path:
    """A checkout with a configuration of its own."""
    shutil.copytree(root / "config", tmp_path / "config", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "manage.py", tmp_path)
    for name in ("harness", "tasks", "Procfile"):
        (tmp_path / name).symlink_to(root / name)
    (tmp_path / "mine" / "lost").mkdir(parents=True)
    (tmp_path / "mine" / "__init__.py").touch()
    (tmp_path / "mine" / "lost" / "__init__.py").touch()
    (tmp_path / "mine" / "lost" / "kind.py").write_text(KIND)
    return tmp_path


def refused(checkout: Path, command: tuple[str, ...], **environment: str) -> str:
    """Start something, and return the one line that it ends with."""
    servers = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/harness_none", "BROKER_URL": "redis://127.0.0.1:1/0"}
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=checkout,
        env=kept | servers | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 1, (ended.returncode, ended.stderr)
    (line,) = ended.stderr.strip().splitlines()
    return line


def test_a_value_that_makes_no_sense_is_refused_with_its_file_and_line(checkout: Path) -> None:
    path = checkout / "config" / "resources.toml"
    lines = path.read_text().splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("slots ="))
    lines[at] = "slots = 0"
    path.write_text("\n".join(lines))
    for command in (PLAIN, WORKER):
        line = refused(checkout, command)
        assert f"resources.toml, line {at + 1}: pools.llm.slots must be a whole number of at least 1, not 0" in line


def test_a_file_that_is_no_toml_is_refused_with_its_path_and_line(checkout: Path) -> None:
    path = checkout / "config" / "models.toml"
    path.write_text("# a comment\nmodels = = 3\n")
    line = refused(checkout, WEB)
    assert str(path) in line and "line 2" in line


def test_a_kind_whose_pool_is_nowhere_stops_the_dispatcher_in_one_line(checkout: Path) -> None:
    line = refused(checkout, DISPATCHER, HARNESS_TASK_PACKAGES="mine")
    assert line == "dispatcher: kind 'lost' names pool 'nowhere', which resources.toml doesn't offer"


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (given.whole, "many", "X is 'many'; it must be a whole number of at least 1"),
        (given.whole, "0", "X is '0'; it must be a whole number of at least 1"),
        (given.number, "-1", "X is '-1'; it must be a number of at least 0"),
        (given.number, "nan", "X is 'nan'; it must be a number of at least 0"),
        (given.switch, "yes", r"X is 'yes'; it must be 1 \(on\) or 0 \(off\)"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_by_name(
    read: Callable[[str, str], object], text: str, message: str
) -> None:
    with pytest.raises(SystemExit, match=f"^harness can't start: {message}$"):
        read("X", text)


def test_what_makes_sense_is_read(tmp_path: Path) -> None:
    assert (given.whole("X", "7"), given.number("X", "0.5"), given.switch("X", "0")) == (7, 0.5, False)
    with pytest.raises(SystemExit, match="No such file"):
        given.file(tmp_path / "none.toml", dict)
