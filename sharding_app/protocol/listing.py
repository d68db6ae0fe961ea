"""Pages of ids: questions and answers.

Stored ids are read along the journal's key, which holds all shards of a type. So any home of the
type answers for all of them.
"""

from collections.abc import Iterable

import msgspec

from sharding_app.protocol.ids import Incarnation, ShardId

PAGE_IDS = 1000
PAGE_BYTES = 128 * 1024
NO_ENTITY = ""
"""Stands in an envelope that is for a home of the type, whichever it is. No entity has it as its
id."""


class WantedIds(msgspec.Struct, array_like=True, gc=False):
    prefix: str
    after: str
    "The last id of the page before; empty: there was none."
    limit: int = PAGE_IDS

    @property
    def most(self) -> int:
        """The most ids of the page: a home gives no larger ones."""
        return max(1, min(self.limit, PAGE_IDS))

    def takes(self, entity: str) -> bool:
        """Tell whether an id belongs to this page or a later one."""
        return entity.startswith(self.prefix) and entity.encode() > self.after.encode()


class IdPage(msgspec.Struct, array_like=True, gc=False):
    ids: list[str]
    "In the order of their UTF-8."
    more: bool
    "There may be others behind the last one. A page with more is not empty."


class ShardsLeft(msgspec.Struct, frozen=True):
    """The shards that a listing of the memory has not finished."""

    shards: tuple[tuple[Incarnation, ShardId], ...]
    "The first of them is at hand; each with its home."
    after: str = ""
    "The last id of the page before, of that shard."


class IdsInMemory(msgspec.Struct, frozen=True):
    """To a process: which entities of a type are in memory, on all nodes?

    The answer are ids, and the place of the next page: None if there is none.
    """

    prefix: str = ""
    place: ShardsLeft | None = None


def page_of(found: Iterable[str], most: int = PAGE_IDS) -> IdPage:
    """Return the page that begins with these ids, at most `most`: all of them, or as many as a
    message takes.
    """
    ids: list[str] = []
    size = 0
    for each in found:
        size += len(each.encode())
        if ids and size > PAGE_BYTES:
            return IdPage(ids, more=True)
        ids.append(each)
    return IdPage(ids, more=len(ids) >= most)


encode_wanted = msgspec.msgpack.Encoder().encode
encode_page = msgspec.msgpack.Encoder().encode
decode_wanted = msgspec.msgpack.Decoder(WantedIds).decode
decode_page = msgspec.msgpack.Decoder(IdPage).decode
