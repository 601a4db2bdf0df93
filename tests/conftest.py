"""The stage: what tests of store, engine and route share."""

from collections.abc import Iterator

import pytest

from tests.stage import Stage


@pytest.fixture
def stage(database_url: str) -> Iterator[Stage]:
    """A tenant, an engine connection and a leading dispatcher without a process."""
    stage = Stage(database_url)
    yield stage
    stage.close()
