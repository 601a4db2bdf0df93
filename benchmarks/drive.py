"""One command of one arm, in a process of its own: `python -m benchmarks.drive MODULE reset|submit|pace|play|.. JSON`.

Prints one JSON line. `submit` takes tag, n, duration_s and many (the queue's bulk form); `pace` takes tag, n,
rate_per_s and duration_s, and returns for each task when its submit returned (epoch seconds), which a pick-up is
timed from; `play` takes arrivals (benchmarks.fairness.score). `feed` (tag, keep) and `flow` (tag, rate_per_s, n) go on
until the process is ended: the one keeps so many tasks waiting, the other submits at a rate, n in all. Those two take
`of`, a name that the module's `submitter_of` knows. `reset` and any other command are functions of the arm's module.
"""

import importlib
import itertools
import json
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.fairness.score import Arrival, from_json
from benchmarks.submission import Submitter

CHUNK = 1000  # so that submitted_s of a bulk submit stays true to a second
FEED_EVERY_S = 0.25


def submit(client: Submitter, arguments: Mapping[str, Any]) -> dict[str, object]:
    """Submit n tasks as fast as the queue takes them; return the seconds that it took."""
    tag, n, duration_s = (
        str(arguments["tag"]),
        int(arguments["n"]),
        float(arguments.get("duration_s", 0.0)),
    )
    began_s = time.time()
    if arguments.get("many"):
        for start in range(0, n, CHUNK):
            now_s = time.time()
            client.many([(tag, i, now_s, duration_s) for i in range(start, min(start + CHUNK, n))])
    else:
        for i in range(n):
            client.one((tag, i, time.time(), duration_s))
    return {"n": n, "took_s": time.time() - began_s}


def pace(client: Submitter, arguments: Mapping[str, Any]) -> dict[str, object]:
    """Submit n tasks at a fixed rate, one by one."""
    tag, duration_s = str(arguments["tag"]), float(arguments.get("duration_s", 0.0))
    began_s, returned_s = time.time(), []
    for i in range(int(arguments["n"])):
        time.sleep(max(0.0, began_s + i / float(arguments["rate_per_s"]) - time.time()))
        client.one((tag, i, time.time(), duration_s))
        returned_s.append(time.time())
    return {"returned_s": returned_s}


def play(client: Submitter, arrivals: Iterable[Arrival]) -> tuple[float, float]:
    """Submit every arrival at its moment; return when the play began (epoch s) and how late the latest submit was."""
    began_s, late_s = time.time(), 0.0
    for arrival in sorted(arrivals, key=lambda one: one.at_s):
        time.sleep(max(0.0, began_s + arrival.at_s - time.time()))
        late_s = max(late_s, time.time() - began_s - arrival.at_s)
        client.arrive(arrival)
    return began_s, round(late_s, 3)


def _play(client: Submitter, arguments: Mapping[str, Any]) -> dict[str, object]:
    began_s, late_s = play(client, from_json(arguments["arrivals"]))
    return {"began_s": began_s, "late_s": late_s}


def feed(client: Submitter, arguments: Mapping[str, Any]) -> None:
    """Keep `keep` tasks waiting, for ever."""
    tag, keep, done = str(arguments["tag"]), int(arguments["keep"]), 0
    duration_s = float(arguments.get("duration_s", 0.0))
    while True:
        lacking = keep - client.waiting()
        if lacking > 0:
            now_s = time.time()
            client.many([(tag, i, now_s, duration_s) for i in range(done, done + lacking)])
            done += lacking
        time.sleep(FEED_EVERY_S)


def flow(client: Submitter, arguments: Mapping[str, Any]) -> None:
    """Submit at a rate: n tasks, or for ever; then wait to be ended."""
    tag, rate_per_s, n = str(arguments["tag"]), float(arguments["rate_per_s"]), arguments.get("n")
    duration_s = float(arguments.get("duration_s", 0.0))
    began_s = time.time()
    for i in itertools.count() if n is None else range(int(n)):
        time.sleep(max(0.0, began_s + i / rate_per_s - time.time()))
        client.one((tag, i, time.time(), duration_s))
    while True:
        signal.pause()


def endless(module: str, command: str, **arguments: Any) -> str:
    """Return the command line of a `feed` or `flow`, for Stage.start, which fills in what stands in braces."""
    text = shlex.quote(json.dumps(arguments)).replace("{", "{{").replace("}", "}}")
    return f"{{python}} -m benchmarks.drive {module} {command} {text}"


def main() -> None:
    """Run the command named on the command line."""
    module_name, command, text = sys.argv[1], sys.argv[2], sys.argv[3]
    module, arguments = importlib.import_module(module_name), json.loads(text)
    answer: dict[str, object] = {}
    submitting = {"submit": submit, "pace": pace, "play": _play}
    if command == "reset":
        module.reset()
    elif command in ("feed", "flow"):
        {"feed": feed, "flow": flow}[command](module.submitter_of(arguments["of"]), arguments)
    elif command in submitting:
        client: Submitter = module.submitter()
        answer = submitting[command](client, arguments)
        client.close()
    else:
        answer = getattr(module, command)(**arguments)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
