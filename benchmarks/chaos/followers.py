"""Clients that watch tasks by their streams: from the first event to `end`, over whatever dies in between.

Each comes again with the id of the last event that came whole (Last-Event-ID) and notes every event that it got;
whether one is missing or came twice is the checker's to say.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import httpx

from benchmarks.chaos.history import Frame

AGAIN_S = 0.5
SILENT_S = 20.0  # a stream beats every 15 s; a stopped server doesn't
END = "end"


class Followers:
    """Watch tasks, each on a thread of its own. `keys`: API key by tenant. `errors`: what ended one too soon.

    The thread of a task that hasn't ended by then goes on until its stream beats: nobody waits for it.
    """

    def __init__(self, url: str, keys: Mapping[str, str]) -> None:
        self._url = url
        self._keys = keys
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.frames: list[Frame] = []
        self.followed: list[str] = []
        self.errors: list[Exception] = []

    def follow(self, task: str, tenant: str) -> None:
        """Begin to watch a task."""
        thread = threading.Thread(target=self._run, args=(task, tenant), name=f"stream-{task}", daemon=True)
        self.followed.append(task)
        self._threads.append(thread)
        thread.start()

    def finish(self, patience_s: float) -> None:
        """Wait until all have seen the end, then stop: what comes later isn't noted."""
        until_s = time.monotonic() + patience_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        self._stop.set()

    def _run(self, task: str, tenant: str) -> None:
        try:
            with httpx.Client(base_url=self._url, timeout=SILENT_S) as http:
                last, number = "", 0
                while not self._stop.is_set():
                    number += 1
                    for name, place, data in self._events(http, task, tenant, last):
                        if self._stop.is_set():
                            return
                        last = place
                        self.frames.append(_frame(task, number, name, place, data))
                        if name == END:
                            return
                    self._stop.wait(AGAIN_S)
        except Exception as error:  # noqa: BLE001  # told with the run's report, which fails by it
            self.errors.append(error)

    def _events(self, http: httpx.Client, task: str, tenant: str, last: str) -> Iterator[tuple[str, str, Any]]:
        headers = {"Authorization": f"Bearer {self._keys[tenant]}"} | ({"Last-Event-ID": last} if last else {})
        try:
            with http.stream("GET", f"/api/v1/tasks/{task}/stream", headers=headers) as answer:
                if answer.status_code == 200:
                    yield from events(answer.iter_lines())
        except httpx.TransportError:
            return


def events(lines: Iterable[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield (event, id, data) of a stream of server-sent events. One that was broken off isn't one.

    >>> list(events(["id: 1.0-0", "event: end", 'data: {"state": "succeeded"}', "", "id: 2.0-0", "event: state"]))
    [('end', '1.0-0', {'state': 'succeeded'})]
    """
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields:
            yield fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"])
        fields = {}


def _frame(task: str, connection: int, event: str, place: str, data: Mapping[str, Any]) -> Frame:
    at_s = time.time()
    if event == "state":
        return Frame(task=task, connection=connection, at_s=at_s, event=event, seq=data["seq"], name=data["event"])
    if event == "output":
        return Frame(
            task=task,
            connection=connection,
            at_s=at_s,
            event=event,
            attempt=data["attempt"],
            offset=data["offset"],
            text=data["text"],
        )
    return Frame(task=task, connection=connection, at_s=at_s, event=event)
