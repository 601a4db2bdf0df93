"""What the demo submits, as three tenants who know only the HTTP API.

library   ingests every document (one run), summarises each as it is done, looks for near-duplicates, and rolls up
crowd     fans out 300 nodes in one run, and sends the task that is meant to fail
desk      asks for a short summary at P0 now and then, and times it
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from harness.ops.demo.documents import Document
from harness.policy.errors import Unavailable

FAN_OUT = 300
NODE_S = 0.1
DESK_EVERY_S = 2.0
MEANT_TO_FAIL = "noop.fault"
TERMINAL = {"succeeded", "failed_terminal", "cancelled"}


class Client:
    """One tenant's way in."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=httpx.Timeout(30)
        )

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST and return the answer. Raises: Unavailable with the problem's text."""
        return _answer(self._http.post(path, json=body))

    def get(self, path: str, **parameters: str | int) -> dict[str, Any]:
        """GET and return the answer. Raises: Unavailable with the problem's text."""
        return _answer(self._http.get(path, params=parameters))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def _answer(response: httpx.Response) -> dict[str, Any]:
    if response.is_error:
        raise Unavailable(f"the API answered {response.status_code}: {response.text[:500]}")
    found: dict[str, Any] = response.json()
    return found


@dataclass(slots=True)
class Scenario:
    """The demo's work in progress. Call `start`, then `step` until `finished`."""

    library: Client
    crowd: Client
    desk: Client
    documents: tuple[Document, ...]
    desk_tasks: int = 0
    summaries: dict[str, str] = field(default_factory=dict)  # task id -> document
    failing: set[str] = field(default_factory=set)  # task ids
    submitted: int = 0
    finished: bool = False
    _ingest_run: str = ""
    _crowd_run: str = ""
    _texts: dict[str, str] = field(default_factory=dict)  # document -> clean text
    _names: dict[str, str] = field(default_factory=dict)  # ingest task id -> document
    _last: list[str] = field(default_factory=list)  # the tasks at the end
    _desk_s: float = 0.0

    def start(self) -> None:
        """Submit what begins at once."""
        nodes = [
            {
                "kind": "ingest.document",
                "input": {"name": one.name, "content": one.content, "content_type": one.content_type},
                "priority": 2,
            }
            for one in self.documents
        ]
        made = self.library.post("/runs", {"name": "ingest", "nodes": nodes})
        self._ingest_run = made["run_id"]
        self._names = dict(zip(made["task_ids"], [one.name for one in self.documents], strict=True))
        fan = [{"kind": "noop.sleep", "input": {"sleep_s": NODE_S}, "priority": 3}] * FAN_OUT
        self._crowd_run = self.crowd.post("/runs", {"name": "fan-out", "nodes": fan})["run_id"]
        failing = self.crowd.post("/tasks", {"kind": MEANT_TO_FAIL, "input": {"fail": "permanent"}, "priority": 3})
        self.failing.add(failing["task_id"])
        self.submitted = len(nodes) + FAN_OUT + 1

    def step(self) -> None:
        """Look what has ended, and submit what follows from it."""
        self._ask_at_the_desk()
        self._follow_ingested()
        if self._names:
            return
        if not self._last:
            self._submit_last()
        waiting = [
            client.get(f"/tasks/{task}")["state"] not in TERMINAL
            for client, tasks in ((self.library, self._last), (self.crowd, self.failing))
            for task in tasks
        ]
        summed = all(self._is_over(task) for task in self.summaries)
        self.finished = summed and not any(waiting) and bool(self.crowd.get(f"/runs/{self._crowd_run}")["finished"])

    def texts(self, most: int) -> list[tuple[str, str]]:
        """Return (document, summary) of some summaries."""
        found = []
        for task, name in self.summaries.items():
            whole = self.library.get(f"/tasks/{task}")
            if whole["state"] == "succeeded":
                found.append((name, str(whole["result"]["summary"])))
            if len(found) == most:
                break
        return found

    def _ask_at_the_desk(self) -> None:
        now_s = time.monotonic()
        if now_s - self._desk_s < DESK_EVERY_S:
            return
        self._desk_s = now_s
        text = "A person waits at the desk. The answer must come soon. Everybody else can wait a little."
        self.desk.post("/tasks", {"kind": "llm.summarize", "input": {"text": text, "sentences": 1}, "priority": 0})
        self.desk_tasks += 1
        self.submitted += 1

    def _follow_ingested(self) -> None:
        if not self._names:
            return
        for task in [one for one in self._listed(self.library, self._ingest_run) if one["task_id"] in self._names]:
            if task["state"] not in TERMINAL:
                continue
            name = self._names.pop(task["task_id"])
            if task["state"] != "succeeded":
                continue  # the final count tells it
            result = self.library.get(f"/tasks/{task['task_id']}")["result"]
            text = result["text"][:60_000]
            self._texts[name] = text
            made = self.library.post(
                "/tasks",
                {"kind": "llm.summarize", "input": {"text": text, "title": result["title"][:300]}, "priority": 1},
            )
            self.summaries[made["task_id"]] = name
            self.submitted += 1

    def _submit_last(self) -> None:
        texts = [{"id": name[:200], "text": text[:10_000]} for name, text in list(self._texts.items())[:20]]
        for kind, body, priority in (
            ("cpu.similar", {"texts": texts, "threshold": 0.5}, 2),
            ("db.rollup", {}, 2),
        ):
            if kind == "cpu.similar" and len(texts) < 2:
                continue
            made = self.library.post("/tasks", {"kind": kind, "input": body, "priority": priority})
            self._last.append(made["task_id"])
            self.submitted += 1

    def _is_over(self, task: str) -> bool:
        return self.library.get(f"/tasks/{task}")["state"] in TERMINAL

    @staticmethod
    def _listed(client: Client, run: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = client.get("/tasks", run=run, limit=200)
        found += page["items"]
        while page["next"]:
            page = client.get("/tasks", run=run, limit=200, cursor=page["next"])
            found += page["items"]
        return found
