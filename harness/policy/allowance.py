"""What a tenant's weight and caps may be: one place for the command line, the admin and the store.

A weight is a share against others, so it is above 0 and finite: whoever should get nothing has a cap of 0, which
says so. A cap of 0 means nothing; what is in flight when a cap is lowered ends by itself.
"""

from harness.policy.errors import Invalid
from harness.policy.settings import PRIORITIES

# Six orders of magnitude both ways: more is a slip of the pen, and clocks of seconds over weight stay exact.
WEIGHT_LEAST, WEIGHT_MOST = 1e-6, 1e6
COUNT_MOST = 2**31 - 2


def weight(value: float | str) -> float:
    """Return a weight. Raises: Invalid.

    >>> weight("2"), weight(0.5)
    (2.0, 0.5)
    """
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not WEIGHT_LEAST <= number <= WEIGHT_MOST:  # NaN is neither
        raise Invalid(
            f"weight: must be above 0 (a number from {WEIGHT_LEAST:f} to {WEIGHT_MOST:,.0f}), not {value}: 1 is the "
            "usual share, 2 twice as much; a cap of 0 lets nothing start",
            field="weight",
        )
    return number


def count(value: int | str, field: str) -> int:
    """Return a cap or quota. Raises: Invalid naming the field.

    >>> count("0", "cap"), count(7, "cap")
    (0, 7)
    """
    number = value if isinstance(value, int) else _whole(value)
    if number is None or not 0 <= number <= COUNT_MOST:
        raise Invalid(
            f"{field}: must be a whole number from 0 (nothing) to {COUNT_MOST:,}, not {value}",
            field=field,
        )
    return number


def top_priority(value: int | str) -> int:
    """Return the most urgent priority that a tenant may ask for. Raises: Invalid.

    >>> top_priority("P0"), top_priority(3)
    (0, 3)
    """
    number = value if isinstance(value, int) else _whole(value.strip().lower().removeprefix("p"))
    if number not in PRIORITIES:
        raise Invalid(f"top_priority: must be 0 (most urgent) to 3, not {value}", field="top_priority")
    return number


def degrade(value: bool | str) -> bool:
    """Return whether a tenant's work may be done in cheaper forms. Raises: Invalid.

    >>> degrade("yes"), degrade(False)
    (True, False)
    """
    if isinstance(value, bool):
        return value
    said = {"yes": True, "true": True, "no": False, "false": False}.get(value.strip().lower())
    if said is None:
        raise Invalid(f"degrade: must be yes or no, not {value!r}", field="degrade")
    return said


def _whole(text: str) -> int | None:
    bare = text.strip().replace(",", "").replace("_", "")
    return int(bare) if bare.isascii() and bare.removeprefix("-").isdigit() and len(bare) <= 20 else None
