"""A site on loopback, for tests of what speaks HTTP."""

from collections.abc import Iterator

import pytest

from tests.kinds.sites import Page, Site, site


@pytest.fixture
def here() -> Iterator[Site]:
    with site() as found:
        found.pages["/"] = Page(b"hello")
        yield found
