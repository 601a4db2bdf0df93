"""Request bodies: JSON of a limited shape, in which every fault is told with the path of its field."""

import json
from collections.abc import Sequence
from typing import TypeVar

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from harness.engine import payload
from harness.policy.errors import Invalid, TooLarge
from harness.web.problems import BadJson

Model = TypeVar("Model", bound=BaseModel)

MEMBERS_MAX = 16  # of an envelope or a node: more than there are, so a flood of unknown ones is not looked at
ERRORS_TOLD = 20


def body_of(request: HttpRequest) -> bytes:
    """Return the body. Raises: TooLarge."""
    try:
        return request.body
    except RequestDataTooBig:
        raise TooLarge("the body is larger than the server takes", field="body") from None


def read(body: bytes, model: type[Model], *, nodes_max: int = 0, empty: bool = False) -> Model:
    """Return the body as a model. `empty`: no body means no members. Raises: BadJson, Invalid, TooLarge."""
    value = {} if empty and not body.strip() else _json(body)
    if not isinstance(value, dict):
        raise Invalid("body: must be a JSON object", field="body")
    _bounded(value, "body")
    nodes = value.get("nodes")
    if nodes_max and isinstance(nodes, list):
        if len(nodes) > nodes_max:
            raise TooLarge(
                f"nodes: {len(nodes):,} are more than a run may have ({nodes_max:,}): send several runs", field="nodes"
            )
        for i, node in enumerate(nodes):
            if isinstance(node, dict) and len(node) > MEMBERS_MAX:
                _bounded(node, f"nodes[{i}]")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise wrong(payload.told_by_pydantic(error)) from None


def wrong(errors: Sequence[dict[str, str]]) -> Invalid:
    """Return the error that tells of these wrong values, the first one foremost."""
    first = errors[0]
    return Invalid(f"{first['field']}: {first['message']}", field=first["field"], errors=list(errors[:ERRORS_TOLD]))


def _json(body: bytes) -> object:
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        reason = str(error)
    if not body:
        raise BadJson("the body is empty; send a JSON object")
    # Once more and slowly: the fast parser stops at half a surrogate pair without a word on where that is.
    try:
        value = json.loads(body.decode(), strict=False)
    except UnicodeDecodeError as error:
        raise BadJson(f"the body is not UTF-8 (byte {error.start})") from None
    except (ValueError, RecursionError):
        raise BadJson(f"the body is not JSON: {reason}") from None
    payload.refuse_unfit(value, "")
    raise BadJson(f"the body is not JSON: {reason}")


def _bounded(members: dict[str, object], at: str) -> None:
    if len(members) > MEMBERS_MAX:
        raise Invalid(f"{at}: has {len(members):,} members, more than there are to give", field=at)
