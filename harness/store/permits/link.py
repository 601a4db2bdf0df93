"""The way to Redis for permits: a bounded pool with short time-outs, and the knowledge that Redis is away.

Who finds Redis away says so once; the others don't wait for it as well, and one of them tries again every AGAIN_S.
No error of Redis leaves this module: a call that it didn't answer returns None.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError, NoScriptError, RedisError, TimeoutError
from redis.retry import Retry

from harness.store.permits import scripts
from harness.store.permits.scripts import Argument
from harness.telemetry import logs

log = logs.get(__name__)
CONNECTIONS = 9  # of a process, one of which listens; a script takes some 40 us, so they are enough for 64 threads
CONNECT_S = 0.5
ANSWER_S = 1.0  # longer than Redis takes for anything here, shorter than a call's patience
AGAIN_S = 1.0  # between two tries while Redis is away


class Link:
    """A process's connections for permits, for all its threads.

    `on_back`: called by the thread that finds Redis answering again, before anybody else may ask it.
    """

    def __init__(self, url: str, on_back: Callable[[], None]) -> None:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=2 * ANSWER_S,  # for one of them to be free; those that hang are free after ANSWER_S
            socket_connect_timeout=CONNECT_S,
            socket_timeout=ANSWER_S,
            retry=Retry(NoBackoff(), 0),  # who asks decides what may be asked twice
        )
        self.client: Any = redis.Redis(connection_pool=pool)
        self._scripts = {name: self.client.register_script(scripts.text(name)) for name in scripts.NAMES}
        self._on_back = on_back
        self._lock = threading.Lock()
        self._away_until = 0.0  # monotonic; 0.0: it answers
        self._trier = 0  # the thread that tries again

    @property
    def away(self) -> bool:
        """Whether Redis didn't answer at the last try."""
        return self._away_until > 0.0

    def call(
        self, name: str, keys: Sequence[str], args: Sequence[Argument], again: Sequence[Argument] | None = None
    ) -> Any:
        """Run a script. None: Redis is away, and whether it has run the script is not known.

        A connection that broke is replaced once; then the script gets `again` as its arguments, if there are any: the
        first try may have run it.
        """
        script = self._scripts[name]
        second = args if again is None else again
        return self._answer(name, lambda: script(keys=keys, args=args), lambda: script(keys=keys, args=second))

    def several(self, name: str, calls: Sequence[tuple[Sequence[str], Sequence[Argument]]]) -> list[Any] | None:
        """Run a script that does nothing when it is run again many times in one trip. None: Redis is away."""
        script = self._scripts[name]

        def ask() -> list[Any]:  # a pipeline of Script objects asks first whether Redis has them: one more trip
            with self.client.pipeline(transaction=False) as pipe:
                for keys, args in calls:
                    pipe.evalsha(script.sha, len(keys), *keys, *args)
                return list(pipe.execute())

        def run() -> list[Any]:
            try:
                return ask()
            except NoScriptError:
                self.client.script_load(script.script)
                return ask()

        found: list[Any] | None = self._answer(name, run, run)
        return found

    def close(self) -> None:
        """Drop the connections."""
        self.client.close()
        self.client.connection_pool.disconnect()

    def _answer(self, name: str, *tries: Callable[[], Any]) -> Any:
        if self.away and not self._here():
            return None
        for run in tries:
            try:
                return run()
            except TimeoutError:
                break
            except (ConnectionError, OSError):
                continue  # one that lay idle while Redis was started anew breaks at its first use
            except RedisError as error:  # it answers, but not as it should: full, read-only, a script that fails
                log.error("permits_refused_by_redis", script=name, error=f"{type(error).__name__}: {error}"[:500])
                break
        self._lost()
        return None

    def _here(self) -> bool:
        """Look whether Redis is back, if it is time to; one thread looks, and tells it first what it missed."""
        me = threading.get_ident()
        with self._lock:
            if self._trier == me or self._away_until == 0.0:
                return True
            if self._trier or time.monotonic() < self._away_until:
                return False
            self._trier = me
        try:
            self.client.ping()
            self._on_back()
        except (RedisError, OSError):
            self._lost()
            return False
        with self._lock:
            self._trier, self._away_until = 0, 0.0
        return True

    def _lost(self) -> None:
        with self._lock:
            self._away_until = time.monotonic() + AGAIN_S * random.uniform(0.5, 1.0)
            if self._trier == threading.get_ident():
                self._trier = 0
