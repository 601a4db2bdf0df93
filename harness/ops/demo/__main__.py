"""`python -m harness.ops.demo`: loads the demo, half a second in which Ctrl-C must end it without a traceback."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> int:
    """Load and run the demo. Returns the exit code."""
    signal.signal(signal.SIGINT, _leave)  # until the demo has a stop of its own
    from harness.ops.demo import command

    return command.main()


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)  # nothing has been started; raising would end in whatever module is being loaded


if __name__ == "__main__":
    sys.exit(main())
