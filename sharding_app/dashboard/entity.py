"""The page of one entity: where it lives, what it was and is, and what happened to it."""

from collections.abc import Sequence

from django.db import DatabaseError
from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.history import (
    EVENTS_SHOWN,
    MAX_PAYLOAD_SHOWN,
    MAX_SEQ,
    History,
    State,
    installed,
    read_history,
    state_at,
)
from sharding_app.dashboard.jsontext import pretty
from sharding_app.dashboard.keyset import storable
from sharding_app.dashboard.permissions import shown_command
from sharding_app.dashboard.presenters import shard_map, trouble
from sharding_app.dashboard.presenters.homes import View
from sharding_app.models import Event
from sharding_app.operations.cache import Look
from sharding_app.operations.each_journal import JournalsDown, journal_name
from sharding_app.operations.snapshot import TypeRow
from sharding_app.protocol.ids import MAX_ENTITY_ID_BYTES

SHORT = 100
"""The most characters of a payload that are shown in one line, as it is stored."""


def entity_context(
    look: Look, row: TypeRow, entity: str, at: str, *, payloads: bool, rebuild: bool = True
) -> View:
    """All that the page shows. `at` is the number of an event; without it, the newest one
    counts.
    """
    if not entity:
        return {"entity": "", "refused": ""}
    if not storable(entity) or len(entity.encode()) > MAX_ENTITY_ID_BYTES:
        return {
            "entity": entity,
            "refused": _("No entity can have this id: it is too long, or contains a null character."),
        }
    wanted = int(at) if at.isdecimal() and len(at) < 20 else None
    journals = look.cluster.journal_names
    try:
        history = read_history(
            row.number,
            row.config,
            entity,
            None if wanted is None else min(wanted, MAX_SEQ),
            payloads=payloads,
            journals=journals,
        )
    except JournalsDown as error:
        return {"entity": entity, "refused": _("This entity cannot be shown: {}.").format(error)}
    (cell,) = (
        shard_map.shard_map(look, row, range(history.shard, history.shard + 1))
        if history.shard is not None
        else (None,)
    )
    state = _state(row, entity, history, journals) if payloads and rebuild else State()
    return {
        "entity": entity,
        "refused": "",
        "history": history,
        "journal": journal_name(history.journal) if len(journals) > 1 else "",
        "installed": installed(row.config.name) is not None,
        "cell": cell,
        "state": state,
        "events": [_event(each, payloads=payloads) for each in history.events],
        "snapshots": history.snapshots,
        "previous": history.at - 1 if history.at > max(history.first, 1) else None,
        "next": history.at + 1 if history.at < history.last else None,
        "is_last": history.at >= history.last,
        "older": history.events[-1].seq - 1
        if len(history.events) == EVENTS_SHOWN and history.events[-1].seq > 1
        else None,
        "last": history.last,
        "total": words.count(history.last),
        "troubles": trouble.troubles(look, row.config.name, entity),
    }


def _state(row: TypeRow, entity: str, history: History, journals: Sequence[str]) -> State:
    if not history.at:
        return State()
    try:
        return state_at(row.number, row.config, entity, history.at, journals)
    except DatabaseError as error:
        return State(trouble=str(error))


def _event(event: Event, *, payloads: bool) -> View:
    return {
        "seq": event.seq,
        "name": event.name,
        "version": event.version,
        "at": event.at,
        "command": shown_command(event.command, payloads=payloads),
        "epoch": event.epoch,
        "partial": event.partial,
        "payload": _content(event.shown_payload) if payloads else None,  # type: ignore[attr-defined] # annotated
    }


def _content(payload: str) -> str:
    if len(payload) > MAX_PAYLOAD_SHOWN:
        return f"{payload[:MAX_PAYLOAD_SHOWN]} …"
    return payload if len(payload) <= SHORT else pretty(payload)
