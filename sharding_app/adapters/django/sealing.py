"""Personal data on Django's connection: sealed in a caller's transaction, opened in a turn of a
projection.
"""

from collections.abc import Sequence
from typing import TypeVar

from django.db.backends.utils import CursorWrapper

from sharding_app.adapters.django.database import run_query
from sharding_app.adapters.personal.sealing import (
    MESSAGE_PLACE,
    Document,
    NoKeys,
    Steps,
    SubjectsErased,
    answered,
    event_place,
    opened,
    sealed,
)
from sharding_app.adapters.personal.vault import Vault
from sharding_app.entities.staging import StagedMessage
from sharding_app.errors import NotSerializable, SubjectErased
from sharding_app.ports.projections import NotReady
from sharding_app.protocol.personal import in_any_json, in_any_packed
from sharding_app.protocol.projection.requests import StoredEvent

T = TypeVar("T")


def sealed_args(cursor: CursorWrapper, vault: Vault | None, message: StagedMessage) -> bytes:
    """Return the arguments of a message as they are stored. Raises SubjectErased or
    NotSerializable.
    """
    if not in_any_packed((message.args,)):
        return message.args
    what = f"{message.command} of {message.target_type} {message.target!r}"
    document = Document(message.args, MESSAGE_PLACE, is_packed=True)
    try:
        return asked(cursor, sealed(vault, [document]))[0]
    except SubjectsErased as error:
        raise SubjectErased(f"{what}: the message has personal data of a subject that was erased") from error
    except NoKeys as error:
        raise NotSerializable(f"{what}: {error}") from error


def opened_events(
    cursor: CursorWrapper, vault: Vault | None, events: Sequence[StoredEvent]
) -> list[StoredEvent]:
    """Return events with their personal data. Raises NotReady without the keys."""
    if not in_any_json(each.payload for each in events):
        return list(events)
    documents = [Document(each.payload, event_place(*each[:3])) for each in events]
    try:
        texts = asked(cursor, opened(vault, documents))
    except NoKeys as error:
        raise NotReady(str(error)) from error
    return [each._replace(payload=text) for each, text in zip(events, texts, strict=True)]


def asked(cursor: CursorWrapper, steps: Steps[T]) -> T:
    """Carry the steps out on that cursor."""
    return answered(steps, lambda ask: run_query(cursor, ask.query, ask.params))
