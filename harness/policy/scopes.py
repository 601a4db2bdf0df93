"""What can be paused as a whole."""

from typing import Literal

Scope = Literal["pool", "priority", "pool_priority", "tenant", "run"]
PRIORITY_KEYS = ("p0", "p1", "p2", "p3")
