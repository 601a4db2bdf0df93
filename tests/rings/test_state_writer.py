"""A task's state changes in one place: store/transitions and the SQL that only it loads (decision 11)."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WRITER = Path("harness/store/transitions")
WRITERS_SQL = Path("harness/store/sql/transitions")
MIGRATIONS = Path("harness/store/migrations")
SIMULATED = Path("harness/sim")  # its tasks are no rows; it takes their states from the same table
CODE = ("harness", "config", "tasks")  # benchmarks fill databases of their own, past the triggers

# `update task set ... state =`, up to the statement's WHERE, FROM or RETURNING; any schema, alias or quotes.
_UPDATE = re.compile(
    r"\bupdate\s+(?:only\s+)?(?:\w+\.)?\"?(?:store_)?task\"?(?:\s+(?:as\s+)?\w+)?\s+set\s+"
    r"(?:(?!\bwhere\b|\bfrom\b|\breturning\b).)*?\bstate\"?\s*(?:=|,|\))",
    re.IGNORECASE | re.DOTALL,
)
_INSERT = re.compile(r"\b(?:insert\s+into|merge\s+into|copy)\s+(?:\w+\.)?\"?(?:store_)?task\"?[\s(]", re.IGNORECASE)
_ORM = {"update", "create", "get_or_create", "update_or_create", "bulk_create", "bulk_update"}


def state_writes_in_sql(text: str) -> list[str]:
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    return [" ".join(match[0].split())[:80] for pattern in (_UPDATE, _INSERT) for match in pattern.finditer(plain)]


def state_writes_in_python(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Assign(targets=targets) if any(_is_task_state(target) for target in targets):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target) if _is_task_state(target):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value="state"), *_]):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
            case ast.Call(func=ast.Attribute(attr=verb, value=ast.expr() as owner)) if verb in _ORM:
                if _names_state(node) or (verb not in {"update"} and ast.unparse(owner) == "Task.objects"):
                    found.append(f"line {node.lineno}: {ast.unparse(node)}"[:120])
            case ast.Constant(value=str() as text):
                found += [f"line {node.lineno}: {write}" for write in state_writes_in_sql(text)]
    return found


def _is_task_state(target: ast.expr) -> bool:
    """`anything.state = ..`, except an object's own attribute of that name."""
    match target:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(_is_task_state(part) for part in parts)
        case ast.Attribute(attr="state", value=ast.Name(id="self")):
            return False
        case ast.Attribute(attr="state"):
            return True
    return False


def _names_state(call: ast.Call) -> bool:
    if any(keyword.arg == "state" for keyword in call.keywords):
        return True
    in_arguments = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg in {"defaults", "fields"})]
    return any(
        isinstance(node, ast.Constant) and node.value == "state"
        for argument in in_arguments
        if isinstance(argument, ast.List | ast.Tuple | ast.Dict | ast.Set)
        for node in ast.walk(argument)
    )


def _files(suffix: str) -> Iterator[Path]:
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob(f"*{suffix}")):
            yield path.relative_to(ROOT)


def test_only_transitions_writes_a_tasks_state_in_python() -> None:
    writes = {
        str(path): found
        for path in _files(".py")
        if not {WRITER, MIGRATIONS, SIMULATED} & set(path.parents) and not path.name.startswith("test_")
        if (found := state_writes_in_python((ROOT / path).read_text(encoding="utf-8")))
    }
    assert writes == {}


def test_only_the_sql_of_transitions_writes_a_tasks_state() -> None:
    writes = {
        str(path): found
        for path in _files(".sql")
        if WRITERS_SQL not in path.parents
        if (found := state_writes_in_sql((ROOT / path).read_text(encoding="utf-8")))
    }
    assert writes == {}


def test_only_transitions_names_the_folder_of_its_sql() -> None:
    named = [
        str(path)
        for path in _files(".py")
        if WRITER not in path.parents
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("transitions/")
    ]
    assert named == []


@pytest.mark.parametrize(
    "source",
    [
        "task.state = 'running'",
        "a, task.state = 1, 2",
        "task.state: str = 'running'",
        "setattr(task, 'state', 'running')",
        "Task.objects.filter(id=1).update(state='running', ready=True)",
        "Task.objects.update_or_create(id=1, defaults={'state': 'running'})",
        "Task.objects.bulk_update(tasks, ['state'])",
        "Task.objects.bulk_create(tasks)",
        "db.execute('update task set ready = true, state = %s where id = 1')",
        'db.execute("""UPDATE public."task" AS t\n SET (ready, state) = (true, \'x\')""")',
        "db.execute('insert into task (id) values (1)')",
        "db.execute(f'update task set state = {x}')",
    ],
)
def test_each_way_of_writing_a_state_is_seen(source: str) -> None:
    assert state_writes_in_python(source)


@pytest.mark.parametrize(
    "source",
    [
        "self.state = 'open'",
        "Lease.objects.filter(id=1).update(zombie_since=now)",
        "'update task set ready = true where state = %s'",
        "'insert into task_body (task) values (1)'",
        "'select state from task'",
        "digest.update(b'state')",
    ],
)
def test_what_only_reads_or_belongs_to_others_is_not_taken_for_a_write(source: str) -> None:
    assert state_writes_in_python(source) == []
