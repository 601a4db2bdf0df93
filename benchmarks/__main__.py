"""Command line: `python -m benchmarks NAME [--quick] [--json FILE] [--pairs N] [--only ARM,ARM]`."""

import importlib
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from benchmarks import readings
from benchmarks.bench import Bench
from benchmarks.embedded import embedded
from benchmarks.servers import Servers
from harness.policy.errors import HarnessError, Invalid

NAMES = (
    "throughput",
    "latency",
    "submit",
    "slots",
    "backlog",
    "prefetch",
    "ingest",
    "crash",
    "guards",
    "steps",
    "children",
    "chaos",
    "fairness",
    "simulator",
    "plan",
    "limiter",
    "quota",
    "isolation",
    "dbpool",
    "outage",
    "ratelimit",
    "permits",
    "overload",
    "pressure",
    "autoscale",
    "eta",
)
PAIRS = 5  # below that a median of ratios says little


@contextmanager
def open_servers() -> Iterator[Servers]:
    """Yield the servers to measure on: those of the environment, else a pair of our own for this run."""
    database_url, broker_url = (
        os.environ.get("DATABASE_URL"),
        os.environ.get("BROKER_URL"),
    )
    if bool(database_url) != bool(broker_url):
        raise Invalid("DATABASE_URL and BROKER_URL: set both, or neither", field="DATABASE_URL")
    if database_url and broker_url:
        yield Servers(database_url=database_url, broker_url=broker_url)
        return
    with embedded() as servers:
        yield servers


def _phases(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(one) for one in text.split(",")) if text else ()
    except ValueError:
        found = (0.0,)
    if found and (len(found) != 3 or min(found) < 1.0):
        raise click.BadParameter("--phases: three numbers of seconds, for example 600,600,600")
    return found


@click.command(help="Measure Harness and existing task queues on the same work.")
@click.argument("name", type=click.Choice(NAMES))
@click.option(
    "--quick",
    is_flag=True,
    help="A few tasks and one round: for CI; its times mean nothing.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures here.",
)
@click.option(
    "--pairs",
    type=click.IntRange(min=1),
    help=f"Interleaved rounds (default {PAIRS}; quick and fairness: 1).",
)
@click.option("--only", default="", help="Only these arms, separated by commas.")
@click.option(
    "--patience",
    default=20.0,
    show_default=True,
    help="Seconds to wait for a quiet machine.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.2),
    help="chaos: faults (10); overload, pressure: a storm (4); autoscale: a wave (10); eta: load (15).",
)
@click.option("--seed", default=1, show_default=True, help="chaos: decides work and faults.")
@click.option("--columns", default="", help="quota, overload: only these, see benchmarks/README.md.")
@click.option("--phases", default="", help="quota: three lengths in seconds (default 180,180,180).")
def main(
    name: str,
    quick: bool,
    json_path: Path | None,
    pairs: int | None,
    only: str,
    patience: float,
    minutes: float | None,
    seed: int,
    columns: str,
    phases: str,
) -> None:
    """Run one scenario, print its tables and write its JSON. Exits with 1 when the scenario says that it failed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers and workers are stopped on the way out
    scenario = importlib.import_module(f"benchmarks.scenarios.{name}")
    began_s = time.monotonic()
    try:
        with (
            open_servers() as servers,
            tempfile.TemporaryDirectory(prefix="harness-bench-") as folder,
        ):
            bench = Bench(
                servers=servers,
                processes=readings.find_servers(servers),
                folder=Path(folder),
                console=Console(width=None if sys.stdout.isatty() else 160),
                quick=quick,
                pairs=pairs or (1 if quick else int(getattr(scenario, "PAIRS", PAIRS))),
                only=frozenset(filter(None, only.split(","))),
                patience_s=0.0 if quick else patience,
                minutes=minutes,
                seed=seed,
                columns=frozenset(filter(None, columns.split(","))),
                phases_s=_phases(phases),
                history_path=json_path.with_suffix(".history.json") if json_path else None,
            )
            report = scenario.run(bench)
    except HarnessError as error:
        raise click.ClickException(str(error)) from error
    report |= {
        "scenario": name,
        "quick": quick,
        "pairs": bench.pairs,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "took_s": round(time.monotonic() - began_s, 1),
    }
    if json_path:
        json_path.write_text(json.dumps(report, indent=2) + "\n")
    if report.get("failed") is True:  # ingest counts documents by that name
        sys.exit(1)


if __name__ == "__main__":
    main()
