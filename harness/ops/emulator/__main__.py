"""Entry point of `python -m harness.ops.emulator`."""

import argparse
import sys

from harness.ops.emulator import cli
from harness.policy.errors import HarnessError


def main() -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 2 when the options or the port won't do."""
    parser = argparse.ArgumentParser(prog="python -m harness.ops.emulator", description=cli.HELP)
    cli.add_arguments(parser)
    try:
        cli.run(vars(parser.parse_args()), say=_say)
    except HarnessError as error:
        sys.stderr.write(f"provider: {error.message}\n")
        return 2
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
