"""The dispatcher's process: lead or stand by, tick when something happened, sweep beside it.

Any number run; one leads, by the epoch. The leader says that it sleeps (asks for the doorbell) except under a load so
steady that the next tick comes anyway: then nobody has to ring. Audit and retention, the notes on why flows wait, the
readings of resources and the counts for the metrics have threads of their own.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import psycopg

from harness.engine import dispatch, follow, readings, reasons, sweep, tally, upkeep
from harness.engine.doorkeeper import Doorkeeper
from harness.engine.memory import Memory
from harness.engine.readings import Readings, Reads
from harness.engine.schedules import Firing
from harness.engine.upkeep import Upkeep
from harness.policy.errors import Unavailable
from harness.policy.resources import Live
from harness.policy.settings import Topology
from harness.store import leader
from harness.store.database import Connection, connect
from harness.store.doorbell import CHANNEL, Doorbell
from harness.store.message import Message
from harness.telemetry import logs

TICK_S = 0.250  # the safety net: covers doorbells that were lost
COALESCE_S = 0.005  # ticks under load come no closer than this: 16 slots of short work wait for a tick half the time
STEADY_TICKS = 10  # so many ticks in a row that released something: no doorbell is needed
STEADY_S = 0.1  # until so long after the last release: slots that are busy now will be free soon, and a look is cheap
IDLE_IN_TRANSACTION_S = 2.0  # a stopped leader must not hold the epoch's lock for longer
STANDBY_S = 0.5
RECONNECT_S = 1.0

log = logs.get(__name__)


Permits = Callable[[Callable[[], Mapping[str, Live]]], Reads]  # from the resources as they are now


class Broker(Protocol):
    """The way to the workers (store.broker); the process's composition brings it."""

    def warm(self) -> None:
        """Connect. Raises: Unavailable."""
        ...

    def publish(self, messages: Sequence[Message]) -> None:
        """Send all. Raises: Unavailable; some may have been sent."""
        ...

    def close(self) -> None:
        """Drop the connection."""
        ...


class Dispatcher:
    """One dispatcher process. `run` returns when `stop` is set. `firing`: the settings of what schedules bring.

    `permits`: opens what reads permits, and frees those of lost attempts (store.permits); None: there are none, and
    limits are as configured.
    """

    def __init__(
        self,
        *,
        database_url: str,
        broker: Broker,
        topology: Topology,
        stop: threading.Event,
        firing: Firing | None = None,
        upkeep: Upkeep | None = None,
        permits: Permits | None = None,
    ) -> None:
        self._url = database_url
        self._topology = topology
        self._stop = stop
        self._broker = broker
        self._firing = firing or Firing()
        self._upkeep = upkeep or Upkeep()
        self._readings = Readings(configured=topology.resources)
        self._readings.permits = permits(self._readings.effective) if permits else None
        self._owner = f"{socket.gethostname()}:{os.getpid()}"

    def run(self) -> None:
        """Stand by, lead, stand by again, until stopped; connections that break are opened anew."""
        while not self._stop.is_set():
            try:
                with self._open("dispatcher") as connection:
                    epoch = leader.take(connection, self._owner)
                    if epoch is None:
                        self._stop.wait(STANDBY_S)
                        continue
                    # A release that a crash of the server forgets was claimed by nobody: the claim would have
                    # flushed it (ADR 0010).
                    connection.execute("SET synchronous_commit = off")
                    self._lead(connection, epoch)
            except psycopg.Error as error:
                log.warning("database_away", error=str(error).strip())
                self._stop.wait(RECONNECT_S)
        self._broker.close()

    def _lead(self, connection: Connection, epoch: int) -> None:
        over = threading.Event()
        sweeper = threading.Thread(target=self._sweep, args=(epoch, over), name="sweep", daemon=True)
        keeper = threading.Thread(target=self._keep_up, args=(over,), name="upkeep", daemon=True)
        try:
            with self._open("dispatcher-listen") as listener:
                listener.execute(f"LISTEN {CHANNEL}")
                memory = dispatch.begin(connection, epoch=epoch)
                self._readings.began_s = time.monotonic()
                memory.see(self._readings.look(connection))
                sweeper.start()
                keeper.start()
                threading.Thread(target=self._read, args=(memory, over), name="readings", daemon=True).start()
                threading.Thread(
                    target=self._note_reasons, args=(memory, epoch, over), name="reasons", daemon=True
                ).start()
                threading.Thread(target=self._follow, args=(epoch, over), name="follow", daemon=True).start()
                threading.Thread(target=self._tally, args=(over,), name="tally", daemon=True).start()
                self._warm_broker()
                self._ticks(connection, listener, memory, epoch)
        finally:
            over.set()
            log.info("lead_ended", epoch=epoch)
            if not connection.broken:
                leader.resign(connection, epoch)

    def _ticks(self, connection: Connection, listener: Connection, memory: Memory, epoch: int) -> None:
        renewed_s = released_s = time.monotonic()
        quiet_s = COALESCE_S
        in_a_row = 0
        steady = sleeping = False
        while not self._stop.is_set():
            began_s = time.monotonic()
            if began_s - renewed_s >= leader.RENEW_EVERY_S:
                if not leader.renew(connection, epoch):
                    log.warning("lead_lost", epoch=epoch)
                    return
                renewed_s = began_s
            released = self._tick(connection, memory, epoch)
            if released:
                in_a_row, quiet_s, released_s = in_a_row + 1, COALESCE_S, began_s
            else:
                in_a_row, quiet_s = 0, min(TICK_S, quiet_s * 2)
            if memory.more:
                quiet_s = COALESCE_S
                continue
            steady = in_a_row >= STEADY_TICKS or (steady and began_s - released_s < STEADY_S)
            if steady == sleeping:
                # Said before the next look, so that what became ready in between is seen by that look or rings. Who
                # read the old word in a statement that commits after that look is seen by the one COALESCE_S later.
                sleeping = not steady
                leader.set_sleeping(connection, epoch, sleeping)
                if sleeping:
                    quiet_s = COALESCE_S
                    continue
            self._wait(listener, began_s, 0.0 if steady else quiet_s)

    def _tick(self, connection: Connection, memory: Memory, epoch: int) -> int:
        try:
            return dispatch.tick(connection, self._topology, memory, epoch=epoch, publish=self._broker.publish)
        except Unavailable as error:
            log.warning("broker_away", error=error.message)
            self._stop.wait(RECONNECT_S)
            return 0

    def _wait(self, listener: Connection, began_s: float, quiet_s: float) -> None:
        """Wait for a doorbell or `quiet_s`; and in any case until COALESCE_S after the last tick began."""
        if quiet_s:
            for _ in listener.notifies(timeout=quiet_s, stop_after=1):
                pass
        left_s = COALESCE_S - (time.monotonic() - began_s)
        if left_s > 0:
            self._stop.wait(left_s)

    def _sweep(self, epoch: int, over: threading.Event) -> None:
        bell = Doorbell()
        ended = self._readings.permits.ended if self._readings.permits else None
        doorkeeper = Doorkeeper(self._topology)
        wait_s = sweep.EVERY_S
        while not over.is_set():
            try:
                with self._open("dispatcher-sweep") as connection:
                    connection.execute(f"SET lock_timeout = {int(sweep.LOCK_WAIT_S * 1000)}")
                    while not over.wait(wait_s):
                        if not leader.holds(connection, epoch):
                            return  # the leading thread is about to find out, too
                        swept = sweep.sweep(connection, epoch=epoch, firing=self._firing, ended=ended)
                        let_in = doorkeeper.round(connection, epoch=epoch)
                        wait_s = 0.0 if swept.more else sweep.EVERY_S
                        if swept.woke or let_in:
                            bell.ring(connection)
            except psycopg.Error as error:
                log.warning("sweep_failed", error=str(error).strip())
                over.wait(RECONNECT_S)

    def _keep_up(self, over: threading.Event) -> None:
        upkeep.run(
            self._upkeep,
            url=self._url,
            topology=self._topology,
            connect=lambda: self._open("dispatcher-upkeep"),
            over=over,
        )

    def _read(self, memory: Memory, over: threading.Event) -> None:
        readings.run(self._readings, lambda: self._open("dispatcher-readings"), memory.see, over=over)

    def _note_reasons(self, memory: Memory, epoch: int, over: threading.Event) -> None:
        reasons.run(
            lambda: self._open("dispatcher-reasons"),
            self._topology,
            memory.held_lately,
            memory.course,
            epoch=epoch,
            over=over,
        )

    def _follow(self, epoch: int, over: threading.Event) -> None:
        follow.run(lambda: self._open("dispatcher-follow"), self._topology, epoch=epoch, over=over)

    def _tally(self, over: threading.Event) -> None:
        tally.run(lambda: self._open("dispatcher-tally"), over=over)

    def _warm_broker(self) -> None:
        try:
            self._broker.warm()
        except Unavailable as error:
            log.warning("broker_away", error=error.message)

    def _open(self, name: str) -> Connection:
        return connect(
            self._url,
            "engine",
            application_name=f"harness-{name}",
            idle_in_transaction_s=IDLE_IN_TRANSACTION_S,
        )
