"""A process that calls a resource until its input ends, and then writes when each of its calls was under way.

python -m tests.store.permit_process URL RESOURCE_AS_JSON THREADS CALL_S OUTPUT
"""

import json
import sys
from pathlib import Path

from tests.store.permit_cast import Caller, Resources, process


def main(url: str, values: str, threads: str, call_s: str, output: str) -> None:
    with process(url, Resources(llm=json.loads(values))) as permits:
        caller = Caller(permits, "llm", threads=int(threads), call_s=float(call_s))
        caller.start()
        sys.stdin.read()
        caller.stop()
        Path(output).write_text(json.dumps(caller.calls))


if __name__ == "__main__":
    main(*sys.argv[1:])
