"""Content codings, decoded in bounded steps: never more bytes at once than there is room for. Pure.

gzip and deflate, one of them at a time: what else a server sends wasn't asked for and is refused.
"""

import zlib

from harness.kinds.errors import Permanent

ACCEPT = "gzip, deflate"
_WINDOW = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_RAW_DEFLATE = -15


class Decoder:
    """One body. Feed it in order; then ask whether it is `whole`."""

    __slots__ = ("_began", "_coding", "_inflate")

    def __init__(self, coding: str) -> None:
        """Raises: Permanent for a coding that wasn't asked for."""
        self._coding = coding.strip().lower()
        self._began = False
        self._inflate = None
        if self._coding not in ("", "identity"):
            if self._coding not in _WINDOW:
                raise Permanent(f"the answer's content-encoding {self._coding[:60]!r} wasn't asked for ({ACCEPT} were)")
            self._inflate = zlib.decompressobj(_WINDOW[self._coding])

    @property
    def whole(self) -> bool:
        """Whether the body ended where its coding says so."""
        return self._inflate is None or not self._began or self._inflate.eof

    def feed(self, data: bytes, room: int) -> bytes:
        """Return what `data` decodes to, at most `room + 1` bytes: more than `room` means that it doesn't fit.

        >>> packed = zlib.compress(b"x" * 1000)
        >>> len(Decoder("deflate").feed(packed, 1000)), len(Decoder("deflate").feed(packed, 10))
        (1000, 11)
        """
        if self._inflate is None:
            return data[: room + 1]
        out = bytearray()
        while data and len(out) <= room:
            if self._inflate.eof:  # gzip may go on with another member; zeros are padding
                data = data.lstrip(b"\0") if self._coding != "deflate" else b""
                if not data:
                    break
                self._inflate = zlib.decompressobj(_WINDOW[self._coding])
            try:
                out += self._inflate.decompress(data, room + 1 - len(out))
            except zlib.error as error:
                if self._began or self._coding != "deflate":
                    raise Permanent(f"the answer's {self._coding} content is broken") from error
                # "deflate" should be zlib's format; some servers send it bare.
                self._inflate = zlib.decompressobj(_RAW_DEFLATE)
                self._began = True
                continue
            self._began = True
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
        return bytes(out)
