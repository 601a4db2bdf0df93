"""Fixtures that tests of all folders share; the servers come from the plugin tests.servers."""

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from tests.servers import EMBEDDED

ROOT = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The embedded server goes as a whole, so nobody has to wait for the last connection to leave."""
    return EMBEDDED in os.environ


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> None:
    """Let Django make exactly the database that DATABASE_URL names, instead of prefixing it once more."""
    from django.db import connection

    name = str(connection.settings_dict["NAME"])
    assert name.startswith("test_")
    connection.settings_dict["TEST"]["NAME"] = name


@pytest.fixture
def database_url(transactional_db: None) -> Iterator[str]:
    """The test database, migrated; what a test commits is removed after it."""
    yield os.environ["DATABASE_URL"]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as owner:
        owner.execute("TRUNCATE event")  # partitioned, hence no model that Django would flush


@pytest.fixture
def broker_url() -> Iterator[str]:
    """The test broker, empty."""
    url = os.environ["BROKER_URL"]
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        yield url
        client.flushdb()


@pytest.fixture
def process_environment(database_url: str, broker_url: str) -> dict[str, str]:
    """The environment of a real process (dispatcher, worker, web) that a test spawns in the checkout."""
    return os.environ | {
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
