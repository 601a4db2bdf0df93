"""The examples in docstrings are true."""

import doctest
import importlib
import pkgutil
from types import ModuleType

import pytest

import harness.kinds
import harness.ops.local
import harness.policy
import harness.sim

_PACKAGES: tuple[ModuleType, ...] = (harness.policy, harness.kinds, harness.ops.local, harness.sim)


@pytest.mark.parametrize(
    "name", [found.name for one in _PACKAGES for found in pkgutil.walk_packages(one.__path__, f"{one.__name__}.")]
)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
