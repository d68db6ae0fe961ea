"""`ClusterSingleton`: one running instance of an entity in the cluster, and its `SingletonProxy`.

A singleton is a type with one shard and one entity, placed on the longest-standing node of its
role. So it has everything that shards have: an epoch that fences it, a hand-over with a termination
message when its node leaves, a takeover when the node dies, and messages that wait during both. It
is started without a message, and again when it stops or fails.
"""

from __future__ import annotations

from typing import Any

from sharding_app.entities.base import Entity
from sharding_app.entities.extractors import EntityEnvelope, HashCodeMessageExtractor
from sharding_app.entities.identifiers import declared_name
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.entities.sharding.regions import ClusterSharding, Region
from sharding_app.errors import DeclarationError
from sharding_app.protocol.allocation.singleton import SINGLETON

BUFFER_SIZE = 1000
MAX_BUFFER_SIZE = 10_000


class SingletonProxy:
    """Reaches a singleton from any process.

    While the singleton runs on no node, up to `buffer_size` messages wait. If more arrive, the
    oldest are refused and counted. With `buffer_size=0` no message waits.
    """

    def __init__(self, name: str, *, role: str | None = None, buffer_size: int = BUFFER_SIZE) -> None:
        declared_name(name, "a singleton")
        if type(buffer_size) is not int or not 0 <= buffer_size <= MAX_BUFFER_SIZE:
            raise DeclarationError(
                f"buffer_size must be an int from 0 to {MAX_BUFFER_SIZE}, not {buffer_size!r}"
            )
        self.name = name
        self.type_name = SINGLETON + name
        self._region: Region = ClusterSharding.start_proxy(
            self.type_name, role=role, extractor=HashCodeMessageExtractor(1)
        )
        registry.get(self.type_name).waiting_limit = buffer_size

    def tell(self, message: object) -> None:
        """Send without waiting for a reply."""
        self._region.tell(EntityEnvelope(self.name, message))

    async def ask(
        self, message: object, *, timeout: float | None = None, command_id: str | None = None
    ) -> Any:
        """Send and wait for the reply. With a `command_id` it is resent after its node dies."""
        envelope = EntityEnvelope(self.name, message)
        return await self._region.ask(envelope, timeout=timeout, command_id=command_id)

    def ask_sync(
        self, message: object, *, timeout: float | None = None, command_id: str | None = None
    ) -> Any:
        """Do the same from a thread without a running loop."""
        envelope = EntityEnvelope(self.name, message)
        return self._region.sync.ask(envelope, timeout=timeout, command_id=command_id)

    def __repr__(self) -> str:
        return f"<proxy of singleton {self.name!r}>"


class ClusterSingleton:
    """Declares singletons; as with `ClusterSharding.start`, nothing is connected."""

    @staticmethod
    def start(
        name: str,
        *,
        entity: type[Entity],
        role: str | None = None,
        termination_message: object | None = None,
        settings: ShardingSettings | None = None,
        buffer_size: int = BUFFER_SIZE,
    ) -> SingletonProxy:
        """Declare that one `entity` runs on the oldest node of the role; return its proxy.

        Before a hand-over the entity gets the termination message."""
        declared_name(name, "a singleton")
        wanted = ShardingSettings(role=role, passivate_after_seconds=0).over(settings or ShardingSettings())
        ClusterSharding.start(
            SINGLETON + name,
            entity=entity,
            settings=wanted,
            extractor=HashCodeMessageExtractor(1),
            stop_message=termination_message,
        )
        registry.get(SINGLETON + name).singleton_id = name
        return SingletonProxy(name, role=role, buffer_size=buffer_size)
