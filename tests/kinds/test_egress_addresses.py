"""No address that isn't the public internet passes, in whatever class or notation."""

import ipaddress
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.kinds import Permanent
from harness.kinds.egress import Rules, addresses, fetch, rules, target
from harness.kinds.egress.addresses import CLASSES, Address, class_of
from harness.policy.errors import ErrorClass

NOTHING = Rules()  # beyond what is public, at ports 80 and 443
V4 = st.ip_addresses(v=4)
V6 = st.ip_addresses(v=6)
REFUSED = st.sampled_from([network for _, network in CLASSES]).flatmap(lambda network: st.ip_addresses(network=network))
INNER = st.sampled_from([n for _, n in CLASSES if n.version == 4]).flatmap(
    lambda network: st.ip_addresses(network=network)
)


def refuse(url: str, resolved: str | None = None, given: Rules = NOTHING) -> str:
    """The refusal of an address; the default rules hold unless given."""
    with pytest.raises(Permanent) as refused:
        fetch(url, max_bytes=1, timeout_s=5, rules=given, resolver=lambda host, port: [resolved or "no address"])
    assert refused.value.error_class is ErrorClass.PERMISSION
    return str(refused.value)


@given(REFUSED)
def test_no_address_of_a_special_class_passes_by_literal_or_by_name(address: Address) -> None:
    named = class_of(address)
    assert named is not None
    host = f"[{address}]" if address.version == 6 else str(address)
    assert named in refuse(f"http://{host}/")
    assert named in refuse("https://public.example/", str(address))


def test_a_refusal_names_host_and_port_as_they_are_written_in_a_url() -> None:
    assert "url: [::1]:8080 leads to" in refuse("http://[::1]:8080/")
    assert "url: [::ffff:7f00:1]:80 leads to" in refuse("http://[::ffff:127.0.0.1]/")
    assert "url: 127.0.0.1:80 leads to" in refuse("http://127.0.0.1/")


@given(V4 | V6)
@example(ip_address("169.254.169.254"))
@example(ip_address("::ffff:127.0.0.1"))
@example(ip_address("fe80::1%eth0"))
@example(ip_address("4000::1"))
def test_what_python_calls_special_is_refused_too(address: Address) -> None:
    special = (
        not address.is_global, address.is_private, address.is_loopback, address.is_link_local, address.is_multicast,
        address.is_unspecified, address.version == 4 and address.is_reserved,
    )  # fmt: skip
    if any(special):
        assert class_of(address) is not None
        assert Rules().refusal("public.example", 443, address) is not None


@given(INNER, st.sampled_from(["::ffff:0:0", "64:ff9b::", "64:ff9b:1::", "::", "2002::"]))
def test_a_special_address_inside_an_ipv6_address_is_refused(inner: IPv4Address, prefix: str) -> None:
    shift = 80 if prefix == "2002::" else 0
    outer = IPv6Address(int(IPv6Address(prefix)) | int(inner) << shift)
    assert class_of(outer) is not None
    # An operator who lets a gateway's prefix pass doesn't let private addresses behind it pass.
    if addresses.embedded(outer) is not None:
        assert Rules(networks=(ipaddress.ip_network("::/0"),)).refusal("a", 80, outer) is not None


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("127.0.0.1", "loopback"), ("::1", "loopback"), ("0.0.0.0", "unspecified"), ("10.0.0.1", "private"),
        ("fd00::1", "private"), ("100.64.0.1", "CGNAT"), ("169.254.0.1", "link-local"), ("fe80::1", "link-local"),
        ("2606:4700::1%1", "link-local"), ("224.0.0.1", "multicast"), ("ff02::1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("::ffff:8.8.8.8", "IPv4-mapped"), ("64:ff9b::8.8.8.8", "NAT64"), ("2002:808:808::", "6to4"),
        ("169.254.169.254", "metadata"), ("169.254.170.2", "metadata"), ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"), ("192.0.0.192", "metadata"), ("fd00:ec2::254", "metadata"),
        ("8.8.8.8", None), ("2606:4700:4700::1111", None),
    ],
)  # fmt: skip
def test_an_address_is_told_by_its_class(address: str, named: str | None) -> None:
    assert class_of(ip_address(address)) == named


@given(V4)
def test_a_public_address_passes_at_the_allowed_ports_only(address: IPv4Address) -> None:
    if class_of(address) is None:
        assert Rules().refusal("a", 443, address) is None
        assert Rules().refusal("a", 22, address) == "port 22"


@given(V4, st.sampled_from(["{0}", "0x{0:x}", "0{0:o}", "0X{0:X}"]))
def test_a_number_is_the_address_that_the_system_takes_it_for(address: IPv4Address, notation: str) -> None:
    text = notation.format(int(address))
    assert target.parse(f"http://{text}/").address == ip_address(socket.inet_ntoa(socket.inet_aton(text)))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "%31%32%37.0.0.1",
        "①②⑦.⓪.⓪.①", "127。0。0。1", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "0", "0x",
        "0.0.0.0",
        "169.254.169.254", "0xa9fea9fe", "2852039166", "[fd00:ec2::254]", "[fe80::1%25lo]", "100.100.100.200",
    ],
)  # fmt: skip
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_no_notation_of_a_refused_address_gets_through(scheme: str, host: str) -> None:
    with pytest.raises(Permanent):
        fetch(f"{scheme}://{host}/", max_bytes=1, timeout_s=5, rules=Rules())


def test_localhost_is_refused_by_the_systems_resolver_naming_the_class() -> None:
    with pytest.raises(Permanent, match="loopback") as refused:
        fetch("http://localhost/", max_bytes=1, timeout_s=5, rules=Rules())
    assert refused.value.error_class is ErrorClass.PERMISSION


def test_a_name_with_one_bad_address_among_good_ones_is_refused() -> None:
    with pytest.raises(Permanent, match="a private address"):
        fetch(
            "http://two.example/",
            max_bytes=1,
            timeout_s=5,
            rules=Rules(),
            resolver=lambda h, p: ["8.8.8.8", "10.0.0.1"],
        )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://a.example/", "http"),
        ("file:///etc/passwd", "http"),
        ("gopher://a.example/", "http"),
        ("//a.example/", "http"),
        ("http://user:hunter2@a.example/", "credentials"),
        ("http://@a.example/", "credentials"),
        ("http://hunter2%40@a.example/", "credentials"),
        ("http://a.example\\@127.0.0.1/", "backslash"),
        ("http://a.example/\r\nHost: b", "control"),
        ("http://a.example\t/", "control"),
        ("http://a .example/", "blank"),
        ("http:///path", "no host"),
        ("http://a.example:0/", "port"),
        ("http://a.example:99999/", "port"),
        ("http://a.example:/", "port"),
        ("http://[::1/", "malformed"),
        ("http://1.2.3.4.5/", "no address"),
        ("http://-a.example/", "no host name"),
        ("http://" + "a" * 9000, "longer"),
    ],
)
def test_a_url_that_isnt_plain_is_refused_without_repeating_it(url: str, why: str) -> None:
    with pytest.raises(Permanent, match=why) as refused:
        fetch(url, max_bytes=1, timeout_s=5, rules=Rules())
    assert "hunter2" not in str(refused.value) and len(str(refused.value)) < 300


def test_a_setting_lifts_exactly_what_it_names() -> None:
    given = rules.parse("10.1.0.0/16, intranet.example:8080, 127.0.0.1:8123, [::1]:8123", "80,443,8443")

    def passes(host: str, port: int, address: str) -> bool:
        return given.refusal(host, port, ip_address(address)) is None

    assert passes("a", 80, "10.1.2.3") and not passes("a", 80, "10.2.2.3") and not passes("a", 22, "10.1.2.3")
    assert passes("127.0.0.1", 8123, "127.0.0.1") and not passes("127.0.0.1", 8124, "127.0.0.1")
    assert passes("::1", 8123, "::1") and not passes("::1", 80, "::1")
    assert passes("intranet.example", 8080, "192.168.0.1") and not passes("intranet.example", 80, "192.168.0.1")
    assert not passes("intranet.example", 8080, "169.254.169.254"), "a name never leads to a metadata service"
    assert not passes("other.example", 8080, "192.168.0.1")
    assert passes("a", 8443, "8.8.8.8")


@pytest.mark.parametrize(
    "allow", ["10.0.0.1/8", "a.example", "a.example:0", "a.example:99999", "[::1]", "*", "bad host:80"]
)
def test_a_setting_that_makes_no_sense_allows_nothing_and_is_named(allow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_EGRESS_ALLOW", allow)
    with pytest.raises(Permanent, match="HARNESS_EGRESS_ALLOW"):
        fetch("http://127.0.0.1/", max_bytes=1, timeout_s=5)
    monkeypatch.setenv("HARNESS_EGRESS_ALLOW", "")
    monkeypatch.setenv("HARNESS_EGRESS_PORTS", "80,x")
    with pytest.raises(Permanent, match="HARNESS_EGRESS_PORTS"):
        fetch("http://127.0.0.1/", max_bytes=1, timeout_s=5)


@given(st.text(max_size=60), st.sampled_from(["http://{}", "https://{}/", "{}", "http://a.example/{}", "http://a:{}"]))
def test_any_text_is_a_target_or_is_refused(text: str, around: str) -> None:
    try:
        found = target.parse(around.format(text))
    except Permanent:
        return
    assert found.url.isascii() and found.path.startswith("/") and not set(found.url) & set(' \r\n\t\\"<>')
    assert target.parse(found.url) == found
