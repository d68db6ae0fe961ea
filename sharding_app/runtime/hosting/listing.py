"""Pages of the ids that a type has stored, for any process that asks a home of the type.

Contract: a page has the ids of all journals, in one order. While one of them does not answer there
is no page: ids would be missing in silence. An id counts in the journal in which its shard lay when
the look began: others may have a copy of its rows, and the former one keeps its rows if the shard
moves meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Set

import msgspec

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import AskTimeout, InvalidCall
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.ids import EntityId
from sharding_app.protocol.listing import WantedIds, decode_wanted, encode_page, page_of
from sharding_app.protocol.messages import Deliver

RETRY_SECONDS = 0.1

Lying = Callable[[], Awaitable[tuple[Callable[[EntityId], str | None], Set[str]]]]
"""Tells in which journals the shards of a type lie now: by an id (None: its extractor fails), and
all of these journals. Raises StoreUnavailable."""


async def page(
    entity_type: EntityType,
    type_id: int,
    journals: Mapping[str, Journal],
    lying: Lying,
    message: Deliver,
    now: Callable[[], float],
) -> bytes:
    """Return the encoded page; raises `InvalidCall`, or `AskTimeout` when the caller has given
    up.
    """
    if entity_type.kind == "memory":
        raise InvalidCall(f"{entity_type.name} stores nothing: its ids cannot be read")
    try:
        wanted = decode_wanted(message.args)
    except msgspec.MsgspecError as error:
        raise InvalidCall(f"a question for ids of {entity_type.name} cannot be read: {error}") from error
    while True:
        try:
            if len(journals) == 1:
                (journal,) = journals.values()
                found = await journal.ids(type_id, wanted.prefix, wanted.after, wanted.most)
            else:
                found = await _joined(type_id, journals, lying, wanted)
            return encode_page(page_of(found, wanted.most))
        except (JournalUnavailable, StoreUnavailable) as lost:
            if message.deadline_ms <= now() * 1000:
                raise AskTimeout(
                    f"the ids of {entity_type.name} could not be read in time: {lost}", code="expired"
                ) from lost
            await asyncio.sleep(RETRY_SECONDS)


async def _joined(
    type_id: int, journals: Mapping[str, Journal], lying: Lying, wanted: WantedIds
) -> list[EntityId]:
    journal_of, used = await lying()
    found: set[EntityId] = set()
    for name in used & journals.keys():
        after, many, is_whole = wanted.after, 0, False
        while many < wanted.most and not is_whole:
            page = await journals[name].ids(type_id, wanted.prefix, after, wanted.most)
            there = [each for each in page if journal_of(each) in (name, None)]
            found.update(there)
            many += len(there)
            is_whole = len(page) < wanted.most
            after = page[-1] if page else after
    # Ids are in the order of their UTF-8, which is that of their code points.
    return sorted(found)[: wanted.most]
