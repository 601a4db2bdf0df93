"""A dispatcher that is killed between the commit of a release and its messages: `python -m tests.recovery.unpublished`.

All of it is the real one; only its broker ends the process, as a SIGKILL would, where the first message should go out.
"""

import os
import signal
import threading
from collections.abc import Sequence

import django

from harness.store.broker import Broker
from harness.store.message import Message


class Deadly(Broker):
    """Nothing goes out, and nobody lives to tell."""

    def publish(self, messages: Sequence[Message]) -> None:
        """Die, if there is anything to say."""
        if messages:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Lead until the first release."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    from django.conf import settings

    from harness.engine.dispatcher import Dispatcher
    from harness.kinds import registry

    registry.discover(*settings.HARNESS_TASK_PACKAGES)
    Dispatcher(
        database_url=settings.DATABASE_URL,
        broker=Deadly(settings.BROKER_URL),
        topology=settings.HARNESS_TOPOLOGY,
        stop=threading.Event(),
    ).run()


if __name__ == "__main__":
    main()
