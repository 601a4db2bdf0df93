"""Runs Python that nobody has read, for kinds: in a sandbox of bubblewrap with no network, no secrets and few means.

Where a sandbox can't be made the code isn't run, and the error says what lacks (`lack`). Nothing here falls back to
a plain process.
"""

from harness.kinds.sandbox.answer import Produced
from harness.kinds.sandbox.box import Finished, Given, run
from harness.kinds.sandbox.limits import MIB, Limits
from harness.kinds.sandbox.place import lack

__all__ = ["MIB", "Finished", "Given", "Limits", "Produced", "lack", "run"]
