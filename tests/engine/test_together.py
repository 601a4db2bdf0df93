"""Statements run together: everybody gets their own answer, and an error reaches all that it concerns."""

import threading
from collections.abc import Sequence

import pytest

from harness.engine.together import Together


def test_each_of_many_threads_gets_its_own_answer_and_few_rounds_are_run() -> None:
    rounds: list[int] = []
    first_is_in, go_on = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> list[int]:
        rounds.append(len(items))
        first_is_in.set()
        assert go_on.wait(10)
        return [item * 10 for item in items]

    together: Together[int, int] = Together(work, lanes=1, most=8)
    answers: dict[int, int] = {}

    def ask(item: int) -> None:
        answers[item] = together.run(item)

    threads = [threading.Thread(target=ask, args=(item,)) for item in range(17)]
    threads[0].start()
    assert first_is_in.wait(10)
    for thread in threads[1:]:
        thread.start()
    while len(together._waiting) < 16:
        threads[1].join(0.001)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert answers == {item: item * 10 for item in range(17)}
    assert rounds == [1, 8, 8]


def test_one_alone_is_served_in_its_own_thread() -> None:
    together: Together[int, int] = Together(lambda items: [threading.get_ident() for _ in items], lanes=1)
    assert together.run(1) == threading.get_ident()


def test_an_error_reaches_all_in_that_company_and_nobody_after() -> None:
    def work(items: Sequence[int]) -> list[int]:
        if 13 in items:
            raise ValueError("unlucky")
        return list(items)

    together: Together[int, int] = Together(work, lanes=1)
    with pytest.raises(ValueError, match="unlucky"):
        together.run(13)
    assert together.run(7) == 7


def test_no_more_rounds_than_lanes_run_at_once_under_a_crowd() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def work(items: Sequence[int]) -> list[int]:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        answers = [sum(range(200 + item)) for item in items]
        with lock:
            running -= 1
        return answers

    together: Together[int, int] = Together(work, lanes=2)
    wrong: list[int] = []

    def ask(base: int) -> None:
        wrong.extend(item for item in range(base, base + 200) if together.run(item) != sum(range(200 + item)))

    threads = [threading.Thread(target=ask, args=(base,)) for base in range(0, 1600, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert most <= 2
    assert (together._free, together._waiting) == (2, [])
