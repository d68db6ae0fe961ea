"""Names and numbers that every room shares: they identify an entity, place it and fence its shard.

The hash is part of the stored truth (events carry their shard), so it may never change for a
running cluster; `HASH_VERSION` is compared when a node joins.
"""

from zlib import crc32

HASH_VERSION = "crc32-1"
MAX_ENTITY_ID_BYTES = 512

Incarnation = str
"""One run of one process: random, never used again. The channel name and the lock keys come from
it."""
PROXY_PREFIX = "p-"
EntityId = str
ShardId = int
Epoch = int
"""A shard's fencing number: one higher at each new home, checked by Postgres in the append
itself."""
Term = int
"""The coordinator's fencing number: one higher at each election."""
ShardKey = tuple[str, int]
"""(type name, shard)."""


def has_no_row(incarnation: Incarnation) -> bool:
    """Tell whether that process only asks: it has no row, so no reading ever finds it gone."""
    return incarnation.startswith(PROXY_PREFIX)


def is_entity_id(text: str) -> bool:
    """Tell whether the journal's tables take a text as the id of an entity.

    Callers can send no other.
    """
    if text.isascii():
        return 0 < len(text) <= MAX_ENTITY_ID_BYTES and "\0" not in text
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return False
    return size <= MAX_ENTITY_ID_BYTES and "\0" not in text


def shard_of(entity_id: EntityId, number_of_shards: int) -> ShardId:
    """Return the shard of an entity: the same in every process, on every version of Python."""
    return crc32(entity_id.encode()) % number_of_shards
