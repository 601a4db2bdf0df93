"""One process that takes and gives back permits at a rate: `python -m benchmarks.permits_load JSON`, for `permits`.

The rate is kept whatever the answers take: each permit has its moment, and its wait counts from that moment. Prints
`ready`, reads the moment of the beginning (epoch s) from its input, and prints one JSON line: the waits in
milliseconds, how many were refused at first, and when each permit was held.
"""

import json
import random
import sys
import threading
import time

from harness.policy.permits import Ask, Granted, Report, Want
from harness.policy.resources import Live, Resource
from harness.store.permits import Permits

THREADS = 16
WARM_S = 1.0  # not counted: connections are opened, scripts loaded
RESOURCE = "bench:permits"


class Load:
    """What all threads of this process share."""

    def __init__(self, url: str, number: int, capacity: int, rate_per_s: float, for_s: float, hold_s: float) -> None:
        live = Live(resource=Resource(name=RESOURCE, held="call", capacity=capacity, rpm=1e9, tpm=1e9))
        self.permits = Permits(url, lambda: {RESOURCE: live})
        self.number, self.for_s, self.hold_s = number, for_s, hold_s
        self.every_s = THREADS / rate_per_s
        self.waits_ms: list[float] = []
        self.spans: list[tuple[float, float]] = []
        self.refused = 0

    def turn(self, thread: int, began_s: float) -> None:
        """Take permits on one thread until the time is over."""
        at_s, n = began_s + random.uniform(0, self.every_s), 0
        while at_s < began_s + self.for_s:
            time.sleep(max(0.0, at_s - time.time()))
            ask = Ask(
                member=f"{self.number * THREADS + thread}:{n}:1",
                tenant=1,
                priority=1,
                calls_done=0,
                since_s=at_s,
                wants=(Want(RESOURCE, 10),),
                waits=True,
            )
            granted = self.permits.acquire(ask)
            self.refused += not isinstance(granted, Granted)
            while not isinstance(granted, Granted):
                self.permits.wait(ask, 1.0)
                granted = self.permits.acquire(ask)
            had_s = time.time()
            if at_s >= began_s + WARM_S:
                self.waits_ms.append(1000 * (had_s - at_s))
            time.sleep(self.hold_s)
            self.spans.append((had_s, time.time()))  # before it is given back: no one else can have it yet
            self.permits.finish(granted, Report(outcome="success", tokens={RESOURCE: 8}, latency_s=self.hold_s))
            at_s, n = at_s + self.every_s, n + 1


def main() -> None:
    """Take permits as the command line says."""
    load = Load(**json.loads(sys.argv[1]))
    print("ready", flush=True)
    began_s = float(sys.stdin.readline())
    threads = [threading.Thread(target=load.turn, args=(n, began_s)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.permits.close()
    print(json.dumps({"waits_ms": load.waits_ms, "refused": load.refused, "spans": load.spans}))


if __name__ == "__main__":
    main()
