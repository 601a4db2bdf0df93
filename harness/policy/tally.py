"""Counters and histograms that only grow, added up from what a round found; and which tenants are named in them. Pure.

A round adds each row once: rows have ascending numbers, and one whose number was passed over may be committed later
(`gaps`), so it is looked for until nobody can commit it any more. Processes tell totals since they began; what they
told in the round before is taken off.

Invariants: no total falls; a tenant's share is added under one label, its name or OTHER, and never moved to another.
"""

from collections.abc import Iterable, Mapping, Sequence

# Upper bounds in seconds; what is above the last is counted beside them. Of tasks (they wait and run for milliseconds
# or hours), of people's decisions, and of waits for a connection or a permit (no call waits for one longer than 5 s).
TASK_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
PEOPLE_S = (10.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0, 259200.0)
PASSAGE_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

OTHER = "other"
SHOWN_MOST = 20  # tenants with a label of their own
USED_HALF_S = 600.0  # what a tenant used counts half after so long
USED_MOST = 2000  # tenants whose use is remembered
LARGER = 1.5  # so many times the use of the least that has a label takes its place: two alike don't take turns
END = 2**63 - 1  # the highest number of a row

Span = tuple[int, int]  # from, to (both in it)
Gap = tuple[int, int, float]  # from, to, when it was seen first
Labels = tuple[str, ...]
Values = list[float]  # a counter: [n]; a histogram: a number for each bound, one for what is above, and the sum
Totals = dict[str, dict[Labels, Values]]


def bucket(value: float, bounds: Sequence[float]) -> int:
    """Return the place of a value among the bounds; a bound belongs to what is below it.

    >>> [bucket(value, (1.0, 5.0)) for value in (0.5, 1.0, 2.0, 9.0)]
    [0, 0, 1, 2]
    """
    return sum(bound < value for bound in bounds)


def observed(bounds: Sequence[float], place: int, n: float, sum_s: float) -> Values:
    """Return n values of one place, with their sum, as a histogram's values.

    >>> observed((1.0, 5.0), 1, 2, 6.5)
    [0.0, 2.0, 0.0, 6.5]
    """
    return [float(n) if at == place else 0.0 for at in range(len(bounds) + 1)] + [float(sum_s)]


def add(totals: Totals, name: str, labels: Labels, values: Iterable[float]) -> None:
    """Add to a counter or histogram; it begins with the first values.

    >>> totals: Totals = {}
    >>> add(totals, "retries", ("llm",), [2.0]); add(totals, "retries", ("llm",), [1.0]); totals
    {'retries': {('llm',): [3.0]}}
    """
    found = list(values)
    of_name = totals.setdefault(name, {})
    before = of_name.get(labels)
    of_name[labels] = found if before is None else [old + new for old, new in zip(before, found, strict=True)]


def grown(now: Mapping[str, Sequence[float]], before: Mapping[str, Sequence[float]]) -> dict[str, Values]:
    """Return what totals of one process grew by since it told them last; one that fell has begun anew.

    >>> grown({"a": [5.0, 1.0], "b": [2.0]}, {"a": [3.0, 1.0], "b": [9.0]})
    {'a': [2.0, 0.0], 'b': [2.0]}
    """
    found: dict[str, Values] = {}
    for name, values in now.items():
        old = before.get(name, ())
        anew = len(old) != len(values) or any(new < was for new, was in zip(values, old, strict=True))
        found[name] = list(values) if anew else [new - was for new, was in zip(values, old, strict=True)]
    return {name: values for name, values in found.items() if any(values)}


def spans(high: int, gaps: Iterable[Gap]) -> list[Span]:
    """Return where rows are looked for that no round has seen: in the gaps, and above `high`."""
    return [(low, top) for low, top, _ in gaps] + [(high + 1, END)]


def passed_over(
    high: int, gaps: Iterable[Gap], seen: Iterable[Span], *, now_s: float, open_since_s: float
) -> tuple[int, list[Gap]]:
    """Return how far rows were seen, and the numbers below that weren't, of those that may still come.

    `seen`: the numbers of the rows found, as runs of neighbours; `open_since_s`: since when the oldest transaction was
    open when the round began: a gap that was seen before that belongs to nobody.

    >>> passed_over(10, [(7, 8, 90.0), (3, 3, 20.0)], [(8, 8), (11, 12), (14, 15)], now_s=100.0, open_since_s=80.0)
    (15, [(7, 7, 90.0), (13, 13, 100.0)])
    """
    runs = sorted(seen)
    top = max([high, *(last for _, last in runs)])
    left: list[Gap] = []
    for low, last, at_s in [*sorted(gaps), (high + 1, top, now_s)]:
        if at_s < open_since_s:
            continue
        at = low
        for first, over in runs:
            if over < at or first > last:
                continue
            if first > at:
                left.append((at, first - 1, at_s))
            at = over + 1
        if at <= last:
            left.append((at, last, at_s))
    return top, left


def used(before: Mapping[int, float], now: Mapping[int, float], passed_s: float) -> dict[int, float]:
    """Return what tenants have used of late, in slot-seconds; the USED_MOST largest.

    >>> used({1: 8.0}, {1: 1.0, 2: 2.0}, 600.0)
    {1: 5.0, 2: 2.0}
    """
    keep = 0.5 ** (max(0.0, passed_s) / USED_HALF_S)
    found = {tenant: before.get(tenant, 0.0) * keep + now.get(tenant, 0.0) for tenant in {**before, **now}}
    largest = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:USED_MOST]
    return {tenant: value for tenant, value in largest if value > 1e-3}


def shown(before: Sequence[int], use: Mapping[int, float], *, most: int = SHOWN_MOST) -> list[int]:
    """Return the tenants that have a label of their own: those of before, unless others use LARGER times as much.

    >>> shown([1, 2], {1: 5.0, 2: 1.0, 3: 1.4, 4: 9.0}, most=2)
    [1, 4]
    """
    kept = list(before)[:most]
    for tenant in sorted(use, key=lambda one: (-use[one], one)):
        if tenant in kept:
            continue
        if len(kept) < most:
            kept.append(tenant)
            continue
        least = min(kept, key=lambda one: (use.get(one, 0.0), -one))
        if use[tenant] <= LARGER * use.get(least, 0.0):
            break
        kept[kept.index(least)] = tenant
    return kept
