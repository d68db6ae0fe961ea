"""`ClusterSharding`: Akka's own way, message by message, in the same regions as typed entities.

`start` declares and connects nothing, so it may stand in `entities.py`: a node process of the right
role hosts the type, every other process is a proxy. `start_proxy` declares a type that is never
hosted here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from sharding_app.entities import gateway, identifiers, transactions
from sharding_app.entities.base import Entity, hosted_as
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.extractors import (
    FunctionExtractor,
    HashCodeMessageExtractor,
    MessageExtractor,
    StartEntity,
    StartEntityAck,
)
from sharding_app.entities.messages import decode_reply, encode_message, message_spec
from sharding_app.entities.refs import timeout_of
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.entities.sharding.queries import Question
from sharding_app.errors import DeclarationError, WrongContext
from sharding_app.protocol.builtin_commands import MESSAGE, START
from sharding_app.protocol.call import Call

_packer = msgspec.msgpack.Encoder()


class Region:
    """The region of one type: `tell` and `ask` route messages to its entities."""

    def __init__(self, type_name: str, extractor: MessageExtractor) -> None:
        self.type_name = type_name
        self.extractor = extractor

    def tell(self, message: object, *, command_id: str | None = None) -> None:
        """Send without waiting for a reply, from any thread; inside `atomic()` it is sent at
        commit.
        """
        if isinstance(message, Question):
            gateway.inspector().instruct(self.type_name, message)
            return
        call = self._call(message, None, command_id)
        call.tell = True

        def send() -> None:
            gateway.current().tell(call)

        if not transactions.at_commit(send):
            send()

    async def ask(
        self, message: object, *, timeout: float | None = None, command_id: str | None = None
    ) -> Any:
        """Send and wait for the result of `receive`."""
        if isinstance(message, Question):
            return await gateway.inspector().inspect(self.type_name, message, timeout)
        call = self._call(message, timeout, command_id)
        return _reply(call, await gateway.current().ask(call))

    @property
    def sync(self) -> SyncRegion:
        """The region for sync code: `region.sync.ask(message)`."""
        return SyncRegion(self)

    def _call(self, message: object, timeout: float | None, command_id: str | None) -> Call:
        entity_id, command, args = self.extractor.entity_id(message), START, b""
        # An extractor is the user's. The home could not read a message with something else for an
        # id, and its caller would hear nothing.
        entity_id = identifiers.entity_id(entity_id)
        timeout = timeout_of(registry.get(self.type_name), timeout)
        command_id = "" if command_id in (None, "") else identifiers.command_id(command_id)
        if not isinstance(message, StartEntity):
            command = MESSAGE
            args = _packer.encode(encode_message(self.extractor.entity_message(message)))
        return Call(self.type_name, entity_id, command, args, timeout, command_id)

    def __repr__(self) -> str:
        return f"<region of {self.type_name}>"


def _reply(call: Call, reply: bytes) -> Any:
    return StartEntityAck(call.entity) if call.command == START else decode_reply(reply)


class SyncRegion:
    def __init__(self, region: Region) -> None:
        self._region = region

    def ask(self, message: object, *, timeout: float | None = None, command_id: str | None = None) -> Any:
        """Send and wait for the reply, from a thread without a running loop."""
        region = self._region
        if asyncio._get_running_loop() is not None:
            raise WrongContext(
                "region.sync.ask() would block the event loop of this thread: use `await region.ask(...)`"
            )
        if isinstance(message, Question):
            return gateway.inspector().inspect_sync(region.type_name, message, timeout)
        call = region._call(message, timeout, command_id)
        return _reply(call, gateway.current().ask_sync(call))

    def tell(self, message: object, *, command_id: str | None = None) -> None:
        self._region.tell(message, command_id=command_id)


class ClusterSharding:
    """Declares entity types and gives access to their regions."""

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
        """Declare a type that nodes with its role host; return its region."""
        given: object = entity
        if not (isinstance(given, type) and issubclass(given, Entity)):
            raise DeclarationError(f"entity must be a subclass of Entity, not {entity!r}")
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
        """Declare a type that only other processes host; return its region."""
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
        """Return the region of a started type, or of a typed entity."""
        found = cls._regions.get(type_name)
        if found is None:
            made = registry.get(type_name)
            shards = made.settings.number_of_shards
            found = Region(type_name, made.extractor or HashCodeMessageExtractor(shards or 1))
        return found

    @classmethod
    def shard_type_names(cls) -> set[str]:
        """Return the names of all types started or declared here."""
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
                raise DeclarationError(f"{type_name!r}: pass an extractor or functions, not both")
            return extractor
        shards = settings.number_of_shards
        if shards is None:
            raise DeclarationError(
                f"{type_name!r}: set the number of shards: extractor=HashCodeMessageExtractor(100)"
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
    """Make a type of which only the name is known."""
    made = EntityType(
        Entity, kind="memory", name=type_name, settings=settings, commands={}, appliers={}, scopes={}
    )
    made.proxy_only = True
    return made
