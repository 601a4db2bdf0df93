"""One HTTP/1.1 exchange over a connection of its own, to an address that was checked. No redirects, no decoding.

The name is never looked up here: it goes into Host, SNI and the certificate's check, the address gets the connection.
"""

import contextlib
import functools
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address

import certifi
import h11

from harness.kinds.egress.addresses import Address
from harness.kinds.egress.deadline import Deadline
from harness.kinds.egress.outcomes import forbidden, network_error
from harness.kinds.egress.target import Target
from harness.kinds.errors import TimedOut, WorkError

CONNECT_S = 5.0  # for one address; the next one is tried after it
CHUNK_BYTES = 65_536
HEAD_MAX_BYTES = 65_536  # status line and headers; also a chunk's own line
INFORMATIONAL_MAX = 8  # 1xx answers before the real one


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is sent; `headers` by lower-case name, without those that belong to the connection."""

    method: str
    headers: dict[str, str]
    body: bytes | None


class Answer:
    """The head of an answer; `chunks` reads the body as it was sent, without transfer coding."""

    __slots__ = ("_wire", "headers", "status")

    def __init__(self, wire: "_Wire", response: h11.Response) -> None:
        self._wire = wire
        self.status = response.status_code
        self.headers: dict[str, str] = {}
        for name, value in response.headers:
            key, text = name.decode("ascii"), value.decode("latin-1")
            self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def chunks(self) -> Iterator[bytes]:
        """Yield the body. Raises: TimedOut, Transient (network) when it breaks off."""
        while isinstance(event := self._wire.next_event(), h11.Data):
            yield bytes(event.data)


@functools.cache
def default_tls() -> ssl.SSLContext:
    """Return the context that trusts what the system trusts, or certifi's list where the system has none."""
    paths = ssl.get_default_verify_paths()
    context = ssl.create_default_context(cafile=None if paths.cafile or paths.capath else certifi.where())
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextlib.contextmanager
def exchange(
    target: Target, addresses: Sequence[Address], request: Request, deadline: Deadline, tls: ssl.SSLContext
) -> Iterator[Answer]:
    """Send a request to the first address that takes a connection; the connection ends with the block.

    Raises: TimedOut, Transient (network), Permanent (permission) when the certificate isn't valid for the name.
    """
    if tls.verify_mode is not ssl.CERT_REQUIRED or not tls.check_hostname:
        raise ValueError("the TLS context must verify certificates and host names")
    where = f"{target.host}:{target.port}"
    try:
        sock = connect(addresses, target.port, where, deadline)
        try:
            if target.scheme == "https":
                sock.settimeout(deadline.left_s(f"{where}: no TLS handshake"))
                sock = tls.wrap_socket(sock, server_hostname=target.host)
            wire = _Wire(sock, where, deadline)
            wire.send(target, request)
            yield Answer(wire, wire.response())
        finally:
            sock.close()
    except WorkError:
        raise
    except TimeoutError as error:
        raise TimedOut(f"{where}: no TLS handshake in time") from error
    except ssl.SSLCertVerificationError as error:
        raise forbidden(f"{where}: its certificate isn't valid for it ({error.verify_message})") from error
    except OSError as error:
        raise network_error(f"{where}: the connection broke ({error})") from error
    except h11.RemoteProtocolError as error:
        raise network_error(f"{where}: no whole HTTP answer ({error})") from error


def connect(addresses: Sequence[Address], port: int, where: str, deadline: Deadline) -> socket.socket:
    """Connect to the first address that takes it. Raises: TimedOut, Transient (network)."""
    failed: OSError = ConnectionError("no address")
    for address in addresses:
        family = socket.AF_INET6 if isinstance(address, IPv6Address) else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # the machine has no IPv6
            failed = error
            continue
        try:
            sock.settimeout(min(CONNECT_S, deadline.left_s(f"{where}: no connection")))
            sock.connect((str(address), port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock
        except OSError as error:
            failed = error
            sock.close()
        except BaseException:
            sock.close()
            raise
    if isinstance(failed, TimeoutError):
        raise TimedOut(f"{where}: no connection in time") from failed
    raise network_error(f"{where}: no connection ({failed})") from failed


class _Wire:
    """h11 over a socket, every wait under the deadline."""

    __slots__ = ("_deadline", "_http", "_sock", "_where")

    def __init__(self, sock: socket.socket, where: str, deadline: Deadline) -> None:
        self._sock = sock
        self._where = where
        self._deadline = deadline
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX_BYTES)

    def send(self, target: Target, request: Request) -> None:
        headers = {"host": target.authority, **request.headers, "connection": "close"}
        if request.body is not None:
            headers["content-length"] = str(len(request.body))
        data = self._http.send(h11.Request(method=request.method, target=target.path, headers=list(headers.items())))
        assert data is not None
        if request.body:
            data += self._http.send(h11.Data(data=request.body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        # A server may refuse and close before it has read everything: its answer still counts.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send_all(memoryview(data))

    def response(self) -> h11.Response:
        for _ in range(INFORMATIONAL_MAX):
            event = self.next_event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                break
        raise network_error(f"{self._where}: no whole HTTP answer")

    def next_event(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(self._receive())
            elif isinstance(event, h11.Event):
                return event
            else:
                raise network_error(f"{self._where}: no whole HTTP answer")

    def _receive(self) -> bytes:
        while True:
            self._sock.settimeout(self._deadline.next_s(f"{self._where}: no whole answer"))
            try:
                return self._sock.recv(CHUNK_BYTES)
            except TimeoutError:
                continue

    def _send_all(self, data: memoryview) -> None:
        while data:
            self._sock.settimeout(self._deadline.next_s(f"{self._where}: the request wasn't taken"))
            try:
                data = data[self._sock.send(data) :]
            except TimeoutError:
                continue
