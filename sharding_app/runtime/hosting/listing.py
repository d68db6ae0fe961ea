"""Pages of the ids that a type has stored, for any process that asks a home of the type.

Contract: a page has the ids of all journals, in one order. While one of them does not answer there
is no page: ids would be missing in silence.
"""

import asyncio
import heapq
from collections.abc import Callable, Sequence
from itertools import islice

import msgspec

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import AskTimeout, InvalidCall
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.protocol.listing import decode_wanted, encode_page, page_of
from sharding_app.protocol.messages import Deliver

RETRY_SECONDS = 0.1


async def page(
    entity_type: EntityType,
    type_id: int,
    journals: Sequence[Journal],
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
            each = [
                await journal.ids(type_id, wanted.prefix, wanted.after, wanted.most) for journal in journals
            ]
            # Ids are in the order of their UTF-8, which is that of their code points.
            found = list(islice(heapq.merge(*each), wanted.most)) if len(each) > 1 else each[0]
            return encode_page(page_of(found, wanted.most))
        except JournalUnavailable as lost:
            if message.deadline_ms <= now() * 1000:
                raise AskTimeout(
                    f"the ids of {entity_type.name} could not be read in time: {lost}", code="expired"
                ) from lost
            await asyncio.sleep(RETRY_SECONDS)
