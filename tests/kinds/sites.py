"""Real servers on loopback for tests of what speaks HTTP: scripted sites, and raw ones that break the rules."""

import contextlib
import datetime
import http.server
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from harness.kinds.egress import Rules, fetch


@dataclass
class Page:
    """One scripted answer."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "text/plain"})


@dataclass
class Seen:
    """One request that came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Site:
    """`pages` by path; a list is answered one after the other, the last one again and again."""

    def __init__(self, port: int, scheme: str = "http") -> None:
        self.port = port
        self.scheme = scheme
        self.pages: dict[str, Page | list[Page]] = {}
        self.seen: list[Seen] = []
        self.names: list[str | None] = []  # as SNI gave them

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    @property
    def rules(self) -> Rules:
        """Only this site may be reached."""
        return Rules(endpoints=frozenset({("127.0.0.1", self.port)}))

    @property
    def allow(self) -> str:
        """The same as the environment has it."""
        return f"127.0.0.1:{self.port}"

    def answer(self, path: str) -> Page:
        page = self.pages.get(path, Page(b"not here", 404))
        if isinstance(page, list):
            return page.pop(0) if len(page) > 1 else page[0]
        return page


@contextlib.contextmanager
def site(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """A scripted site on a port of its own."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.seen.append(Seen(self.command, self.path, headers, body))
            page = found.answer(self.path.split("?")[0])
            self.send_response(page.status)
            for name, value in page.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(page.body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a client that has had enough hangs up
                if self.command != "HEAD":
                    self.wfile.write(page.body)

        def do_POST(self) -> None:
            self.do_GET()

        def do_HEAD(self) -> None:
            self.do_GET()

        def log_message(self, *args: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *args: object) -> None:
            pass  # a refused handshake is what some tests want

        def finish_request(self, request: Any, client_address: Any) -> None:
            if tls is None:
                super().finish_request(request, client_address)
            else:
                with tls.wrap_socket(request, server_side=True) as wrapped:
                    super().finish_request(wrapped, client_address)

    with Server(("127.0.0.1", 0), Handler) as server:
        found = Site(server.server_port, "http" if tls is None else "https")
        if tls is not None:
            tls.sni_callback = lambda _socket, name, _context: found.names.append(name)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield found
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def raw(answer: Callable[[socket.socket], None]) -> Iterator[Site]:
    """A server that reads a request's head and then does with the connection what `answer` does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        found = Site(listening.getsockname()[1])

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        head = b""
                        while b"\r\n\r\n" not in head:
                            head += connection.recv(65_536)
                        found.seen.append(Seen("", "", {}, head))
                        answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield found
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def get(found: Site, path: str = "/", **more: object) -> bytes:
    """The content of one of a site's pages, fetched under its own rules unless given others."""
    given: dict[str, object] = {"max_bytes": 100_000, "timeout_s": 5, "rules": found.rules, **more}
    return fetch(found.url(path), **given).content  # type: ignore[arg-type]  # a test's shorthand


def certified(folder: Path, *names: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context for these names, and a client's that trusts it and nobody else."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    alternatives = [
        x509.IPAddress(ipaddress.ip_address(one)) if one[0].isdigit() else x509.DNSName(one) for one in names
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        # Python 3.13 checks strictly: an anchor says that it is one, and by which key.
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    chain = folder / "chain.pem"
    chain.write_bytes(private + public)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(chain)
    return server, ssl.create_default_context(cadata=public.decode())
