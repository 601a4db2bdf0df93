"""Room for connections: no more than its size, each wait measured, and who must end doesn't keep waiting."""

import threading

import pytest

from harness.engine.room import Room
from harness.kinds.errors import Cancelled
from tests.stage import wait_until


def nothing() -> None:
    """Nobody wants it to stop."""


def test_the_wait_for_a_connection_is_measured_and_bounded_by_the_size() -> None:
    waits: list[float] = []
    room = Room(2, waits.append)
    most, inside, lock = [0], [0], threading.Lock()
    go = threading.Event()

    def use() -> None:
        room.enter(nothing)
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        go.wait(5)
        with lock:
            inside[0] -= 1
        room.leave()

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: room.waiting == 4, within_s=5)
    assert (inside[0], waits) == (2, [0.0, 0.0])
    go.set()
    for thread in threads:
        thread.join(5)
    assert most[0] == 2 and room.in_use == room.waiting == 0
    assert len(waits) == 6 and sum(wait > 0 for wait in waits) == 4


def test_who_must_end_while_it_waits_leaves_no_place_taken() -> None:
    room = Room(1, lambda waited_s: None)
    room.enter(nothing)

    def cancelled() -> None:
        raise Cancelled("cancel")

    with pytest.raises(Cancelled):
        room.enter(cancelled)
    room.leave()
    assert room.in_use == room.waiting == 0
    room.enter(cancelled)  # there is room: nobody is asked
