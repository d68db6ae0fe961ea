"""From a message to its entity and its shard: extractors, and the envelopes that carry an id.

Shards are whole numbers from 0 up to `number_of_shards`; the same message must lead to the same shard in every process,
and for the life of the cluster's data.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sharding_app.core.ids import HASH_VERSION, shard_of
from sharding_app.errors import BadCall, DeclarationError, ShardingError
from sharding_app.model import naming
from sharding_app.model.message import message_entity_id


@dataclass(frozen=True, slots=True)
class EntityEnvelope:
    """A message for an entity whose id the message itself does not carry."""

    entity_id: str
    message: object


@dataclass(frozen=True, slots=True)
class StartEntity:
    """Start an entity without a message for it; asked, it answers `StartEntityAck`."""

    entity_id: str


@dataclass(frozen=True, slots=True)
class StartEntityAck:
    """The entity is running."""

    entity_id: str


@dataclass(frozen=True, slots=True)
class Passivate:
    """Returned by `receive`: stop me with this message, and keep what comes meanwhile for my next incarnation."""

    stop_message: object | None = None


class MessageExtractor:
    """Subclass it, or give functions to `ClusterSharding.start`."""

    def __init__(self, number_of_shards: int) -> None:
        if type(number_of_shards) is not int or number_of_shards < 1:
            raise DeclarationError(f"number_of_shards is an int of at least 1, not {number_of_shards!r}")
        self.number_of_shards = number_of_shards

    @property
    def name(self) -> str:
        """What is compared between nodes: two extractors of one name must do the same."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def entity_id(self, message: object) -> str:
        """Return the id of the entity that the message is for."""
        if isinstance(message, EntityEnvelope | StartEntity):
            return naming.entity_id(message.entity_id)
        found = message_entity_id(message)
        if found is None:
            raise BadCall(
                f"{type(message).__qualname__} names no entity: wrap it in EntityEnvelope(id, message),"
                " or declare its field with @message(entity_id=...)"
            )
        return found

    def entity_message(self, message: object) -> object:
        """Return what the entity gets."""
        return message.message if isinstance(message, EntityEnvelope) else message

    def shard_id(self, entity_id: str) -> int:
        """Return the shard of an entity."""
        return shard_of(entity_id, self.number_of_shards)

    def checked_shard_id(self, entity_id: str) -> int:
        """Return the shard of an entity, or raise `BadCall` if `shard_id` fails or answers what no shard can be."""
        try:
            shard = self.shard_id(entity_id)
        except ShardingError:
            raise
        except Exception as error:
            raise BadCall(
                f"{self.name}: the shard of {entity_id!r} cannot be told: {type(error).__name__}: {error}"
            ) from error
        if type(shard) is not int or not 0 <= shard < self.number_of_shards:
            raise BadCall(
                f"{self.name}: the shard of {entity_id!r} must be an int from 0 to {self.number_of_shards - 1},"
                f" not {ascii(shard)[:80]}"
            )
        return shard


class HashCodeMessageExtractor(MessageExtractor):
    """Ids from the message or its envelope, shards by the stable hash that typed entities use too."""

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
        return naming.entity_id(self._entity_id(message))

    def shard_id(self, entity_id: str) -> int:
        return super().shard_id(entity_id) if self._shard_id is None else self._shard_id(entity_id)
