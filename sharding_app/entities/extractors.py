"""Extractors, which find the entity and shard of a message, and envelopes that carry an id.

Shards are whole numbers from 0 to `number_of_shards` - 1. An id must have the same shard in every
process, as long as the cluster's data exist.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sharding_app.entities import identifiers
from sharding_app.entities.messages import message_entity_id
from sharding_app.errors import DeclarationError, InvalidCall, ShardingError
from sharding_app.protocol.ids import HASH_VERSION, shard_of


@dataclass(frozen=True, slots=True)
class EntityEnvelope:
    """A message for an entity whose id the message itself does not carry."""

    entity_id: str
    message: object


@dataclass(frozen=True, slots=True)
class StartEntity:
    """Start an entity without a message for it; the reply to an ask is `StartEntityAck`."""

    entity_id: str


@dataclass(frozen=True, slots=True)
class StartEntityAck:
    """The entity is running."""

    entity_id: str


@dataclass(frozen=True, slots=True)
class Passivate:
    """Return it from `receive` to be stopped with this message; later messages start it again."""

    stop_message: object | None = None


class MessageExtractor:
    """The rule for ids and shards: subclass it, or pass functions to `ClusterSharding.start`."""

    def __init__(self, number_of_shards: int) -> None:
        if type(number_of_shards) is not int or number_of_shards < 1:
            raise DeclarationError(f"number_of_shards must be an int of at least 1, not {number_of_shards!r}")
        self.number_of_shards = number_of_shards

    @property
    def name(self) -> str:
        """The name that nodes compare: extractors with the same name must behave the same."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def entity_id(self, message: object) -> str:
        """Return the id of the entity that the message is for."""
        if isinstance(message, EntityEnvelope | StartEntity):
            return identifiers.entity_id(message.entity_id)
        found = message_entity_id(message)
        if found is None:
            raise InvalidCall(
                f"{type(message).__qualname__} has no entity id: wrap it in EntityEnvelope(id, message),"
                " or declare its field with @message(entity_id=...)"
            )
        return found

    def entity_message(self, message: object) -> object:
        """Return the message that the entity gets."""
        return message.message if isinstance(message, EntityEnvelope) else message

    def shard_id(self, entity_id: str) -> int:
        """Return the shard of an entity."""
        return shard_of(entity_id, self.number_of_shards)

    def checked_shard_id(self, entity_id: str) -> int:
        """Return the shard of an entity; raise `InvalidCall` if `shard_id` gives no valid one.

        What is for no entity (`protocol.listing`) goes to the first shard.
        """
        if not entity_id:
            return 0
        try:
            shard = self.shard_id(entity_id)
        except ShardingError:
            raise
        except Exception as error:
            raise InvalidCall(
                f"{self.name}: the shard of {entity_id!r} cannot be computed: {type(error).__name__}: {error}"
            ) from error
        if type(shard) is not int or not 0 <= shard < self.number_of_shards:
            raise InvalidCall(
                f"{self.name}: the shard of {entity_id!r} must be an int from 0 to {self.number_of_shards - 1},"
                f" not {ascii(shard)[:80]}"
            )
        return shard


class HashCodeMessageExtractor(MessageExtractor):
    """Takes ids from messages or envelopes, and shards from the hash of typed entities."""

    @property
    def name(self) -> str:
        return f"hash:{HASH_VERSION}"


class FunctionExtractor(MessageExtractor):
    """An extractor made of functions."""

    def __init__(
        self,
        number_of_shards: int,
        extract_entity_id: Callable[[object], str],
        extract_shard_id: Callable[[str], int] | None,
    ) -> None:
        super().__init__(number_of_shards)
        self._entity_id = extract_entity_id
        self._shard_id = extract_shard_id

    @property
    def name(self) -> str:
        parts = [each for each in (self._entity_id, self._shard_id) if each is not None]
        return "+".join(f"{each.__module__}.{each.__qualname__}" for each in parts)

    def entity_id(self, message: object) -> str:
        if isinstance(message, EntityEnvelope | StartEntity):
            return super().entity_id(message)
        return identifiers.entity_id(self._entity_id(message))

    def shard_id(self, entity_id: str) -> int:
        return super().shard_id(entity_id) if self._shard_id is None else self._shard_id(entity_id)
