"""What the OpenAPI document says of bodies and headers that the views read themselves."""

from typing import Any

from pydantic import BaseModel

from harness.engine.submit import KEY_MAX_CHARS

_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "For 24 h (HARNESS_IDEMPOTENCY_HOURS) the same key and body return what it made, as it is now; "
    "with another body: 409, naming the field that differs. It belongs to one tenant and route: tasks, or runs.",
    "schema": {"type": "string", "minLength": 1, "maxLength": KEY_MAX_CHARS},
}


def body(model: type[BaseModel], *, required: bool = True, idempotent: bool = False) -> dict[str, Any]:
    """Return the part of an operation that describes a JSON body of this model."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    part: dict[str, Any] = {
        "requestBody": {
            "required": required,
            "content": {"application/json": {"schema": _inline(schema, definitions)}},
        }
    }
    if idempotent:
        part["parameters"] = [_KEY]
    return part


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Replace references into the model's own definitions: in the document they would point nowhere."""
    if isinstance(schema, dict):
        name = schema.get("$ref", "")
        if name.startswith("#/$defs/"):
            return _inline(definitions[name.removeprefix("#/$defs/")], definitions)
        return {key: _inline(value, definitions) for key, value in schema.items()}
    if isinstance(schema, list):
        return [_inline(value, definitions) for value in schema]
    return schema
