"""`ClusterSharding`: the reference's own way, message by message, in the same regions as typed entities.

`start` declares and connects nothing, so it may stand in `entities.py`: a node process of the right role hosts the type,
every other process is a proxy. `start_proxy` declares a type that is never hosted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from sharding_app.core.words import MESSAGE, START
from sharding_app.errors import DeclarationError, WrongContext
from sharding_app.model import gateway, transactions
from sharding_app.model.entity import Entity, hosted_as
from sharding_app.model.extractor import (
    FunctionExtractor,
    HashCodeMessageExtractor,
    MessageExtractor,
    StartEntity,
    StartEntityAck,
)
from sharding_app.model.message import decode_reply, encode_message, message_spec
from sharding_app.model.region_questions import Question
from sharding_app.model.registry import registry
from sharding_app.model.settings import ShardingSettings
from sharding_app.model.types import EntityType

_packer = msgspec.msgpack.Encoder()


class Region:
    """The region of one type: tell it or ask it, it finds the entity."""

    def __init__(self, type_name: str, extractor: MessageExtractor) -> None:
        self.type_name = type_name
        self.extractor = extractor

    def tell(self, message: object, *, command_id: str | None = None) -> None:
        """Send without waiting for a reply, from any thread; inside `atomic()` it is sent at commit."""
        if isinstance(message, Question):
            gateway.inspector().instruct(self.type_name, message)
            return
        entity_id, command, args = self._addressed(message)

        def send() -> None:
            gateway.current().tell(self.type_name, entity_id, command, args, command_id)

        if not (transactions.are_used() and transactions.at_commit(send)):
            send()

    async def ask(
        self, message: object, *, timeout: float | None = None, command_id: str | None = None
    ) -> Any:
        """Send and wait for what `receive` returns."""
        if isinstance(message, Question):
            return await gateway.inspector().inspect(self.type_name, message, timeout)
        entity_id, command, args = self._addressed(message)
        reply = await gateway.current().ask(self.type_name, entity_id, command, args, timeout, command_id)
        return StartEntityAck(entity_id) if command == START else decode_reply(reply)

    @property
    def sync(self) -> SyncRegion:
        """The same for sync code: `region.sync.ask(message)`."""
        return SyncRegion(self)

    def _addressed(self, message: object) -> tuple[str, str, bytes]:
        entity_id = self.extractor.entity_id(message)
        if isinstance(message, StartEntity):
            return entity_id, START, b""
        return entity_id, MESSAGE, _packer.encode(encode_message(self.extractor.entity_message(message)))

    def __repr__(self) -> str:
        return f"<region of {self.type_name}>"


class SyncRegion:
    def __init__(self, region: Region) -> None:
        self._region = region

    def ask(self, message: object, *, timeout: float | None = None, command_id: str | None = None) -> Any:
        """Send and wait for the reply, from a thread without a running loop."""
        region = self._region
        if asyncio._get_running_loop() is not None:
            raise WrongContext(
                "region.sync.ask() would block the event loop that runs on this thread: write `await region.ask(...)`"
            )
        if isinstance(message, Question):
            return gateway.inspector().inspect_sync(region.type_name, message, timeout)
        entity_id, command, args = region._addressed(message)
        reply = gateway.current().ask_sync(region.type_name, entity_id, command, args, timeout, command_id)
        return StartEntityAck(entity_id) if command == START else decode_reply(reply)

    def tell(self, message: object, *, command_id: str | None = None) -> None:
        self._region.tell(message, command_id=command_id)


class ClusterSharding:
    """All regions that were started in this process's code."""

    _regions: ClassVar[dict[str, Region]] = {}

    @classmethod
    def start(
        cls,
        type_name: str,
        *,
        entity: type[Entity],
        settings: ShardingSettings | None = None,
        extractor: MessageExtractor | None = None,
        extract_entity_id: Callable[[object], str] | None = None,
        extract_shard_id: Callable[[str], int] | None = None,
        stop_message: object | None = None,
    ) -> Region:
        """Declare that nodes whose role fits host `entity` under this name; the region leads there from anywhere."""
        given: object = entity
        if not (isinstance(given, type) and issubclass(given, Entity)):
            raise DeclarationError(f"entity= is a subclass of Entity, not {entity!r}")
        if stop_message is not None:
            message_spec(type(stop_message))
        wanted = settings or ShardingSettings()
        found = cls._extractor(type_name, extractor, extract_entity_id, extract_shard_id, wanted)
        said = ShardingSettings(number_of_shards=found.number_of_shards, stop_message=stop_message)
        made = hosted_as(entity, type_name, said.over(wanted))
        made.extractor = found
        return cls._started(type_name, found, entity)

    @classmethod
    def start_proxy(
        cls,
        type_name: str,
        *,
        role: str | None = None,
        extractor: MessageExtractor | None = None,
        extract_entity_id: Callable[[object], str] | None = None,
        extract_shard_id: Callable[[str], int] | None = None,
        settings: ShardingSettings | None = None,
    ) -> Region:
        """Declare a type that other processes host: nothing of it ever lives here."""
        wanted = ShardingSettings(role=role).over(settings or ShardingSettings())
        found = cls._extractor(type_name, extractor, extract_entity_id, extract_shard_id, wanted)
        if type_name not in registry.all():
            made = proxy_type(
                type_name, ShardingSettings(number_of_shards=found.number_of_shards).over(wanted)
            )
            made.extractor = found
            registry.add(made)
        return cls._started(type_name, found, None)

    @classmethod
    def shard_region(cls, type_name: str) -> Region:
        """The region of a type that was started, or of a typed entity."""
        found = cls._regions.get(type_name)
        if found is None:
            made = registry.get(type_name)
            shards = made.settings.number_of_shards
            found = Region(type_name, made.extractor or HashCodeMessageExtractor(shards or 1))
        return found

    @classmethod
    def shard_type_names(cls) -> set[str]:
        """The names of all types that were started or declared here."""
        return set(cls._regions) | set(registry.all())

    @classmethod
    def _extractor(
        cls,
        type_name: str,
        extractor: MessageExtractor | None,
        extract_entity_id: Callable[[object], str] | None,
        extract_shard_id: Callable[[str], int] | None,
        settings: ShardingSettings,
    ) -> MessageExtractor:
        if extractor is not None:
            if extract_entity_id is not None or extract_shard_id is not None:
                raise DeclarationError(f"{type_name!r}: give an extractor or functions, not both")
            return extractor
        shards = settings.number_of_shards
        if shards is None:
            raise DeclarationError(
                f"{type_name!r}: say how many shards, by extractor=HashCodeMessageExtractor(100)"
                " or settings=ShardingSettings(number_of_shards=100)"
            )
        if extract_entity_id is not None:
            return FunctionExtractor(shards, extract_entity_id, extract_shard_id)
        return HashCodeMessageExtractor(shards)

    @classmethod
    def _started(cls, type_name: str, extractor: MessageExtractor, entity: type[Entity] | None) -> Region:
        known = cls._regions.get(type_name)
        if known is not None and known.extractor.name == extractor.name:
            known.extractor = extractor
            return known
        if known is not None:
            raise DeclarationError(
                f"{type_name!r} is already started with another extractor: {known.extractor.name}"
            )
        region = cls._regions[type_name] = Region(type_name, extractor)
        return region


def proxy_type(type_name: str, settings: ShardingSettings) -> EntityType:
    """A type known by its name only."""
    made = EntityType(
        Entity, kind="memory", name=type_name, settings=settings, commands={}, appliers={}, scopes={}
    )
    made.proxy_only = True
    return made
