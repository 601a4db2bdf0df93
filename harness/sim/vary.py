"""Variations of a scenario: one file, played once for each combination of the values that `[vary]` lists.

A text that begins with `=` is a small sum over these names ("= 4 * s / c"); it is worked out here, before the scenario
is parsed. It must not do more than arithmetic: there is no way from it to anything of Python's.

Invariants: the order of combinations is that of the file; what isn't varied and doesn't begin with `=` isn't touched.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from itertools import product
from math import ceil, floor
from typing import Any

from harness.policy.errors import Invalid

Value = float | int | str
_NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
}
_CALLS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "ceil": ceil, "floor": floor}


def variations(raw: Mapping[str, Any], file: str) -> list[tuple[dict[str, Value], dict[str, Any]]]:
    """Return each combination of `[vary]` with the scenario as it is then; one without values if there is no `[vary]`.

    Raises: Invalid naming the key.
    """
    rest = {key: value for key, value in raw.items() if key != "vary"}
    lists = raw.get("vary", {})
    if not isinstance(lists, Mapping):
        raise Invalid(f"{file}: vary must be a table", field="vary")
    for name, values in lists.items():
        if not isinstance(values, list) or not values or not all(_is_value(one) for one in values):
            raise Invalid(f"{file}: vary.{name} must be an array of numbers or texts", field=f"vary.{name}")
    found = []
    for combination in product(*lists.values()):
        values = dict(zip(lists, combination, strict=True))
        found.append((values, {key: _worked_out(value, values, key, file) for key, value in rest.items()}))
    return found


def _is_value(one: object) -> bool:
    return isinstance(one, int | float | str) and not isinstance(one, bool)


def _worked_out(value: Any, values: Mapping[str, Value], at: str, file: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _worked_out(one, values, f"{at}.{key}", file) for key, one in value.items()}
    if isinstance(value, list):
        return [_worked_out(one, values, f"{at}[{i}]", file) for i, one in enumerate(value)]
    if not isinstance(value, str) or not value.startswith("="):
        return value
    try:
        return _result(ast.parse(value[1:].strip(), mode="eval").body, values)
    except (SyntaxError, ArithmeticError, TypeError, ValueError, LookupError) as error:
        known = ", ".join(sorted(values)) or "none"
        raise Invalid(f"{file}: {at} can't be worked out: {value!r}; names here: {known}", field=at) from error


def _result(node: ast.expr, values: Mapping[str, Value]) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str()):
            return node.value
        case ast.Name():
            return values[node.id]
        case ast.UnaryOp(op=ast.USub()):
            return -_result(node.operand, values)
        case ast.BinOp():
            return _NUMBERS[type(node.op)](_result(node.left, values), _result(node.right, values))
        case ast.Compare(ops=[op], comparators=[right]):
            return _NUMBERS[type(op)](_result(node.left, values), _result(right, values))
        case ast.IfExp():
            return _result(node.body if _result(node.test, values) else node.orelse, values)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return _CALLS[name](*(_result(one, values) for one in node.args))
    raise ValueError(node)
