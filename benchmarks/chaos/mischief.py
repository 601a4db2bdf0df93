"""Carries out the faults of the schedule, each in turn, and notes what was really done, to whom and when."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import redis

from benchmarks import machine
from benchmarks.chaos import sabotage
from benchmarks.chaos.cast import Cast, send
from benchmarks.chaos.history import Fault
from benchmarks.chaos.schedule import Plan
from benchmarks.servers import Servers

THEFT_S = 4.0  # how long a thief waits for a message
KEPT = 200  # messages that a thief remembers for later
TOUCH_S = 0.3  # before a replay goes out for the second time


class Mischief:
    """One run's faults. `queues`: where messages are stolen from. `done` grows while `play` goes on.

    `errors`: by fault, what broke one off that is played beside the others.
    """

    def __init__(self, cast: Cast, servers: Servers, broker_url: str, orders: Path, queues: Sequence[str]) -> None:
        self._cast = cast
        self._servers = servers
        self._broker_url = broker_url
        self._orders = orders
        self._queues = list(queues)
        self._stopped: dict[int, threading.Timer] = {}
        self._threads: list[threading.Thread] = []
        self._kept: list[tuple[bytes, bytes]] = []
        self.done: list[Fault] = []
        self.errors: dict[str, Exception] = {}

    def play(self, plans: Sequence[Plan], began_s: float) -> None:
        """Carry the plans out at their times after `began_s` (epoch)."""
        for plan in plans:
            time.sleep(max(0.0, began_s + plan.at_s - time.time()))
            match plan.what:
                case "kill":
                    self._kill(plan)
                case "stop":
                    self._stop(plan)
                case "server":
                    self._serve(plan)
                case "messages":
                    self._beside(self._meddle, plan)
                case "sabotage":
                    sabotage.order(self._orders, plan.role)

    def end(self) -> None:
        """Let everybody go on, and take back orders that nobody took."""
        for timer in list(self._stopped.values()):
            timer.cancel()
            timer.function()
        for thread in self._threads:
            thread.join()
        for name in sabotage.orders():
            (self._orders / name).unlink(missing_ok=True)
        for name, pid, at_s in sabotage.taken(self._orders):
            self.done.append(Fault(what="sabotage", role=name, pid=pid, at_s=at_s))
        self.done.sort(key=lambda fault: fault.at_s)

    def _kill(self, plan: Plan) -> None:
        pids = [pid for pid in self._cast.pids(plan.role) if pid not in self._stopped]
        if pids:
            pid = pids[int(plan.dice * len(pids))]
            family = tuple(sorted(machine.descendants([pid]) - {pid}))
            at_s = time.time()
            if send(pid, signal.SIGKILL):
                self.done.append(Fault(what="kill", role=plan.role, pid=pid, at_s=at_s, family=family))

    def _stop(self, plan: Plan) -> None:
        pids = [pid for pid in self._cast.pids(plan.role) if pid not in self._stopped]
        if not pids:
            return
        pid = pids[int(plan.dice * len(pids))]
        at_s = time.time()
        if not send(pid, signal.SIGSTOP):
            return

        def go_on() -> None:
            self._stopped.pop(pid, None)
            until_s = time.time()
            send(pid, signal.SIGCONT)
            self.done.append(Fault(what="stop", role=plan.role, pid=pid, at_s=at_s, until_s=until_s))

        timer = threading.Timer(plan.for_s, go_on)
        timer.daemon = True  # a run that breaks off ends its processes itself
        self._stopped[pid] = timer
        timer.start()

    def _serve(self, plan: Plan) -> None:
        at_s = time.time()
        match plan.role:
            case "redis_flush":
                with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self._broker_url) as client:
                    client.flushdb()
            case "redis_restart":
                assert self._servers.restart_broker is not None
                self._servers.restart_broker()
            case _:
                assert self._servers.restart_database is not None
                self._servers.restart_database(plan.role == "postgres_immediate")
        self.done.append(Fault(what="server", role=plan.role, pid=0, at_s=at_s, until_s=time.time()))

    def _beside(self, act: Callable[[Plan], None], plan: Plan) -> None:
        def run() -> None:
            try:
                act(plan)
            except Exception as error:  # noqa: BLE001  # told with the run's report, which fails by it
                self.errors[plan.role] = error

        thread = threading.Thread(target=run, name=plan.role, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _meddle(self, plan: Plan) -> None:
        """Take a message from a queue and put it back: twice, much later, or old ones again."""
        at_s = time.time()
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(self._broker_url) as client:
            if plan.role == "replay" and self._kept:
                start = int(plan.dice * len(self._kept))
                for queue, message in self._kept[start : start + 8]:
                    client.lpush(queue, message, message)
                    time.sleep(TOUCH_S)
                self.done.append(Fault(what="messages", role="replay", pid=0, at_s=at_s, until_s=time.time()))
                return
            stolen = self._steal(client, 1 + int(plan.dice * 4))
            if plan.role == "delay":
                time.sleep(plan.for_s)
            for queue, message in stolen:
                client.lpush(queue, *([message] * (1 if plan.role == "delay" else 2)))
            if stolen:
                self.done.append(Fault(what="messages", role=plan.role, pid=0, at_s=at_s, until_s=time.time()))

    def _steal(self, client: Any, most: int) -> list[tuple[bytes, bytes]]:
        until_s = time.monotonic() + THEFT_S
        stolen: list[tuple[bytes, bytes]] = []
        while len(stolen) < most and (left_s := until_s - time.monotonic()) > 0:
            # Whoever has waited longest on a queue is served first: the workers ask anew each second.
            found = client.brpop(self._queues, timeout=left_s)
            if found is None:
                break
            stolen.append(found)
        self._kept = [*self._kept, *stolen][-KEPT:]
        return stolen
