"""People's verbs on questions: approve, deny, ask again.

Nothing here decides what a verb does to a question as it stands (policy.approvals) or writes a state
(store.transitions).
"""

from harness.engine.approve.answers import Answered, approve, deny, reask

__all__ = ("Answered", "approve", "deny", "reask")
