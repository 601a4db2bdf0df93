"""Wakes who waits for a permit: a thread listens to this process's channel, where Redis says whose turn it is.

Only who may go is woken, so a freed place costs one question, however many wait. What the channel loses is made up for
by asking again (POLL_S; without a channel after 50 to 100 ms). The same thread hears that Redis began another life.
"""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from harness.policy.permits import POLL_S

AWAY_POLL_S = (0.05, 0.1)
LISTEN_S = 5.0  # then a ping: a connection that nobody uses may be dead without a word
AGAIN_S = 0.5


class Bell:
    """The waiting calls of one process."""

    def __init__(self, client: Any, prefix: str, process: str, on_life: Callable[[], None]) -> None:
        self._client = client
        self._wake, self._life = f"{prefix}wake:{process}", f"{prefix}life"
        self._on_life = on_life
        self._waiting: dict[str, tuple[threading.Event, float]] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self._listening = False
        self._pubsub: Any = None

    def expect(self, member: str) -> None:
        """From now on a wake-up of this call is kept until it waits; before it asks, so that none is missed."""
        if member not in self._waiting:
            self._waiting[member] = (threading.Event(), 0.0)
            self._begin()

    def remember(self, member: str, wait_s: float) -> None:
        """The call was refused: asking again makes sense after so many seconds, or when it is woken."""
        found = self._waiting.get(member)
        if found is not None:
            self._waiting[member] = (found[0], wait_s)

    def forget(self, member: str) -> None:
        """It no longer waits."""
        self._waiting.pop(member, None)

    def wait(self, member: str, timeout_s: float) -> bool:
        """Wait for the call's turn, until it makes sense to ask again, or so long. Returns whether it was woken."""
        event, wait_s = self._waiting.get(member, (None, 0.0))
        least, most = AWAY_POLL_S
        poll_s = POLL_S * random.uniform(0.8, 1.0) if self._listening else random.uniform(least, most)
        if wait_s > 0.0:
            poll_s = min(poll_s, wait_s) if self._listening else wait_s
        if event is None:
            event = threading.Event()
        woken = event.wait(max(min(timeout_s, poll_s), 0.0))
        event.clear()
        return woken

    def close(self) -> None:
        """Stop listening."""
        self._stopped.set()
        with suppress(RedisError, OSError, AttributeError):
            self._pubsub.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=AGAIN_S + 1.0)

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="permits", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                self._listen()
            except (RedisError, OSError, ValueError, AttributeError):  # closed under it: the last three
                self._listening = False
                self._stopped.wait(AGAIN_S * random.uniform(0.5, 1.0))

    def _listen(self) -> None:
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        with self._pubsub as channel:
            channel.subscribe(self._wake, self._life)
            while not self._stopped.is_set():
                message = channel.get_message(timeout=LISTEN_S)
                self._listening = True
                if message is None:
                    channel.ping()
                elif message["type"] != "message":  # the answer to a ping
                    continue
                elif message["channel"].decode() == self._life:
                    self._on_life()
                else:
                    event, _ = self._waiting.get(message["data"].decode(), (None, 0.0))
                    if event is not None:
                        event.set()
