"""Samples journals: the first and the last entities of each type by key, some at random places, and what was written last.

Contract: every query walks a short way along the key (or reads the table's last pages), so that ten million events cost
as much as a thousand. Of a record that cannot be read only its place and the reason leave this module, never its content.
"""

import random
import re
import string
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from sharding_app.core.ids import shard_of
from sharding_app.core.records import TypeConfig
from sharding_app.db import steady_reads
from sharding_app.doctor.look import JournalLook, Unreadable
from sharding_app.errors import EventUnreadable
from sharding_app.model.types import EntityType
from sharding_app.runtime.loader import LONG_EVENTS

ENTITIES = 20
"""From each end, and at random places."""
EVENTS = 50
"""From each end of an entity's history."""
PAGES = 16
RANDOM_PAGES = 100
LAST_ROWS = 500
IDS = 200
_LETTERS = string.digits + string.ascii_letters + "-_"
_SAFE = re.compile(
    r"(Expected `[^`]*`[^`]*(, got `[^`]*`)?|Object missing required field `[^`]*`|JSON is malformed: [^`]*"
    r"|Input data was truncated)( - at `[^`]*`)?"
)
"""What msgspec says without a word of the content."""

_NEXT = "SELECT entity FROM sharding_event WHERE type_id = %s AND entity > %s ORDER BY entity, seq LIMIT 1"
_FORMER = "SELECT entity FROM sharding_event WHERE type_id = %s AND entity < %s ORDER BY entity DESC, seq DESC LIMIT 1"
_LAST = "SELECT entity FROM sharding_event WHERE type_id = %s ORDER BY entity DESC, seq DESC LIMIT 1"
_EVENTS = """
    (SELECT seq, name, version, payload::text FROM sharding_event WHERE type_id = %s AND entity = %s ORDER BY seq LIMIT %s)
    UNION
    (SELECT seq, name, version, payload::text FROM sharding_event WHERE type_id = %s AND entity = %s
        ORDER BY seq DESC LIMIT %s)
    ORDER BY seq
"""
_SNAPSHOT = """
    SELECT seq, state::text FROM sharding_snapshot WHERE type_id = %s AND entity = %s ORDER BY seq DESC LIMIT 1
"""
_PAGES = "SELECT greatest(0, pg_relation_size('sharding_event') / current_setting('block_size')::bigint - %s)"
_WRITTEN_LAST = """
    SELECT DISTINCT entity FROM (
        SELECT type_id, entity FROM sharding_event WHERE ctid >= %s::tid LIMIT %s
    ) AS written WHERE type_id = %s
"""
_ANYWHERE = (
    "SELECT DISTINCT entity FROM sharding_event WHERE ctid = ANY (%s::tid[]) AND type_id = %s LIMIT %s"
)
_LENGTH = """
    SELECT COALESCE((SELECT max(seq) FROM sharding_event WHERE type_id = %s AND entity = %s), 0)
        - COALESCE((SELECT max(seq) FROM sharding_snapshot WHERE type_id = %s AND entity = %s), 0)
"""
_REMEMBERED = (
    "SELECT shard, entity FROM sharding_remembered WHERE type_id = %s ORDER BY shard, entity LIMIT %s"
)


def read_journal(
    alias: str, number: int, config: TypeConfig, known: EntityType | None, seed: int | None = None
) -> JournalLook:
    """Look at one type's sample; `known` is its code, if it is here."""
    with steady_reads(alias) as cursor:
        chosen = _entities(cursor, number, random.Random(seed))  # noqa: S311  (a sample, not a secret)
        looked_at, unreadable, gaps = 0, [], []
        for entity in chosen:
            cursor.execute(_EVENTS, [number, entity, EVENTS, number, entity, EVENTS])
            events = cursor.fetchall()
            looked_at += len(events)
            if known is None:
                continue
            if known.kind == "event_sourced":
                unreadable += list(_unreadable_events(known, config.name, entity, events))
                cursor.execute(_SNAPSHOT, [number, entity])
                newest = cursor.fetchone()
                if newest is not None:
                    unreadable += list(_unreadable_snapshot(known, config.name, entity, *newest))
                if len(events) < 2 * EVENTS:
                    gaps += [(entity, seq) for seq in _gaps([each[0] for each in events])]
            elif known.kind == "durable_state" and events:
                unreadable += list(_unreadable_value(known, config.name, entity, *events[-1]))
        long: dict[str, int] = {}
        if known is not None and known.kind == "event_sourced":
            for entity in dict.fromkeys([*chosen, *_anywhere(cursor, number, random.Random(seed))]):  # noqa: S311
                cursor.execute(_LENGTH, [number, entity] * 2)
                length = cursor.fetchone()[0]
                if length >= LONG_EVENTS:
                    long[entity] = length
        cursor.execute(_REMEMBERED, [number, IDS])
        ids = cursor.fetchall()
    strange, moved = _remembered(config, known, ids)
    return JournalLook(
        type=config.name,
        installed=known is not None,
        remembers=known is not None and bool(known.settings.remember_entities),
        looked_at=looked_at,
        unreadable=tuple(unreadable),
        gaps=tuple(gaps),
        long=tuple(sorted(long.items(), key=lambda each: -each[1])),
        remembered=len(ids),
        unreadable_ids=tuple(strange),
        moved_ids=moved,
    )


def _entities(cursor: Any, number: int, chance: random.Random) -> list[str]:
    found: dict[str, None] = {}

    def look(query: str, *params: object) -> str | None:
        cursor.execute(query, [number, *params])
        row = cursor.fetchone()
        if row is not None:
            found[row[0]] = None
        return None if row is None else str(row[0])

    first: str | None = ""
    last = look(_LAST)
    for _ in range(ENTITIES if last is not None else 0):
        first = None if first is None else look(_NEXT, first)
        last = None if last is None else look(_FORMER, last)
    ends = list(found)
    for _ in range(ENTITIES if len(ends) > ENTITIES else 0):
        look(_NEXT, _between(min(ends), max(ends), chance))
    cursor.execute(_PAGES, [PAGES])
    cursor.execute(_WRITTEN_LAST, [f"({cursor.fetchone()[0]},0)", LAST_ROWS, number])
    written = [str(entity) for (entity,) in cursor.fetchall()]
    found.update(dict.fromkeys(written[:ENTITIES]))
    return list(found)


def _anywhere(cursor: Any, number: int, chance: random.Random) -> list[str]:
    """Entities of events at random places of the table: who has the most events is found the most likely."""
    cursor.execute(_PAGES, [1])
    last_page = cursor.fetchone()[0]
    places = [f"({chance.randint(0, last_page)},{line})" for _ in range(RANDOM_PAGES) for line in (1, 8)]
    cursor.execute(_ANYWHERE, [places, number, RANDOM_PAGES])
    return [str(entity) for (entity,) in cursor.fetchall()]


def _between(low: str, high: str, chance: random.Random) -> str:
    """A place between two ids: they mostly begin alike, and differ in letters and digits from there on."""
    shared = 0
    while shared < min(len(low), len(high)) and low[shared] == high[shared]:
        shared += 1
    return low[:shared] + "".join(chance.choice(_LETTERS) for _ in range(6))


def _unreadable_events(
    known: EntityType, name: str, entity: str, events: list[tuple[int, str, int, str]]
) -> Iterator[Unreadable]:
    for seq, event, version, payload in events:
        try:
            known.event_codec.decode(event, version, payload)
        except Exception as error:  # noqa: BLE001  (upcasters are the user's)
            what = f"event {event!r} of version {version}"
            yield Unreadable(type=name, entity=entity, seq=seq, what=what, why=reason(error))


def _unreadable_snapshot(
    known: EntityType, name: str, entity: str, seq: int, state: str
) -> Iterator[Unreadable]:
    try:
        known.load_state(known.new(entity), state)
    except Exception as error:  # noqa: BLE001  (the user's __init__ and restore())
        yield Unreadable(type=name, entity=entity, seq=seq, what="snapshot", why=reason(error))


def _unreadable_value(
    known: EntityType, name: str, entity: str, seq: int, _event: str, version: int, state: str
) -> Iterator[Unreadable]:
    for found in _unreadable_snapshot(known, name, entity, seq, state):
        yield Unreadable(
            type=name, entity=entity, seq=seq, what=f"event with its value (version {version})", why=found.why
        )


def reason(error: BaseException) -> str:
    """Why something cannot be read, without a word of what it says."""
    cause = error.__cause__
    if isinstance(error, EventUnreadable) and cause is None:
        return error.message  # the codec's own: names and versions
    inner = cause or error
    if isinstance(inner, msgspec.MsgspecError) and _SAFE.fullmatch(str(inner)):
        return str(inner)
    return f"{type(inner).__qualname__} (its text may hold content, and is not shown)"


def _gaps(seqs: list[int]) -> Iterator[int]:
    """The first number that is missing between two that are there: a trimmed journal begins later, without a gap."""
    for one, other in pairwise(seqs):
        if other != one + 1:
            yield one + 1
            return


def _remembered(
    config: TypeConfig, known: EntityType | None, ids: list[tuple[int, str]]
) -> tuple[list[tuple[str, str]], int]:
    strange: list[tuple[str, str]] = []
    moved = 0
    for shard, entity in ids:
        try:
            now = shard_by_id(config, known, entity)
        except Exception as error:  # noqa: BLE001  (the user's own extractor)
            strange.append((entity, type(error).__qualname__))
            continue
        if now is not None and not 0 <= now < config.number_of_shards:
            strange.append((entity, f"its extractor says shard {now} of {config.number_of_shards}"))
        elif now is not None and now != shard:
            moved += 1
    return strange, moved


def shard_by_id(config: TypeConfig, known: EntityType | None, entity: str) -> int | None:
    """Where an id leads to; None: the code that says so is not here. Raises what the user's extractor raises."""
    if known is not None and known.extractor is not None:
        return int(known.extractor.checked_shard_id(entity))
    return shard_of(entity, config.number_of_shards) if config.extractor.startswith("hash:") else None
