"""Statements of several threads, run together: whoever comes while one is under way joins the next.

A thread that finds nobody at work runs its own at once, so one task alone waits for nothing. Under load, sixteen
threads that would each pay for a statement and a commit share a few; that is what makes unbundled work cheap.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class _Place(Generic[Item, Answer]):
    """One thread's item, and how it hears of its answer or that it is its turn to run."""

    __slots__ = ("answer", "error", "item", "turn")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.turn = threading.Lock()
        self.turn.acquire()
        self.answer: list[Answer] = []
        self.error: BaseException | None = None


class Together(Generic[Item, Answer]):
    """Runs `work` on all items that are waiting, at most `lanes` at a time, in the thread of one of them.

    `work` gives one answer an item, in order. When it raises, everybody in that company gets the error.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Answer]], *, lanes: int, most: int = 32) -> None:
        self._work = work
        self._most = most
        self._free = lanes
        self._lock = threading.Lock()
        self._waiting: list[_Place[Item, Answer]] = []

    def run(self, item: Item) -> Answer:
        """Have the item worked on, alone or in company. Raises: what `work` raises."""
        place: _Place[Item, Answer] = _Place(item)
        with self._lock:
            if self._free:
                self._free -= 1
                company = [place]
            else:
                self._waiting.append(place)
                company = []
        if not company:
            place.turn.acquire()  # until someone has answered, or says that it is our turn
            if not place.answer and place.error is None:
                with self._lock:
                    company = [place, *self._waiting[: self._most - 1]]
                    del self._waiting[: self._most - 1]
        if company:
            self._serve(company)
        if place.error is not None:
            raise place.error
        return place.answer[0]

    def _serve(self, company: list[_Place[Item, Answer]]) -> None:
        try:
            for place, answer in zip(company, self._work([place.item for place in company]), strict=True):
                place.answer.append(answer)
        except BaseException as error:  # noqa: BLE001  # it is raised again in every thread that is concerned
            for place in company:
                place.error = error
        with self._lock:
            following = self._waiting.pop(0) if self._waiting else None
            if following is None:
                self._free += 1
        for place in company[1:]:
            place.turn.release()
        if following is not None:
            following.turn.release()
