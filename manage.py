#!/usr/bin/env python
"""Entry point of Django's management commands. What Harness refuses ends in one line, whichever command it was."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    from harness.policy.errors import HarnessError

    try:
        execute_from_command_line(sys.argv)
    except HarnessError as error:
        sys.exit(f"{sys.argv[1]}: {error.message}")


if __name__ == "__main__":
    main()
