"""`project(OpenAuctions, (id, event), ...)`: a projection's handlers on events that a test gives,
in the test's own transaction.
"""

import asyncio
from datetime import UTC, datetime

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import Projection
from sharding_app.errors import InvalidCall
from sharding_app.protocol.projection.requests import StoredEvent


def project(
    projection: type[Projection], *events: tuple[str, object], at: datetime | None = None, after: int = 0
) -> None:
    """Feed events to a projection as a node does: through the codec, in calls of `batch_size`.

    Each is given with the id of its entity. The numbers of each entity's events begin behind
    `after`.
    """
    declared = projection._sharding_projection
    if declared is None:
        raise InvalidCall(f"{projection.__qualname__} has no source: it is a base of projections")
    types = dict(enumerate(declared.sources, 1))
    numbers: dict[tuple[int, str], int] = {}
    stored: list[StoredEvent] = []
    for entity_id, event in events:
        type_id, record = _record(types, event)
        number = numbers[type_id, entity_id] = numbers.get((type_id, entity_id), after) + 1
        stored.append(StoredEvent(type_id, entity_id, number, *record, at or datetime.now(UTC)))
    instance = projection()
    for place in range(0, len(stored), declared.batch_size):
        for call in declared.calls(stored[place : place + declared.batch_size], types):
            result = getattr(instance, call.method)(call.argument)
            if declared.is_async:
                asyncio.run(result)


def _record(types: dict[int, EntityType], event: object) -> tuple[int, tuple[str, int, bytes]]:
    """Return the number of the first type that has such events, and the event's record."""
    for type_id, entity_type in types.items():
        try:
            return type_id, entity_type.event_codec.encode(event)
        except InvalidCall:
            continue
    names = ", ".join(each.name for each in types.values())
    raise InvalidCall(f"no source of this projection ({names}) has events of {type(event).__qualname__}")
