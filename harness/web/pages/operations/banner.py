"""The level in words: what drives it, since when, what is in force, what comes next, what an operator can do. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

from harness.policy.pressure import Level, Signal
from harness.policy.pressure.course import Stood
from harness.policy.pressure.machine import CALM_RATIO, asks, dwell_s, scores
from harness.store.pressure import STALE_S
from harness.web.pages import times, words
from harness.web.pages.operations import signs
from harness.web.pages.operations.seen import Seen

OF_RESOURCES = ("llm_rate_limit", "llm_in_use", "tool_error_rate", "http_pool_wait")
OF_THE_DATABASE = ("db_connection_usage", "db_pool_wait")
MINUTE_S = 59.0  # rounded up: "at the earliest" must not be early
FULL = 0.95  # in use, from which a resource binds
DATABASE = "the database"
NOBODY = "nobody has evaluated it yet"
ASK_BEAT = "Is beat running, and a worker of the pool system?"


@dataclass(frozen=True, kw_only=True, slots=True)
class Banner:
    """What the banner says. `level`: normal .., "" while nobody has evaluated; `driver`: a resource, "" for none."""

    level: str
    word: str
    sentence: str
    since: str
    in_force: str
    next: str
    can: str
    driver: str

    @property
    def calm(self) -> bool:
        """Whether nothing needs a decision."""
        return self.level == "normal"


def banner(seen: Seen, signals: Mapping[str, Signal]) -> Banner:
    """Return the banner of a look."""
    stored = seen.level
    if stored is None:
        return Banner(
            level="",
            word="Not known",
            sentence=NOBODY,
            since="All work is let through as at the level normal.",
            in_force="Nothing is held back.",
            next=ASK_BEAT,
            can="Start what is missing; evaluations come every 5\u00a0s.",
            driver="",
        )
    level = stored.level.word
    what = driver(seen)
    told = words.LEVELS[level]
    return Banner(
        level=level,
        word=level.capitalize(),
        sentence=told.sentence.format(driver=what or "something behind the workers"),
        since=_since(seen, signals),
        in_force=told.in_force,
        next=_next(seen, signals),
        can=_can(stored.level, seen, what),
        driver=what if what in seen.live else "",
    )


def driver(seen: Seen) -> str:
    """Return what stands behind the signals that are out of range: a resource, the database, a pool; "" for nothing."""
    worst = sorted(
        (name for name, one in seen.readings.items() if one.score and not one.missing),
        key=lambda name: (-seen.readings[name].score, list(signs.WORDS).index(name) if name in signs.WORDS else 99),
    )
    if not worst:
        return ""
    if worst[0] in OF_THE_DATABASE:
        return DATABASE
    found = _worst_resource(seen)
    if found and (worst[0] in OF_RESOURCES or _share(_stood(seen)[found]) >= FULL):
        return found
    waiting: dict[str, int] = {}
    for one in seen.waiting:
        waiting[one.pool] = waiting.get(one.pool, 0) + one.n
    if waiting:
        return f"the pool {max(waiting, key=lambda pool: (waiting[pool], pool))}"
    return found


def shown_resource(seen: Seen) -> str:
    """Return the resource whose chart stands first: what drives the level, else the busiest; "" where there is none."""
    found = driver(seen)
    return found if found in seen.live else _worst_resource(seen) or next(iter(seen.live), "")


def _worst_resource(seen: Seen) -> str:
    """Return the resource that refuses most, or is fullest."""
    stood = _stood(seen)
    if not stood:
        return ""
    return max(sorted(stood), key=lambda name: (_refused(stood[name]), _share(stood[name]), stood[name].limit))


def _stood(seen: Seen) -> dict[str, Stood]:
    """Return how resources stood at the last evaluation; where none is known, as they were last kept."""
    if seen.hour:
        return {name: one for name, one in seen.hour[-1].resources.items() if name in seen.live}
    return {
        name: Stood(live.limit, seen.kept[name].in_flight, 0, 0)
        for name, live in seen.live.items()
        if name in seen.kept
    }


def _refused(one: Stood) -> float:
    return one.refused / one.tried if one.tried else 0.0


def _share(one: Stood) -> float:
    return one.in_use / one.limit if one.limit else 0.0


def _since(seen: Seen, signals: Mapping[str, Signal]) -> str:
    stored = seen.level
    assert stored is not None
    said = f"Since {clock(stored.since_s, seen.at_s)}, {times.about(seen.at_s - stored.since_s)}."
    out = [one for name, one in seen.readings.items() if one.score and not one.missing and name in signals]
    if out:
        count = words.counted(len(out), "signal")
        verb = "is" if len(out) == 1 else "are"
        said += f" {count[:1].upper()}{count[1:]} {verb} out of range: {signs.named(seen.readings)}."
    if stored.level is not Level.NORMAL:
        said += " Nothing is lost, and no running task is touched."
    return said


def _next(seen: Seen, signals: Mapping[str, Signal]) -> str:
    stored = seen.level
    assert stored is not None
    age_s = seen.at_s - stored.seen_s
    if age_s > STALE_S:
        return f"Last evaluated {times.lasted(age_s)} ago, so the level holds. {ASK_BEAT}"
    missing = [signs.lower(signs.WORDS[name].label) for name, one in seen.readings.items() if one.missing]
    if stored.level is Level.NORMAL:
        return _nearest(seen, signals)
    lower = Level(stored.level - 1).word
    if missing:
        return f"It holds, because {', '.join(missing)} can’t be read. It may rise meanwhile."
    state = stored.state
    if state.calm_s is not None:
        left_s = max(0.0, dwell_s(state) - (state.now_s - state.calm_s) - age_s)
        return (
            f"Easing by itself: {lower} at {clock(seen.at_s + left_s + MINUTE_S, seen.at_s)} at the earliest, while "
            "nothing rises again."
        )
    holding = _holding(seen, signals)
    return (
        f"{lower.capitalize()} once {holding} {'have' if ' and ' in holding else 'has'} been below "
        f"{CALM_RATIO:.0%} of the thresholds for {times.lasted(dwell_s(state))}."
    )


def _holding(seen: Seen, signals: Mapping[str, Signal]) -> str:
    """Return the signals that hold the level: those that score at the thresholds that count on the way down."""
    stored = seen.level
    assert stored is not None
    values = {name: one.value for name, one in seen.readings.items() if not one.missing and name in signals}
    scored = scores(values, signals, CALM_RATIO)
    if asks(scored, signals) < stored.level:
        return "everything"
    worst = sorted((name for name in scored if scored[name]), key=lambda name: (-scored[name], name))[:3]
    told = [signs.lower(signs.WORDS[name].label) for name in worst if name in signs.WORDS]
    if not told:
        return "everything"
    return told[0] if len(told) == 1 else ", ".join(told[:-1]) + f" and {told[-1]}"


def _nearest(seen: Seen, signals: Mapping[str, Signal]) -> str:
    near = {
        name: one.value / signals[name].elevated
        for name, one in seen.readings.items()
        if name in signals and name in signs.WORDS and signals[name].elevated < inf and not one.missing
    }
    name = max(near, key=lambda one: (near[one], one), default="")
    if not name or near[name] < 0.5:
        return "Nothing is near a threshold."
    return (
        f"Nearest to its threshold: {signs.lower(signs.WORDS[name].label)} at "
        f"{signs.said(name, seen.readings[name].value)}, elevated from {signs.said(name, signals[name].elevated)}."
    )


def _can(level: Level, seen: Seen, what: str) -> str:
    added = [one.advice for one in seen.advice.values() if not one.stale and one.advice.desired > one.advice.workers]
    if level is Level.NORMAL:
        return "Leave it as it is." if not added else f"Add workers: {_adding(seen)}."
    if what in seen.live:
        return f"Raise the quota of {what} if there is one to be had, or wait. More workers would not help."
    if what == DATABASE:
        return "See what holds its connections, or pause work that writes. More workers would make it worse."
    if added:
        return f"Add workers: {_adding(seen)}. Or pause what can wait."
    return "Pause what can wait, or let it ease by itself."


def _adding(seen: Seen) -> str:
    more = {
        pool: one.advice.desired - one.advice.workers
        for pool, one in seen.advice.items()
        if not one.stale and one.advice.desired > one.advice.workers
    }
    return ", ".join(f"{pool} +{n}" for pool, n in more.items())


def clock(at_s: float, now_s: float, *, seconds: bool = False) -> str:
    """Return a moment as people read it."""
    return times.clock(datetime.fromtimestamp(at_s, UTC), datetime.fromtimestamp(now_s, UTC), seconds=seconds)
