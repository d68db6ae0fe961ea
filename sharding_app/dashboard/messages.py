"""Messages and timers for people: pages of them, those of one entity, and single ones.

Each page costs one look at each shard of a type, along an index, however many rows wait. The
arguments of a message are read for its own page alone. A message lies in the journal of its owner;
those from outside lie in the cluster's own database. Pages merge the journals, and name those that
do not answer.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from django.db import connections
from django.db.models import BinaryField, Case, IntegerField, Value, When
from django.db.models.functions import Length

from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query
from sharding_app.dashboard.history import entity_journal, shard_by_id
from sharding_app.dashboard.keyset import storable
from sharding_app.entities.registry import registry
from sharding_app.models import Message
from sharding_app.operations.each_journal import (
    ONE_JOURNAL,
    Copies,
    Down,
    JournalsDown,
    ask,
    copies_among,
    name_of,
)
from sharding_app.operations.snapshot import OVERDUE_SECONDS, TypeRow
from sharding_app.protocol.journals import CLUSTERS_OWN

PENDING, OVERDUE, FAILING, PARKED = STATES = ("pending", "overdue", "failing", "parked")
"""Pending ones are all that are not parked. Some of them are overdue, or wait after a failure."""
SHOWN = 50
OF_ENTITY = 100
"""The most that are shown of one entity."""
SEARCHED = 10_000
"""The most messages of a shard that are searched for those of one entity."""
MAX_ARGS_BYTES = 20_000
"""Longer arguments are not read for a page."""
MAX_ID = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: after this row."""

    type: int
    due: datetime
    id: str

    @property
    def text(self) -> str:
        return json.dumps([self.type, self.due.astimezone(UTC).isoformat(), self.id], separators=(",", ":"))


def parse_place(text: str) -> Place | None:
    """Return the place that a text stands for; None: it is none."""
    try:
        number, due, found = json.loads(text)
        at = datetime.fromisoformat(due).astimezone(UTC)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    if type(number) is not int or not 0 <= number < 2**31 or not is_id(found):
        return None
    return Place(number, at, found)


def is_id(found: object) -> bool:
    return isinstance(found, str) and len(found) <= MAX_ID and storable(found)


class Found(NamedTuple):
    """A page of messages."""

    messages: list[Message]
    next: Place | None
    down: Sequence[Down] = ()
    "Journals whose messages are not among them."


def read_page(
    types: Sequence[TypeRow],
    state: str,
    after: Place | None,
    count: int = SHOWN,
    journals: Sequence[str] = ONE_JOURNAL,
) -> Found:
    """Return a page of the messages in that state of these types, and the place of the next page.

    The types follow one another in the order of their numbers.
    """

    copies = copies_among(journals)

    def ids(alias: str) -> tuple[list[Message], bool]:
        found: list[str] = []
        without = copies.parameters(name_of(alias))
        with bounded_reads(alias):
            for row in sorted(types, key=lambda each: each.number):
                if after is not None and row.number < after.type:
                    continue
                begins = after if after is not None and after.type == row.number else None
                found += _ids(row, state, begins, count + 1 - len(found), alias, without)
                if len(found) > count:
                    break
            return read(found[:count], alias), len(found) > count

    asked = ask(journals, ids)
    messages = [message for some, _ in asked.found.values() for message in some]
    if len(asked.found) > 1:
        messages.sort(key=lambda each: (each.type_id, each.due, each.id))
    more = len(messages) > count or any(has_more for _, has_more in asked.found.values())
    messages = messages[:count]
    last = messages[-1] if more and messages else None
    place = None if last is None else Place(last.type_id, last.due, last.id)
    return Found(messages, place, asked.down)


def _is_message(row: Message, alias: str, copies: Copies) -> bool:
    """Tell whether a row is no copy. Those from outside lie in the cluster's own database."""
    return row.epoch is None or copies.lies_in(name_of(alias), row.type_id, row.entity, row.shard)


def _ids(
    row: TypeRow, state: str, after: Place | None, count: int, alias: str, without: Mapping[str, object]
) -> list[str]:
    params: dict[str, Any] = {
        **without,
        "type_id": row.number,
        "due": "-infinity" if after is None else after.due,
        "after": "" if after is None else after.id,
        "limit": count,
    }
    query = "operator_failing"
    if state != FAILING:
        query = "operator_page"
        params |= {"shards": row.config.numbering.most, "parked": state == PARKED}
        params |= {"late": OVERDUE_SECONDS if state == OVERDUE else None}
    with connections[alias].cursor() as cursor:
        return [found for (found,) in run_query(cursor, query, params)]


@dataclass(frozen=True, slots=True)
class OfEntity:
    messages: list[Message]
    whole: bool = True
    "All of its messages are among them."
    down: Sequence[Down] = ()
    "Journals that may have others."


def read_entity(row: TypeRow, entity: str, journals: Sequence[str] = ONE_JOURNAL) -> OfEntity:
    """Return the messages and timers of an entity: those of its journal, and those from outside."""
    if len(journals) == 1:
        return _read_entity(row, entity, journal_alias(), Copies())
    copies = copies_among(journals)
    try:
        own = entity_journal(row.number, row.config, entity, journals)
    except JournalsDown as error:
        return OfEntity([], whole=False, down=error.down)
    asked = ask(dict.fromkeys((CLUSTERS_OWN, own)), lambda alias: _read_entity(row, entity, alias, copies))
    messages = [message for each in asked.found.values() for message in each.messages]
    messages.sort(key=lambda each: (each.due, each.id))
    whole = all(each.whole for each in asked.found.values()) and len(messages) <= OF_ENTITY
    return OfEntity(messages[:OF_ENTITY], whole, asked.down)


def _read_entity(row: TypeRow, entity: str, alias: str, copies: Copies) -> OfEntity:
    shard = shard_by_id(row.config, entity)
    params = {
        "type_id": row.number, "entity": entity, "shard": -1 if shard is None else shard, "searched": SEARCHED,
        "limit": OF_ENTITY + 1,
    }  # fmt: skip
    with bounded_reads(alias), connections[alias].cursor() as cursor:
        found = run_query(cursor, "operator_entity", params)
        rows = read([each for each, _ in found[:OF_ENTITY] if each is not None], alias)
    messages = [each for each in rows if _is_message(each, alias, copies)]
    searched = shard is not None and all(whole for _, whole in found)
    return OfEntity(messages, searched and len(found) <= OF_ENTITY)


def in_state(messages: Iterable[Message], state: str, now: datetime) -> list[Message]:
    """Return those that are in a state."""
    late = now - timedelta(seconds=OVERDUE_SECONDS)
    return [
        each
        for each in messages
        if each.parked == (state == PARKED)
        and (state != OVERDUE or each.due <= late)
        and (state != FAILING or each.error)
    ]


def read(ids: Sequence[str], alias: str | None = None) -> list[Message]:
    """Return these messages without their arguments, in this order. Some may be gone."""
    rows = Message.objects.using(alias or journal_alias()).filter(id__in=ids).defer("args")
    found = {each.id: each for each in rows}
    return [found[each] for each in ids if each in found]


def read_chosen(ids: Sequence[str], journals: Sequence[str] = ONE_JOURNAL) -> Found:
    """Return these messages, in whatever journals they are."""

    copies = copies_among(journals)

    def chosen(alias: str) -> list[Message]:
        with bounded_reads(alias):
            return [each for each in read(ids, alias) if _is_message(each, alias, copies)]

    asked = ask(journals, chosen)
    found = {each.id: each for some in asked.found.values() for each in some}
    return Found([found[each] for each in ids if each in found], None, asked.down)


def read_one(message: str, journals: Sequence[str] = ONE_JOURNAL) -> tuple[Message | None, Sequence[Down]]:
    """Return a message with the size of its arguments (`size`), and these (`shown_args`) if they
    are short enough for a page. If it is in no journal that answers, the others are named.
    """
    copies = copies_among(journals)
    down: list[Down] = []
    for name in journals:
        asked = ask([name], lambda alias: _read_one(message, alias, copies))
        down += asked.down
        if asked.found.get(name) is not None:
            return asked.found[name], ()
    return None, down


def _read_one(message: str, alias: str, copies: Copies) -> Message | None:
    size = Length("args", output_field=IntegerField())
    short = Case(
        When(size__lte=MAX_ARGS_BYTES, then="args"), default=Value(None), output_field=BinaryField(null=True)
    )
    with bounded_reads(alias):
        rows = Message.objects.using(alias).filter(id=message).defer("args")
        found = rows.annotate(size=size, shown_args=short).first()
    return found if found is not None and _is_message(found, alias, copies) else None


def arguments(message: Message) -> str:
    """Return the arguments of a message as JSON, with their names where the code is installed."""
    try:
        values = msgspec.msgpack.decode(bytes(message.shown_args))  # type: ignore[attr-defined] # annotated
        target = registry.all().get(message.target_type)
        known = None if target is None else target.commands.get(message.command)
        if known is not None and isinstance(values, list) and len(values) <= len(known.parameters):
            values = dict(zip(known.parameters, values, strict=False))
        return msgspec.json.encode(values).decode()
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        return repr(bytes(message.shown_args))  # type: ignore[attr-defined] # annotated
