"""What the dispatcher tells a worker: one lease to run. A hint, not the truth; the claim decides."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One lease to run. `time_limits_s`: (hard, soft), for prefork pools."""

    queue: str
    kind: str
    lease: int
    token: int
    time_limits_s: tuple[float, float] | None = None
