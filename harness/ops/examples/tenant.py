"""`python -m harness.ops.examples.tenant`: the examples' tenant, made where it is missing; prints a new key for it."""

import os
import sys

TENANT = "example"
LABEL = "manage.py example"


def main() -> int:
    """Print the key, alone. Returns the exit code."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from harness.ops.demo import people

    sys.stdout.write(people.key(TENANT, top_priority=0, label=LABEL) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
