"""What the API says of a waiting task's start, and how it is asked."""

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.ops.local.ports import LOOPBACK
from harness.policy.errors import Unavailable

PAGE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """Moments in epoch seconds. `made_s`: when it was made, before it was read at `read_s`."""

    task: str
    priority: int
    read_s: float
    made_s: float
    p50_s: float
    p90_s: float


def forecast_of(item: Mapping[str, Any], read_s: float) -> Forecast | None:
    """Return what an item of GET /api/v1/tasks says of its start; None: a reason instead, or nothing yet."""
    found = item.get("eta") or {}
    start = found.get("start") or {}
    if start.get("p50") is None or start.get("p90") is None:
        return None
    made = found.get("at")
    return Forecast(
        task=str(item["task_id"]),
        priority=int(item["priority"]),
        read_s=read_s,
        made_s=_moment_s(made) if made else read_s,
        p50_s=_moment_s(start["p50"]),
        p90_s=_moment_s(start["p90"]),
    )


class Reader:
    """One tenant's eyes. A connection for each look: between two the web process may close an idle one."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection(LOOPBACK, port, timeout=60)
        self._headers = {"Authorization": f"Bearer {key}", "Connection": "close"}

    def get(self, path: str) -> Any:
        """Return what a GET answers. Raises: Unavailable for any status but 200."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != http.client.OK:
            raise Unavailable(f"GET {path} was answered {answer.status}: {content[:500]!r}")
        return json.loads(content)

    def waiting(self, pages: int) -> Iterator[Mapping[str, Any]]:
        """Yield the tenant's queued tasks, the newest first, so many pages at most."""
        cursor = ""
        for _ in range(pages):
            page = self.get(f"/api/v1/tasks?state=queued&limit={PAGE}{cursor}")
            yield from page["items"]
            if not page["next"]:
                return
            cursor = f"&cursor={page['next']}"


def _moment_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
