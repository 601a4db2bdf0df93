"""The limit of each target database follows what it has free: a thread of the leading dispatcher, once a second.

Level-triggered: each pass looks at every target anew, decides (policy.targets), and keeps what it found; the planner
takes it from there within a second. A look that hangs holds up neither the others nor the next pass. Nothing here ends
work: a lower limit keeps the next task out, and what runs ends by itself.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import psycopg

from harness.kinds import models, targets
from harness.policy.settings import Topology
from harness.policy.targets import EVERY_S, Away, Full, Seen, State, Target, follow
from harness.store import leader, resources
from harness.store import targets as store_targets
from harness.store.database import Connection
from harness.store.resources import Change, ResourceNow
from harness.telemetry import logs

KEEP_EVERY_S = 5.0  # what hasn't changed is kept again so often, so that its age tells who still looks
HANGS_S = 5.0  # a look that hasn't come back by then says that the target can't be reached
RECONNECT_S = 1.0

Look = Seen | Full | Away
log = logs.get(__name__)


@dataclass(slots=True)
class Following:
    """What this process remembers between two passes."""

    mark: str
    states: dict[str, State] = field(default_factory=dict)
    kept_s: dict[str, float] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)  # why a target is away, as logged last
    under_way: dict[str, float] = field(default_factory=dict)  # looks, by when they began
    answers: "SimpleQueue[tuple[str, Look]]" = field(default_factory=SimpleQueue)


def run(connect: Callable[[], Connection], topology: Topology, *, epoch: int, over: threading.Event) -> None:
    """Follow the targets until `over` is set or another leads; a connection that breaks is opened anew."""
    if not topology.targets:
        return
    while not over.is_set():
        try:
            with connect() as connection:
                following = begin(connection, topology)
                wait_s = 0.0
                while not over.wait(wait_s):
                    if not leader.holds(connection, epoch):
                        return  # the leading thread is about to find out, too
                    began_s = time.monotonic()
                    pass_over(connection, topology, following, looks(topology, following))
                    wait_s = max(0.05, EVERY_S - (time.monotonic() - began_s))
        except psycopg.Error as error:
            log.warning("follow_failed", error=str(error).strip())
            over.wait(RECONNECT_S)


def begin(connection: Connection, topology: Topology) -> Following:
    """Begin where the last one stopped. What is kept of targets that aren't followed any more goes."""
    kept = resources.kept(connection)
    for name, target in topology.targets.items():
        if not target.follow and name in kept:
            resources.forget(connection, name)
    return Following(
        mark=store_targets.mark(connection),
        states={
            name: State(limit=kept[name].limit_now)
            for name, target in topology.targets.items()
            if target.follow and name in kept
        },
    )


def looks(topology: Topology, following: Following) -> dict[str, Look]:
    """Look at every target at once; return what came of those that answered within EVERY_S, now or from before."""
    until_s = time.monotonic() + EVERY_S
    for name, target in topology.targets.items():
        if target.follow and name not in following.under_way:
            following.under_way[name] = time.monotonic()
            # A thread that nobody waits for at the end: a name server may keep it for half a minute.
            threading.Thread(target=_answer, args=(target, following), name="look", daemon=True).start()
    found: dict[str, Look] = {}
    while len(found) < len(following.under_way) and (left_s := until_s - time.monotonic()) > 0:
        try:
            name, one = following.answers.get(timeout=left_s)
        except Empty:
            break
        found[name] = one
    for name in found:
        del following.under_way[name]
    for name, began_s in following.under_way.items():
        if time.monotonic() - began_s > HANGS_S:
            found[name] = Away(mode="unreachable", why=f"no answer for {HANGS_S:g} s")
    return found


def _answer(target: Target, following: Following) -> None:
    try:
        found = look(target, following.mark)
    except Exception as error:  # noqa: BLE001  # whatever a driver does, the target has to be asked again
        found = Away(mode="unreachable", why=type(error).__name__)
    following.answers.put((target.name, found))


def look(target: Target, mark: str) -> Look:
    """Look at one target. An address that is missing or makes no sense is an answer, too."""
    try:
        address = targets.address(target)
    except targets.NoAddress as error:
        return Away(mode=error.mode, why=str(error))
    return store_targets.look(address.conninfo, own_mark=mark, target=target.name)


def pass_over(
    connection: Connection,
    topology: Topology,
    following: Following,
    found: Mapping[str, Look],
    *,
    now_s: float | None = None,
) -> None:
    """Decide the limits anew and keep what changed. `now_s`: on any clock that only goes on. Raises: psycopg.Error."""
    if not found:
        return
    now_s = time.monotonic() if now_s is None else now_s
    live = resources.effective(connection, topology.resources)
    leases = store_targets.leases(connection)
    states, changes = [], []
    for name, one in found.items():
        before = following.states.get(name, State())
        state = follow(
            before,
            topology.targets[name],
            one,
            capacity=live[name].resource.capacity,
            leases=leases.get(name, 0),
            now_s=now_s,
        )
        following.states[name] = state
        _say(following, name, one)
        assert state.limit is not None
        changed = state.limit != before.limit
        if changed:
            changes.append(
                Change(
                    resource=name, at_s=None, old=before.limit, new=state.limit, reason=state.reason, mode=state.mode
                )
            )
            log.info("target_limit", target=name, old=before.limit, new=state.limit, reason=state.reason)
        due = now_s - following.kept_s.get(name, float("-inf")) >= KEEP_EVERY_S
        if changed or due or state.mode != before.mode:
            states.append(
                ResourceNow(resource=name, limit_now=state.limit, mode=state.mode, in_flight=leases.get(name, 0))
            )
    if states:
        resources.keep(connection, states, changes)
        following.kept_s |= {one.resource: now_s for one in states}


def _say(following: Following, name: str, found: Look) -> None:
    """Log once that a target is away, and once that it is back."""
    why = (
        models.redact(found.why) if isinstance(found, Away) else "it lets nobody in" if isinstance(found, Full) else ""
    )
    if why == following.said.get(name, ""):
        return
    following.said[name] = why
    if why:
        log.warning("target_away", target=name, why=why)
    else:
        log.info("target_back", target=name)
