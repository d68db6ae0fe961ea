"""`project(OpenAuctions, (id, event), ...)`: a projection's handlers on events that a test gives,
in the test's own transaction.
"""

import contextlib
import inspect
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from django.db import DatabaseError, connections, transaction

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.projections import Projection, ProjectionType
from sharding_app.errors import InvalidCall
from sharding_app.protocol.projection.requests import StoredEvent
from sharding_app.settings.load import get_settings

_NO_DATABASE = (
    AssertionError, DatabaseError, ImproperlyConfigured, RuntimeError, SynchronousOnlyOperation,
)  # fmt: skip
"""How Django, pytest-django and the driver say that the present test uses no database."""


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
        with in_transaction(declared):
            for call in declared.calls(stored[place : place + declared.batch_size], types):
                carry_out(getattr(instance, call.method), call.argument)


@contextlib.contextmanager
def in_transaction(projection: ProjectionType) -> Iterator[None]:
    """Surround plain handlers with a transaction on the database of their rows, as a node does.
    Handlers of a test that uses no database have none.
    """
    alias = projection.database or get_settings().database
    with contextlib.ExitStack() as stack:
        if not projection.is_async and _is_usable(alias):
            stack.enter_context(transaction.atomic(using=alias))
        yield


def carry_out(handler: Callable[..., Any], *arguments: object) -> None:
    """Call a handler to its end. The async ORM in it uses this thread's connections, which are the
    test's.
    """
    if inspect.iscoroutinefunction(handler):
        async_to_sync(handler)(*arguments)
    else:
        handler(*arguments)


def _is_usable(alias: str) -> bool:
    try:
        connections[alias].ensure_connection()
    except _NO_DATABASE:
        return False
    return True


def _record(types: dict[int, EntityType], event: object) -> tuple[int, tuple[str, int, bytes]]:
    """Return the number of the first type that has such events, and the event's record."""
    for type_id, entity_type in types.items():
        try:
            return type_id, entity_type.event_codec.encode(event)
        except InvalidCall:
            continue
    names = ", ".join(each.name for each in types.values())
    raise InvalidCall(f"no source of this projection ({names}) has events of {type(event).__qualname__}")
