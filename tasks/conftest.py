"""A context for the kinds' own tests: real objects, no queue behind it."""

import contextlib
import inspect
import io
import json
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, TypeVar

import psycopg
import pytest

from harness.kinds import DENIED, Asked, Cancelled, Child, Children, Context, Permanent, calling, folders, models
from harness.kinds.artifacts import Artifact, Content
from harness.kinds.documents import Chunk, Filters, Found, NewDocument

T = TypeVar("T")


class Shelf:
    """The `Documents` and `Artifacts` of a context without a store: what was put, and files below `roots`."""

    def __init__(self) -> None:
        self.roots: tuple[str, ...] = ()
        self.documents: dict[str, tuple[NewDocument, list[Chunk]]] = {}
        self.uploads: dict[str, tuple[Artifact, bytes]] = {}

    def open_file(self, path: str) -> BinaryIO:
        return folders.open_file(self.roots, path)

    def files(self, folder: str, *, most: int) -> folders.Listed:
        return folders.files(self.roots, folder, most=most)

    def put(self, document: NewDocument, chunks: Sequence[Chunk]) -> str:
        self.documents[document.sha256] = (document, list(chunks))
        return document.sha256

    def search(self, query: str, limit: int, filters: Filters) -> Found:
        raise AssertionError("searching needs the store: see tests/store/test_documents.py")

    def add(self, name: str, content: bytes, content_type: str = "application/octet-stream") -> str:
        number = f"00000000-0000-4000-8000-{len(self.uploads):012}"
        about = Artifact(
            id=number, name=name, content_type=content_type, bytes=len(content), sha256="", expires_at=datetime.now(UTC)
        )
        self.uploads[number] = (about, content)
        return number


class Uploads:
    """The shelf's uploads as `Artifacts`."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def put(self, name: str, content_type: str, content: Content, *, keep_s: float | None = None) -> Artifact:
        whole = bytes(content) if isinstance(content, bytes | bytearray | memoryview) else b"".join(content)
        return self.find(self._shelf.add(name, whole, content_type))

    def find(self, artifact_id: str) -> Artifact:
        if artifact_id not in self._shelf.uploads:
            raise Permanent(f"there is no artifact {artifact_id}")
        return self._shelf.uploads[artifact_id][0]

    def open(self, artifact_id: str) -> BinaryIO:
        self.find(artifact_id)
        return io.BytesIO(self._shelf.uploads[artifact_id][1])


class Told:
    """What calls said of themselves: tokens used, and headers of answers."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.heard: list[Mapping[str, str]] = []

    def used(self, tokens: int, resource: str = "") -> None:
        self.tokens.append(tokens)

    def headers(self, headers: Mapping[str, str]) -> None:
        self.heard.append(headers)


class Alone:
    """A `Context` for one call of a kind: steps and calls go straight through, `stop` plays a person's cancel."""

    def __init__(self, connection: "psycopg.Connection[Any] | None" = None, *, tenant_id: int = 1) -> None:
        self.calls: list[str] = []
        self.steps: list[str] = []
        self.recorded: dict[str, Any] = {}  # results of steps that an earlier attempt finished, by name
        self._inside: str | None = None
        self.shown: list[str] = []
        self.used: list[tuple[str, int, int]] = []
        self.costs: list[int | Mapping[str, int]] = []
        self.told = Told()
        self.stop = False
        self.spawned: list[tuple[str, object]] = []
        self.child: Callable[[str, object], Any] = lambda kind, payload: None  # what a child returns; it may raise
        self.questions: list[str] = []
        self.answers: list[str] = []  # what people say to them, in order
        self.form = ""
        self.documents = Shelf()
        self.artifacts = Uploads(self.documents)
        self._connection = connection
        self._tenant_id = tenant_id

    @property
    def task_id(self) -> str:
        return "00000000-0000-4000-8000-000000000001"

    @property
    def tenant_id(self) -> int:
        return self._tenant_id

    @property
    def token(self) -> str:
        return "token-1" if self._inside is None else f"token-1-{self._inside}"

    def cancelled(self) -> bool:
        return self.stop

    def checkpoint(self) -> None:
        if self.stop:
            raise Cancelled

    def step(self, name: str, fn: Callable[[], T], *, key: str = "") -> T:
        self.checkpoint()
        if name in self.recorded:
            recorded: T = self.recorded[name]
            return recorded
        assert name.isprintable() and 0 < len(name) <= 100, f"no step may be called {name!r}"
        self.steps.append(name)
        self._inside = name
        try:
            made = fn()
        finally:
            self._inside = None
        self.recorded[name] = made
        assert json.loads(json.dumps(made)) == made, f"the result of step {name!r} is no plain JSON"
        return made

    def spawn(
        self, kind: str, payloads: Iterable[object], *, priority: int | None = None, name: str = "", key: str = ""
    ) -> Children:
        first = len(self.spawned)
        self.spawned += [(kind, payload) for payload in payloads]
        return Children(kind=kind, ranges=((first, len(self.spawned) - first),))

    def gather(
        self,
        *batches: Children,
        policy: Literal["all", "any"] | int = "all",
        on_failure: Literal["return", "fail"] = "return",
        name: str = "gather",
        key: str = "",
    ) -> list[Child]:
        ranges = [one for batch in batches for one in batch.ranges] if batches else [(0, len(self.spawned))]
        return [self._gathered(at, on_failure) for first, n in ranges for at in range(first, first + n)]

    def _gathered(self, at: int, on_failure: str) -> Child:
        kind, payload = self.spawned[at]
        number = f"00000000-0000-4000-8001-{at:012}"
        try:
            return Child(task_id=number, kind=kind, state="succeeded", output=self.child(kind, payload))
        except Permanent as error:
            if on_failure == "fail":
                raise
            told = {"class": str(error.error_class), "message": str(error)}
            return Child(task_id=number, kind=kind, state="failed_terminal", error=told)

    def ask(
        self,
        prompt: str,
        *,
        choices: Sequence[str] = ("approved",),
        timeout_s: float | None = None,
        on_timeout: str = "pause",
        deny: str = "cancel",
        name: str = "ask",
    ) -> str:
        self.checkpoint()
        self.questions.append(prompt)
        if not self.answers:
            raise Asked(len(self.questions), prompt, timeout_s)
        answer = self.answers.pop(0)
        assert answer in (*choices, DENIED), f"{answer!r} isn't one of {choices}"
        return answer

    def call(self, resource: str | tuple[str, ...], fn: Callable[..., T], *, cost: int | Mapping[str, int] = 0) -> T:
        self.calls += [resource] if isinstance(resource, str) else resource
        self.costs.append(cost)
        with calling.inside(self.told):
            return fn(self.told) if _takes_call(fn) else fn()

    async def acall(
        self,
        resource: str | tuple[str, ...],
        fn: Callable[..., Awaitable[T]],
        *,
        cost: int | Mapping[str, int] = 0,
    ) -> T:
        return await self.call(resource, fn, cost=cost)

    def emit(self, text: str) -> None:
        self.shown.append(text)

    def spent(self, model: str, tokens_in: int, tokens_out: int) -> float | None:
        self.used.append((model, tokens_in, tokens_out))
        return models.configured().cost_usd(model, tokens_in, tokens_out)

    @contextlib.contextmanager
    def db(self) -> "Iterator[psycopg.Connection[Any]]":
        if self._connection is None:
            raise AssertionError("this test gave its context no connection")
        with self._connection.transaction():
            yield self._connection

    @contextlib.contextmanager
    def target(self, name: str) -> "Iterator[psycopg.Connection[Any]]":
        self.calls.append(name)
        with self.db() as connection:
            yield connection


def _takes_call(fn: Callable[..., Any]) -> bool:
    return any(one.default is one.empty for one in inspect.signature(fn).parameters.values())


@pytest.fixture
def ctx() -> Context:
    return Alone()


@pytest.fixture
def alone() -> type[Alone]:
    return Alone


@pytest.fixture
def connection(request: pytest.FixtureRequest) -> "Iterator[psycopg.Connection[Any]]":
    """A connection to the migrated test database, where `task` is a table of the test's own: without triggers.

    For tests marked `django_db`: the mark makes the database.
    """
    if not request.config.pluginmanager.has_plugin("django"):
        pytest.skip("the database comes with pytest-django and tests.servers")
    with psycopg.connect(os.environ["DATABASE_URL"]) as connected:
        connected.execute(
            "CREATE TEMP TABLE task (LIKE public.task INCLUDING DEFAULTS INCLUDING IDENTITY INCLUDING INDEXES)"
        )
        yield connected
        connected.rollback()
