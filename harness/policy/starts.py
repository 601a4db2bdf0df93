"""When large demands last started, and when all was last gathered for one: what rule 11 looks back at, in memory only.

By (priority, tenant, signature). A last start is forgotten with the last flow that needs it; what was gathered outlives
that, or who sends one task at a time would have all gathered anew for each.
"""

from dataclasses import dataclass, field

KEPT_MOST = 1000  # gatherings remembered; beyond, the older half is forgotten

Large = tuple[int, int, str]  # priority, tenant, signature


@dataclass(slots=True)
class Starts:
    """See the module; both in seconds of the plans' time."""

    last: dict[Large, float] = field(default_factory=dict)
    gathered: dict[Large, float] = field(default_factory=dict)

    def note(self, large: Large, now_s: float, *, gathered: bool) -> None:
        """Note a start. `gathered`: all was kept for it before."""
        self.last[large] = now_s
        if gathered:
            self.gathered.pop(large, None)  # the newest stand last
            self.gathered[large] = now_s
            if len(self.gathered) > KEPT_MOST:
                for old in list(self.gathered)[: KEPT_MOST // 2]:
                    del self.gathered[old]

    def gone(self, large: Large) -> None:
        """Forget the last start: nobody needs the like any more."""
        self.last.pop(large, None)
