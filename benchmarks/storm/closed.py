"""What the provider can do: callers without any queue, each with its next call at once. `python -m .. JSON`, endless.

JSON: `callers`. As many as the quota keep all of it in use, so what is answered then is the capacity of everybody.
"""

import json
import sys
import threading
import time

import httpx

from benchmarks import asking

TAG = "closed"


def _call_on(number: int) -> None:
    i = 0
    while True:
        try:
            asking.ask(TAG, 1_000_000 * number + i, time.time())
        except httpx.HTTPError:  # a 429 of the moment in which one place changes hands
            time.sleep(0.01)
        i += 1


def main() -> None:
    """Call for ever."""
    callers = [
        threading.Thread(target=_call_on, args=(number,)) for number in range(int(json.loads(sys.argv[1])["callers"]))
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()


if __name__ == "__main__":
    main()
