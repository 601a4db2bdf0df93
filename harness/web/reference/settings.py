"""docs/reference/settings.md: every variable that config/settings.py reads, with its default and what stands beside it.

Read from the file's text, so that no value of this process's own environment gets into the page.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HEAD = """# Settings

Generated from `config/settings.py` by `manage.py reference_doc`; don't edit.

Settings are environment variables. Pools and resources stand in [resources.toml](../../config/resources.toml)
([how](../howto/add-a-pool-or-resource.md)), models and prices in [models.toml](../../config/models.toml).

| variable | default | |
|---|---|---|
"""
READERS = {"_setting", "_whole", "_number", "_switch"}
# What a default that is worked out comes to.
DEFAULTS = {
    "HARNESS_ARTIFACTS_DIR": "`.harness/artifacts`",
    "HARNESS_DEAD_KEEP_DAYS": "`90`, or `HARNESS_KEEP_DAYS` if that is more",
    "HARNESS_LIVE_URL": "`BROKER_URL`, if that is a Redis",
    "HARNESS_PERMITS_URL": "`HARNESS_LIVE_URL`",
    "HARNESS_PUBLIC_URL": "the address of the local stack",
}
SAID = {
    "ALLOWED_HOSTS": "Names, by commas, under which the web process answers.",
    "BROKER_URL": "Redis (6.2 or newer), Valkey, or RabbitMQ. Without it: the local stack's.",
    "DATABASE_URL": "PostgreSQL 15 or newer; a login with CREATEROLE that owns the database. Without it: the local "
    "stack's.",
    "HARNESS_ARTIFACTS_S3_BUCKET": "A bucket for artifacts, instead of the folder.",
    "HARNESS_ARTIFACTS_S3_PREFIX": "What the names of artifacts in the bucket begin with.",
    "HARNESS_ARTIFACT_MAX_BYTES": "The largest artifact.",
    "HARNESS_AUDIT_REPAIR": "1: what is safe to repair is repaired.",
    "HARNESS_ALERT_DEAD_ROWS": "Dead rows of a hot table (and a fifth of its rows) that the audit tells.",
    "HARNESS_ALERT_TRANSACTION_S": "Seconds that a transaction may be open before the audit tells.",
    "HARNESS_ARTIFACTS_S3_ENDPOINT": "The address of a server of S3 that isn't Amazon's.",
    "HARNESS_ARTIFACT_KEEP_DAYS": "Days that an artifact is kept unless its upload says otherwise.",
    "HARNESS_BODY_MAX_BYTES": "The largest payload and the largest result.",
    "HARNESS_DEAD_KEEP_DAYS": "Days that dead letters are kept.",
    "HARNESS_HTTPS": "1: people come over https; cookies are sent over nothing else.",
    "HARNESS_KEEP_DAYS": "Days that ended tasks and their trace are kept.",
    "HARNESS_RETENTION": "1: what is kept too long goes by itself, each hour; 0: only by `manage.py retention`.",
    "SECRET_KEY": "Signs sessions, forms and links; the same for all processes. Without it each makes its own.",
    "HARNESS_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR.",
    "HARNESS_TASK_PACKAGES": "Packages, by commas, whose folders are kinds.",
}
SUMMARIZE, HTTP, HOOK = "tasks/llm_summarize", "tasks/tool_http_get", "tasks/tool_webhook"
MCP, BROWSER, SANDBOX = "tasks/mcp_agents", "tasks/browser_visit", "tasks/sandbox_python"
# What workers read from their own environment, and where more of it is said.
OF_WORKERS = (
    ("HARNESS_DRAIN_S", "8", "how long a worker that is told to stop finishes what it runs; the rest goes back", ""),
    ("HARNESS_ZOMBIE_MAX_AGE_S", "300", "how long a thread that can't be stopped may hold its slot", ""),
    ("HARNESS_CONSUMER_TIMEOUT_S", "1800", "RabbitMQ's consumer_timeout, where it was raised", ""),
    ("LLM_BASE_URL", "", "where the default model is; others stand in models.toml", ""),
    ("LLM_MODEL", "", "its name there", ""),
    ("LLM_API_KEY", "", "its key", ""),
    ("LLM_TIMEOUT_S", "60", "the longest pause between two bytes of a model's answer", ""),
    ("LLM_PROMPT_CHARS", "24000", "how much of a text the model sees at a time", SUMMARIZE),
    ("HARNESS_EGRESS_ALLOW", "", "private addresses that tools may reach", HTTP),
    ("HARNESS_EGRESS_PORTS", "80,443", "ports that tools may reach", HTTP),
    ("HARNESS_WEBHOOK_URL_<NAME>", "", "a receiver of hooks; `.._SECRET_`, `.._TENANTS_` go with it", HOOK),
    ("HARNESS_MCP_<NAME>", "", "a server of tools; `.._TENANTS_`, `.._TOOLS_`, `.._TOKEN_` go with it", MCP),
    ("HARNESS_BROWSER", "", "the Chromium", BROWSER),
    ("HARNESS_BROWSER_NO_SANDBOX", "", "1: without Chromium's own sandbox", BROWSER),
    ("HARNESS_SANDBOX_PYTHON", "", "the interpreter that runs code", SANDBOX),
    ("HARNESS_SANDBOX_PACKAGES", "", "a folder with packages for that code", SANDBOX),
    ("HARNESS_SANDBOX_UID", "65433", "the account that runs it, for a worker of root", SANDBOX),
    ("HARNESS_SANDBOX_CGROUP", "", "a cgroup that limits it", SANDBOX),
)
TARGETS = """
The addresses of [target databases](../howto/add-a-pool-or-resource.md#a-database-that-tasks-work-on) stand in the
variables that resources.toml names.
"""
OF_STACK = (("HARNESS_LOCAL_DIR", ".harness", "where `manage.py stack` keeps its servers' data, logs and secrets", ""),)


@dataclass(frozen=True, slots=True)
class Variable:
    """`default`: as the page shows it; `says`: what stands beside it in the file."""

    name: str
    default: str
    says: str


def variables(text: str) -> Iterator[Variable]:
    """Yield the variables that a settings file reads, in its order."""
    lines = text.splitlines()
    for statement in ast.parse(text).body:
        if not isinstance(statement, ast.Assign):
            continue
        for call in ast.walk(statement.value):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in READERS:
                name = ast.literal_eval(call.args[0])
                yield Variable(name, _default(name, call.args[1:]), SAID.get(name) or _beside(lines, statement))


def render(text: str) -> str:
    """Return the page."""
    found = sorted(variables(text), key=lambda one: one.name)
    rest = f"\n## Of workers\n\n{_table(OF_WORKERS)}{TARGETS}\n## Of the local stack\n\n{_table(OF_STACK)}"
    return HEAD + "".join(f"| `{one.name}` | {one.default} | {one.says} |\n" for one in found) + rest


def page(base_dir: Path) -> str:
    """Return the page of this checkout."""
    return render((base_dir / "config" / "settings.py").read_text("utf-8"))


def _table(rows: Sequence[tuple[str, str, str, str]]) -> str:
    lines = ["| variable | default | |", "|---|---|---|"]
    for name, default, says, more in rows:
        link = f" ([more](../../{more}/README.md))" if more else ""
        lines.append(f"| `{name}` | {default and f'`{default}`'} | {says}{link} |")
    return "\n".join(lines) + "\n"


def _default(name: str, rest: list[ast.expr]) -> str:
    if name in DEFAULTS:
        return DEFAULTS[name]
    if not rest:
        return ""
    value = _worked_out(rest[0])
    return f"`{value:,}`".replace(",", "") if isinstance(value, int) else f"`{value}`" if value else ""


def _worked_out(node: ast.expr) -> object:
    """The value of a literal, or of a product or power of literals. Raises: ValueError for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
        left, right = _worked_out(node.left), _worked_out(node.right)
        if isinstance(left, int) and isinstance(right, int):
            return int(left * right) if isinstance(node.op, ast.Mult) else int(left**right)
    return ast.literal_eval(node)


def _beside(lines: list[str], statement: ast.Assign) -> str:
    """The comment lines above a statement, else the comment at its end."""
    above: list[str] = []
    at = statement.lineno - 2
    while at >= 0 and lines[at].startswith("#"):
        above.insert(0, lines[at].lstrip("# "))
        at -= 1
    _, mark, after = lines[(statement.end_lineno or statement.lineno) - 1].partition("  # ")
    return " ".join(above + ([after] if mark else [])).replace("|", "\\|")
