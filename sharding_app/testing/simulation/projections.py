"""Projections of the workload: two versions of one over two types, the parts that take their turns
on the virtual server, and an operator.

The handlers write a row for each event. Some events fail, once or until an operator helps. The
second version is deployed in the turmoil, and fills beside the first one. Events may lie in further
journals: a part then takes turns in each of them. A version whose positions mean nothing any more
in a journal does not go on, and the operator resets it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from sharding_app.adapters.memory.connection import Connection
from sharding_app.adapters.memory.journal import LOCK_SECONDS
from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.projecting import MemoryPart
from sharding_app.adapters.memory.projection_rows import key_of
from sharding_app.adapters.memory.sessions import ConnectionLost, ServerError
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import Projection, ProjectionType, on, on_batch, on_erased, projections
from sharding_app.entities.registry import registry
from sharding_app.ports.projections import HandlerFailed, NotReady, Refused
from sharding_app.protocol.projection.requests import Key, StoredEvent
from sharding_app.protocol.projection.turn import Limits, Outcome
from sharding_app.runtime.projections.worker import declare_workers, workers_of
from sharding_app.testing.simulation.fault_policy import slot_of
from sharding_app.testing.simulation.workload import Diary, Ledger, Noted

if TYPE_CHECKING:
    from sharding_app.testing.simulation.projection_checker import ProjectionChecker
    from sharding_app.testing.simulation.world import World

SEEDS = (8, 12, 13, 19)
"""Of 24 seeds those with projections."""
LIMITS = Limits(events=4, chunk=3, keys=3, failures=3, back_off=0.2, back_off_max=1.0)
"""So small that most of a fill, and of what a pause has left, comes in several turns."""
LATEST = 9.0
"""The second version is deployed before this time."""
REACHED_SECONDS = 1.5
"""After that the second version reaches further journals: its fill of the first one is through."""
END_SECONDS = 0.05
"""Between two looks whether the last turn of a part that was given up has ended."""
ORDERS = ("rescale", "help", "pause", "rescale", "help", "resume", "reset", "rescale", "help", "reset")
HELPS, HELP_SECONDS = 3, 1.0
NUMBERS = (3, 1, 2)
"""Numbers of workers that the operator wishes for the first version, one after the other."""

with registry.isolated(), projections.isolated():

    class Lines(Projection, name="sim.Lines"):
        """Takes many events at a time."""

        source = (Ledger, Diary)
        parts = 1

        @on_batch(Noted)
        def noted(self, happened: Sequence[Happened[Noted]]) -> None:
            """Take events: the part makes their rows."""

        @on_erased
        def erased(self, ref: object) -> None:
            """Take an erasure: the part takes the rows away."""

    class Lines2(Projection, name="sim.Lines"):
        """Takes one event at a time."""

        source = (Ledger, Diary)
        version = 2
        parts = 2

        @on(Noted)
        def noted(self, happened: Happened[Noted]) -> None:
            """Take an event: the part makes its row."""

        @on_erased
        def erased(self, ref: object) -> None:
            """Take an erasure: the part takes the rows away."""

    # The project that runs the simulation may have projections of its own, declared before these.
    FIRST, SECOND = list(projections.all().values())[-2:]
    declare_workers((FIRST, SECOND))
    WORKERS_OF = tuple(registry.get(workers_of(each)) for each in (FIRST, SECOND))
    """The types of their workers."""

Row = tuple[Key, int, bytes]
"""A row that a handler has written: the entity, the number of the event, and its payload."""


class SimPart(MemoryPart):
    """A part in a virtual node. The judge hears of each turn when that commits."""

    def __init__(self, world: World, projection: ProjectionType, journal: str, client: str) -> None:
        self._judge: ProjectionChecker = world.projections
        self._world = world
        self._projection = projection
        ids = world.server.cluster.type_ids
        self._sources = {ids[each.name]: each for each in projection.sources}
        self._touched: dict[Key, None] = {}
        "Entities that it has handled, ever: one turn may still end beside the next one."
        self._slot = slot_of(client)
        super().__init__(
            world.server, projection.name, sorted(self._sources), self._handle, client,
            limits=LIMITS, erase=lambda rows, key: [each for each in rows if each[0] != key],
            journal=journal, there=world.servers[journal], journals=tuple(world.servers),
        )  # fmt: skip

    async def turn(self, part: int, parts: int, *, careful: bool) -> Outcome:
        if self._projection is SECOND:
            if self._world.now < self._judge.deployed_at:
                raise NotReady("this version is not deployed yet")
            if self.journal and self._world.now < self._judge.deployed_at + REACHED_SECONDS:
                raise NotReady("the connection to the journal is not there yet")
        try:
            return await super().turn(part, parts, careful=careful)
        except Refused:
            self._judge.refuses(self.name)
            raise

    def reach(self) -> None:
        super().reach()
        if self._slot in self._world.conditions_of[self.journal].cut_off:
            raise ServerError("08006", f"the journal {self.journal!r} does not answer")

    def steps(self, first: int, last: int, *, careful: bool = False) -> Steps[Outcome]:
        judge, name = self._judge, self.name
        judge.begins(name, self._sources)
        was_paused = name in self._server.projections.paused
        outcome: Outcome = yield from super().steps(first, last, careful=careful)
        judge.turned(name, self.journal, (first, last), self._touched, outcome, was_paused=was_paused)
        return outcome

    def tidied(self) -> None:
        super().tidied()
        self._judge.tidied(self.name)

    async def close(self) -> None:
        """Give the connection up behind a turn under way, as a thread does that is not waited
        for.
        """
        session = self._line.session
        self._line.broken = True
        if session is None:
            return

        def end() -> None:
            if session.transaction is None:
                self._server.sessions.end(session)
            else:
                self._server.later(END_SECONDS, end)

        end()

    def _handle(self, events: Sequence[StoredEvent], erased: Key | None, careful: bool) -> list[Row] | str:
        judge = self._judge
        if erased is not None:
            self._touched[erased] = None
            self._call(self._projection.erased(self._sources[erased[0]], erased[1]))
            return []
        for each in events:
            self._touched[each.key] = None
            if judge.fails(self.name, each):
                if careful:
                    return "it fails"
                raise HandlerFailed("it fails")
        for call in self._projection.calls(events, self._sources):
            self._call(call)
        return [(each.key, each.seq, each.payload) for each in events]

    def _call(self, call: Any) -> None:
        getattr(self._projection.cls(), call.method)(call.argument)


class Operator:
    """Orders of an operator, each a transaction of its own. An answer that is lost is not asked for
    again.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._judge: ProjectionChecker = world.projections
        self._tables = world.server.projections
        self._random = Random(f"projections {world.seed}")

    async def now_and_then(self) -> None:
        """Give orders between the faults."""
        numbers = iter(NUMBERS)
        for order in ORDERS:
            await asyncio.sleep(self._random.random() * 2.0)
            if order == "rescale":
                self._world.server.cluster.rescale(workers_of(FIRST), next(numbers))
            elif order == "help":
                await self.help()
            elif order == "reset":
                await self._order(FIRST.name, partial(self._judge.reset, FIRST.name))
            else:
                await self._order(FIRST.name, partial(self._pause, paused=order == "pause"))

    async def stand_by(self, skips: float = 0.5) -> None:
        """Help for a while: one that is being tried may be parked a little later."""
        for _ in range(HELPS):
            await self.help(skips)
            await asyncio.sleep(HELP_SECONDS)

    async def reset_what_is_refused(self) -> None:
        """Reset versions that a further journal does not go on with, now and later."""
        while True:
            for name in self._judge.refused():
                await self._order(name, partial(self._judge.reset, name))
            await asyncio.sleep(HELP_SECONDS)

    async def help(self, skips: float = 0.5) -> None:
        """Have each parked entity tried again with a better handler, or leave its event out."""
        for (place, key), (held, _) in list(self._tables.held.items()):
            if held.parked:
                is_out = self._random.random() < skips
                name = place.partition("\0")[0]
                await self._order(name, partial(self._help, place, name, key, out=is_out))

    def _help(self, place: str, name: str, key: Key, *, out: bool) -> None:
        held, _ = self._tables.held.get((place, key), (None, 0.0))
        if held is None or not held.parked:
            return
        following = held.next
        if out and following > 0:
            self._judge.skipped(name, key, following)
            following += 1
        else:
            self._judge.mends(name, key)
        again = held._replace(parked=False, failures=0, delay=0.0, next=following)
        self._tables.held[place, key] = again, self._world.now

    def _pause(self, *, paused: bool) -> None:
        if paused:
            self._tables.paused[FIRST.name] = None
        else:
            self._tables.paused.pop(FIRST.name, None)

    def _positions(self, places: Sequence[str]) -> list[tuple[str, int]]:
        return [(each, first) for each in places for first in sorted(self._tables.positions.get(each, ()))]

    async def _order(self, name: str, work: Callable[[], None]) -> None:
        """Do it in a transaction that holds all positions of a version, in all journals."""
        places = [key_of(name, journal) for journal in self._world.servers]

        def steps() -> Steps[None]:
            # Positions in a further journal begin before it, or behind it.
            yield Lock(("version", name))
            # A turn that was waited for may have divided a position: the new one is locked then.
            held: dict[tuple[str, int], None] = {}
            while new := [each for each in self._positions(places) if each not in held]:
                for place, first in new:
                    yield Lock(("position", place, first))
                    held[place, first] = None
            yield Pause.COMMIT
            work()

        connection = Connection(self._world.server, "operator", lock_seconds=LOCK_SECONDS)
        try:
            await connection.reach("operate", steps)
        except (ConnectionLost, ServerError):
            pass
        finally:
            connection.close()
