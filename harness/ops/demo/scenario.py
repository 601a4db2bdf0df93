"""What the demo submits, as three tenants who know only the HTTP API.

library   ingests every document (one run) and a PDF that is broken on purpose, summarises each, searches them, asks the
          model about what it found, looks for near-duplicates, rolls up by a schedule, and tells a webhook at the end
crowd     fans out 300 nodes in one run, and sends a task that is meant to fail
desk      asks for a short summary at P0 now and then

In the middle the provider takes far fewer calls at once for a while: its 429s put tasks back in line, and fail none.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from harness.ops.demo.client import TERMINAL, Client
from harness.ops.demo.documents import Document

FAN_OUT = 300
NODE_S = 0.1
DESK_EVERY_S = 2.0
QUOTA = 50
LOW_QUOTA = 3
LOW_S = 6.0
BROKEN_PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n" + bytes(range(256)) * 8
SCHEDULE = "demo-rollup"


@dataclass(slots=True)
class Scenario:
    """The demo's work in progress. Call `start`, then `step` until `finished`."""

    library: Client
    crowd: Client
    desk: Client
    documents: tuple[Document, ...]
    provider: str
    receiver: str
    summaries: dict[str, str] = field(default_factory=dict)  # task id -> document
    failing: dict[str, Client] = field(default_factory=dict)  # task ids that are meant to fail
    unmeant: list[tuple[str, str]] = field(default_factory=list)  # document that failed, why
    submitted: int = 0
    finished: bool = False
    asked: str = ""
    answer: str = ""
    _ingest_run: str = ""
    _crowd_run: str = ""
    _names: dict[str, str] = field(default_factory=dict)  # ingest task id -> document
    _texts: dict[str, str] = field(default_factory=dict)  # document -> clean text
    _last: list[str] = field(default_factory=list)  # the library's tasks at the end
    _search: str = ""
    _chat: str = ""
    _schedule: str = ""
    _desk_s: float = 0.0
    _low_since_s: float | None = None
    _restored: bool = False

    def start(self) -> None:
        """Submit what begins at once."""
        _set_quota(self.provider, QUOTA)
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
        upload = self.library.upload("broken.pdf", BROKEN_PDF, "application/pdf")
        self._submit_failing(self.library, "ingest.document", {"name": "broken.pdf", "artifact_id": upload}, priority=2)
        fan = [{"kind": "noop.sleep", "input": {"sleep_s": NODE_S}, "priority": 3}] * FAN_OUT
        self._crowd_run = self.crowd.post("/runs", {"name": "fan-out", "nodes": fan})["run_id"]
        self._submit_failing(self.crowd, "noop.fault", {"fail": "permanent"}, priority=3)
        for old in self.library.get("/schedules")["items"]:
            if old["name"] == SCHEDULE:  # of a demo that was stopped
                self.library.delete(f"/schedules/{old['schedule_id']}")
        made = self.library.post(
            "/schedules", {"name": SCHEDULE, "kind": "db.rollup", "input": {}, "cron": "* * * * *"}
        )
        self._schedule = made["schedule_id"]
        self.submitted += len(nodes) + FAN_OUT

    def step(self) -> None:
        """Look what has ended, and submit what follows from it."""
        self._ask_at_the_desk()
        self._follow_ingested()
        self._turn_the_quota()
        if self._names:
            return
        if not self._last:
            self._submit_last()
        self._follow_search()
        self.finished = (
            self._restored
            and self._follow_schedule()
            and bool(self.answer)
            and all(self.library.result_of(task) for task in (*self.summaries, *self._last))
            and all(client.result_of(task) for task, client in self.failing.items())
            and bool(self.crowd.get(f"/runs/{self._crowd_run}")["finished"])
        )

    def end(self) -> None:
        """Stop what would go on by itself."""
        if self._schedule:
            self.library.delete(f"/schedules/{self._schedule}")
        if not self._restored:
            _set_quota(self.provider, QUOTA)

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

    def failures(self) -> list[tuple[str, str]]:
        """Return (kind, message) of the tasks that were meant to fail."""
        wholes = [client.get(f"/tasks/{task}") for task, client in self.failing.items()]
        return [(whole["kind"], str((whole["error"] or {}).get("message"))) for whole in wholes]

    def _submit(self, client: Client, kind: str, payload: dict[str, Any], *, priority: int) -> str:
        self.submitted += 1
        return str(client.post("/tasks", {"kind": kind, "input": payload, "priority": priority})["task_id"])

    def _submit_failing(self, client: Client, kind: str, payload: dict[str, Any], *, priority: int) -> None:
        self.failing[self._submit(client, kind, payload, priority=priority)] = client

    def _ask_at_the_desk(self) -> None:
        now_s = time.monotonic()
        if now_s - self._desk_s < DESK_EVERY_S:
            return
        self._desk_s = now_s
        text = "A person waits at the desk. The answer must come soon. Everybody else can wait a little."
        self._submit(self.desk, "llm.summarize", {"text": text, "sentences": 1}, priority=0)

    def _turn_the_quota(self) -> None:
        """Let the provider take few calls at once as soon as half of the documents are with it, for LOW_S."""
        now_s = time.monotonic()
        if self._low_since_s is None and (not self._names or len(self.summaries) * 2 >= len(self.documents)):
            _set_quota(self.provider, LOW_QUOTA)
            self._low_since_s = now_s
        elif self._low_since_s is not None and not self._restored and now_s - self._low_since_s > LOW_S:
            _set_quota(self.provider, QUOTA)
            self._restored = True

    def _follow_ingested(self) -> None:
        if not self._names:
            return
        for task in self.library.listed(run=self._ingest_run):
            if task["task_id"] not in self._names or task["state"] not in TERMINAL:
                continue
            name = self._names.pop(task["task_id"])
            if task["state"] != "succeeded":
                error = self.library.get(f"/tasks/{task['task_id']}")["error"] or {}
                self.unmeant.append((name, str(error.get("message", task["state"]))))
                continue
            result = self.library.get(f"/tasks/{task['task_id']}")["result"]
            text = (result["text"] or "")[:60_000]
            if not text:
                continue  # too long to stand in the result; it is searchable all the same
            self._texts[name] = text
            payload = {"text": text, "title": result["title"][:300]}
            self.summaries[self._submit(self.library, "llm.summarize", payload, priority=1)] = name

    def _submit_last(self) -> None:
        # An id has at most 40 characters and stands once: the end of a path tells more, the number keeps it apart.
        texts = [
            {"id": f"{n} {name[-36:]}", "text": text[:10_000]}
            for n, (name, text) in enumerate(list(self._texts.items())[:20], 1)
        ]
        if len(texts) >= 2:
            self._last.append(self._submit(self.library, "cpu.similar", {"texts": texts, "threshold": 0.5}, priority=2))
        self._last.append(self._submit(self.library, "db.rollup", {}, priority=2))
        done = {"url": f"http://{self.receiver}/done", "body": {"documents": len(self._texts)}}
        self._last.append(self._submit(self.library, "tool.webhook", done, priority=2))
        self.asked = _term(self._texts)
        self._search = self._submit(self.library, "rag.search", {"query": self.asked, "limit": 5}, priority=1)
        self._last.append(self._search)

    def _follow_search(self) -> None:
        """Ask the model about what the search found."""
        if not self._chat and (found := self.library.result_of(self._search)):
            hits = (found["result"] or {}).get("hits", [])
            said = "\n".join(f"{hit['name']}: {hit['snippet']}" for hit in hits) or "nothing was found"
            messages = [{"role": "user", "content": f"What do these passages say about {self.asked}?\n\n{said}"}]
            self._chat = self._submit(self.library, "llm.chat", {"messages": messages}, priority=1)
        elif self._chat and not self.answer and (whole := self.library.result_of(self._chat)):
            self.answer = str((whole["result"] or {}).get("text") or f"({whole['state']})")

    def _follow_schedule(self) -> bool:
        """Whether the schedule has fired and its first task is over."""
        states = [task["state"] for task in self.library.listed(schedule=self._schedule)]
        return any(state in TERMINAL for state in states)


def _term(texts: dict[str, str]) -> str:
    """Return the longer word that most documents share."""
    shared = Counter(
        word for text in texts.values() for word in {w for w in text.lower().split() if w.isalpha() and len(w) > 8}
    )
    return shared.most_common(1)[0][0] if shared else "document"


def _set_quota(provider: str, quota: int) -> None:
    httpx.post(f"{provider}/admin/config", json={"quota": quota}, timeout=5).raise_for_status()
