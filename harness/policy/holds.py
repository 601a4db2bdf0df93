"""Who holds a paused task, and what people wish of a running one. Pure.

A paused task carries a set of holds; each verb removes only its own. While a task runs nothing can hold it: whoever
pauses it leaves a wish, `want`, which the next exit from `running` turns into holds (or into the end, for `cancel`).
A wish is text, so that one look tells all: `cancel`, or `pause:` and the holds that it will leave, sorted.

Invariants: `cancel` beats `pause`; a wish to pause never loses the name of another who wishes it too.
"""

from collections.abc import Collection
from typing import Literal

TENANT = "tenant"  # set by the tenant itself
OPERATOR = "operator"  # set by whoever runs the system
VERSION = "version"  # no worker knows its kind and version; lifted when one does
CHILDREN = "children"  # it waits for tasks that it spawned
APPROVAL_TIMEOUT = "approval_timeout"  # nobody decided in time
PRESSURE = "pressure"  # of a queue's pause: the level is critical and more urgent work waits

PEOPLE = (OPERATOR, TENANT)  # the holds that `pause` sets and `resume` lifts
CANCEL = "cancel"
_PAUSE = "pause:"


def pause_wish(holds: Collection[str]) -> str | None:
    """Return the wish that leaves these holds; None for no holds.

    >>> pause_wish({"tenant", "operator"}), pause_wish(())
    ('pause:operator,tenant', None)
    """
    return _PAUSE + ",".join(sorted(holds)) if holds else None


def wished_holds(want: str | None) -> tuple[str, ...]:
    """Return the holds that a wish will leave; none for `cancel`.

    >>> wished_holds("pause:operator,tenant"), wished_holds("cancel"), wished_holds(None)
    (('operator', 'tenant'), (), ())
    """
    return tuple(want.removeprefix(_PAUSE).split(",")) if want is not None and want.startswith(_PAUSE) else ()


def wished(want: str | None) -> Literal["cancel", "pause"] | None:
    """Return what a wish asks for, without whose it is.

    >>> wished("pause:tenant"), wished("cancel"), wished(None)
    ('pause', 'cancel', None)
    """
    if want is None:
        return None
    return "cancel" if want == CANCEL else "pause"


WISHES = (
    CANCEL,
    *(wish for held in ((OPERATOR,), (OPERATOR, TENANT), (TENANT,)) if (wish := pause_wish(held)) is not None),
)
