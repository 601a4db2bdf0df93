"""Calls that can be left: each runs on a thread beside the task's own, so that a wish doesn't wait for a server.

A thread that is stuck in a server's silence can't be stopped, only left. Its call goes on under its own token and
counts in its slot until it returns (engine.execute keeps the lease as a zombie); it begins nothing more, because every
look at the context from there raises. An attempt keeps one such thread for all its calls; idle ones are reused.

Invariants: a call ends once, either for its task or, left, for nobody; a left thread ends with its call.
"""

import threading
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from queue import Empty, SimpleQueue
from typing import Any, Protocol

IDLE_S = 30.0  # an idle thread costs some 50 KB; a burst's threads go away
LEAVE_AFTER_S = 0.2  # a call that looks at its context (a stream, piece by piece) ends by itself and tells what it used

_current: ContextVar["Call | None"] = ContextVar("harness_call", default=None)


class Stirred(Protocol):
    """What is under way for a task, and is to look again when the task is to end."""

    def stir(self) -> None:
        """Look again. Never waits."""
        ...


def is_left() -> bool:
    """Whether the code that asks runs in a call that its task has left."""
    call = _current.get()
    return call is not None and call.left


class Call:
    """One call under way."""

    __slots__ = ("_context", "_error", "_fn", "_lock", "_result", "_wake", "done", "left", "when_over")

    def __init__(self, fn: Callable[[], Any], when_over: Callable[["Call"], None]) -> None:
        self._fn = fn
        self._context = copy_context()
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self.done = False
        self.left = False
        self.when_over = when_over  # called, on the call's thread, when a call that was left returns

    def stir(self) -> None:
        """Let who waits look again."""
        self._wake.set()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it is done, or someone stirs, or so many seconds have passed."""
        self._wake.wait(timeout_s)
        self._wake.clear()
        if self.done:
            self._wake.set()

    def leave(self) -> bool:
        """Leave it. False: it is done already, and its outcome counts."""
        with self._lock:
            self.left = not self.done
            return self.left

    def outcome(self) -> Any:
        """Return what it returned. Raises: what it raised."""
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def run(self) -> None:
        """Do it; on the call's thread."""
        try:
            self._result = self._context.run(self._do)
        except BaseException as error:  # noqa: BLE001  # whatever it is, the task's own thread raises it
            self._error = error
        with self._lock:
            self.done = True
        self._wake.set()
        if self.left:
            self._error = self._result = None
            self.when_over(self)

    def _do(self) -> Any:
        _current.set(self)
        return self._fn()


class Hand:
    """A thread for calls, one at a time."""

    __slots__ = ("_box", "_hands")

    def __init__(self, hands: "Hands") -> None:
        self._box: SimpleQueue[Call] = SimpleQueue()
        self._hands = hands
        threading.Thread(target=self._work, name="call", daemon=True).start()

    def begin(self, call: Call) -> None:
        """Begin a call; the one before must be over."""
        self._box.put(call)

    def _work(self) -> None:
        while True:
            try:
                call = self._box.get(timeout=IDLE_S)
            except Empty:
                if self._hands.retire(self):
                    return
                continue
            call.run()
            if call.left:
                return
            del call  # an idle thread keeps nothing of it alive


class Hands:
    """The threads for calls of one process: as many as calls are under way at once, reused."""

    def __init__(self) -> None:
        self._idle: list[Hand] = []
        self._lock = threading.Lock()

    def take(self) -> Hand:
        """Return an idle thread, or a new one."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return Hand(self)

    def give_back(self, hand: Hand) -> None:
        """Let others use it. Never one whose call was left."""
        with self._lock:
            self._idle.append(hand)

    def retire(self, hand: Hand) -> bool:
        """Whether an idle thread may end: nobody has taken it."""
        with self._lock:
            if hand in self._idle:
                self._idle.remove(hand)
                return True
        return False
