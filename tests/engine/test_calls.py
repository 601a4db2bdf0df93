"""A call runs beside its task, ends once, and can be left; what is left begins nothing."""

import threading
import time
from contextvars import ContextVar

import pytest

from harness.engine.calls import Call, Hands, is_left

NAME: ContextVar[str] = ContextVar("name", default="nobody")


def nothing(call: Call) -> None:
    """It was left, and is over."""


def done(call: Call) -> object:
    while not call.done:
        call.wait()
    return call.outcome()


def test_a_call_returns_raises_and_knows_its_tasks_variables() -> None:
    hand = Hands().take()
    NAME.set("mine")
    call = Call(NAME.get, nothing)
    hand.begin(call)
    assert done(call) == "mine"

    def fail() -> None:
        raise KeyboardInterrupt("its own")

    call = Call(fail, nothing)
    hand.begin(call)
    with pytest.raises(KeyboardInterrupt, match="its own"):
        done(call)


def test_one_thread_serves_all_calls_of_an_attempt_and_then_another() -> None:
    hands = Hands()
    seen = []
    for _ in range(3):
        hand = hands.take()
        for _ in range(3):
            call = Call(threading.get_ident, nothing)
            hand.begin(call)
            seen.append(done(call))
        hands.give_back(hand)
    assert len(set(seen)) == 1 and seen[0] != threading.get_ident()


def test_a_call_that_was_left_knows_it_and_its_end_is_told_once() -> None:
    go, over = threading.Event(), threading.Event()
    looked: list[bool] = []
    ends: list[Call] = []

    def late() -> None:
        looked.append(is_left())
        go.wait()
        looked.append(is_left())

    def end(call: Call) -> None:
        ends.append(call)
        over.set()

    call = Call(late, end)
    Hands().take().begin(call)
    while not looked:
        time.sleep(0.001)
    assert call.leave() and call.left
    go.set()
    assert over.wait(5)
    assert looked == [False, True] and ends == [call] and not is_left()


def test_a_call_is_either_done_or_left_however_close_it_is() -> None:
    hands = Hands()
    told: list[Call] = []
    left = 0
    for _ in range(500):
        hand = hands.take()
        call = Call(lambda: 1, told.append)
        hand.begin(call)
        if call.leave():
            left += 1
        else:
            assert call.outcome() == 1
            hands.give_back(hand)
    end_s = time.monotonic() + 5
    while len(told) < left and time.monotonic() < end_s:
        time.sleep(0.001)
    assert len(told) == left


def test_an_idle_thread_retires_and_a_taken_one_does_not() -> None:
    hands = Hands()
    hand = hands.take()
    assert not hands.retire(hand)
    hands.give_back(hand)
    assert hands.retire(hand) and not hands.retire(hand)


def test_a_call_costs_less_than_a_millisecond() -> None:
    hand = Hands().take()
    began_s = time.monotonic()
    for _ in range(500):
        call = Call(int, nothing)
        hand.begin(call)
        done(call)
    assert (time.monotonic() - began_s) / 500 < 0.005, "five times what it takes on a busy machine"
