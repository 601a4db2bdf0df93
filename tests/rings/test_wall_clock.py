"""Where the product reads its own machine's wall clock: nowhere that decides who goes next, and what is lost.

The dispatcher, the sweep, the auditor and the fences go by the database's clock, or by monotonic ones. What is listed
here is allowed, each with why; a reading anywhere else fails.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "harness"
RINGS = ("policy", "store", "engine", "worker", "sim", "kinds", "web")
READS = {
    ("time", "time"), ("time", "time_ns"), ("time", "localtime"), ("time", "gmtime"), ("datetime", "now"),
    ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("timezone", "now"),
}  # fmt: skip
ALLOWED = {
    "engine/answers.py": "Retry-After as a date, of another's clock at best",
    "engine/requests.py": "the door: is a moment that a client names in the past; by_the_clock mends start_by",
    "engine/approve/answers.py": "what an answer says of how long ago somebody decided",
    "engine/approve/notices.py": "until when the link in a notice is good",
    "engine/operate/readmit.py": "start_by of what a person sends again, as at the door",
    "engine/operate/resources.py": "the verb: does an override that a person sets end in the future",
    "engine/operate/scopes.py": "the verb: does a pause that a person sets end in the future",
    "engine/schedules.py": "the door: the first moment that is shown of a new schedule",
    "kinds/egress/outcomes.py": "Retry-After as a date, of another's clock at best",
    "store/artifact_files.py": "against the file's own time, of the same machine",
    "store/permits/local.py": "once, for a process that Redis has left alone; nobody else reads its times",
    "web/admin/site.py": "what a page shows",
    "web/admin/letters.py": "what a page shows",
    "web/admin/overrides.py": "what a page shows",
    "web/admin/resources.py": "what a page shows",
    "web/admin/tasks.py": "what a page shows",
    "web/decide.py": "whether a link is still good, and what its page shows",
    "web/pages/operations/verbs.py": "until when the token of a form is good",
    "web/api/usage.py": "which days a report shows",
    "web/api/tasks.py": "whether an answer says that a task waits for its moment",
}


def readings(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that read a wall clock."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in READS:
                yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (node.lineno for name in node.names if (node.module, name.name) in READS)


@pytest.mark.parametrize("ring", RINGS)
def test_no_module_reads_the_wall_clock_but_those_that_say_why(ring: str) -> None:
    found = {
        str(path.relative_to(ROOT)): lines
        for path in sorted((ROOT / ring).rglob("*.py"))
        if (lines := list(readings(ast.parse(path.read_text()))))
    }
    assert found.keys() - ALLOWED.keys() == set(), found


def test_the_list_names_only_modules_that_do() -> None:
    for name in ALLOWED:
        assert list(readings(ast.parse((ROOT / name).read_text()))), name


@pytest.mark.parametrize(
    "line", ["time.time()", "datetime.now(UTC)", "datetime.datetime.now()", "timezone.now", "from time import time"]
)
def test_a_reading_is_found_however_it_is_written(line: str) -> None:
    assert list(readings(ast.parse(line)))
