"""People's verbs on questions: approve, deny, ask again; the links and notices that bring people to them.

Nothing here decides what a verb does to a question as it stands (policy.approvals) or writes a state
(store.transitions).
"""

from harness.engine.approve.answers import Answered, approve, deny, offered, reask
from harness.engine.approve.links import LABEL_MOST_CHARS, LIFE_MOST_S, LIFE_S, Link, LinkAltered, LinkExpired
from harness.engine.approve.notices import notify, set_hook

__all__ = (
    "LABEL_MOST_CHARS",
    "LIFE_MOST_S",
    "LIFE_S",
    "Answered",
    "Link",
    "LinkAltered",
    "LinkExpired",
    "approve",
    "deny",
    "notify",
    "offered",
    "reask",
    "set_hook",
)
