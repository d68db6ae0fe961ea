"""The table of messages and timers. `message_writes` writes to it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sharding_app.ports.deliveries import (
    ASIDE_PAIRS,
    MessageChanges,
    MessageRow,
    Page,
    PairKey,
    Pending,
    ShardKey,
    Taker,
    Taking,
    TimerKey,
)
from sharding_app.ports.journal import RowRefused
from sharding_app.protocol.delivery.foreign import Standing, TakenMark
from sharding_app.protocol.ids import MAX_ENTITY_ID_BYTES, ShardId

MAX_BIGINT = 2**63
MAX_INTEGER = 2**31
PAGE_BYTES = 8 * 1024 * 1024


LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


class Stored(NamedTuple):
    """A row as it is in the table: when it is due is settled."""

    row: MessageRow
    due: datetime
    failures: int = 0
    parked: bool = False
    error: str = ""
    occasion: datetime | None = None
    at: datetime = LONG_AGO
    "When it was stored."

    @property
    def order(self) -> tuple[datetime, int, int, str]:
        return self.due, self.row.seq, self.row.position, self.row.id

    @property
    def pair(self) -> PairKey:
        row = self.row
        owner = "" if row.epoch is None else row.entity
        return row.type_id, row.shard, owner, row.target_type, row.target

    @property
    def was_set_aside(self) -> bool:
        return self.row.key is None and self.error != "" and not self.parked


class Marked(NamedTuple):
    """A mark as it is in the table."""

    taker: Taker
    journal: str
    partial: bool
    at: datetime


class MessageRows:
    def __init__(self) -> None:
        self.rows: dict[str, Stored] = {}
        "By id."
        self.timers: dict[TimerKey, str] = {}
        "Ids of those with a key."
        self.marks: dict[str, Marked] = {}
        "Of messages whose rows lie in other journals, by their ids."
        self.stash: dict[str, Stored] = {}
        "Those that a move of their shards has taken out, by their ids."
        self.types: set[int] = set()
        "Numbers of the types whose entities have stored some."
        self.on_changes: Callable[[MessageChanges, datetime], None] | None = None
        """Called with all changes of an append, at the moment of its commit, and the time from
        which its delays count: for checks."""
        self.on_discard: Callable[[Sequence[Taking]], None] | None = None
        "Called with the rows that are ended without an append, at the moment of the commit."

    def put(self, stored: Stored) -> None:
        self.rows[stored.row.id] = stored
        if stored.row.timer is not None:
            self.timers[stored.row.timer] = stored.row.id

    def pop(self, message: str) -> Stored | None:
        stored = self.rows.pop(message, None)
        timer = None if stored is None else stored.row.timer
        if timer is not None and self.timers.get(timer) == message:
            del self.timers[timer]
        return stored

    def replace(self, message: str, stored: Stored) -> None:
        self.pop(message)
        self.put(stored)

    def in_shards(self, type_id: int, shards: Collection[ShardId]) -> list[str]:
        """Return the ids of the messages and timers of these shards, in their order."""
        return sorted(
            each.row.id
            for each in (self.rows.values() if shards else ())
            if each.row.type_id == type_id and each.row.shard in shards
        )

    def refile(self, stored: Stored, shard: ShardId) -> None:
        """Give a message another shard."""
        self.put(stored._replace(row=stored.row._replace(shard=shard)))

    def missing(self, takes: Iterable[Taking], now: datetime) -> dict[str, float | None]:
        """Return those that do not wait to be taken: the seconds that they have left, or None for
        those that are gone.
        """
        found: dict[str, float | None] = {}
        seen: set[str] = set()
        for each in takes:
            if each.foreign is not None:
                continue
            stored = self.rows.get(each.id)
            if stored is None or stored.parked is not each.resumed or each.id in seen:
                found[each.id] = None
            elif stored.due > now:
                found[each.id] = (stored.due - now).total_seconds()
            seen.add(each.id)
        return found

    def of_shards(self, type_id: int, shards: Collection[ShardId]) -> list[Stored]:
        """Return the messages and timers of shards, but for those from outside: they lie in the
        cluster's own database, wherever their shards do.
        """
        found = (self.rows[each] for each in self.in_shards(type_id, shards))
        return [each for each in found if each.row.epoch is not None]

    def take_out(self, type_id: int, shards: Collection[ShardId]) -> None:
        """Take the messages of shards out of the table."""
        for each in self.of_shards(type_id, shards):
            self.pop(each.row.id)
            self.stash[each.row.id] = each

    def unstash(
        self, type_id: int, shards: Collection[ShardId], epochs: Mapping[tuple[int, ShardId], int]
    ) -> None:
        """Put back what was taken out of shards."""
        for each in [one for one in self.stash.values() if one.row.type_id == type_id]:
            if each.row.shard in shards:
                del self.stash[each.row.id]
                row = each.row._replace(epoch=epochs[type_id, each.row.shard])
                self.put(each._replace(row=row))

    def standing(
        self, messages: Collection[str], now: datetime, *, for_marks: bool = False
    ) -> dict[str, Standing]:
        """`for_marks`: also those that a move has taken out, and may put back."""
        known = {**self.stash, **self.rows} if for_marks else self.rows
        there = {each: known[each] for each in messages if each in known}
        return {
            message: Standing(stored.parked, max(0.0, (stored.due - now).total_seconds()))
            for message, stored in there.items()
        }

    def marks_of(
        self, shards: Collection[ShardKey], after: str, limit: int, now: datetime
    ) -> list[TakenMark]:
        found = [
            TakenMark(
                message, *mark.taker[:2], mark.journal, mark.partial, max(0.0, (now - mark.at).total_seconds())
            )
            for message, mark in sorted(self.marks.items())
            if mark.taker[:2] in shards and message > after
        ]  # fmt: skip
        return found[:limit]

    def of_entity(self, type_id: int, entity: str) -> list[Stored]:
        return [
            each for each in self.rows.values() if (each.row.type_id, each.row.entity) == (type_id, entity)
        ]

    def of(self, type_id: int, shards: Collection[ShardId], entity: str) -> list[str]:
        return sorted(each.row.id for each in self.of_entity(type_id, entity) if each.row.shard in shards)

    def due(
        self,
        shards: Sequence[tuple[int, ShardId]],
        horizon_seconds: float,
        limit: int,
        held: Collection[str],
        now: datetime,
        alone: Collection[str] = (),
        elsewhere: Collection[ShardKey] = (),
    ) -> Page:
        """`elsewhere`: those of the shards that lie in another journal. Of these only messages from
        outside count.
        """
        wanted, known = frozenset(shards), frozenset(held)
        horizon = now + timedelta(seconds=horizon_seconds)
        there = [
            each
            for each in self.rows.values()
            if (each.row.type_id, each.row.shard) in wanted
            and not each.parked
            and each.row.id not in known
            and (each.row.epoch is None or (each.row.type_id, each.row.shard) not in elsewhere)
        ]
        aside: dict[PairKey, list[Stored]] = {}
        for each in self.rows.values():
            if each.was_set_aside and (each.row.id not in known or each.row.id in alone):
                aside.setdefault(each.pair, []).append(each)
        found = sorted(
            (each for each in there if each.due <= horizon and not _waits(each, aside)),
            key=lambda each: each.order,
        )
        page: list[Stored] = []
        size = 0
        for each in found[:limit]:
            size += len(each.row.args)
            if page and size > PAGE_BYTES:
                break
            page.append(each)
        left = [*found[len(page) :], *(each for each in page if each.was_set_aside)]
        more = frozenset((each.row.type_id, each.row.shard) for each in left)
        later: dict[ShardKey, datetime] = {}
        for each in there:
            if each.due > horizon:
                key = each.row.type_id, each.row.shard
                later[key] = min(each.due, later.get(key, each.due))
        beyond = {each.pair for each in there if each.was_set_aside and each.due > horizon}
        told = None if len(beyond) > ASIDE_PAIRS else sorted(beyond)
        return Page(now, [_pending(each) for each in page], more, later, told)


def _waits(stored: Stored, aside: dict[PairKey, list[Stored]]) -> bool:
    """Tell whether an earlier message of the pair was set aside and is not held."""
    row = stored.row
    return row.key is None and any(
        (each.row.seq, each.row.position) < (row.seq, row.position) for each in aside.get(stored.pair, ())
    )


def _pending(stored: Stored) -> Pending:
    row = stored.row
    return Pending(
        row.id,
        row.type_id,
        row.shard,
        row.entity,
        row.seq,
        row.position,
        row.target_type,
        row.target,
        row.command,
        row.args,
        stored.due,
        row.key,
        row.every,
        row.reply_to,
        row.on_failure,
        stored.failures,
        stored.occasion,
        row.epoch is None,
    )


def check_message(row: MessageRow, index: int | None) -> None:
    """Refuse values that Postgres refuses in one of the table's columns."""
    texts = (row.id, row.entity, row.target_type, row.target, row.command, row.key, row.every)
    for text in (*texts, row.reply_to, row.on_failure):
        if text is None:
            continue
        if "\0" in text:
            raise RowRefused("text holds a NUL", index)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RowRefused(f"text is not Unicode: {error.reason}", index) from None
    for text in (row.entity, row.target, row.key):
        if text is not None and not 1 <= len(text.encode()) <= MAX_ENTITY_ID_BYTES:
            raise RowRefused("an entity id and the key of a timer have 1 to 512 bytes", index)
    if not (0 <= row.seq < MAX_BIGINT and 0 <= row.position < MAX_INTEGER):
        raise RowRefused(f"{row.seq}, {row.position} is no place of a message", index)
