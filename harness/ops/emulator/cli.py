"""The options of the emulator, shared by `python -m harness.ops.emulator` and `manage.py provider`."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from harness.ops.emulator import server
from harness.ops.emulator.behaviour import SETTINGS, Behaviour, changed

HELP = (
    "An OpenAI-compatible model provider for demo, tests and benchmarks: chat (streaming too), embeddings, a quota, "
    "rate limits, latency, faults. Every option but host, port and seed can be changed while it runs: POST its name "
    "with underscores as JSON to /admin/config."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options, one for each setting; `run` takes what they parse to."""
    usual = dataclasses.asdict(Behaviour())
    parser.add_argument("--port", type=int, required=True, help="port to listen on; 0 takes a free one and prints it")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    for name, setting in SETTINGS.items():
        option, default = f"--{name.replace('_', '-')}", usual[name]
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true", help=setting.about)
        elif setting.choices:
            about = f"{setting.about} (default: %(default)s)"
            parser.add_argument(option, choices=setting.choices, default=default, help=about)
        else:
            about = f"{setting.about} (default: %(default)s)"
            parser.add_argument(option, type=type(default), default=default, help=about)
    parser.add_argument("--seed", type=int, default=0, help="of latencies and faults")


def run(options: Mapping[str, Any], *, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `say` gets one line with the address once connections are taken.

    Raises: Invalid naming the option, Unavailable when the port can't be had.
    """
    behaviour = changed(Behaviour(), {name: options[name] for name in SETTINGS if name in options})
    with server.listen(options["host"], options["port"]) as listener:
        say(
            f"provider: {server.url_of(listener)}/v1 (quota {behaviour.quota}, latency {behaviour.latency_s:g} s, "
            f"sigma {behaviour.sigma:g}); counters at {server.url_of(listener)}/admin/stats"
        )
        server.serve(listener, behaviour, seed=options["seed"])
