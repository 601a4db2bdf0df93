"""People who decide what tasks ask, by the API: at random, two at once at times, and of some questions nobody in time.

What they were answered is noted here, outside of Harness. An answer that was lost is given again, as it was.
"""

import random
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import httpx

from benchmarks.chaos.history import Said

LOOK_S = 1.0
AGAIN_S = 0.3
PEOPLE = 4
NO_SHARE = 0.25
OK = 200
FINAL = frozenset({OK, 404, 409, 422})
LIST = "/api/v1/approvals?limit=200"
Asked = tuple[str, str, str]  # task, name and moment: asked anew, by a later attempt or a redrive, it is another
_NUMBER = re.compile(r"Work (\d+):")


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What somebody will say, so long after they have seen the question. `choice` None: no."""

    after_s: float
    choice: str | None

    @property
    def verb(self) -> str:
        """The verb of the API."""
        return "deny" if self.choice is None else "approve"


def answers(seed: int, question: Mapping[str, Any]) -> tuple[Answer, ...]:
    """Return who says what to a question as the API shows it: nobody, one, or two at the same moment.

    What may run out is left unanswered at times, the first time that it is asked.
    """
    found = _NUMBER.search(question["prompt"])
    number = found.group(1) if found else question["prompt"]
    dice = random.Random(f"people {seed} {number} {question['name']} {question['asks']}")
    if question["deadline"] is not None and question["asks"] == 1 and dice.random() < 0.4:
        return ()
    after_s = round(dice.uniform(0.0, 2.5), 2)
    several = 2 if dice.random() < 0.25 else 1
    return tuple(
        Answer(after_s=after_s, choice=None if dice.random() < NO_SHARE else dice.choice(question["choices"]))
        for _ in range(several)
    )


class People:
    """Decide while the block runs. `keys`: API key by tenant. `error`: what ended it before its time."""

    def __init__(self, url: str, keys: Mapping[str, str], seed: int) -> None:
        self._url = url
        self._keys = keys
        self._seed = seed
        self._stop = threading.Event()
        self._seen: set[Asked] = set()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="people", daemon=True)
        self.said: list[Said] = []
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Say no more."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with (
                ThreadPoolExecutor(PEOPLE, thread_name_prefix="person") as persons,
                httpx.Client(base_url=self._url, timeout=20.0) as http,
            ):
                while not self._stop.wait(LOOK_S):
                    for tenant in self._keys:
                        self._look(http, persons, tenant)
        except Exception as error:  # noqa: BLE001  # told with the run's report, which fails by it
            self.error = error

    def _look(self, http: httpx.Client, persons: ThreadPoolExecutor, tenant: str) -> None:
        headers = {"Authorization": f"Bearer {self._keys[tenant]}"}
        try:
            page = http.get(LIST, headers=headers)
        except httpx.TransportError:
            return
        for question in page.json()["items"] if page.status_code == OK else ():
            asked: Asked = (question["task_id"], question["name"], question["asked_at"])
            if question["waits"] and asked not in self._seen:
                self._seen.add(asked)
                for one in answers(self._seed, question):
                    persons.submit(self._say, asked, one, headers)

    def _say(self, asked: Asked, one: Answer, headers: Mapping[str, str]) -> None:
        self._stop.wait(one.after_s)
        task = asked[0]
        body = {"choice": one.choice} if one.choice is not None else {}
        try:
            with httpx.Client(base_url=self._url, timeout=20.0) as http:
                while True:
                    try:
                        answer = http.post(f"/api/v1/tasks/{task}/{one.verb}", json=body, headers=headers)
                    except httpx.TransportError:
                        answer = None
                    if answer is not None and answer.status_code in FINAL:
                        break
                    if self._stop.wait(AGAIN_S):
                        return
            said = Said(
                task=task,
                verb=one.verb,
                choice=one.choice,
                status=answer.status_code,
                at_s=time.time(),
                told=_stands(one.verb, answer.json()),
            )
            with self._lock:
                self.said.append(said)
            if said.status != OK and said.told is None:
                self._seen.discard(asked)  # it didn't wait at that moment: should it still be listed, it is answered
        except Exception as error:  # noqa: BLE001  # told with the run's report, which fails by it
            self.error = error


def _stands(verb: str, answer: Mapping[str, Any]) -> tuple[str | None, str | None] | None:
    """Return the (verdict, choice) that stands by an answer; None: it names none."""
    if "outcome" in answer:
        return verb, answer["choice"]
    return (answer["verdict"], answer.get("choice")) if answer.get("verdict") else None  # a no has none
