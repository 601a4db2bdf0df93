"""Classes of addresses that aren't the public internet: IANA's special-purpose registries, and metadata services.

Pure. A table of our own, because `ipaddress.is_global` changes with Python's patch releases. What no row names is
public for IPv4; for IPv6 only 2000::/3 can be.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# The first row that holds the address names it. Metadata stands first: it lies inside other rows, or is public.
_ROWS = (
    ("metadata", "169.254.169.254/32 169.254.170.2/32 169.254.170.23/32 100.100.100.200/32 168.63.129.16/32"),
    ("metadata", "192.0.0.192/32 fd00:ec2::254/128 fd00:ec2::23/128 fd20:ce::254/128 fd00:c1::a9fe:a9fe/128"),
    ("unspecified", "0.0.0.0/8 ::/128"),
    ("loopback", "127.0.0.0/8 ::1/128"),
    ("private", "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"),
    ("CGNAT", "100.64.0.0/10"),
    ("link-local", "169.254.0.0/16 fe80::/10"),
    ("multicast", "224.0.0.0/4 ff00::/8"),
    ("documentation", "192.0.2.0/24 198.51.100.0/24 203.0.113.0/24 2001:db8::/32 3fff::/20"),
    ("IPv4-mapped", "::ffff:0:0/96"),
    ("NAT64", "64:ff9b::/96 64:ff9b:1::/48"),
    ("6to4", "2002::/16 192.88.99.0/24"),
    ("reserved", "192.0.0.0/24 198.18.0.0/15 240.0.0.0/4 2001::/23"),
)
CLASSES: tuple[tuple[str, Network], ...] = tuple(
    (name, ip_network(network)) for name, networks in _ROWS for network in networks.split()
)
# What a host that the settings name may resolve to; anything else must be named by its address.
INTERNAL = frozenset({"loopback", "private", "CGNAT"})
_GLOBAL_UNICAST = IPv6Network("2000::/3")


def class_of(address: Address) -> str | None:
    """Return the class for which an address is refused; None for a public one.

    >>> class_of(IPv4Address("127.0.0.1")), class_of(IPv6Address("::ffff:8.8.8.8")), class_of(IPv4Address("8.8.8.8"))
    ('loopback', 'IPv4-mapped', None)
    """
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return "link-local"  # a zone makes sense nowhere else
    for name, network in CLASSES:
        if address in network:
            return name
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return "reserved"
    return None


def embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address to which an IPv6 address is translated, by a stack, a gateway or a relay.

    >>> embedded(IPv6Address("64:ff9b::10.0.0.1")), embedded(IPv6Address("2002:7f00:1::"))
    (IPv4Address('10.0.0.1'), IPv4Address('127.0.0.1'))
    """
    if not isinstance(address, IPv6Address):
        return None
    if address in IPv6Network("::ffff:0:0/96") or address in IPv6Network("64:ff9b::/96"):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour
