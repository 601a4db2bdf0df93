"""What kind of Redis a URL leads to: its version, whether it throws keys away, its clock. Reads only."""

from dataclasses import dataclass

import redis
from redis.exceptions import RedisError

from harness.policy.errors import Unavailable

ANSWER_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisFacts:
    """`version`: as far as clients care, so 7.2 of a Valkey. `policy`: maxmemory-policy, "" when it isn't told."""

    version: tuple[int, ...]
    policy: str
    evicts: bool
    now_s: float


def look(url: str) -> RedisFacts:
    """Return what a Redis says of itself. Raises: Unavailable."""
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=ANSWER_S, socket_timeout=ANSWER_S) as client:
            told = client.info()
            seconds, micros = client.time()
    except (RedisError, OSError, ValueError) as error:
        raise Unavailable(f"this Redis doesn't answer: {error}") from error
    policy = str(told.get("maxmemory_policy", ""))
    return RedisFacts(
        version=tuple(int(part) for part in str(told.get("redis_version", "0")).split(".")[:2]),
        policy=policy,
        evicts=bool(told.get("maxmemory")) and policy not in ("", "noeviction"),
        now_s=float(seconds) + float(micros) / 1e6,
    )
