"""docs/reference/api.md: every call of the HTTP API in one line, from its own description of itself."""

from collections.abc import Mapping
from typing import Any

HEAD = """# API

Generated from the API's own description by `manage.py reference_doc`; don't edit. What each call takes and answers,
field by field, stands at `/api/docs` of a running Harness, and for programs at `/api/openapi.json`.

Send the key as `Authorization: Bearer ..` (`manage.py key create TENANT`). Errors are problem documents
([which](errors.md)). Lists come in pages: follow `next` until it is null. What makes something takes an
`Idempotency-Key` ([more](../howto/submit-once.md)).
"""


def render(schema: Mapping[str, Any]) -> str:
    """Return the page of an OpenAPI document."""
    by_tag: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, call in methods.items():
            answers = ", ".join(code for code in sorted(map(str, call["responses"])) if code < "400")
            row = f"| `{method.upper()} {path}` | {_first_line(call)} | {answers} |"
            by_tag.setdefault(str((call.get("tags") or ["other"])[0]), []).append(row)
    parts = [HEAD]
    for tag, rows in by_tag.items():
        parts += [f"## {tag[0].upper()}{tag[1:]}\n", "| call | does | answers |\n|---|---|---|", *rows, ""]
    return "\n".join(parts)


def _first_line(call: Mapping[str, Any]) -> str:
    text = str(call.get("description") or call.get("summary") or "").strip().split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")
