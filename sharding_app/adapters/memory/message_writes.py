"""The steps of the statements that take, cancel, store and change messages and timers.

All lock in one order, as on the real server: rows of messages by id, then new rows, then the rows
of shards. A row that was waited for is judged as it is afterwards.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from sharding_app.adapters.memory.cluster_writes import shard_key, type_key, type_row_key
from sharding_app.adapters.memory.locks import Key, Lock
from sharding_app.adapters.memory.message_rows import Marked, Stored, check_message
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.ports.deliveries import (
    PARTLY_APPLIED,
    Claim,
    MessageChanges,
    MessageRow,
    MessagesGone,
    Overdue,
    Taker,
    Taking,
    TimerKey,
)
from sharding_app.ports.journal import RowRefused, ShardsFenced
from sharding_app.protocol.ids import Incarnation

if TYPE_CHECKING:
    from sharding_app.adapters.memory.server import MemoryServer

MARKS: Key = ("taken",)
"""The table of marks. A transaction that writes one shares it."""

Fence = Callable[[Iterable[Claim]], Steps[None]]


def message_key(message: str) -> Key:
    return "message", message


def mark_key(message: str) -> Key:
    return "taken", message


class MessageWrites:
    def __init__(self, server: "MemoryServer", fence: Fence) -> None:
        self._server = server
        self._rows = server.messages
        self._fence = fence

    # -- Parts of an append ------------------------------------------------------------------------

    def take(self, changes: MessageChanges, *, repeated: bool = False) -> Steps[set[str]]:
        """Lock the rows that it takes or replaces, and return those that it replaces or cancels.
        Raises MessagesGone.
        """
        keys = _keys(changes)
        touched = {each.id for each in changes.takes if each.foreign is None}
        touched.update(self._rows.timers[key] for key in keys if key in self._rows.timers)
        yield from self._hold(touched)
        missing = self._rows.missing(changes.takes, self._server.date())
        if missing:
            gone = frozenset(message for message, left in missing.items() if left is None)
            raise MessagesGone(gone, {each: left for each, left in missing.items() if left is not None})
        kept = {row.id for row in changes.sends} if repeated else frozenset[str]()
        ended = {self._rows.timers[key] for key in keys if key in self._rows.timers} - kept
        yield from self._hold(ended)
        return ended

    def insert(
        self,
        changes: MessageChanges,
        ended: set[str],
        claims: Iterable[Claim] = (),
        index: int | None = None,
        *,
        repeated: bool = False,
    ) -> Steps[None]:
        """Hold the ids and keys of new rows, and check their fence. An id or a key that the next
        home of a shard of `claims` has taken counts as fenced, not as refused.
        """
        for row in changes.sends:
            check_message(row, index)
        sends = self._new(changes, repeated=repeated)
        keys: set[TimerKey] = set()
        for row in sends:
            yield Lock(message_key(row.id))
            taken = row.id in self._rows.rows
            if row.timer is not None:
                yield Lock(("timer", *row.timer))
                taken = taken or row.timer in keys or not self._is_free(row.timer, ended)
                keys.add(row.timer)
            if taken:
                self._server.journal.fence(claims)
                raise RowRefused("a message of this id or key exists already", index)
        yield from self._fence((row.type_id, row.shard, row.epoch) for row in sends if row.epoch is not None)
        names = {number: name for name, number in self._server.cluster.type_ids.items()}
        for type_id in sorted({row.type_id for row in sends} & names.keys()):
            if type_id not in self._rows.types:
                yield Lock(type_key(names[type_id]))
            if type_id not in self._rows.types:
                yield Lock(type_row_key(names[type_id]))
        yield from self._mark(changes.takes)

    def _mark(self, takes: Iterable[Taking]) -> Steps[None]:
        """Hold the marks of foreign rows, after the rows of their shards: first new ones, then
        those of an earlier commit that are seen. Raises MessagesGone.
        """
        foreign = {each.id: each for each in takes if each.foreign is not None}
        if not foreign:
            return
        yield from self._fence(_taker(each)[:3] for each in foreign.values())
        yield Lock(MARKS, shared=True)
        marks, held = self._rows.marks, set[str]()
        for message in sorted(each for each, taking in foreign.items() if not taking.resumed):
            if (yield from self._server.insert(mark_key(message), lambda: message in marks)):  # noqa: B023
                held.add(message)
        for message in sorted(
            each for each, taking in foreign.items() if taking.resumed and self._goes_on(each)
        ):
            yield Lock(mark_key(message))
            if self._goes_on(message):
                held.add(message)
        if wrong := {each: marks.get(each) for each in foreign.keys() - held}:
            gone = frozenset(message for message, mark in wrong.items() if mark is None)
            raise MessagesGone(gone, marked={each: mark.partial for each, mark in wrong.items() if mark})
        yield from self._hold(message for message, each in foreign.items() if not each.park)

    def _goes_on(self, message: str) -> bool:
        return message in self._rows.marks and self._rows.marks[message].partial

    def _is_free(self, key: TimerKey, ended: set[str]) -> bool:
        return self._rows.timers.get(key) is None or self._rows.timers[key] in ended

    def store(
        self, changes: MessageChanges, ended: Collection[str], now: datetime, *, repeated: bool = False
    ) -> None:
        """Write all of it, at the moment of the commit."""
        rows = self._rows
        for each in changes.takes:
            if each.foreign is None:
                self._end(each, without_key=each.id in ended)
            else:
                mark = rows.marks.get(each.id) or Marked(_taker(each), each.foreign, each.park, now)
                rows.marks[each.id] = mark._replace(partial=each.park)
                if not each.park:
                    rows.pop(each.id)  # it has come here with its shard
        sends = self._new(changes, repeated=repeated)
        renamed = {each.id: each.again[0] for each in changes.takes if each.again is not None}
        parked = {each.id for each in changes.takes if each.park}
        for former in ended:
            if former not in parked:
                rows.pop(renamed.get(former, former))
        for row in sends:
            due = now + timedelta(seconds=row.delay) if row.due is None else row.due
            rows.put(Stored(row, due, at=now))
            rows.types.add(row.type_id)
        if rows.on_changes is not None:
            rows.on_changes(changes, now)

    def _new(self, changes: MessageChanges, *, repeated: bool) -> Sequence[MessageRow]:
        return [row for row in changes.sends if not (repeated and row.id in self._rows.rows)]

    def _end(self, taking: Taking, *, without_key: bool = False) -> None:
        stored = self._rows.rows[taking.id]
        if taking.park:
            row = stored.row._replace(key=None, every=None) if without_key else stored.row
            self._rows.replace(taking.id, stored._replace(row=row, parked=True, error=PARTLY_APPLIED))
        elif taking.again is None:
            self._rows.pop(taking.id)
        else:
            new, due = taking.again
            self._rows.replace(taking.id, Stored(stored.row._replace(id=new), due, at=stored.at))

    # -- Requests ----------------------------------------------------------------------------------

    def stage(self, changes: MessageChanges, claim: Claim | None = None) -> Steps[datetime]:
        now = self._server.date()
        ended = yield from self.take(changes, repeated=True)
        yield from self.insert(changes, ended, repeated=True)
        if claim is not None:
            yield from self._fence([claim])
        yield Pause.COMMIT
        self.store(changes, ended, now, repeated=True)
        return now

    def unmark(self, messages: Iterable[str], claim: Claim) -> Steps[None]:
        """Run as one statement: marks that are made during its waits are not seen."""

        def is_ours(message: str) -> bool:
            return message in self._rows.marks and self._rows.marks[message].taker[:2] == claim[:2]

        seen = sorted({each for each in messages if is_ours(each)})
        yield Lock(MARKS, shared=True)
        yield from self._fence([claim])
        for message in seen:
            yield Lock(mark_key(message))
        yield Pause.COMMIT
        for message in seen:
            if is_ours(message):
                del self._rows.marks[message]

    def discard(self, takes: Sequence[Taking]) -> Steps[list[str]]:
        now = self._server.date()
        there = {each.id for each in takes} - self._rows.missing(takes, now).keys()
        yield from self._hold(there)
        held = there - self._rows.missing(takes, self._server.date()).keys()
        taken = [each for each in takes if each.id in held]
        replies = MessageChanges([each.reply for each in taken if each.reply is not None])
        yield from self.insert(replies, set())
        yield Pause.COMMIT
        for each in taken:
            self._end(each)
        if self._rows.on_discard is not None:
            self._rows.on_discard(taken)
        self.store(replies, (), now)
        return sorted(held)

    def set_aside(self, message: str, failures: int, delay: float, error: str, claim: Claim) -> Steps[bool]:
        def change(stored: Stored) -> Stored:
            due = self._server.date() + timedelta(seconds=delay)
            occasion = None if stored.row.every is None else stored.occasion or stored.due
            return stored._replace(failures=failures, due=due, error=error or "set aside", occasion=occasion)

        return self._decide(message, claim, change)

    def park(self, message: str, error: str, claim: Claim) -> Steps[bool]:
        def change(stored: Stored) -> Stored:
            return stored._replace(parked=True, failures=stored.failures + 1, error=error)

        return self._decide(message, claim, change)

    def turn(self, message: str, new: str, command: str, args: bytes, claim: Claim) -> Steps[bool]:
        def change(stored: Stored) -> Stored:
            row = stored.row
            names = {number: name for name, number in self._server.cluster.type_ids.items()}
            turned = row._replace(
                id=new,
                epoch=claim[2],
                target_type=names[row.type_id],
                target=row.entity,
                command=command,
                args=args,
                key=None,
                every=None,
                reply_to=None,
                on_failure=None,
            )
            return Stored(turned, self._server.date())

        return self._decide(message, claim, change)

    def _decide(self, message: str, claim: Claim, change: Callable[[Stored], Stored]) -> Steps[bool]:
        def is_there() -> bool:
            stored = self._rows.rows.get(message)
            return stored is not None and not stored.parked and _place(stored) == claim[:2]

        held = is_there()
        if held:
            yield Lock(message_key(message))
            held = is_there()
        type_id, shard, epoch = claim
        if self._server.journal.is_at(type_id, shard, epoch):
            yield Lock(shard_key(type_id, shard), shared=True)
        if not self._server.journal.is_at(type_id, shard, epoch):
            raise ShardsFenced(frozenset({(type_id, shard)}))
        if not held:
            return False
        after = change(self._rows.rows[message])
        yield Pause.COMMIT
        self._rows.replace(message, after)
        return True

    def overdue(self, home: Incarnation, late_seconds: float, limit: int) -> list[Overdue]:
        late = self._server.date() - timedelta(seconds=late_seconds)
        cluster = self._server.cluster
        elsewhere = cluster.elsewhere({_place(each) for each in self._rows.rows.values()})
        waiting = {
            _place(each)
            for each in self._rows.rows.values()
            if not each.parked
            and each.due <= late
            and (each.row.epoch is None or _place(each) not in elsewhere)
        }
        rows = {(cluster.type_ids[row.type], row.shard): row for row in cluster.shards.values()}
        found = [
            Overdue(*place, row.epoch if (row := rows.get(place)) else 0)
            for place in waiting
            if place not in rows or rows[place].home == home
        ]
        return sorted(found)[:limit]

    def _hold(self, messages: Iterable[str]) -> Steps[None]:
        for message in sorted(messages):
            if message in self._rows.rows:
                yield Lock(message_key(message))


def _keys(changes: MessageChanges) -> list[TimerKey]:
    return [*changes.cancels, *(row.timer for row in changes.sends if row.timer is not None)]


def _taker(taking: Taking) -> Taker:
    if taking.taker is None:
        raise ValueError(f"the foreign message {taking.id!r} names no entity that takes it")
    return taking.taker


def _place(stored: Stored) -> tuple[int, int]:
    return stored.row.type_id, stored.row.shard
