"""Output of running tasks: coalesced, bounded, fenced, and never a reason for a task to wait or fail."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from harness.engine import live
from harness.engine.live import Live
from harness.store.live import KEPT_S, Chunk, LiveWriter
from tests.stage import wait_until

TASK = "00000000-0000-4000-8000-000000000007"
KEY = f"harness:live:{TASK}"


@pytest.fixture
def client(broker_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(broker_url) as client:
        yield client


def shown(client: Any) -> list[tuple[str, int, str]]:
    """What the stream holds, as (id, offset, text)."""
    return [(row.decode(), int(f[b"o"]), f[b"t"].decode()) for row, f in client.xrange(KEY)]


def test_many_small_pieces_become_few_chunks_in_order(client: Any, broker_url: str) -> None:
    output = Live(broker_url, may_send=lambda: True)
    said = output.open(TASK, 3)
    for i in range(1000):
        output.emit(said, f"{i} ")
    output.end(said)
    chunks = shown(client)
    assert "".join(text for _, _, text in chunks) == "".join(f"{i} " for i in range(1000))
    assert 1 <= len(chunks) <= 5
    offset = 0
    for number, (place, at, text) in enumerate(chunks, 1):
        assert (place, at) == (f"3-{number}", offset)
        offset += len(text)
    assert 0 < client.pttl(KEY) <= KEPT_S * 1000


def test_a_later_attempt_replaces_an_earlier_one_and_a_stale_worker_is_refused(client: Any, broker_url: str) -> None:
    writer = LiveWriter(broker_url)
    writer.send([Chunk(TASK, 1, 1, 0, "old "), Chunk(TASK, 1, 2, 4, "older")])
    heard = client.pubsub(ignore_subscribe_messages=True)
    heard.subscribe(KEY)
    heard.get_message(timeout=1)
    writer.send([Chunk(TASK, 2, 1, 0, "new")])
    writer.send([Chunk(TASK, 1, 3, 9, "stale")])
    writer.send([Chunk(TASK, 2, 1, 0, "new")])  # sent again after an answer that was lost
    assert shown(client) == [("2-1", 0, "new")]
    messages = []
    while message := heard.get_message(timeout=0.2):
        messages.append(message["data"])
    assert messages == [b"2-1 0 0\nnew"]
    heard.close()
    writer.close()


def test_what_one_attempt_shows_is_bounded_and_the_last_chunk_says_so(client: Any, broker_url: str) -> None:
    output = Live(broker_url, may_send=lambda: True)
    said = output.open(TASK, 1)
    for _ in range(100):
        output.emit(said, "é" * 2000)
    output.end(said)
    chunks = client.xrange(KEY)
    assert sum(len(fields[b"t"]) for _, fields in chunks) == live.OUTPUT_BYTES
    assert [fields[b"c"] for _, fields in chunks][-1] == b"1"


def test_half_a_surrogate_pair_and_nul_do_no_harm(client: Any, broker_url: str) -> None:
    output = Live(broker_url, may_send=lambda: True)
    said = output.open(TASK, 1)
    output.emit(said, "a\ud800b\x00c")
    output.end(said)
    assert "".join(text for _, _, text in shown(client)) == "a?b\x00c"


def test_a_fenced_process_says_nothing_more(client: Any, broker_url: str) -> None:
    open_now = True
    output = Live(broker_url, may_send=lambda: open_now)
    said = output.open(TASK, 1)
    output.emit(said, "before ")
    wait_until(lambda: shown(client), within_s=5)
    open_now = False
    output.emit(said, "after")
    output.end(said)
    time.sleep(3 * live.COALESCE_S)
    assert [text for _, _, text in shown(client)] == ["before "]


def test_a_kind_waits_for_nothing_while_redis_is_away_and_it_comes_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and never answers
        output = Live(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", may_send=lambda: True)
        said = output.open(TASK, 1)
        began_s = time.monotonic()
        for _ in range(2000):
            output.emit(said, "piece ")
        assert time.monotonic() - began_s < 0.5
        began_s = time.monotonic()
        output.end(said)
        assert time.monotonic() - began_s < live.LAST_WAIT_S + 0.2
        wait_until(lambda: output._away, within_s=10)
        second = output.open(TASK, 2)
        output.emit(second, "x")
        began_s = time.monotonic()
        output.end(second)  # known to be away: no wait at all
        assert time.monotonic() - began_s < 0.1


def test_output_that_could_not_be_sent_arrives_when_redis_is_back(client: Any, broker_url: str) -> None:
    output = Live(broker_url, may_send=lambda: True)
    said = output.open(TASK, 1)
    output.emit(said, "one ")
    wait_until(lambda: shown(client), within_s=5)
    client.set(KEY + "-wrong", "x")
    client.delete(KEY)
    client.set(KEY, "in the way")  # as unusable as a Redis that is away
    output.emit(said, "two ")
    wait_until(lambda: output._away, within_s=5)
    output.emit(said, "three")
    client.delete(KEY)
    wait_until(lambda: "".join(text for _, _, text in shown(client)) == "two three", within_s=5)
    assert shown(client)[0][:2] == ("1-2", 4)  # its offset shows that four characters are missing
    output.end(said)


def test_without_an_address_nothing_is_sent_and_nothing_fails() -> None:
    output = Live("", may_send=lambda: True)
    said = output.open(TASK, 1)
    output.emit(said, "x")
    output.look([TASK])
    began_s = time.monotonic()
    output.end(said)
    assert time.monotonic() - began_s < 0.1
