"""The settings: what serves on a developer's machine and not where others reach it.

Asks no server but the artifacts' store, which it has keep a few bytes for a moment.

Values of secrets never leave this module; what is said of them is whether they are there.
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core import checks

from harness.ops.deployment.finding import Finding
from harness.policy.errors import Unavailable
from harness.store import artifact_files

CHECK = "settings"
TOKEN_LEAST = 16  # characters of a bearer token that nobody guesses
LOOPBACK = {"localhost", "127.0.0.1", "[::1]", "::1"}


def findings(settings: Any, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what is wrong with the settings; one `ok` when nothing is."""
    found = [*_addresses(settings, environment), *_doors(settings, environment), *_files(settings), *_of_django()]
    yield from found or [Finding(check=CHECK, level="ok", says="nothing is missing")]


def _addresses(settings: Any, environment: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("DATABASE_URL", "BROKER_URL"):
        if not getattr(settings, name):
            yield _error(f"{name} is not set", f"name the server: {name}=..")
        elif not environment.get(name):
            yield _warning(
                f"{name} is not set; these are the addresses of this checkout's own stack",
                f"set {name} where every process of the deployment sees it",
            )
    if not settings.HARNESS_LIVE_URL:
        yield _warning(
            "HARNESS_LIVE_URL is not set and the broker is no Redis: no live output, and each process has a fixed "
            "share of a resource's permits",
            "name a Redis: HARNESS_LIVE_URL=redis://..",
        )


def _doors(settings: Any, environment: Mapping[str, str]) -> Iterator[Finding]:
    if environment.get("DATABASE_URL") and not environment.get("SECRET_KEY"):  # a local stack has one of its own
        yield _error(
            "SECRET_KEY is not set: each process makes its own, so no session or signed link holds in another",
            "set one, the same for all: openssl rand -base64 48",
        )
    hosts = [host.strip() for host in settings.ALLOWED_HOSTS]
    public = urlsplit(settings.HARNESS_PUBLIC_URL)
    if "*" in hosts:
        yield _error("ALLOWED_HOSTS takes every name", "list the names under which people reach the web process")
    if not environment.get("HARNESS_PUBLIC_URL"):
        yield _warning(
            "HARNESS_PUBLIC_URL is not set: links in what is sent out lead nowhere",
            "name where people reach the web process: HARNESS_PUBLIC_URL=https://harness.example",
        )
    elif not public.hostname:
        yield _error("HARNESS_PUBLIC_URL is no address", "write it with its scheme: https://harness.example")
    else:
        if not _served(public.hostname, hosts):
            yield _error(
                f"ALLOWED_HOSTS doesn't have {public.hostname}, the host of HARNESS_PUBLIC_URL: its links are refused",
                f"ALLOWED_HOSTS={','.join([*hosts, public.hostname])}",
            )
        if public.scheme != "https" and public.hostname not in LOOPBACK:
            yield _warning("HARNESS_PUBLIC_URL isn't https: keys and logins travel readable", "put TLS in front")
        if public.scheme == "https" and not settings.HARNESS_HTTPS:
            yield _error(
                "HARNESS_HTTPS is not 1 although people come over https: cookies would also be sent in the clear",
                "HARNESS_HTTPS=1",
            )
    token = settings.HARNESS_METRICS_TOKEN
    if not token:
        yield _warning("HARNESS_METRICS_TOKEN is not set: there are no metrics, so nothing alarms", "set one")
    elif len(token) < TOKEN_LEAST:
        yield _error(f"HARNESS_METRICS_TOKEN has fewer than {TOKEN_LEAST} characters", "openssl rand -hex 24")


def _served(host: str, allowed: list[str]) -> bool:
    """Whether Django would answer to this name.

    >>> _served("a.harness.example", [".harness.example"]), _served("harness.example", ["localhost"])
    (True, False)
    """
    return any(host == one or one == "*" or (one.startswith(".") and f".{host}".endswith(one)) for one in allowed)


def _files(settings: Any) -> Iterator[Finding]:
    try:
        artifact_files.probe()
    except Unavailable as error:
        yield _error(
            f"artifacts can't be kept: {error.__cause__ or error.message}",
            "HARNESS_ARTIFACTS_DIR: a folder that web and all workers share and may write, or "
            "HARNESS_ARTIFACTS_S3_BUCKET",
        )
    if not settings.HARNESS_RETENTION:
        yield _warning(
            "HARNESS_RETENTION is 0: what has ended stays for ever, unless a timer runs `manage.py retention`",
            "HARNESS_RETENTION=1, or that timer",
        )


def _of_django() -> Iterator[Finding]:
    """Django's own checks, with those for a deployment, and Harness's of resources.toml."""
    for one in checks.run_checks(include_deployment_checks=True):
        if one.level >= checks.WARNING and not one.is_silenced():
            make = _error if one.is_serious() else _warning
            yield make(f"{one.id}: {one.msg}", one.hint or "")


def _error(says: str, fix: str) -> Finding:
    return Finding(check=CHECK, level="error", says=says, fix=fix)


def _warning(says: str, fix: str) -> Finding:
    return Finding(check=CHECK, level="warning", says=says, fix=fix)
