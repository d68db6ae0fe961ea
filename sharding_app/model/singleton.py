"""`ClusterSingleton`: one instance of an entity in the whole cluster, always running; `SingletonProxy` leads to it.

A singleton is a type with one shard and one entity, placed on the longest-standing node of its role. So it has what
shards have: an epoch that fences it, a hand-over with a termination message when its node leaves, a takeover when it dies,
and messages that wait meanwhile. It is started without a message, and again when it stops or fails.
"""

from __future__ import annotations

from typing import Any

from sharding_app.core.oldest import SINGLETON
from sharding_app.errors import DeclarationError
from sharding_app.model.cluster_sharding import ClusterSharding, Region
from sharding_app.model.entity import Entity
from sharding_app.model.extractor import EntityEnvelope, HashCodeMessageExtractor
from sharding_app.model.naming import declared_name
from sharding_app.model.registry import registry
from sharding_app.model.settings import ShardingSettings

BUFFER_SIZE = 1000
MAX_BUFFER_SIZE = 10_000


class SingletonProxy:
    """The way to a singleton, from any process. While it is on no node, so many messages wait; the oldest are dropped,
    told and counted when more come. `buffer_size=0` lets none wait."""

    def __init__(self, name: str, *, role: str | None = None, buffer_size: int = BUFFER_SIZE) -> None:
        declared_name(name, "a singleton")
        if type(buffer_size) is not int or not 0 <= buffer_size <= MAX_BUFFER_SIZE:
            raise DeclarationError(f"buffer_size is an int from 0 to {MAX_BUFFER_SIZE}, not {buffer_size!r}")
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
        """Send and wait for what `receive` returns. With a `command_id` it is sent again after the death of its node."""
        envelope = EntityEnvelope(self.name, message)
        return await self._region.ask(envelope, timeout=timeout, command_id=command_id)

    def ask_sync(
        self, message: object, *, timeout: float | None = None, command_id: str | None = None
    ) -> Any:
        """The same from a thread without a running loop."""
        envelope = EntityEnvelope(self.name, message)
        return self._region.sync.ask(envelope, timeout=timeout, command_id=command_id)

    def __repr__(self) -> str:
        return f"<proxy of singleton {self.name!r}>"


class ClusterSingleton:
    """Declares singletons; like `ClusterSharding.start` it connects nothing."""

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
        """One `entity` runs on the oldest node of the role; at a hand-over it gets the termination message first."""
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
