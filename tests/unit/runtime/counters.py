"""Message-style entities for these tests, and what they leave behind."""

from typing import ClassVar

from sharding_app import (
    ClusterSharding,
    ClusterSingleton,
    Entity,
    EntityEnvelope,
    HashCodeMessageExtractor,
    Passivate,
    ShardingSettings,
    SingletonProxy,
    message,
)
from sharding_app.entities.sharding.regions import Region

SHARDS = 20


@message
class Increment: ...


@message
class Stop: ...


@message
class Rest: ...


@message
class Quit: ...


@message(entity_id="counter_id")
class Get:
    counter_id: str


@message
class WhoAreYou: ...


class Counter(Entity):
    """Counts in memory; every start and every stop is told to `born` and `stopped`."""

    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []
    deaf_to_stop: ClassVar[bool] = False

    def __init__(self) -> None:
        self.count = 0
        type(self).born.append(self.entity_id)

    async def receive(self, message: object) -> object:
        match message:
            case Increment():
                self.count += 1
            case Get():
                return self.count
            case WhoAreYou():
                return self.entity_id
            case Rest():
                return Passivate(Stop())
            case Quit():
                self.context.stop()
            case Stop():
                if not type(self).deaf_to_stop:
                    type(self).stopped.append(self.entity_id)
                    self.context.stop()
        return None


class Remembered(Counter):
    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []


class Mailer(Counter):
    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []


counters: Region = ClusterSharding.start(
    "protocol.Counter", entity=Counter, extractor=HashCodeMessageExtractor(SHARDS), stop_message=Stop()
)
remembered: Region = ClusterSharding.start(
    "protocol.Remembered",
    entity=Remembered,
    settings=ShardingSettings(remember_entities=True),
    extractor=HashCodeMessageExtractor(SHARDS),
)
mailer: SingletonProxy = ClusterSingleton.start("protocol.mailer", entity=Mailer, termination_message=Stop())


def to(entity_id: str, message: object) -> EntityEnvelope:
    return EntityEnvelope(entity_id, message)
