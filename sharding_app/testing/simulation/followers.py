"""Followers of entities in the virtual clients, and their judge (promise 19).

A follower outlives its process: it has kept the number and the time of its last event, and goes on
there in the next process. The judge knows every event that was ever committed, from the journal.
From that it judges:

* A follower gets the events of its entity in order, each once, without a gap, and none that was not
  committed.
* Its events stay. A promotion of a synchronous standby takes nothing away that a follower has
  been shown.
* It is told that its history is gone only if the entity was erased, or the server went back.
* When all is calm, it has exactly the events that the journal has.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.client.following import Hub
from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import EntityErased
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.following import FollowedEvent
from sharding_app.testing.simulation.promises import PromiseBroken

if TYPE_CHECKING:
    from sharding_app.runtime.node.process import Process as Asking
    from sharding_app.testing.simulation.world import World

SEEDS = (5, 7)
"""Of eight seeds those with followers."""
FOLLOWED = 3
"""Entities that a client follows."""


class Shown(NamedTuple):
    """An event as a follower got it."""

    number: int
    payload: bytes
    at: int


class Follower:
    """Follows one entity, in whatever process."""

    def __init__(self, followers: Followers, name: str, entity: tuple[EntityType, str]) -> None:
        self.name = name
        self.entity = f"{entity[0].name}/{entity[1]}"
        self.shown: list[Shown] = []
        self.ends = followers.ends[self.entity]
        "How often the entity's history had ended when this one began."
        self._followers = followers
        self._address = entity[0].name, entity[1]

    async def run(self, hub: Hub) -> None:
        """Follow through a process, for as long as that lives."""
        subscription = hub.subscribe(*self._address)
        while True:
            number, stamp = (self.shown[-1].number, self.shown[-1].at) if self.shown else (0, 0)
            try:
                found = await subscription.events(number, stamp)
            except EntityErased:
                self._followers.ended(self)
                continue
            for each in found:
                self._followers.takes(self, each)


class Followers:
    def __init__(self, world: World) -> None:
        self._world = world
        self.of: list[Follower] = []
        self.ends: Counter[str] = Counter()
        "How often the history of an entity has ended: it was erased, or the server went back."
        self.events = 0
        self._ever: dict[str, set[Shown]] = {}
        "All that was ever committed."

    @property
    def are_there(self) -> bool:
        return self._world.seed % 8 in SEEDS

    def begin(self, name: str, asking: Asking) -> None:
        """Let the followers of a client go on in its present process."""
        if not self.are_there:
            return
        mine = [each for each in self.of if each.name == name]
        if not mine:
            kept = [each for each in self._world.cast.entities if each[0].kind == "event_sourced"]
            first = sum(name.encode()) + self._world.seed
            chosen = [kept[(first + 3 * number) % len(kept)] for number in range(FOLLOWED)]
            mine = [Follower(self, name, each) for each in dict.fromkeys(chosen)]
            self.of += mine
        self._run(mine, asking)

    def unfollowed(self) -> list[tuple[EntityType, str]]:
        """Return an entity without followers, if there is one."""
        followed = {each.entity for each in self.of}
        kept = [each for each in self._world.cast.entities if each[0].kind == "event_sourced"]
        return [each for each in kept if f"{each[0].name}/{each[1]}" not in followed][:1]

    def follow(self, name: str, asking: Asking, entities: Sequence[tuple[EntityType, str]]) -> None:
        """Let a client follow further entities."""
        more = [Follower(self, name, each) for each in entities]
        self.of += more
        self._run(more, asking)

    def _run(self, followers: Sequence[Follower], asking: Asking) -> None:
        hub = Hub(asking.ask, FOLLOWED)
        for each in followers:
            asyncio.get_running_loop().create_task(each.run(hub), name=f"{each.name} follows")

    # -- From the journal --------------------------------------------------------------------------

    def committed(self, server: MemoryServer, rows: Sequence[EventRow]) -> None:
        """Take in a batch that a server commits now."""
        if self.are_there:
            for row in rows:
                entity = f"{self._world.witness.name_of(row.type_id)}/{row.entity}"
                self._ever.setdefault(entity, set()).add(_shown(server, row))

    def erased(self, entity: str) -> None:
        self.ends[entity] += 1

    def went_back(self, of: MemoryServer) -> None:
        """Compare the events of followers with a server that may lack the newest ones."""
        asynchronous = of.standby.asynchronous
        for each in self.of:
            if self._server_of(each.entity) is not of:
                continue
            stored = self._stored(each.entity)
            gone = [shown for shown in each.shown if shown not in stored]
            if gone and not asynchronous and each.ends == self.ends[each.entity]:
                detail = f"{each.name} was shown #{gone[0].number}, which the standby lacks"
                self._world.broke(PromiseBroken(19, "followers_see_what_stays", detail, each.entity))
        for entity in self._ever:
            if self._server_of(entity) is of:
                self.ends[entity] += 1

    # -- From the followers ------------------------------------------------------------------------

    def takes(self, follower: Follower, event: FollowedEvent) -> None:
        """Judge an event that a follower has got."""
        self.events += 1
        shown = Shown(event.seq, event.payload, event.at)
        last = follower.shown[-1].number if follower.shown else 0
        if event.seq != last + 1:
            detail = f"{follower.name} got #{event.seq} after #{last}"
            self._world.broke(PromiseBroken(19, "followers_miss_nothing", detail, follower.entity))
        if shown not in self._ever.get(follower.entity, ()):
            detail = f"{follower.name} got #{event.seq}, which was never committed so"
            self._world.broke(PromiseBroken(19, "followers_see_commits", detail, follower.entity))
        follower.shown.append(shown)
        self._world.transition("follower", "waits", "got an event")

    def ended(self, follower: Follower) -> None:
        """Judge a follower that was told that its history is gone."""
        if follower.ends == self.ends[follower.entity]:
            detail = f"{follower.name} is told that its history is gone, and it is not"
            self._world.broke(PromiseBroken(19, "followers_are_told_the_truth", detail, follower.entity))
        follower.ends = self.ends[follower.entity]
        follower.shown = []
        self._world.transition("follower", "waits", "begins again")

    # -- In calm -----------------------------------------------------------------------------------

    def behind(self) -> list[str]:
        """Return the followers that lack events of the journal, or have others."""
        return [
            f"{each.name} of {each.entity}"
            for each in self.of
            if [shown.number for shown in each.shown]
            != sorted(stored.number for stored in self._stored(each.entity))
        ]

    def look_back(self) -> None:
        """Check in calm that the events of followers are those of the journal."""
        for each in self.of:
            stored = self._stored(each.entity)
            for shown in each.shown:
                if shown not in stored:
                    detail = f"{each.name} has another #{shown.number} than the journal"
                    self._world.broke(PromiseBroken(19, "followers_see_commits", detail, each.entity))

    # -- Inside ------------------------------------------------------------------------------------

    def _stored(self, entity: str) -> set[Shown]:
        """Return the events of an entity in the journal."""
        type_name, _, entity_id = entity.partition("/")
        server = self._server_of(entity)
        type_id = self._world.server.cluster.type_ids.get(type_name)
        rows = {} if type_id is None else server.journal.events.get((type_id, entity_id), {})
        return {_shown(server, each.row) for each in rows.values()}

    def _server_of(self, entity: str) -> MemoryServer:
        type_name, _, entity_id = entity.partition("/")
        return self._world.server_of_entity(type_name, entity_id)


def _shown(server: MemoryServer, row: EventRow) -> Shown:
    return Shown(row.seq, row.payload, server.moment(server.journal.began(row)))
