"""As much of HTTP/1.1 as a client of a model provider speaks: requests out of bytes, whatever pieces they come in.

By hand, because the emulator must cost less than what is measured against it, and because a connection must be
droppable in the middle of an answer. No network here: `Parser` is fed, and says what is complete.
"""

import http
from dataclasses import dataclass

HEAD_MAX_BYTES = 64 * 1024
BODY_MAX_BYTES = 8 * 1024 * 1024  # far above any prompt that Harness would send

_REASONS = {status.value: status.phrase for status in http.HTTPStatus}


class Malformed(Exception):
    """Bytes that are no request; the connection can't go on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A request, its path without the query. `malformed`: it is none, and the connection ends with the answer."""

    method: str
    path: str
    body: bytes
    keep_alive: bool
    malformed: Malformed | None = None


@dataclass(slots=True)
class _Head:
    method: str
    path: str
    keep_alive: bool
    length: int = 0
    chunked: bool = False
    expects: bool = False


class Parser:
    """The bytes of one connection. `expects` is true when the client waits for `100 Continue`."""

    __slots__ = ("_buffer", "_chunks", "_chunks_bytes", "_head", "expects")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._chunks: list[bytes] = []
        self._chunks_bytes = 0
        self.expects = False

    def feed(self, data: bytes) -> None:
        """Add bytes as they came."""
        self._buffer += data

    @property
    def waiting_bytes(self) -> int:
        """How much was fed and not yet taken."""
        return len(self._buffer)

    def next(self) -> Request | None:
        """Return the next request that is complete, or None. Raises: Malformed."""
        head = self._head or self._read_head()
        if head is None:
            return None
        body = self._read_chunks() if head.chunked else self._take(head.length)
        if body is None:
            self.expects, head.expects = head.expects, False
            return None
        self._head = None
        return Request(head.method, head.path, body, head.keep_alive)

    def _take(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _read_head(self) -> _Head | None:
        while self._buffer.startswith(b"\r\n"):  # some clients end a body with one too many
            del self._buffer[:2]
        end = self._buffer.find(b"\r\n\r\n")
        if end > HEAD_MAX_BYTES or (end < 0 and len(self._buffer) > HEAD_MAX_BYTES):
            raise Malformed(431, f"the head is larger than {HEAD_MAX_BYTES} bytes")
        if end < 0:
            return None
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        self._head = _head_of(lines)
        return self._head

    def _read_chunks(self) -> bytes | None:
        while True:
            end = self._buffer.find(b"\r\n")
            if end < 0:
                if len(self._buffer) > 1024:
                    raise Malformed(400, "a chunk without its size")
                return None
            try:
                size = int(self._buffer[:end].partition(b";")[0], 16)
            except ValueError:
                raise Malformed(400, "a chunk without its size") from None
            if size < 0 or self._chunks_bytes + size > BODY_MAX_BYTES:
                raise Malformed(413, f"the body is larger than {BODY_MAX_BYTES} bytes")
            if size == 0:
                return self._end_of_chunks(end)
            if len(self._buffer) < end + 2 + size + 2:
                return None
            self._chunks.append(bytes(self._buffer[end + 2 : end + 2 + size]))
            self._chunks_bytes += size
            del self._buffer[: end + 2 + size + 2]

    def _end_of_chunks(self, end: int) -> bytes | None:
        # Trailers may follow, up to an empty line.
        if self._buffer[end : end + 4] == b"\r\n\r\n":
            last = end + 4
        else:
            found = self._buffer.find(b"\r\n\r\n", end)
            if found < 0:
                if len(self._buffer) > HEAD_MAX_BYTES:
                    raise Malformed(431, "trailers without an end")
                return None
            last = found + 4
        del self._buffer[:last]
        body = b"".join(self._chunks)
        self._chunks, self._chunks_bytes = [], 0
        return body


def _head_of(lines: list[str]) -> _Head:
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise Malformed(400, "the first line is no request of HTTP/1.1")
    head = _Head(parts[0], parts[1].partition("?")[0], parts[2] != "HTTP/1.0")
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon:
            raise Malformed(400, "a header without a colon")
        match name.lower():
            case "content-length":
                value = value.strip()
                if not (value.isascii() and value.isdigit()) or len(value) > 18:
                    raise Malformed(400, "content-length is no number")
                head.length = int(value)
            case "transfer-encoding":
                if value.strip().lower() != "chunked":
                    raise Malformed(501, "transfer-encoding: only chunked is known")
                head.chunked = True
            case "connection":
                head.keep_alive = "close" not in value.lower() and (head.keep_alive or "keep-alive" in value.lower())
            case "expect":
                head.expects = value.strip().lower() == "100-continue"
            case _:
                pass
    if head.length > BODY_MAX_BYTES:
        raise Malformed(413, f"the body is larger than {BODY_MAX_BYTES} bytes")
    return head


def head(status: int, lines: bytes, *, content_type: bytes, length: int | None, keep_alive: bool) -> bytes:
    """Return the head of an answer. `length` None: chunks follow. `lines` are whole header lines."""
    reason = _REASONS.get(status, "Unknown")
    size = b"transfer-encoding: chunked" if length is None else b"content-length: %d" % length
    close = b"" if keep_alive else b"connection: close\r\n"
    return b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\n%s\r\n%s%s\r\n" % (
        status, reason.encode(), content_type, size, close, lines,
    )  # fmt: skip


def chunk(data: bytes) -> bytes:
    """Return data as one chunk. Empty data would end the body."""
    return b"%x\r\n%s\r\n" % (len(data), data) if data else b""


LAST_CHUNK = b"0\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
