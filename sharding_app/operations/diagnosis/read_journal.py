"""Samples journals: first and last entities of each type, some at random, and the newest records.

Contract: each query reads a short range of the key, or the table's last pages, so that ten million
events cost as much as a thousand. Of an unreadable record only its place and the reason leave this
module, never its content.
"""

import random
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec

from sharding_app.adapters.django.database import run_query, steady_reads
from sharding_app.adapters.postgres.sql import HIGHEST
from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import UnreadableEvent
from sharding_app.operations.diagnosis.look import JournalLook, Unreadable
from sharding_app.protocol.records import TypeConfig
from sharding_app.runtime.journal.loader import LONG_EVENTS
from sharding_app.runtime.journal.retention import DAY_SECONDS

ENTITIES = 20
"""From each end, and at random places."""
EVENTS = 50
"""From each end of an entity's history."""
PAGES = 16
RANDOM_PAGES = 100
LAST_ROWS = 500
IDS = 200
SNAPSHOTS = 200
LATE_DAYS = 2
_LETTERS = string.digits + string.ascii_letters + "-_"
_SAFE = re.compile(
    r"(Expected `[^`]*`[^`]*(, got `[^`]*`)?|Object missing required field `[^`]*`|JSON is malformed: [^`]*"
    r"|Input data was truncated)( - at `[^`]*`)?"
)
"""Messages of msgspec that contain none of the content."""


def read_journal(
    alias: str,
    number: int,
    config: TypeConfig,
    known: EntityType | None,
    seed: int | None = None,
    lies_here: Callable[[str], bool] = bool,
) -> JournalLook:
    """Read one type's sample; `known` is its code, if installed. Entities that do not lie in this
    journal are left out: it has a copy of them.
    """
    with steady_reads(alias) as cursor:
        chosen = [
            each
            for each in _entities(cursor, number, random.Random(seed))  # noqa: S311  (a sample, not a secret)
            if lies_here(each)
        ]
        looked_at, unreadable, gaps = 0, [], []
        for entity in chosen:
            one = {"type_id": number, "entity": entity}
            events = run_query(cursor, "sample_events", {**one, "number": EVENTS})
            looked_at += len(events)
            if known is None:
                continue
            if known.kind == "event_sourced":
                unreadable += list(_unreadable_events(known, config.name, entity, events))
                for newest in run_query(cursor, "sample_snapshot", one):
                    unreadable += list(_unreadable_snapshot(known, config.name, entity, *newest))
                if len(events) < 2 * EVENTS:
                    gaps += [(entity, seq) for seq in _gaps([each[0] for each in events])]
            elif known.kind == "durable_state" and events:
                unreadable += list(_unreadable_value(known, config.name, entity, *events[-1]))
        long: dict[str, int] = {}
        if known is not None and known.kind == "event_sourced":
            for entity in dict.fromkeys([*chosen, *_anywhere(cursor, number, random.Random(seed))]):  # noqa: S311
                if not lies_here(entity):
                    continue
                ((length,),) = run_query(cursor, "sample_length", {"type_id": number, "entity": entity})
                if length >= LONG_EVENTS:
                    long[entity] = length
        kept = _kept(cursor, number, known) if known is not None else ()
        kept = tuple(each for each in kept if lies_here(each))
        ids = run_query(cursor, "sample_remembered", {"type_id": number, "number": IDS})
        ids = [(shard, each) for shard, each in ids if lies_here(each)]
    strange, moved = _remembered(config, known, ids)
    return JournalLook(
        type=config.name,
        installed=known is not None,
        remembers=known is not None and bool(known.settings.remember_entities),
        looked_at=looked_at,
        unreadable=tuple(unreadable),
        gaps=tuple(gaps),
        long=tuple(sorted(long.items(), key=lambda each: -each[1])),
        kept=kept,
        remembered=len(ids),
        unreadable_ids=tuple(strange),
        moved_ids=moved,
    )


def merged(looks: Sequence[JournalLook]) -> JournalLook:
    """Make one sample of those of several journals."""
    first, *others = looks
    for each in others:
        first = replace(
            first,
            looked_at=first.looked_at + each.looked_at,
            unreadable=first.unreadable + each.unreadable,
            gaps=first.gaps + each.gaps,
            long=tuple(sorted(first.long + each.long, key=lambda one: -one[1])),
            kept=first.kept + each.kept,
            remembered=first.remembered + each.remembered,
            unreadable_ids=first.unreadable_ids + each.unreadable_ids,
            moved_ids=first.moved_ids + each.moved_ids,
        )
    return first


def _entities(cursor: Any, number: int, chance: random.Random) -> list[str]:
    found: dict[str, None] = {}

    def look(query: str, entity: str = "") -> str | None:
        for (one,) in run_query(cursor, query, {"type_id": number, "entity": entity}):
            found[one] = None
            return str(one)
        return None

    first: str | None = ""
    last = look("sample_last")
    for _ in range(ENTITIES if last is not None else 0):
        first = None if first is None else look("sample_next", first)
        last = None if last is None else look("sample_former", last)
    ends = list(found)
    for _ in range(ENTITIES if len(ends) > ENTITIES else 0):
        look("sample_next", _between(min(ends), max(ends), chance))
    ((page,),) = run_query(cursor, "sample_page", {"type_id": number, "pages": PAGES})
    last_rows = {"place": f"({page},0)", "rows": LAST_ROWS, "type_id": number}
    written = [str(entity) for (entity,) in run_query(cursor, "sample_newest", last_rows)]
    found.update(dict.fromkeys(written[:ENTITIES]))
    return list(found)


def _kept(cursor: Any, number: int, known: EntityType) -> tuple[str, ...]:
    """Return entities, among those with the first snapshots, whose first event should have gone."""
    settings = known.settings
    if known.kind != "event_sourced" or not settings.delete_events:
        return ()
    window = ((settings.keep_events_days or 0) + LATE_DAYS) * DAY_SECONDS
    wanted = {"type_id": number, "after": "", "window": window, "keep": settings.keep_events or 1}
    rows = run_query(cursor, "trimmable", {**wanted, "limit": SNAPSHOTS, "first": "", "last": HIGHEST})
    return tuple(str(entity) for entity, may_go, *_ in rows if may_go)


def _anywhere(cursor: Any, number: int, chance: random.Random) -> list[str]:
    """Return entities of random events: those with the most events are the likeliest."""
    ((last_page,),) = run_query(cursor, "sample_page", {"type_id": number, "pages": 1})
    places = [f"({chance.randint(0, last_page)},{line})" for _ in range(RANDOM_PAGES) for line in (1, 8)]
    chosen = {"places": places, "rows": RANDOM_PAGES, "type_id": number}
    return [str(entity) for (entity,) in run_query(cursor, "sample_places", chosen)]


def _between(low: str, high: str, chance: random.Random) -> str:
    """Return a place between two ids, which share a prefix and differ in letters and digits after
    it.
    """
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
            yield Unreadable(type=name, entity=entity, seq=seq, kind="event", what=what, why=reason(error))


def _unreadable_snapshot(
    known: EntityType, name: str, entity: str, seq: int, state: str
) -> Iterator[Unreadable]:
    try:
        known.load_state(known.new(entity), state)
    except Exception as error:  # noqa: BLE001  (the user's __init__ and restore())
        yield Unreadable(
            type=name, entity=entity, seq=seq, kind="snapshot", what="snapshot", why=reason(error)
        )


def _unreadable_value(
    known: EntityType, name: str, entity: str, seq: int, _event: str, version: int, state: str
) -> Iterator[Unreadable]:
    for found in _unreadable_snapshot(known, name, entity, seq, state):
        what = f"event with its value (version {version})"
        yield Unreadable(type=name, entity=entity, seq=seq, kind="event", what=what, why=found.why)


def reason(error: BaseException) -> str:
    """Return why a record cannot be read, without its content."""
    cause = error.__cause__
    if isinstance(error, UnreadableEvent) and cause is None:
        return error.message  # the codec's own: names and versions
    inner = cause or error
    if isinstance(inner, msgspec.MsgspecError) and _SAFE.fullmatch(str(inner)):
        return str(inner)
    return f"{type(inner).__qualname__} (its text may hold content, and is not shown)"


def _gaps(seqs: list[int]) -> Iterator[int]:
    """Return the first missing number between two events; a trimmed journal has no gap."""
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
        if now is not None and not 0 <= now < config.numbering.most:
            strange.append((entity, f"its extractor says shard {now} of {config.number_of_shards}"))
        elif now is not None and now != shard:
            moved += 1
    return strange, moved


def shard_by_id(config: TypeConfig, known: EntityType | None, entity: str) -> int | None:
    """Return the shard of an id; None if the code is not installed. The user's extractor may
    raise.
    """
    by_hash = config.shard_by_hash(entity)
    if by_hash is None and known is not None and known.extractor is not None:
        return int(known.extractor.checked_shard_id(entity))
    return by_hash
