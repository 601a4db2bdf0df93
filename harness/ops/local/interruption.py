"""What becomes of Ctrl-C, SIGTERM and a terminal that closes: one orderly stop, which no second signal cuts short."""

import signal
from types import FrameType


def interrupt_on(*numbers: signal.Signals) -> None:
    """Raise KeyboardInterrupt at the first of these signals, then ignore them: a stop cut short leaves things behind.

    A hang-up that whoever started us wants ignored (nohup) stays ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in numbers:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
