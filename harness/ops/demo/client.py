"""One tenant's way in: the HTTP API, and nothing else."""

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from harness.policy.errors import Unavailable

TERMINAL = {"succeeded", "failed_terminal", "cancelled"}


class Client:
    """Calls the API with one key."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=httpx.Timeout(30)
        )

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST and return the answer. Raises: Unavailable with the problem's text."""
        return _answer(self._http.post(path, json=body))

    def upload(self, name: str, content: bytes, content_type: str) -> str:
        """Upload a file and return its id. Raises: Unavailable with the problem's text."""
        answer = self._http.post(
            "/artifacts", params={"name": name}, content=content, headers={"Content-Type": content_type}
        )
        return str(_answer(answer)["artifact_id"])

    def get(self, path: str, **parameters: str | int) -> dict[str, Any]:
        """GET and return the answer. Raises: Unavailable with the problem's text."""
        return _answer(self._http.get(path, params=parameters))

    def download(self, path: str) -> bytes:
        """GET and return the body's bytes. Raises: Unavailable with the problem's text."""
        answer = self._http.get(path)
        if answer.is_error:
            _answer(answer)
        return answer.content

    def delete(self, path: str) -> None:
        """DELETE. Raises: Unavailable with the problem's text."""
        answer = self._http.delete(path)
        if answer.is_error:
            _answer(answer)

    def listed(self, **filters: str | int) -> Iterator[dict[str, Any]]:
        """Yield all tasks that fit the filters, page by page."""
        page = self.get("/tasks", limit=200, **filters)
        yield from page["items"]
        while page["next"]:
            page = self.get("/tasks", limit=200, cursor=page["next"], **filters)
            yield from page["items"]

    def result_of(self, task: str) -> dict[str, Any] | None:
        """Return a finished task, None while it isn't."""
        whole = self.get(f"/tasks/{task}")
        return whole if whole["state"] in TERMINAL else None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _answer(response: httpx.Response) -> dict[str, Any]:
    if response.is_error:
        raise Unavailable(f"the API answered {response.status_code}: {response.text[:500]}")
    found: dict[str, Any] = response.json()
    return found
