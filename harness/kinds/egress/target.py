"""Where a URL leads: parsed once, strictly, so that what is checked is what is asked. Pure.

A number in any notation (2130706433, 0x7f.1, 0177.0.0.1) becomes the address that it is before anything is checked.
"""

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import quote, urljoin, urlsplit

from harness.kinds.egress.addresses import Address
from harness.kinds.errors import Permanent

URL_MAX_CHARACTERS = 8_192
DEFAULT_PORTS = {"http": 80, "https": 443}
_UNFIT = re.compile("[\x00-\x20\x7f\\\\\ud800-\udfff]")
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_KEPT = "/%:=&?~+!$,;'@()*[]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """`host` is ASCII, lower case, without brackets; `address` is set when it is one. `path` holds the query too."""

    scheme: str
    host: str
    port: int
    path: str
    address: Address | None

    @property
    def origin(self) -> tuple[str, str, int]:
        """What must stay the same for credentials to be sent on."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        return self._bracketed if self.port == DEFAULT_PORTS[self.scheme] else self.named

    @property
    def named(self) -> str:
        """Host and port, for people."""
        return f"{self._bracketed}:{self.port}"

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host

    @property
    def url(self) -> str:
        """The whole, normalised, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.path}"


def parse(url: str) -> Target:
    """Return where a URL leads. Raises: Permanent naming what is wrong, never the URL, which may hold secrets.

    >>> parse("http://2130706433/a?b#c").url
    'http://127.0.0.1/a?b'
    """
    if len(url) > URL_MAX_CHARACTERS:
        raise _bad(f"is longer than {URL_MAX_CHARACTERS:,} characters")
    if _UNFIT.search(url):
        raise _bad("holds a blank, a control character, a backslash or half a surrogate pair: percent-encode it")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _bad("is malformed: its host or port makes no sense") from error
    if parts.scheme not in DEFAULT_PORTS:
        raise _bad("must begin with http:// or https://")
    if "@" in parts.netloc:
        raise _bad("holds a user name or password: credentials don't belong into a URL")
    if not parts.hostname or port == 0 or parts.netloc.endswith(":"):
        raise _bad("names no host, or no port after the ':'")
    host, address = _host(parts.hostname, bracketed="[" in parts.netloc)
    path = quote(parts.path, safe=_KEPT) or "/"
    return Target(
        scheme=parts.scheme,
        host=host,
        port=port or DEFAULT_PORTS[parts.scheme],
        path=path + ("?" + quote(parts.query, safe=_KEPT) if parts.query else ""),
        address=address,
    )


def join(target: Target, location: str) -> Target:
    """Return where a Location header leads from here. Raises: Permanent."""
    # Servers send raw UTF-8 and blanks there; a control character or backslash stays refused.
    location = location.encode("latin-1").decode("utf-8", "replace").strip(" \t").replace(" ", "%20")
    try:
        joined = urljoin(target.url, location)
    except ValueError as error:
        raise _bad("is malformed in a redirect") from error
    if _UNFIT.search(location):
        raise _bad("holds a control character or a backslash in a redirect")
    return parse(joined)


def ascii_host(host: str) -> str:
    """Return a host name as DNS has it: lower case, IDNA, no dot at the end; or an address. Raises: ValueError.

    >>> ascii_host("Bücher.example."), ascii_host("0x7f.1")
    ('xn--bcher-kva.example', '127.0.0.1')
    """
    if not host.isascii():
        import idna  # its tables are large; most hosts are ASCII

        try:
            host = idna.encode(host, uts46=True).decode("ascii")
        except idna.IDNAError as error:
            raise ValueError("it is no internationalised host name") from error
    host = host.lower().removesuffix(".")
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise ValueError("it is no host name")
    if not _NUMBER.fullmatch(host.rsplit(".", 1)[-1]):
        return host
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except OSError as error:
        raise ValueError("it ends in a number, but is no address") from error


def _host(host: str, *, bracketed: bool) -> tuple[str, Address | None]:
    try:
        if bracketed:
            address = IPv6Address(host)
            return str(address), address
        host = ascii_host(host)
        return host, ip_address(host) if host[-1].isdigit() and host.rsplit(".", 1)[-1].isdigit() else None
    except ValueError as error:
        raise _bad(f"names no host: {error}") from None


def _bad(what: str) -> Permanent:
    return Permanent(f"url: {what}")
