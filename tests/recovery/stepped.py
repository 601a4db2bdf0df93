"""A Python program whose wall clock jumps ahead by an hour: `python -m tests.recovery.stepped MODULE ARGUMENT ..`.

It jumps when the file that JUMPS names appears, in this process and in those that it forks, as when someone sets the
machine's clock under a worker that runs. Monotonic clocks go on, as they do then.
"""

import datetime
import os
import runpy
import sys
import time
from typing import Any

JUMPS = "STEPPED_CLOCK"  # the file
STEP_S = 3600


def step() -> None:
    """Let every reading of the wall clock in this process follow the file."""
    path = os.environ[JUMPS]
    real_time_ns, plain = time.time_ns, datetime.datetime

    def time_ns() -> int:
        return real_time_ns() + STEP_S * 10**9 * os.path.exists(path)  # noqa: PTH110  # called for each line of a log

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, plain)

    class Moment(datetime.datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return plain.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return plain.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    Moment.__name__ = Moment.__qualname__ = plain.__name__
    Moment.__module__ = plain.__module__
    time.time_ns = time_ns
    time.time = lambda: time_ns() / 10**9
    datetime.datetime = Moment  # type: ignore[misc]


if __name__ == "__main__":
    step()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
