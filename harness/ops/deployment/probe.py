"""`python -m harness.ops.deployment.probe POOL`: does the worker of this machine (container, pod) still serve the pool?

For a container's liveness: exit code 1 when no session of this host name beats for the pool, 0 when one does. A
database that doesn't answer is no reason to restart a worker, which waits for it and fences itself meanwhile: 0, and it
says so. No Django: it starts often, and takes 0.2 s of a core.
"""

import os
import socket
import sys

import psycopg

from harness.policy.errors import Unavailable
from harness.store import sessions
from harness.store.database import connect


def look(url: str, host: str, pool: str) -> bool:
    """Whether a live session of this host serves the pool. Raises: Unavailable, when the database can't say."""
    try:
        with connect(url, "engine", application_name="harness-probe") as connection:
            return sessions.serves(connection, host=host, pool=pool)
    except psycopg.Error as error:
        raise Unavailable(f"the database can't say: {type(error).__name__}") from error


def main(words: list[str]) -> int:
    """Look, tell, and return the exit code; 2: it was asked wrongly."""
    url = os.environ.get("DATABASE_URL", "")
    if len(words) != 1 or not url:
        sys.stderr.write("usage: DATABASE_URL=.. python -m harness.ops.deployment.probe POOL\n")
        return 2
    (pool,) = words
    try:
        lives = look(url, socket.gethostname(), pool)
    except Unavailable as error:
        sys.stdout.write(f"unknown: {error.message}\n")
        return 0
    sys.stdout.write(f"{pool}: {'lives' if lives else 'no live session of this host serves it'}\n")
    return 0 if lives else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
