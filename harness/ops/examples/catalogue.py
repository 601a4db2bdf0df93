"""The examples there are: every module below plays/ with an `EXAMPLE`."""

import importlib
import pkgutil

from harness.ops.examples import plays
from harness.ops.examples.example import Example
from harness.policy.errors import NotFound


def all_examples() -> tuple[Example, ...]:
    """Return every example, by name."""
    modules = [importlib.import_module(f"{plays.__name__}.{one.name}") for one in pkgutil.iter_modules(plays.__path__)]
    found = [module.EXAMPLE for module in modules if hasattr(module, "EXAMPLE")]
    return tuple(sorted(found, key=lambda one: one.name))


def find(name: str) -> Example:
    """Return the example of this name. Raises: NotFound naming those there are."""
    known = {one.name: one for one in all_examples()}
    if name not in known:
        raise NotFound(f"there is no example {name!r}; there are {', '.join(known)}", field="name")
    return known[name]
