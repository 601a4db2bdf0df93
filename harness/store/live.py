"""Output of running tasks on its way to those who watch: a Redis stream for each task, and a channel of the same name.

Best effort, by design: a chunk may come late or never when Redis is away, and all of it goes KEPT_S after the last one;
the result in PostgreSQL is what counts. What arrives is in order, each chunk says at which character it begins (so a
reader sees what is missing), and a newer attempt's output replaces the older one's.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import RedisError

from harness.policy.errors import Unavailable
from harness.store import lua

KEPT_S = 900  # after the last chunk
CONNECT_S = 1.0
ANSWER_S = 2.0
CONNECTIONS = 4  # of a web process: one that listens, the others fetch what was said before
LOOK = "look"

Position = tuple[int, int]  # attempt, number of the chunk in it: ordered
START: Position = (0, 0)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of output. `offset`: characters before it in this attempt; `cut`: the limit is reached."""

    task: str
    attempt: int
    number: int
    offset: int
    text: str
    cut: bool = False

    @property
    def position(self) -> Position:
        """Where it stands."""
        return self.attempt, self.number


class LiveWriter:
    """A worker process's way out; used by one thread."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, socket_connect_timeout=CONNECT_S, socket_timeout=ANSWER_S)
        self._emit = self._client.register_script(lua.load("emit"))

    def send(self, chunks: Sequence[Chunk], looks: Iterable[str] = ()) -> None:
        """Send chunks in one pipeline, then tell who watches the tasks `looks` to look at their state.

        A chunk may be sent again after an error. Raises: Unavailable; some may have been sent.
        """
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for chunk in chunks:
                    arguments = (chunk.attempt, chunk.number, chunk.offset, int(chunk.cut), chunk.text, KEPT_S * 1000)
                    self._emit(keys=[_key(chunk.task)], args=arguments, client=pipe)
                for task in looks:
                    pipe.publish(_key(task), LOOK)
                pipe.execute()
        except (RedisError, OSError) as error:
            raise Unavailable(f"Redis doesn't take live output: {type(error).__name__}") from error

    def close(self) -> None:
        """Drop the connection."""
        self._client.close()


class LiveReader:
    """A web process's way in: one connection for all channels, a few for what was said before. For one event loop."""

    def __init__(self, url: str) -> None:
        self._pool: Any = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=ANSWER_S,
            max_connections=CONNECTIONS,
            timeout=ANSWER_S,  # for one of them to be free
        )
        self._client: Any = redis.asyncio.Redis(connection_pool=self._pool)
        self._pubsub: Any = None

    async def history(self, task: str, after: Position = START) -> list[Chunk]:
        """Return what Redis holds of a task's output after a position. Raises: Unavailable."""
        with _away():
            rows = await self._client.xrange(_key(task), min=f"({after[0]}-{after[1]}")
        return [_chunk(task, row_id, fields[b"o"], fields[b"c"], fields[b"t"]) for row_id, fields in rows]

    async def subscribe(self, tasks: Sequence[str]) -> None:
        """Listen to these tasks too. Raises: Unavailable."""
        with _away():
            if self._pubsub is None:
                self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
            await self._pubsub.subscribe(*[_key(task) for task in tasks])

    async def unsubscribe(self, task: str) -> None:
        """Listen to this one no longer."""
        if self._pubsub is not None:
            with contextlib.suppress(RedisError, OSError):
                await self._pubsub.unsubscribe(_key(task))

    async def news(self) -> AsyncIterator[tuple[str, Chunk | None]]:
        """Yield (task, chunk) as they come; without a chunk: look at the task's state. Raises: Unavailable."""
        with _away():
            while True:
                message = await self._pubsub.get_message(timeout=ANSWER_S)
                if message is None:
                    await self._pubsub.ping()  # a connection that nobody uses may be dead without a word
                    continue
                if message["type"] != "message":
                    continue
                task = message["channel"].decode().removeprefix(_key(""))
                head, separator, text = message["data"].partition(b"\n")
                parts = head.split(b" ")
                if separator and len(parts) == 3:
                    yield task, _chunk(task, parts[0], parts[1], parts[2], text)
                else:
                    yield task, None

    async def drop(self) -> None:
        """Drop the connection that listens, after an error."""
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            with contextlib.suppress(RedisError, OSError):
                await pubsub.aclose()

    async def close(self) -> None:
        """Drop all connections."""
        await self.drop()
        with contextlib.suppress(RedisError, OSError):
            await self._client.aclose()
            await self._pool.disconnect()


@contextlib.contextmanager
def _away() -> Any:
    try:
        yield
    except (RedisError, OSError) as error:
        raise Unavailable(f"Redis doesn't answer: {type(error).__name__}") from error


def _key(task: str) -> str:
    return f"harness:live:{task}"


def _chunk(task: str, row_id: bytes, offset: bytes, cut: bytes, text: bytes) -> Chunk:
    attempt, _, number = row_id.partition(b"-")
    return Chunk(task, int(attempt), int(number), int(offset), text.decode("utf-8", "replace"), cut == b"1")
