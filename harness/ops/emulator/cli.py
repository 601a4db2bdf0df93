"""The options of the emulator, shared by `python -m harness.ops.emulator` and `manage.py provider`."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from harness.ops.emulator import server
from harness.ops.emulator.behaviour import Behaviour, changed

HELP = "An OpenAI-compatible model provider for demo, tests and benchmarks: quota, latency, 429s, extractive answers."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options; `run` takes what they parse to."""
    usual = Behaviour()
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0 takes a free one and prints it")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--quota", type=int, default=usual.quota, help="calls at a time; one more gets 429")
    parser.add_argument("--latency-s", type=float, default=usual.latency_s, help="median seconds that an answer takes")
    parser.add_argument("--sigma", type=float, default=usual.sigma, help="spread of the lognormal latency; 0: constant")
    parser.add_argument("--retry-after-s", type=float, default=usual.retry_after_s, help="what a 429 asks to wait")
    parser.add_argument("--seed", type=int, default=0, help="of the latencies")


def run(options: Mapping[str, Any], *, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `say` gets one line with the address once connections are taken.

    Raises: Invalid naming the option, Unavailable when the port can't be had.
    """
    named = {name: options[name] for name in ("quota", "latency_s", "sigma", "retry_after_s")}
    behaviour = changed(Behaviour(), named)
    with server.listen(options["host"], options["port"]) as listener:
        say(
            f"provider: {server.url_of(listener)}/v1 (quota {behaviour.quota}, latency {behaviour.latency_s:g} s, "
            f"sigma {behaviour.sigma:g}); counters at {server.url_of(listener)}/admin/stats"
        )
        server.serve(listener, behaviour, seed=options["seed"])
