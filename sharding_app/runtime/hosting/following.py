"""Followers of the entities at home here: their questions wait for the next commit.

A follower anywhere in the cluster asks the entity's home for the events after a number
(`protocol.following`). Questions of entities that have none wait here. A commit of such an entity
has its new events read, once for all that wait; entities that commit at the same time are read
together.

Contract:

* An answer shows only commits that are acknowledged, by a synchronous standby too if there is one.
  Events that are visible at the first question for an entity are secured first. From then on its
  events are shown up to its last acknowledged commit here.
* Each answer goes on right after the number in its question, in order, or says why it cannot.
* A shard that stops hands its questions back, and their processes ask its next home.
* Without followers a commit costs the look at an empty list. Nothing is loaded, no entity is
  kept in memory. Questions are bounded in number, and so in bytes; so are answers.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any

from sharding_app.errors import BufferFull, InvalidCall, InvalidEntityId, NotSerializable, ShardingError
from sharding_app.ports.journal import EventRow, Journal, JournalUnavailable, Reading, RowRefused, Wanted
from sharding_app.protocol.following import (
    MAX_EVENTS,
    MAX_WAIT_SECONDS,
    News,
    Question,
    State,
    decode_question,
    encode,
)
from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId, is_entity_id
from sharding_app.protocol.messages import Deliver
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.runtime.execution.command import Services
from sharding_app.runtime.journal.commits import ResidentShard

logger = logging.getLogger("sharding.region")

READ_AT_ONCE = 100
"""Most questions that one read of the journal answers."""
PAGE_BYTES = 128 * 1024
"""Bytes of the events of an answer, after its first event."""
FORGET_SECONDS = 10.0
"""Time without a question after which the number of an entity's last event is forgotten."""
ANSWER_SECONDS = 5.0
"""How long a question that wants an answer at once may wait for the journal."""
RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 1.0
MOST_APART = 16
"""Reads in a row that may find no journal. After more of them the journal is taken to be away, and
is asked now and then alone.
"""
COUNT_BITS = 32


def number_of_change(epoch: Epoch, count: int) -> int:
    """Return a number that a message can carry, with the last 31 bits of the epoch: after a
    failover an epoch has 51. Homes of a shard with the same ones are half an hour apart.
    """
    return (epoch % 2**31 << COUNT_BITS) + count


class _Waiter:
    """A question that is not answered yet."""

    __slots__ = ("host", "message", "question", "source", "timer")

    def __init__(self, host: Services, source: Incarnation, message: Deliver, question: Question) -> None:
        self.host = host
        self.source = source
        self.message = message
        self.question = question
        self.timer: asyncio.TimerHandle | None = None


class _Followed:
    """An entity that is followed."""

    __slots__ = ("entity", "failures", "is_stored", "last", "shard", "stamp", "type_id", "used", "waiters")

    def __init__(self, type_id: int, shard: ShardId, entity: EntityId, *, is_stored: bool) -> None:
        self.type_id = type_id
        self.shard = shard
        self.entity = entity
        self.is_stored = is_stored
        self.last: int | None = None
        "Number of the last event that is acknowledged; None: the journal has not been asked."
        self.stamp = 0
        "When that event was stored; 0: not known."
        self.waiters: dict[_Waiter, None] = {}
        self.used = 0.0
        self.failures = 0
        "Reads in a row of it alone that have failed: it is read alone until one has not."


class Following:
    """The followers of all entities at home on this node."""

    def __init__(
        self,
        journal: Journal,
        secured: Rounds,
        *,
        limit: int,
        max_bytes: int,
        now: Callable[[], float],
        run: Callable[[Coroutine[Any, Any, None]], object],
        on_commit: list[Callable[[Sequence[EventRow]], None]],
    ) -> None:
        """`limit`: of questions. `max_bytes`: of an answer. `on_commit`: the functions that the
        journal's writer calls with committed rows.
        """
        self.shards: dict[tuple[int, ShardId], dict[EntityId, _Followed]] = {}
        "The entities that are followed, by shard."
        self.waiting = 0
        "Questions that wait."
        self.counters: Counter[str] = Counter()
        self._journal = journal
        self._secured = secured
        self._limit = limit
        self._max_bytes = max_bytes
        self._now = now
        self._run = run
        self._on_commit = on_commit
        self._entities = 0
        self._count = 0
        "Numbers changes of in-memory entities."
        self._unread: dict[_Followed, None] = {}
        self._reads = False
        self._failures = 0
        "Reads in a row that found no journal."
        self._at_once = READ_AT_ONCE
        "Questions of the next read: halved where one has failed, doubled where it has not."
        self._sweeps = False
        self._loop = asyncio.get_running_loop()

    # -- Questions ---------------------------------------------------------------------------------

    def asked(self, host: Services, shard: ResidentShard, source: Incarnation, message: Deliver) -> None:
        """Answer a question, or let it wait."""
        try:
            question = decode_question(message.args)
        except ValueError as error:
            self._fail(host, source, message, InvalidCall(f"{host.type.name}: no question: {error}"))
            return
        kind, entity = host.type.kind, message.entity
        if question.limit and kind != "event_sourced":
            what = "a durable-state entity" if kind == "durable_state" else "an in-memory entity"
            text = f"{host.type.name} has no events, since it is {what}: follow a query of it with changes()"
            self._fail(host, source, message, InvalidCall(text))
        elif not is_entity_id(entity):
            self._fail(host, source, message, InvalidEntityId(f"{host.type.name}: no id of an entity"))
        elif self._is_full(host.type_id, shard.number, entity):
            self.counters["refused"] += 1
            text = f"{self.waiting} questions of followers wait on this node, and it takes no more"
            self._fail(host, source, message, BufferFull(text))
        else:
            self.counters["questions"] += 1
            followed = self._followed(host, shard, entity)
            followed.used = self._now()
            self._take(followed, _Waiter(host, source, message, question))

    def _is_full(self, type_id: int, shard: ShardId, entity: EntityId) -> bool:
        """Whether this node takes no further question, or none of a further entity."""
        is_known = entity in self.shards.get((type_id, shard), ())
        return self.waiting >= self._limit or (not is_known and self._entities >= self._limit)

    def _followed(self, host: Services, shard: ResidentShard, entity: EntityId) -> _Followed:
        key = host.type_id, shard.number
        entities = self.shards.get(key)
        if entities is None:
            if not self.shards:
                self._on_commit.append(self._committed)
            entities = self.shards[key] = {}
        found = entities.get(entity)
        if found is None:
            is_stored = host.type.kind != "memory"
            found = entities[entity] = _Followed(host.type_id, shard.number, entity, is_stored=is_stored)
            self._entities += 1
            if not is_stored:
                # Another number than any other home, or this one at another time, has given.
                self._count += 1
                found.last = number_of_change(shard.epoch, self._count)
            self._sweep_later()
        return found

    def _take(self, followed: _Followed, waiter: _Waiter) -> None:
        question = waiter.question
        wait = min(question.wait, MAX_WAIT_SECONDS)
        is_known = followed.last == question.after and question.stamp in (0, followed.stamp)
        if not question.limit and followed.last is not None:
            # One who knows no more than a number would take another life for this one.
            lacks_stamp = followed.is_stored and followed.last > 0 and not question.stamp
            is_news = lacks_stamp or followed.last != question.after
            if is_news and (followed.stamp or not followed.is_stored):
                self._answer(waiter, News(followed.last, stamp=followed.stamp))
                return
            is_known = not is_news and is_known
        if is_known and not wait:
            self._answer(waiter, News(question.after, stamp=question.stamp))
            return
        followed.waiters[waiter] = None
        self.waiting += 1
        waiter.timer = self._loop.call_later(wait or ANSWER_SECONDS, self._in_vain, followed, waiter)
        if not is_known:
            self._read_soon(followed)

    def _in_vain(self, followed: _Followed, waiter: _Waiter) -> None:
        """Answer a question whose time is over."""
        self._leave(followed, waiter)
        self._answer(waiter, News(waiter.question.after, stamp=waiter.question.stamp))

    # -- Changes of entities -----------------------------------------------------------------------

    def _committed(self, rows: Sequence[EventRow]) -> None:
        """Take in rows that are committed and acknowledged."""
        for row in rows:
            entities = self.shards.get((row.type_id, row.shard))
            if entities is not None and (followed := entities.get(row.entity)) is not None:
                followed.last = max(row.seq, followed.last or 0)
                followed.stamp = 0
                if followed.waiters:
                    self._read_soon(followed)

    def changed(self, type_id: int, shard: ShardId, entity: EntityId) -> None:
        """Take in that the state of an in-memory entity may have changed."""
        followed = self.shards.get((type_id, shard), {}).get(entity)
        if followed is not None and followed.last is not None:
            self._count += 1
            followed.last = (followed.last >> COUNT_BITS << COUNT_BITS) + self._count
            for waiter in list(followed.waiters):
                self._leave(followed, waiter)
                self._answer(waiter, News(followed.last))

    def erased(self, type_id: int, shard: ShardId, entity: EntityId) -> None:
        """Tell the followers of an entity that it was erased."""
        followed = self.shards.get((type_id, shard), {}).get(entity)
        if followed is not None:
            self._forget(followed)
            for waiter in list(followed.waiters):
                self._leave(followed, waiter)
                self._answer(waiter, News(0, state="erased" if waiter.question.after > 0 else ""))

    def left(self, type_id: int, shard: ShardId) -> None:
        """Hand the questions of a shard back: it is not at home here any longer."""
        for followed in list(self.shards.get((type_id, shard), {}).values()):
            self._forget(followed)
            for waiter in list(followed.waiters):
                self._leave(followed, waiter)
                self.counters["handed_back"] += 1
                waiter.host.replies.hand_back(waiter.source, waiter.message)

    # -- The journal -------------------------------------------------------------------------------

    def _read_soon(self, followed: _Followed) -> None:
        self._unread[followed] = None
        if not self._reads:
            self._reads = True
            self._run(self._read_all())

    async def _read_all(self) -> None:
        """Read for the entities of which something is wanted, as many together as have come."""
        try:
            while self._unread:
                wanted: dict[tuple[_Followed, int, bool], None] = {}
                for followed in list(self._unread):
                    if len(wanted) >= self._at_once or (wanted and followed.failures):
                        break
                    del self._unread[followed]
                    questions = [each.question for each in followed.waiters]
                    wanted |= {(followed, each.after, each.limit > 0): None for each in questions}
                    if wanted and followed.failures:
                        break
                if wanted:
                    await self._read(list(wanted))
        finally:
            self._reads = False

    async def _read(self, wanted: list[tuple[_Followed, int, bool]]) -> None:
        asked = [
            Wanted(each.type_id, each.entity, after, MAX_EVENTS if events else 0)
            for each, after, events in wanted
        ]
        self.counters["reads"] += 1
        try:
            found = await self._journal.follow(asked, PAGE_BYTES)
        except JournalUnavailable as lost:
            await self._apart(dict.fromkeys(followed for followed, _, _ in wanted), lost)
            return
        except RowRefused as refused:
            self._refused(dict.fromkeys(followed for followed, _, _ in wanted), refused)
            return
        self._at_once = min(2 * self._at_once, READ_AT_ONCE)
        for followed, _, _ in wanted:
            followed.failures = 0
        try:
            if any(each.last is None for each, _, _ in wanted):
                await self._secured.next()
        except JournalUnavailable as lost:
            self._again(followed for followed, _, _ in wanted)
            await self._pause(lost)
            return
        self._failures = 0
        for (followed, after, events), reading in zip(wanted, found, strict=True):
            if self._is_there(followed):
                if followed.last is None:
                    followed.last = reading.last
                self._tell(followed, after, events, reading)

    async def _apart(self, wanted: Collection[_Followed], lost: JournalUnavailable) -> None:
        """Read fewer at once. One that cannot be read alone, for a damaged page say, waits without
        holding up others.
        """
        if len(wanted) > 1:
            self._at_once = max(1, min(len(wanted), self._at_once) // 2)
            self._again(wanted)
            await self._pause(lost)
            return
        for followed in wanted:
            followed.failures += 1
            pause = min(RETRY_SECONDS * followed.failures, RETRY_MAX_SECONDS)
            logger.info("followers wait for the journal: %s", lost, extra={"action": "followers_wait"})
            self._loop.call_later(pause, self._again, [followed])
        if self._failures >= MOST_APART:
            await self._pause(lost)
        else:
            self._failures += 1

    def _refused(self, wanted: Collection[_Followed], refused: RowRefused) -> None:
        """Read fewer at once, until it is known of which entity the server does not give a row."""
        if len(wanted) > 1:
            self._at_once = max(1, min(len(wanted), self._at_once) // 2)
            self._again(wanted)
            return
        for followed in wanted:
            for waiter in list(followed.waiters):
                self._leave(followed, waiter)
                self._fail(waiter.host, waiter.source, waiter.message, InvalidCall(refused.reason))

    def _again(self, wanted: Iterable[_Followed]) -> None:
        """Read for these once more."""
        for followed in wanted:
            if self._is_there(followed):
                self._read_soon(followed)

    async def _pause(self, lost: JournalUnavailable) -> None:
        logger.info("followers wait for the journal: %s", lost, extra={"action": "followers_wait"})
        self._failures += 1
        await asyncio.sleep(min(RETRY_SECONDS * self._failures, RETRY_MAX_SECONDS))

    def _tell(self, followed: _Followed, after: int, events: bool, reading: Reading) -> None:
        """Answer the questions for which a read was made; those that stay unanswered wait."""
        last = followed.last or 0
        if not events:
            if reading.last == last:  # else a later one is visible, and not acknowledged yet
                followed.stamp = reading.newest
            for waiter in [each for each in followed.waiters if not each.question.limit]:
                question = waiter.question
                if last != question.after or followed.stamp not in (0, question.stamp):
                    is_other = last == question.after and _differ(followed.stamp, question.stamp)
                    self._leave(followed, waiter)
                    self._answer(waiter, News(last, [], "erased" if is_other else "", followed.stamp))
            return
        # Later ones are visible, and not acknowledged yet.
        found = [each for each in reading.events if each.seq <= last]
        if reading.last == last == after and reading.known is not None:
            followed.stamp = reading.known
        elif found and found[-1].seq == last:
            followed.stamp = found[-1].at
        for waiter in [each for each in followed.waiters if each.question.limit]:
            question = waiter.question
            if question.after != after:
                continue
            state: State = ""
            if after and (reading.last < after or _differ(reading.known, question.stamp)):
                state = "erased"
            elif not found and not (question.wait <= 0):
                continue
            elif found and after and found[0].seq != after + 1:
                state = "trimmed"
            self._leave(followed, waiter)
            shown = [] if state == "erased" else found[: question.limit]
            self._answer(waiter, News(shown[-1].seq if shown else after, shown, state))

    def _is_there(self, followed: _Followed) -> bool:
        return self.shards.get((followed.type_id, followed.shard), {}).get(followed.entity) is followed

    # -- Inside ------------------------------------------------------------------------------------

    def _answer(self, waiter: _Waiter, news: News) -> None:
        self.counters["events"] += len(news.events)
        value = encode(news)
        while len(value) > self._max_bytes and len(news.events) > 1:
            half = news.events[: len(news.events) // 2]
            news = News(half[-1].seq, half, news.state)
            value = encode(news)
        if len(value) > self._max_bytes:
            text = (
                f"{waiter.host.type.name}: event {news.last} has {len(value)} bytes, more than an answer may"
                f" have ({self._max_bytes})"
            )
            error = NotSerializable(text, code="reply_too_large")
            self._fail(waiter.host, waiter.source, waiter.message, error)
            return
        waiter.host.replies.answer(waiter.source, waiter.message, value)

    def _fail(self, host: Services, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        host.replies.fail(source, message, error)

    def _leave(self, followed: _Followed, waiter: _Waiter) -> None:
        del followed.waiters[waiter]
        self.waiting -= 1
        if waiter.timer is not None:
            waiter.timer.cancel()

    def _forget(self, followed: _Followed) -> None:
        key = followed.type_id, followed.shard
        entities = self.shards[key]
        del entities[followed.entity]
        self._entities -= 1
        self._unread.pop(followed, None)
        if not entities:
            del self.shards[key]
            if not self.shards:
                self._on_commit.remove(self._committed)

    def _sweep_later(self) -> None:
        if not self._sweeps:
            self._sweeps = True
            self._loop.call_later(FORGET_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Forget entities without a question in the last seconds."""
        self._sweeps = False
        before = self._now() - FORGET_SECONDS
        for entities in list(self.shards.values()):
            for followed in list(entities.values()):
                if not followed.waiters and followed.used < before:
                    self._forget(followed)
        if self.shards:
            self._sweep_later()


def _differ(known: int | None, stamp: int) -> bool:
    """Whether the follower's last event is another one than the journal's of that number."""
    return known is not None and stamp != 0 and known != stamp
