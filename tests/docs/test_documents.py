"""What the documents name is there: files, headings, commands with their options, calls of the API, settings."""

import ast
import re
import shlex
import textwrap
from argparse import ArgumentParser, _SubParsersAction
from pathlib import Path

from django.core.management import get_commands, load_command_class

from harness.web.api.app import api
from tests.docs.pages import anchors, links, pages, prose, samples

# Of benchmarks and of the stack's own processes; names that an operator chooses begin with the last two.
NOT_FOR_OPERATORS = re.compile(r"HARNESS_BENCH_LOG|HARNESS_STACK|HARNESS_MCP.*|HARNESS_WEBHOOK.*")


def test_every_link_leads_to_a_file_and_a_heading_that_are_there(root: Path) -> None:
    broken = []
    for page in pages(root):
        for file, anchor in links(page):
            target = (page.parent / file).resolve() if file else page
            if not target.exists():
                broken.append(f"{page.relative_to(root)}: {file}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                broken.append(f"{page.relative_to(root)}: {file}#{anchor}")
    assert broken == []


def test_every_page_stands_in_the_index(root: Path) -> None:
    docs = root / "docs"
    listed: set[Path] = set()
    for block in re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```$", (docs / "index.md").read_text("utf-8")):
        for entry in re.findall(r"(?m)^([a-z][^\s:]*)$", block):
            found = set(docs.glob(f"{entry}.md"))
            assert found, f"the index lists {entry}, which is not there"
            listed |= found
    assert set(docs.rglob("*.md")) - listed == {docs / "index.md"}


def test_every_sample_of_python_is_python(root: Path) -> None:
    for page in pages(root):
        for sample in samples(page, "python"):
            ast.parse(textwrap.dedent(sample), filename=str(page))


def test_every_command_of_manage_py_is_there_with_its_options(root: Path) -> None:
    commands = get_commands()
    parsers: dict[str, ArgumentParser] = {}
    wrong = []
    for page in pages(root):
        for name, rest in re.findall(r"manage\.py ([a-z_]+)([^`\n|#]*)", page.read_text("utf-8")):
            if name not in commands:
                wrong.append(f"{page.relative_to(root)}: manage.py {name}")
                continue
            if name not in parsers:
                command = load_command_class(commands[name], name)
                parsers[name] = command.create_parser("manage.py", name)
            known = _options(parsers[name])
            wrong += [
                f"{page.relative_to(root)}: manage.py {name} {option}"
                for option in re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", rest)
                if option not in known
            ]
    assert wrong == []


def test_every_call_of_the_api_is_there(root: Path) -> None:
    known = {re.sub(r"\{[^}]*\}", "*", path) for path in api.get_openapi_schema()["paths"]}
    wrong = []
    for page in pages(root):
        for path in re.findall(r"(?<![\w.])/api/v1(?:/[\w{}$<>.-]+)+", page.read_text("utf-8")):
            parts = ["*" if re.search(r"[{$<]|^[A-Z]", part) else part for part in path.rstrip(".").split("/")]
            asked = "/".join(part for part in parts if part not in ("..", "..."))
            if asked not in known and not any(one.startswith(f"{asked}/") for one in known):
                wrong.append(f"{page.relative_to(root)}: {path}")
    assert wrong == []


def test_every_variable_that_the_code_reads_is_in_the_reference(root: Path) -> None:
    read = set()
    for folder in ("config", "harness", "tasks"):
        for path in (root / folder).rglob("*.py"):
            if not path.name.startswith(("test_", "conftest")):
                read |= set(re.findall(r'"((?:HARNESS|LLM)_[A-Z0-9_]+)"', path.read_text("utf-8")))
    page = (root / "docs/reference/settings.md").read_text("utf-8")
    assert {name for name in read if not NOT_FOR_OPERATORS.fullmatch(name) and f"`{name}`" not in page} == set()


def test_the_readme_opens_with_what_it_is_and_two_commands(root: Path) -> None:
    text = (root / "README.md").read_text("utf-8")
    first, second = samples(root / "README.md", "")[0].splitlines()[:2]
    assert shlex.split(first, comments=True) == ["script/demo"] and shlex.split(second, comments=True) == [
        "script/test"
    ]
    assert text.index("script/demo") < 2000
    assert "I added workers and it got slower" in prose(root / "README.md")


def _options(parser: ArgumentParser) -> set[str]:
    found: set[str] = set()
    for action in parser._actions:
        found |= set(action.option_strings)
        if isinstance(action, _SubParsersAction):
            for sub in action.choices.values():
                found |= _options(sub)
    return found
