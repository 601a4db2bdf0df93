"""`fetch` and `post`: an exchange for each hop, each hop checked; caps on time, bytes and types.

Invariants: a name is resolved once a hop, all its addresses are checked, and the connection goes to one of those; an
error names host and port, never path, query, header or body, which may hold secrets.
"""

import contextlib
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.kinds import calling
from harness.kinds.egress import coding, rules, target, wire
from harness.kinds.egress.admitted import admitted
from harness.kinds.egress.deadline import Deadline
from harness.kinds.egress.outcomes import error_of_status, forbidden, network_error, retry_after_s
from harness.kinds.egress.resolver import Resolver, system_resolver
from harness.kinds.egress.rules import Rules
from harness.kinds.egress.target import Target
from harness.kinds.egress.wire import Answer, Request
from harness.kinds.errors import Permanent

MAX_HOPS = 5
PACKED_SLACK_BYTES = 65_536  # a packed body may be that much larger than what it unpacks to may be
USER_AGENT = "harness-queue"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OUR_HEADERS = frozenset(
    "accept-encoding connection content-length expect host keep-alive proxy-authorization proxy-connection te trailer "
    "transfer-encoding upgrade".split()
)
_KEPT_ACROSS = frozenset({"accept", "accept-language", "accept-encoding", "user-agent"})  # to another origin
_TOKEN = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?")
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._:+-]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """An answer below 400. `content_type` without parameters; `url` after redirects; header names in lower case."""

    status: int
    content: bytes = field(repr=False)
    content_type: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)

    @property
    def charset(self) -> str | None:
        """The character set that the content type names, if any."""
        found = _CHARSET.search(self.headers.get("content-type", ""))
        return found[1].lower() if found else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """The head of an answer, whatever its status; its body wasn't read."""

    status: int
    retry_after_s: float | None


def fetch(
    url: str,
    *,
    max_bytes: int,
    timeout_s: float,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    content_types: Sequence[str] | None = None,
    max_hops: int = MAX_HOPS,
    checkpoint: Callable[[], None] | None = None,
    rules: Rules | None = None,
    resolver: Resolver = system_resolver,
    tls: ssl.SSLContext | None = None,
) -> Fetched:
    """Ask once and read the answer. `max_bytes` counts after decoding; `timeout_s` is for everything together.

    `content_types` are lower case, `text/*` stands for all of them; None takes any. `checkpoint` (ctx.checkpoint) is
    asked while waiting. `rules` None: those of the environment.
    Raises: Permanent (permission: address, port, certificate, 401, 403; else validation), RateLimited, TimedOut,
    Transient (network, 5xx), and what `checkpoint` raises.
    """
    if max_bytes < 0:
        raise Permanent(f"max_bytes: must not be below 0, not {max_bytes}")
    deadline = Deadline(timeout_s, checkpoint)
    guard = _Guard(rules, resolver, tls, deadline)
    here, request = target.parse(url), _request(method, headers, body)
    for _ in range(max_hops + 1):
        with guard.exchange(here, request) as answer:
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None:
                return _fetched(here, request, answer, max_bytes, content_types)
        here, request = _follow(here, request, answer.status, location)
    raise Permanent(f"{here.host}: more than {max_hops} redirects")


def post(
    url: str,
    *,
    body: bytes,
    headers: Mapping[str, str],
    timeout_s: float,
    rules: Rules | None = None,
    resolver: Resolver = system_resolver,
    tls: ssl.SSLContext | None = None,
) -> Posted:
    """Deliver a body once and return with the answer's status: no redirect is followed, no body read.

    Raises: as `fetch`, but for statuses.
    """
    guard = _Guard(rules, resolver, tls, Deadline(timeout_s))
    with guard.exchange(target.parse(url), _request("POST", headers, body)) as answer:
        return Posted(status=answer.status, retry_after_s=retry_after_s(answer.headers))


def check(url: str, *, timeout_s: float, rules: Rules | None = None, resolver: Resolver = system_resolver) -> str:
    """Judge an address without asking it anything. Returns it normalised. Raises: as `fetch` before it connects."""
    where = target.parse(url)
    admitted(where, _rules(rules), resolver, Deadline(timeout_s))
    return where.url


class _Guard:
    """Opens exchanges with addresses that the rules admit, and with no others."""

    __slots__ = ("_deadline", "_resolver", "_rules", "_tls")

    def __init__(self, given: Rules | None, resolver: Resolver, tls: ssl.SSLContext | None, deadline: Deadline) -> None:
        self._rules = _rules(given)
        self._resolver = resolver
        self._tls = tls
        self._deadline = deadline

    @contextlib.contextmanager
    def exchange(self, where: Target, request: Request) -> Iterator[Answer]:
        addresses = admitted(where, self._rules, self._resolver, self._deadline)
        with wire.exchange(where, addresses, request, self._deadline, self._tls or wire.default_tls()) as answer:
            calling.heard(answer.headers)
            yield answer


def _rules(given: Rules | None) -> Rules:
    return rules.from_environment() if given is None else given


def _request(method: str, headers: Mapping[str, str] | None, body: bytes | None) -> Request:
    if method not in METHODS:
        raise Permanent(f"method: must be one of {', '.join(sorted(METHODS))}")
    sent = {"user-agent": USER_AGENT, "accept": "*/*", "accept-encoding": coding.ACCEPT}
    for given, value in (headers or {}).items():
        name = given.lower()
        if not _TOKEN.fullmatch(name) or name in _OUR_HEADERS:
            raise Permanent(f"headers: {given[:60]!r} is no header that a caller may set")
        if not _VALUE.fullmatch(value):
            raise Permanent(f"headers: the value of {name[:60]!r} must be printable ASCII on one line")
        sent[name] = value
    if body is None and method in ("POST", "PUT", "PATCH"):
        body = b""
    return Request(method=method, headers=sent, body=body)


def _follow(here: Target, request: Request, status: int, location: str) -> tuple[Target, Request]:
    """Return the next hop. Raises: Permanent when it would send a body elsewhere, or leave TLS."""
    there = target.join(here, location)
    if here.scheme == "https" and there.scheme == "http":
        raise forbidden(f"{here.host}: redirects from https to http, which is not followed: name the address itself")
    headers, method, body = dict(request.headers), request.method, request.body
    if status == 303 or (status in (301, 302) and method == "POST"):
        method, body = ("HEAD" if method == "HEAD" else "GET"), None
        headers = {name: value for name, value in headers.items() if not name.startswith("content-")}
    if there.origin != here.origin:
        if body is not None:
            raise forbidden(f"{here.host}: redirects a {method} to another origin, which is not followed")
        headers = {name: value for name, value in headers.items() if name in _KEPT_ACROSS}
    return there, Request(method=method, headers=headers, body=body)


def _fetched(
    here: Target, request: Request, answer: Answer, max_bytes: int, content_types: Sequence[str] | None
) -> Fetched:
    error = error_of_status(answer.status, f"{here.host}:{here.port}", retry_after_s=retry_after_s(answer.headers))
    if error is not None:
        raise error
    content_type = answer.headers.get("content-type", "").split(";", 1)[0].strip().lower()
    if content_types is not None and answer.status not in (204, 304) and not _fits(content_type, content_types):
        named = content_type[:100] or "not named"
        raise Permanent(f"{here.host}: its content type is {named}, not one of {', '.join(content_types)}")
    return Fetched(
        status=answer.status,
        content=b"" if request.method == "HEAD" else _read(here, answer, max_bytes),
        content_type=content_type,
        url=here.url,
        headers=answer.headers,
    )


def _fits(content_type: str, allowed: Sequence[str]) -> bool:
    return any(content_type == one or (one.endswith("/*") and content_type.startswith(one[:-1])) for one in allowed)


def _read(here: Target, answer: Answer, max_bytes: int) -> bytes:
    too_large = f"{here.host}: its answer is larger than max_bytes ({max_bytes:,})"
    decoder = coding.Decoder(answer.headers.get("content-encoding", ""))
    announced = answer.headers.get("content-length", "")
    if announced.isdigit() and int(announced[:20]) > max_bytes + PACKED_SLACK_BYTES:
        raise Permanent(too_large)
    content, packed_bytes = bytearray(), 0
    for chunk in answer.chunks():
        packed_bytes += len(chunk)
        content += decoder.feed(chunk, max_bytes - len(content))
        if len(content) > max_bytes or packed_bytes > max_bytes + PACKED_SLACK_BYTES:
            raise Permanent(too_large)
    if not decoder.whole:
        raise network_error(f"{here.host}: its packed answer ends in the middle")
    return bytes(content)
