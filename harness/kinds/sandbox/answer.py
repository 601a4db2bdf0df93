"""What the launcher hands over, read with distrust: the code could have written it.

Lines and bytes beyond the limits, names that are none, and whatever can't be read end the run as `Forged`.
"""

import json
import re
import tempfile
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from harness.kinds.sandbox.limits import Limits

LINE_BYTES: Final = 64 * 1024
IN_MEMORY_BYTES: Final = 256 * 1024
_NAME: Final = re.compile(r"[^/\x00]{1,200}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Produced:
    """A file that the code left. `content` stands at its beginning."""

    name: str
    bytes: int
    content: BinaryIO


class Forged(Exception):
    """The answer isn't one: the code has written it, or killed who writes it."""


class Answer:
    """The answer so far; `take` bytes as they come."""

    def __init__(self, limits: Limits) -> None:
        self.ready = False
        self.over = False
        self.exit_code: int | None = None
        self.why = ""
        self.left_out: list[tuple[str, str]] = []
        self.produced: list[Produced] = []
        self._limits = limits
        self._line = bytearray()
        self._file: Produced | None = None
        self._left = 0
        self._total = 0

    def take(self, data: bytes) -> None:
        """Take what came; b"": it has ended. Raises: Forged."""
        if not data:
            if not self.over:
                raise Forged("it ended in the middle")
            return
        view = memoryview(data)
        while view and not self.over:
            if self._file is not None:
                part = view[: self._left]
                self._file.content.write(part)
                self._left -= len(part)
                view = view[len(part) :]
            else:
                head, newline, rest = bytes(view).partition(b"\n")
                self._line += head
                if len(self._line) > LINE_BYTES:
                    raise Forged("a line has no end")
                view = memoryview(rest)
                if newline:
                    self._read(bytes(self._line))
                    self._line.clear()
            if self._file is not None and not self._left:
                self._file.content.seek(0)
                self._file = None

    def close(self) -> None:
        """Let the files go."""
        for one in self.produced:
            one.content.close()

    def _read(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            if "file" in told:
                self._begin(told["file"], told["bytes"])
            elif "exit" in told:
                self._end(told)
            else:
                self.ready = bool(told["ready"])
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Forged("a line can't be read") from None

    def _begin(self, name: Any, size: Any) -> None:
        limits = self._limits
        if (
            not (isinstance(name, str) and _NAME.fullmatch(name) and name.isprintable())
            or type(size) is not int
            or size < 0
        ):
            raise Forged("a file without a name or size")
        if name.strip(". ") == "" or name in [one.name for one in self.produced]:
            raise Forged("a file without a name of its own")
        self._total += size
        if len(self.produced) >= limits.results or self._total > limits.results_bytes:
            raise Forged("more files than may be")
        # Unlinked from the beginning: it goes with this process.
        content: Any = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  # closed by who takes it
        self._file = Produced(name=name, bytes=size, content=content)
        self._left = size
        self.produced.append(self._file)

    def _end(self, told: dict[str, Any]) -> None:
        code = told["exit"]
        self.exit_code = int(code) if code is not None else None
        self.why = str(told.get("why", ""))[:200]
        self.left_out = [(str(name)[:200], str(why)[:200]) for name, why in told.get("left_out", [])[:100]]
        self.over = True
