"""The clients of a run: they submit over HTTP under a key of their own, try again until they are answered, and cancel.

What they were answered is noted here, outside of Harness. A client that gets no answer (a dead web process, 503) sends
the same body with the same key again; work that was never answered isn't accepted, and nothing is promised about it.
"""

import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from benchmarks.chaos.history import Accepted
from benchmarks.chaos.schedule import CHAT, Work

CLIENTS = 4
AGAIN_S = 0.3
LATER = "2099-01-01T00:00:00Z"
FINAL = frozenset({200, 202, 400, 401, 403, 404, 409, 413, 422})


class Clients:
    """Submits the work at its times. `keys`: API key by tenant; `follow`: told of a task to watch, and its tenant.

    `edges`: what was accepted as depending on what, by the numbers of the work.
    """

    def __init__(
        self,
        url: str,
        keys: Mapping[str, str],
        work: Sequence[Work],
        follow: Callable[[str, str], None] = lambda task, tenant: None,
    ) -> None:
        self._url = url
        self._keys = keys
        self._jobs: queue.PriorityQueue[tuple[float, int, Callable[[httpx.Client], None]]] = queue.PriorityQueue()
        self._tasks: dict[int, str | None] = {}  # None: refused
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._follow = follow
        self._runs: dict[int, list[Work]] = {}
        self._number = 0
        self._busy = 0
        self.accepted: list[Accepted] = []
        self.edges: list[tuple[int, int]] = []
        self.answers: Counter[int] = Counter()
        self.refused: list[str] = []
        self._name = uuid.uuid4().hex[:8]
        for one in work:
            if one.run:
                self._runs.setdefault(one.run, []).append(one)
            else:
                for _ in range(2 if one.twice else 1):
                    self._later(one.at_s, self._submit, one)
                self._plan_verb(one, 0)
        for number, nodes in self._runs.items():
            self._later(nodes[0].at_s, self._submit_run, number)
        self._threads = [threading.Thread(target=self._serve, name=f"client-{n}", daemon=True) for n in range(CLIENTS)]

    def start(self, began_s: float) -> None:
        """Begin; the times of the work count from `began_s` (epoch)."""
        self._began_s = began_s
        for thread in self._threads:
            thread.start()

    def finish(self, patience_s: float) -> bool:
        """Wait until everything has been answered, then stop. False: something was still unanswered."""
        until_s = time.monotonic() + patience_s
        while not (done := self._jobs.empty() and not self._busy) and time.monotonic() < until_s:
            time.sleep(0.1)
        self._closed.set()
        for thread in self._threads:
            thread.join()
        return done

    def _later(self, at_s: float, act: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            self._number += 1
            number = self._number
        self._jobs.put((at_s, number, lambda http: act(http, *arguments)))

    def _plan_verb(self, one: Work, number: int) -> None:
        """Plan the next verb: in their order, each once the one before was answered (a pause before its resume)."""
        if number < len(one.verbs):
            self._later(one.at_s + one.verbs[number][1], self._verb, one, number)

    def _serve(self) -> None:
        with httpx.Client(base_url=self._url, timeout=20.0) as http:
            while not self._closed.is_set():
                try:
                    at_s, number, act = self._jobs.get(timeout=0.1)
                except queue.Empty:
                    continue
                with self._lock:
                    self._busy += 1
                try:
                    if (left_s := self._began_s + at_s - time.time()) > 0:
                        # Nothing else is due sooner; a short wait, so that others are let before it.
                        time.sleep(min(left_s, 0.1))
                        if left_s > 0.1:
                            self._jobs.put((at_s, number, act))
                            continue
                    act(http)
                finally:
                    with self._lock:
                        self._busy -= 1

    def _again(self, act: Callable[..., None], *arguments: Any) -> None:
        self._later(time.time() - self._began_s + AGAIN_S, act, *arguments)

    def _send(self, http: httpx.Client, tenant: str, path: str, body: object, key: str | None) -> httpx.Response | None:
        """Return a final answer; None when there was none, and it must be sent again."""
        headers = {"Authorization": f"Bearer {self._keys[tenant]}"} | ({"Idempotency-Key": key} if key else {})
        try:
            answer = http.post(path, json=body, headers=headers)
        except httpx.TransportError:
            return None
        self.answers[answer.status_code] += 1
        return answer if answer.status_code in FINAL else None

    def _submit(self, http: httpx.Client, one: Work) -> None:
        answer = self._send(http, one.tenant, "/api/v1/tasks", _node(one), f"{self._name}-{one.i}")
        if answer is None:
            self._again(self._submit, one)
        elif answer.status_code in (200, 202):
            self._note(one, answer.json()["task_id"])
        else:
            self._tasks[one.i] = None
            self.refused.append(f"{one.kind}: {answer.status_code} {answer.text[:300]}")

    def _submit_run(self, http: httpx.Client, number: int) -> None:
        nodes = self._runs[number]
        listed = [_node(one) | ({"depends_on": list(one.after)} if one.after else {}) for one in nodes]
        body = {"nodes": listed, "name": f"chaos-{number}", "fanout_cap": 2}
        answer = self._send(http, nodes[0].tenant, "/api/v1/runs", body, f"{self._name}-run-{number}")
        if answer is None:
            self._again(self._submit_run, number)
        elif answer.status_code in (200, 202):
            for one, task in zip(nodes, answer.json()["task_ids"], strict=True):
                self._note(one, task)
            self.edges += [(one.i, nodes[on].i) for one in nodes for on in one.after]
        else:
            self.refused.append(f"run: {answer.status_code} {answer.text[:300]}")

    def _note(self, one: Work, task: str) -> None:
        with self._lock:  # a double click is answered twice, at once at times
            first = one.i not in self._tasks
            self._tasks[one.i] = task
        if one.followed and first:
            self._follow(task, one.tenant)
        self.accepted.append(Accepted(i=one.i, task=task, tenant=one.tenant))

    def _verb(self, http: httpx.Client, one: Work, number: int) -> None:
        task = self._tasks.get(one.i, "")
        if task is None:
            return
        verb = one.verbs[number][0]
        body = {"priority": 1 + one.i % 3} if verb == "priority" else {}
        if not task or self._send(http, one.tenant, f"/api/v1/tasks/{task}/{verb}", body, None) is None:
            self._again(self._verb, one, number)
        else:
            self._plan_verb(one, number + 1)


def _node(one: Work) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": one.kind, "priority": one.priority}
    if one.kind == CHAT:
        body["input"] = {"messages": [{"role": "user", "content": f"Piece of work number {one.i}."}], "max_tokens": 32}
    else:
        body["input"] = {
            "i": one.i, "hold_s": one.hold_s, "effects": one.effects, "fails": one.fails, "how": one.how,
            **dict(one.more),
        }  # fmt: skip
    if one.later:
        body["not_before"] = LATER
    if one.ttl_s is not None:
        body["ttl_s"] = one.ttl_s
    return body
