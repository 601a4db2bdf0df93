"""A provider's key stays in the worker's environment: a canary, looked for everywhere after real work with it."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import redis
from psycopg import sql

from tasks.llm_chat.test_kind import END, HEAD, Provider, Send, event, piece
from tests.route.conftest import Route
from tests.stage import wait_until

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture
def provider() -> Iterator[Provider]:
    playing = Provider()
    threading.Thread(target=playing.server.serve_forever, args=(0.01,), daemon=True).start()
    yield playing
    playing.go_on.set()
    playing.server.shutdown()
    playing.server.server_close()


def indiscreet(send: Send, asked: dict[str, Any]) -> None:
    """Send the key back, in every way that a provider (or a proxy that explains too much) can."""
    wish = asked["messages"][-1]["content"]
    if wish == "answer":
        send(HEAD + piece(f"Your key is {CANARY}, is it not?", finish="stop") + piece(None, usage=(9, 9)) + END)
    elif wish == "refuse":
        body = json.dumps({"error": {"message": f"Incorrect API key provided: {CANARY}"}}).encode()
        length = b"%d" % len(body)
        send(b"HTTP/1.1 401 No\r\ncontent-type: application/json\r\ncontent-length: " + length + b"\r\n\r\n" + body)
    else:
        send(HEAD + piece("Well") + event(json.dumps({"error": {"message": f"{CANARY} is broken"}})) + END)


def everything_in(database_url: str) -> str:
    """Return the contents of all tables as text."""
    parts = []
    with psycopg.connect(database_url) as connection:
        tables = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'public' AND c.relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            with connection.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(table))) as copy:
                parts += [bytes(row).decode() for row in copy]
    return "".join(parts)


def test_a_providers_key_is_in_no_row_trace_log_or_command_line(
    route: Route, provider: Provider, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    provider.play = indiscreet
    route.environment |= {
        "LLM_BASE_URL": provider.url,
        "LLM_MODEL": "m-1",
        "LLM_API_KEY": CANARY,
        "HARNESS_LOG_LEVEL": "DEBUG",
    }
    route.dispatcher()
    route.worker("llm")
    good, refused, broken = (
        route.stage.submit("llm.chat", input=json.dumps({"messages": [{"role": "user", "content": wish}]}))[0]
        for wish in ("answer", "refuse", "break")
    )
    wait_until(lambda: route.stage.state(good) == "succeeded", within_s=20)
    wait_until(lambda: route.stage.state(refused) == "failed_terminal", within_s=20)
    wait_until(lambda: route.stage.one("SELECT count(*) FROM attempt WHERE task_id = %s", broken) > 0, within_s=20)
    assert set(provider.keys) == {f"Bearer {CANARY}"}  # it was used

    command_lines = [
        " ".join(one.cmdline())
        for process in route.processes
        for one in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True))
    ]
    with redis.Redis.from_url(broker_url) as client:
        kept = [str(client.xrange(key)) for key in client.scan_iter("harness:live:*")]
    places = {
        "database": everything_in(database_url),
        "command lines": "\n".join(command_lines),
        "logs": "\n".join(log.read_text() for log in tmp_path.glob("*.log")),
        "redis": "\n".join(kept),
    }
    assert all(places.values())
    assert [place for place, text in places.items() if CANARY in text] == []
    assert "Incorrect API key provided: [redacted]" in places["database"]
    assert "Your key is [redacted], is it not?" in places["database"]
    assert "Your key is [redacted], is it not?" in places["redis"]
