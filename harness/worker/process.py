"""The life of one worker process: it beats, watches, drains, fences itself, hands back and ends.

Two side threads, each with a connection of its own: the beat (every 5 s, always) and the watch (every 0.5 s). What a
wish, an overdue task or a lost child means, the engine decides; here stands only when it is asked, and when to exit.

Invariants: nothing is handed back before the fence is closed; after the fence nothing reopens it; a process whose
session is gone exits, for the supervisor to start it anew; no exit waits longer than the drain and a few seconds.
"""

import faulthandler
import functools
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings

from harness.engine import living, watch
from harness.engine.downstream import Downstream
from harness.engine.execute import run_lease
from harness.engine.homes import Homes
from harness.engine.process import DRAIN as WHY_DRAIN
from harness.engine.process import ProcessState, boottime_s, open_process
from harness.engine.waits import Waits
from harness.policy.homes import SEEN_FOR_S
from harness.store import pauses, sessions
from harness.store.database import Connection, borrowed, connect
from harness.telemetry import logs
from harness.worker import current
from harness.worker.link import Link
from harness.worker.profile import Profile
from harness.worker.retiring import Retiring
from harness.worker.shared import DRAIN, STOP, Shared

BEAT_AGAIN_S = 1.0  # after a beat that failed; the fence falls 15 s after the last good one
BEAT_STATEMENT_S = 4.0
WATCH_S = 0.5
WATCH_STATEMENT_S = 4.0
PAUSES_S = 0.9  # at every second round of the watch
UNHELD_EVERY_S = 5.0
RESOURCES_EVERY_S = 2.0  # an override acts within 5 s
ZOMBIE_MAX_AGE_S = 300.0
ZOMBIE_MAX_RATIO = 0.25
POOL_STUCK_S = 30.0  # a pool without a usable slot for so long is worth the restart of those beside it
CHILDREN_EXIT_S = 1.5  # two rounds of a child's watch and a statement
OWN_CONNECTION_S = 1.0  # a child's task may hold its only connection (ctx.db); the watch comes again
# A worker of threads may go for so long without a round of its beat: longer than its session lives, so ending it loses
# nothing more. Only C code that keeps the interpreter to itself takes that long (a regular expression that backtracks).
FROZEN_S = 30.0
GUARD_S = 5  # past the drain's end the kernel ends the process, whatever it is stuck in

log = logs.get(__name__)
T = TypeVar("T")


class Life:
    """One worker process with its session. With threads it executes tasks itself; with prefork its children do."""

    def __init__(
        self,
        profile: Profile,
        *,
        database_url: str,
        hostname: str,
        drain_s: float,
        zombie_max_age_s: float = ZOMBIE_MAX_AGE_S,
    ) -> None:
        self.profile = profile
        self.session = uuid.uuid4()
        self.paused: frozenset[str] = frozenset()
        self._url = database_url
        self._name = f"harness-{'+'.join(profile.slots)}"[:63]
        self._hostname = hostname
        self._drain_s = drain_s
        self._zombie_max_age_s = zombie_max_age_s
        self._shared = Shared()
        self._process: ProcessState | None = None
        # Of the parent of prefork children, which makes no call itself: it connects with the first child that is lost.
        self._downstream = Downstream(settings.HARNESS_PERMITS_URL, settings.HARNESS_TOPOLOGY.resources, Waits())
        self._live_pids: Callable[[], set[int]] = set
        self._beat = Link(database_url, application_name=self._name, statement_s=BEAT_STATEMENT_S)
        self._watch = Link(database_url, application_name=self._name, statement_s=WATCH_STATEMENT_S)
        self._ended = threading.Event()
        self._leaving = threading.Lock()
        self._drain_until_s: float | None = None
        self._drain_told = False
        self._unheld_due_s = 0.0
        self._resources_due_s = 0.0
        self._homes: Homes | None = None
        self._paused_keys: set[str] = set()
        self._retiring = Retiring(self.session)
        self._deaf: dict[tuple[int, int], float] = {}
        self._failing: set[str] = set()

    # 1. Begin

    def register(self, kinds: Sequence[str], *, budget: int) -> str:
        """Enter this process into the sessions. Returns the derivation of the budget.

        Raises: Refused (budget of connections), psycopg.Error.
        """
        started_s = boottime_s()
        with connect(self._url, "engine", application_name=self._name) as connection:
            derivation = sessions.register(
                connection,
                session=self.session,
                host=self._hostname,
                pid=os.getpid(),
                # Prefork children outlive their parent by as much as its last beat is good for.
                place=living.place() if self.profile.workers == "threads" else None,
                pools=self.profile.slots,
                kinds=list(kinds),
                connections=self.profile.all_connections,
                budget=budget,
            )
            if self.profile.workers == "threads":
                self._homes = Homes(settings.HARNESS_TOPOLOGY, self.session, self.profile.slots)
                self._homes.look(connection)
            self._paused_keys = pauses.queues(connection)
            self._note_pauses(self._paused_keys)
        self._shared.beat_s = started_s
        return derivation

    def start(self, live_pids: Callable[[], set[int]]) -> None:
        """Begin to beat and to watch. After the fork of prefork's children, so that no thread is in their way."""
        self._live_pids = live_pids
        if self.profile.workers == "threads":
            self._process = self._execute(self.profile.connections)
        for loop in (self._beat_loop, self._watch_loop):
            threading.Thread(target=loop, name=loop.__name__.strip("_"), daemon=True).start()
        log.info("worker_started", session=str(self.session), slots=dict(self.profile.slots), pid=os.getpid())

    def begin_child(self) -> None:
        """In a prefork child: execute under the parent's session, with one connection, fenced by its beat."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what ignores it, billiard leaves so
        if self.profile.is_system or self._shared.order == STOP:
            return
        process = self._process = self._execute(1)

        def run(lease: int, token: int) -> None:
            signal.signal(signal.SIGTERM, self._child_told_to_end)
            run_lease(process, lease, token)

        current.serve(run)
        threading.Thread(target=self._child_loop, name="child_watch", daemon=True).start()

    def _child_told_to_end(self, number: int, _: Any) -> None:
        """Obey when the task was asked to stop. Else the parent says when: supervisors signal the whole group."""
        running = list(self._process.running.values()) if self._process is not None else []
        if any(one.stop not in (None, WHY_DRAIN) for one in running):
            raise SystemExit(-number)

    def _execute(self, connections: int) -> ProcessState:
        process = open_process(
            database_url=self._url,
            session=self.session,
            pools=self.profile.slots,
            connections=connections,
            application_name=self._name,
            pid=os.getpid(),
            beat_s=lambda: self._shared.beat_s,
            time_limit_error=SoftTimeLimitExceeded,
        )
        # Before the first task: what operators have set holds for its calls, too.
        self._ask("read_resources", lambda: _with_own(process, watch.read_resources))
        current.serve(functools.partial(run_lease, process))
        return process

    # 2. Live

    def _note_pauses(self, keys: set[str]) -> None:
        # Not consumed either: what other processes of the pool are enough for.
        not_now = keys | (self._homes.unsure if self._homes is not None else set())
        retiring = self._retiring.begun
        self.paused = frozenset(q for q in self.profile.queues if retiring or not_now & {q, *q.split(".")})

    def _look_at_homes(self, process: ProcessState, looked: Homes) -> None:
        """See which pools others are enough for, and let connections be kept where nobody else needs them."""
        began_s = time.monotonic()
        seen = self._ask("look_at_homes", lambda: self._watch.run(looked.look))
        if seen is None or process.draining:
            process.targets.keep({}, until_s=began_s)
        else:
            process.targets.keep(seen.keeps, until_s=began_s + SEEN_FOR_S)

    def _beat_loop(self) -> None:
        wait_s = sessions.BEAT_EVERY_S
        self._outlive_freeze()
        while not self._ended.wait(wait_s):
            self._outlive_freeze()
            started_s = boottime_s()
            alive = self._ask("beat", functools.partial(self._beat.run, self._beaten))
            if alive is False:
                self.leave(1, "session_lost")
            if alive:
                self._shared.beat_s = started_s
            if not self._fence_is_open():
                self.leave(1, "fence_closed")
            wait_s = max(0.0, sessions.BEAT_EVERY_S - (boottime_s() - started_s)) if alive else BEAT_AGAIN_S

    def _beaten(self, connection: Connection) -> bool:
        if (process := self._process) is None:
            return sessions.beat(connection, self.session)
        told = {process.pid: process.counted()}
        return sessions.beat(connection, self.session, waits=process.waits.read(), totals=told)

    def _outlive_freeze(self) -> None:
        """Once more put off the end that comes when no Python runs here any more: nobody else could restart us then.

        A thread of C does it, which needs no Python: it writes where each thread stands, and exits with 1.
        """
        if self.profile.workers == "threads" and sys.__stderr__ is not None:
            faulthandler.dump_traceback_later(FROZEN_S, exit=True, file=sys.__stderr__)

    def _fence_is_open(self) -> bool:
        if boottime_s() - self._shared.beat_s > sessions.FENCE_AFTER_S:
            return False
        return self._process is None or self._process.fence.is_open()

    def _watch_loop(self) -> None:
        pauses_due_s = 0.0
        while not self._ended.wait(WATCH_S):
            self._drain_step()
            if self._process is not None:
                self._watch_threads(self._process)
            elif not self.profile.is_system:
                self._ask("end_deaf_children", lambda: self._watch.run(self._end_deaf))
                self._lose_dead(self._live_pids)
            if time.monotonic() >= pauses_due_s:
                pauses_due_s = time.monotonic() + PAUSES_S
                if self._process is not None and self._homes is not None:
                    self._look_at_homes(self._process, self._homes)
                paused = self._ask("paused_queues", lambda: self._watch.run(pauses.queues))
                if paused is not None:
                    self._paused_keys = paused
                stays = self.profile.is_system or self._drain_until_s is not None
                if not stays and self._ask("retire", lambda: self._watch.run(self._retiring.look)):
                    os.kill(os.getpid(), signal.SIGTERM)  # as a supervisor does; nothing runs here
                self._note_pauses(self._paused_keys)

    def _watch_threads(self, process: ProcessState) -> None:
        self._ask("read_wishes", lambda: self._watch.run(lambda c: watch.read_wishes(process, c)))
        self._ask("settle_overdue", lambda: self._watch.run(lambda c: watch.settle_overdue(process, c)))
        if time.monotonic() >= self._unheld_due_s:
            self._unheld_due_s = time.monotonic() + UNHELD_EVERY_S
            self._ask("hand_back_unheld", lambda: self._watch.run(lambda c: watch.hand_back_unheld(process, c)))
        if time.monotonic() >= self._resources_due_s:
            self._resources_due_s = time.monotonic() + RESOURCES_EVERY_S
            self._ask("read_resources", lambda: self._watch.run(lambda c: watch.read_resources(process, c)))
        number, oldest_s = watch.zombies(process)
        if number and (number >= ZOMBIE_MAX_RATIO * self.profile.concurrency or oldest_s > self._zombie_max_age_s):
            self.leave(1, "threads_stuck", zombies=number, oldest_s=round(oldest_s, 1))
        # A small pool beside large ones is all stuck long before a quarter of the threads is.
        if number and (pools := watch.stuck_pools(process, self.profile.slots, older_than_s=POOL_STUCK_S)):
            self.leave(1, "pools_stuck", pools=pools, zombies=number)

    def _end_deaf(self, connection: Connection) -> int:
        return watch.end_deaf_children(connection, self.session, self._deaf, self._live_pids)

    def _lose_dead(self, live_pids: Callable[[], set[int]]) -> None:
        self._ask(
            "lose_dead_children",
            lambda: self._watch.run(
                lambda c: watch.lose_dead_children(c, self.session, live_pids, ended=self._downstream.ended)
            ),
        )

    def _child_loop(self) -> None:
        process = self._process
        assert process is not None
        while True:
            time.sleep(WATCH_S)
            if watch.zombies(process)[0]:
                process.fence.close()  # a call that its task left is past the task's time limit: end it with the child
            if self._shared.order == STOP or not process.fence.is_open():
                process.fence.close()
                self._ask("hand_back", lambda: _with_own(process, watch.hand_back))
                _exit(0)
            if self._shared.order == DRAIN:
                process.drain()
            self._ask("read_wishes", lambda: _with_own(process, watch.read_wishes))
            if time.monotonic() >= self._unheld_due_s:
                self._unheld_due_s = time.monotonic() + UNHELD_EVERY_S
                self._ask("hand_back_unheld", lambda: _with_own(process, watch.hand_back_unheld))
                self._ask("tell_counts", lambda: _with_own(process, watch.tell_counts))
            if time.monotonic() >= self._resources_due_s:
                self._resources_due_s = time.monotonic() + RESOURCES_EVERY_S
                self._ask("read_resources", lambda: _with_own(process, watch.read_resources))

    # 3. Drain

    def request_drain(self, *, at_once: bool = False) -> None:
        """Stop soon: the watch tells the dispatcher and the kinds. Safe in a signal handler: it takes no lock."""
        drain_s = 0.0 if at_once else self._drain_s
        until_s = time.monotonic() + drain_s
        if self._drain_until_s is not None and self._drain_until_s <= until_s:
            return
        self._drain_until_s = until_s
        # Even a watch that hangs in a statement doesn't keep the process: this needs no Python to run.
        signal.alarm(int(drain_s) + GUARD_S)

    def _drain_step(self) -> None:
        if self._drain_until_s is None:
            return
        self._shared.advance(DRAIN)
        if self._process is not None:
            self._process.drain()
        if not self._drain_told:
            self._drain_told = self._tell_drain()
        if time.monotonic() >= self._drain_until_s:
            self.leave(0, "drain_deadline_passed")

    def _tell_drain(self) -> bool:
        def tell(connection: Connection) -> bool:
            sessions.start_drain(connection, self.session)
            return True

        return bool(self._ask("start_drain", lambda: self._watch.run(tell)))

    # 4. End

    def finish(self) -> None:
        """End a process whose pool has stopped: nothing runs any more."""
        if self._ended.is_set():
            return
        self._leaving.acquire()
        self._ended.set()
        self._hand_over()
        faulthandler.cancel_dump_traceback_later()
        log.info("worker_ended", session=str(self.session))

    def leave(self, code: int, why: str, **facts: Any) -> NoReturn:
        """Fence, hand back what still runs here, end the session and exit at once. Threads can't be interrupted."""
        self._leaving.acquire()
        log.warning("worker_left", why=why, session=str(self.session), **facts)
        if self._drain_until_s is None:
            signal.alarm(GUARD_S)
        self._hand_over()
        _exit(code)

    def _hand_over(self) -> None:
        self._shared.advance(STOP)
        process = self._process
        if process is not None:
            process.draining = True  # a message that still comes goes back at once, not after 10 s
            process.fence.close()
        # First of all: what is handed back while this session counts would be released to it once more.
        if not self._tell_drain():
            return  # the database is away: the sweep takes everything back with the session
        if process is not None:
            self._ask("hand_back", lambda: self._watch.run(lambda c: watch.hand_back(process, c)))
        elif not self.profile.is_system:
            self._stop_children()
            self._lose_dead(set)
        self._ask("end", lambda: self._watch.run(lambda c: sessions.end(c, self.session)))

    def _stop_children(self) -> None:
        """Let the children hand back and exit by themselves; kill those that don't."""
        deadline_s = time.monotonic() + CHILDREN_EXIT_S
        while (pids := self._live_pids()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        while self._live_pids():
            time.sleep(0.01)

    def _ask(self, what: str, question: Callable[[], Any]) -> Any:
        """Ask; None when it failed. A side thread must outlive every failure; each is logged once until it mends."""
        try:
            answer = question()
        except Exception as error:  # noqa: BLE001  # whatever a server or a driver does, the thread goes on
            if what not in self._failing:
                self._failing.add(what)
                log.warning("worker_side_failed", what=what, error=str(error), type=type(error).__name__)
            return None
        if what in self._failing:
            self._failing.discard(what)
            log.info("worker_side_mended", what=what)
        return answer


def _with_own(process: ProcessState, question: Callable[[ProcessState, Connection], T]) -> T:
    """Ask over a child's one connection. Raises: Unavailable when its task holds it for longer than a moment."""
    with borrowed(process.db, wait_s=OWN_CONNECTION_S) as connection:
        return question(process, connection)


def _exit(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
