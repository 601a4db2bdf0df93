"""What tasks used beyond their estimates, and what the estimates of kinds learn from it, as the store's leader does.

Invariants: each charge reaches the clocks once, at the next tick, and the estimates once, at the next fold.
"""

from collections.abc import Iterable

from harness.policy.accounts import Charge
from harness.policy.known import ESTIMATE_WEIGHT, KindFacts, Kinds, know
from harness.sim.rows import Lease

FOLD_MOST = 100  # tasks of one fold that count


class Charges:
    """The charges of a world that are still to be read, and the measured estimates in seconds by kind."""

    def __init__(self, kinds: Iterable[KindFacts]) -> None:
        self.estimates: dict[str, float] = {}
        self._kinds = list(kinds)
        self._unread: list[tuple[str, Charge]] = []
        self._to_fold: list[Charge] = []

    def make(self, lease: Lease, members: int, *, used_s: float, lead_s: float = 0.0, kind: str = "") -> None:
        """Charge what members that leave used beyond their estimates. `kind`: whose estimate learns from it.

        `lead_s`: for how long the slot was theirs before they were claimed.
        """
        flow = lease.flow
        charge = Charge(
            flow.priority,
            flow.tenant,
            flow.run,
            lease.lane,
            (used_s + lead_s - members * lease.est_s / lease.n) * lease.cost,
            kind,
            members if kind else 0,
            used_s,
            used_s * lease.cost,
        )
        self._unread.append((lease.pool, charge))
        if kind:
            self._to_fold.append(charge)

    def read(self) -> list[tuple[str, Charge]]:
        """Return, once, the charges made since the last time, with their pools."""
        read, self._unread = self._unread, []
        return read

    def fold(self) -> bool:
        """Fold what was used into the estimates (store/sql/snapshot/fold.sql). Returns whether there was anything."""
        used: dict[str, list[float]] = {}
        for charge in self._to_fold:
            used.setdefault(charge.kind, []).append(charge.slot_s)
        self._to_fold.clear()
        for kind, seconds in used.items():
            mean_s = sum(seconds) / len(seconds)
            known_s = self.estimates.get(kind)
            weight = 1.0 - (1.0 - ESTIMATE_WEIGHT) ** min(FOLD_MOST, len(seconds))
            self.estimates[kind] = mean_s if known_s is None else known_s + (mean_s - known_s) * weight
        return bool(used)

    def kinds(self) -> Kinds:
        """Return what is known of the kinds."""
        return know(self._kinds, self.estimates)
