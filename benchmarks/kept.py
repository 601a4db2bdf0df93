"""Keeps one command running, as supervisor does those of the Procfile: `python -m benchmarks.kept FILE COMMAND ..`.

A worker that leaves by itself (its threads are stuck) is started again; each time FILE gets a line. SIGTERM ends both.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PAUSE_S = 1.0  # before it starts again, so that one that can't start doesn't take the machine


def main() -> None:
    """Keep it running until told to stop."""
    path, command = Path(sys.argv[1]), sys.argv[2:]
    wanted = True
    child = subprocess.Popen(command)

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal wanted
        wanted = False
        child.terminate()

    signal.signal(signal.SIGTERM, stop)
    while True:
        code = child.wait()
        if not wanted:
            sys.exit(code)
        with path.open("a") as file:
            file.write(f"{time.time():.3f} {code}\n")
        time.sleep(PAUSE_S)
        if wanted:
            child = subprocess.Popen(command)


def restarts(path: Path) -> int:
    """Return how often what is kept has ended by itself."""
    return len(path.read_text().splitlines()) if path.exists() else 0


if __name__ == "__main__":
    main()
