"""The benchmarks' entities: each command adds to a number, so that only the way there and back is
measured.

Importing this module registers nothing: the types exist only inside
`bench.isolation.only_bench_types`.
"""

import time
from datetime import datetime

from sharding_app import Entity, EventSourced, ShardingSettings, applies, command, event, query, view
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.registry import registry


@event
class Increased:
    by: int


class BenchCounter(Entity):
    """In memory only: an ask and its answer, nothing else."""

    count: int = 0

    @command
    def increase(self) -> int:
        self.count += 1
        return self.count


class BenchAccount(EventSourced):
    """One event for each command, acknowledged after its commit."""

    settings = ShardingSettings(active_entity_limit=0)  # all counted entities stay in memory
    count: int = 0

    @command
    def increase(self, by: int = 1) -> int:
        self.persist(Increased(by))
        return self.count

    @query
    def total(self) -> int:
        return self.count

    @applies(Increased)
    def on_increased(self, happened: Increased) -> None:
        self.count += happened.by


class BenchHot(BenchAccount):
    """A pipelined `BenchAccount`: the next command runs while the commit of the former is under
    way.
    """

    settings = ShardingSettings(pipelined=True)


class BenchMoving(BenchAccount):
    """Few shards, so that each is asked often enough to see when it is back."""

    settings = ShardingSettings(number_of_shards=60)


class BenchSpread(BenchAccount):
    """A thousand shards, whatever the project's default is."""

    settings = ShardingSettings(number_of_shards=1000)


class BenchRemembered(BenchAccount):
    """Entities that ran start again by themselves."""

    settings = ShardingSettings(remember_entities=True)


class BenchSender(BenchAccount):
    """One event and one durable message for each command."""

    @command
    def pass_on(self, to: str) -> None:
        self.persist(Increased(1))
        self.send(BenchAccount.ref(to).increase)


class BenchTimed(BenchAccount):
    """Its durable timers add to the number."""

    @command
    def at(self, moment: datetime) -> None:
        self.schedule(self.ref.increase, key="tick", at=moment)


class BenchLive(BenchAccount):
    """Its number is shown by live pages."""

    @command
    async def raise_one(self) -> tuple[int, float]:
        """Return the number, and when it was committed by this machine's clock."""
        await self.persist(Increased(1))
        return self.count, time.perf_counter()

    @view(public=True)
    def shown(self) -> int:
        return self.count


class BenchBulk(BenchAccount):
    """Followed by a projection with a handler of many."""


class BenchSingle(BenchAccount):
    """Followed by a projection with a handler of one event."""


CLASSES: tuple[type[Entity], ...] = (
    BenchCounter,
    BenchAccount,
    BenchHot,
    BenchMoving,
    BenchSpread,
    BenchRemembered,
    BenchSender,
    BenchTimed,
    BenchLive,
    BenchBulk,
    BenchSingle,
)


def _withdrawn() -> list[EntityType]:
    found = [each._sharding_type for each in CLASSES if each._sharding_type is not None]
    for each in found:
        registry.discard(each)
    return found


TYPES = _withdrawn()


def name_of(cls: type[Entity]) -> str:
    """Return the name under which a type of these is stored."""
    if cls._sharding_type is None:
        raise TypeError(f"{cls.__name__} is no entity type")
    return cls._sharding_type.name
