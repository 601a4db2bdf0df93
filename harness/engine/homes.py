"""What one worker process sees of its pools: for which it stands by, and whose connections it may keep. Reads only."""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.kinds import registry
from harness.policy import capacity, homes
from harness.policy.capacity import Bound
from harness.policy.homes import Seat, Standing
from harness.policy.settings import Topology
from harness.store import resources, sessions
from harness.store.database import Connection


@dataclass(frozen=True, slots=True)
class Seen:
    """After a look: the pools that this process stands by for; the targets that it alone uses, with their limits."""

    standby: frozenset[str] = frozenset()
    keeps: Mapping[str, int] = field(default_factory=dict)


class Homes:
    """The seats of one process in its pools. Not safe for threads: one looks."""

    def __init__(self, topology: Topology, session: uuid.UUID, pools: Iterable[str]) -> None:
        self._topology = topology
        self._session = str(session)
        self._needs = registry.needs()
        bounds = capacity.bounds(topology, self._needs, capacity.configured(topology))
        self._mine = [name for name in pools if name in bounds and homes.ceiling(bounds[name]) is not None]
        self._seats = dict.fromkeys(self._mine, Seat())

    @property
    def unsure(self) -> frozenset[str]:
        """The pools that it stands by for until a look says otherwise."""
        return frozenset(name for name, seat in self._seats.items() if not seat.home)

    def look(self, connection: Connection) -> Seen:
        """Look who else is there. Raises: psycopg.Error."""
        if not self._mine:
            return Seen()
        topology = self._topology
        # 1. Load
        live = resources.effective(connection, topology.resources)
        users = self._users()
        standing, elsewhere = _standing(connection, {*self._mine, *(pool for some in users.values() for pool in some)})
        # 2. Decide
        bounds = capacity.bounds(topology, self._needs, capacity.overridden(topology, live))
        for name in self._mine:
            most = homes.ceiling(bounds[name])
            assert most is not None  # which resources bind may change, but not who holds them
            self._seats[name] = homes.sit(self._seats[name], self._session, most, standing[name])
        alone = {name for name in bounds if self._is_alone(name, bounds[name], standing[name])} - elsewhere
        return Seen(
            standby=self.unsure,
            keeps={target: live[target].limit for target, pools in users.items() if pools <= alone},
        )

    def _users(self) -> dict[str, set[str]]:
        """The pools whose kinds use each target, of the targets that this process's pools use."""
        users: dict[str, set[str]] = defaultdict(set)
        for need in self._needs:
            for name in need.resources:
                if name in self._topology.targets:
                    users[name].add(need.pool)
        return {name: pools for name, pools in users.items() if pools & set(self._mine)}

    def _is_alone(self, name: str, bound: Bound, standing: list[Standing]) -> bool:
        """Whether nobody but this process gets work of a pool. Of a pool that isn't its own: whether nobody runs it."""
        most = homes.ceiling(bound)
        if name not in self._seats or most is None:
            return not standing
        return self._seats[name].home and homes.homes(most, standing) <= {self._session}


def _standing(connection: Connection, pools: Iterable[str]) -> tuple[dict[str, list[Standing]], set[str]]:
    standing: dict[str, list[Standing]] = defaultdict(list)
    elsewhere = set()
    for pool, session, slots, runs_elsewhere in sessions.standing(connection, sorted(pools)):
        standing[pool].append(Standing(session, slots))
        if runs_elsewhere:
            elsewhere.add(pool)
    return standing, elsewhere
