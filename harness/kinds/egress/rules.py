"""Which addresses and ports may be reached, as the operator set it: HARNESS_EGRESS_ALLOW and HARNESS_EGRESS_PORTS.

HARNESS_EGRESS_ALLOW lists, by commas: networks (`10.1.0.0/16`: these addresses, at the allowed ports) and endpoints
(`intranet.example:8080`, `127.0.0.1:8123`, `[::1]:8123`: there, also at another port). HARNESS_EGRESS_PORTS: ports.
"""

import functools
import os
import re
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from harness.kinds.egress.addresses import INTERNAL, Address, Network, class_of, embedded
from harness.kinds.egress.target import ascii_host
from harness.kinds.errors import Permanent

ALLOW = "HARNESS_EGRESS_ALLOW"
PORTS = "HARNESS_EGRESS_PORTS"
DEFAULT_PORTS = frozenset({80, 443})
_ENDPOINT = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:/]+)):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """`endpoints` are (host or address, port); a host lifts only the classes of `INTERNAL`, an address any class."""

    networks: tuple[Network, ...] = ()
    endpoints: frozenset[tuple[str, int]] = frozenset()
    ports: frozenset[int] = DEFAULT_PORTS

    def refusal(self, host: str, port: int, address: Address) -> str | None:
        """Return why this address of this host may not be reached ('a loopback address'); None when it may."""
        if (str(address), port) in self.endpoints:
            return None
        named = (host, port) in self.endpoints
        if port not in self.ports and not named:
            return f"port {port}"
        found = class_of(address)
        if found is None or (named and found in INTERNAL) or self._in_networks(address):
            return None
        return f"{'an' if found[0] in 'uI' else 'a'} {found} address"

    def _in_networks(self, address: Address) -> bool:
        if not any(address in network for network in self.networks):
            return False
        # A translated address leads where its IPv4 address leads: that one must be allowed too.
        inner = embedded(address)
        return inner is None or class_of(inner) is None or self._in_networks(inner)


def from_environment() -> Rules:
    """Return the rules that the environment sets. Raises: Permanent naming the variable and the entry."""
    return parse(os.environ.get(ALLOW, ""), os.environ.get(PORTS, ""))


@functools.lru_cache(maxsize=8)
def parse(allow: str, ports: str = "") -> Rules:
    """Return rules from the texts of the two variables. Raises: Permanent.

    >>> parse("127.0.0.1:8123").endpoints, parse("", "80,8443").ports == {80, 8443}
    (frozenset({('127.0.0.1', 8123)}), True)
    """
    networks: list[Network] = []
    endpoints: set[tuple[str, int]] = set()
    for entry in filter(None, (part.strip() for part in allow.split(","))):
        found = _ENDPOINT.fullmatch(entry)
        try:
            if found:
                endpoints.add((_host(found), _port(found["port"])))
            else:
                networks.append(ip_network(entry))
        except ValueError as error:
            raise Permanent(
                f"{ALLOW}: {entry!r} is neither a network (10.1.0.0/16) nor host:port ({error}): correct it where the "
                "worker runs and start the worker again"
            ) from None
    try:
        numbers = frozenset(_port(part.strip()) for part in ports.split(",")) if ports.strip() else DEFAULT_PORTS
    except ValueError:
        raise Permanent(f"{PORTS}: must list ports by commas, such as 80,443,8443, not {ports!r}") from None
    return Rules(networks=tuple(networks), endpoints=frozenset(endpoints), ports=numbers)


def _host(found: re.Match[str]) -> str:
    if found["v6"]:
        return str(ip_address(found["v6"]))
    return ascii_host(found["host"])


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 65_536:
        raise ValueError(f"{text!r} is no port")
    return int(text)
