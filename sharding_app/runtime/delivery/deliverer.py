"""The deliveries of a node: the shell around `protocol.delivery.deliveries`, for all shards here.

Contract: nothing is sent while the node's lease is lost. A shard that stops, or is dropped, is
forgotten: its next home reads its rows. A shard whose type has never stored a message costs
nothing, and is known here from its first message on.

Wake-ups may be lost: those of processes that store messages from outside. Once any
type has stored a message, the node asks now and then which of its shards have rows that are
overdue.
"""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from itertools import count
from typing import Any

from sharding_app.entities.codecs.values import ERRORS
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.failure import failure_of, shortened
from sharding_app.entities.registry import registry
from sharding_app.entities.staging import refuse_too_large
from sharding_app.errors import ShardingError, Unavailable
from sharding_app.ports.deliveries import Claim, MessageChanges, Page, Pending, ShardKey, Taking
from sharding_app.ports.journal import Journal, JournalUnavailable, ShardsFenced
from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.call import Call
from sharding_app.protocol.delivery.clock import ServerClock
from sharding_app.protocol.delivery.deliveries import (
    PARKED,
    SENT,
    UNKNOWN,
    UNREACHED,
    Change,
    Deliveries,
    End,
    KeepAlone,
    Message,
    MoveOn,
    Pair,
    Send,
    SetAside,
    Turn,
)
from sharding_app.protocol.delivery.memory import Memory
from sharding_app.protocol.delivery.outcome import decode
from sharding_app.protocol.histogram import Histogram
from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId
from sharding_app.protocol.pending_call import Reply
from sharding_app.redaction import told, traceable
from sharding_app.runtime.base.config import DeliverySettings
from sharding_app.runtime.delivery.rows import call_of, kind_of, read, staged, text_of, time_of

logger = logging.getLogger("sharding.entity")

RETRY_SECONDS = 0.1
RETRY_MAX_SECONDS = 5.0
POSITION_BITS = 31
"""Of the column `position`."""
ROUND_BITS = 10
"""Below the epoch in the column `seq`, which has 63. An epoch after a failover has 51
(`protocol.coordinator.terms`). So one life of a node has places for 2 ** 41 messages.
"""
PAGE_SHARDS = 100
"""Most shards of one page."""
FEW_SHARDS = 20
"""Shards of a page after one that was full. Of each shard the server reads and orders more than the
page takes, so a page of many shards that have much to send costs it several times as much.
"""
PAGE_ROWS = 1000
CLOCK_SECONDS = 30.0
"""A timer waits at most this long before the server's clock is estimated anew."""
OVERDUE_SHARDS = 1000
ENDED_ROWS = 500
"""Most rows that one statement deletes after their effect in another journal."""


class Figures:
    """What the deliveries of a node have come to."""

    def __init__(self) -> None:
        self.delivered = 0
        self.retried = 0
        self.failures = 0
        self.parked = 0
        self.lateness = Histogram()
        "Of timers: from the time at which they are due to their first delivery."


class Home:
    """One shard that is at home here, with its messages and timers."""

    __slots__ = ("alive", "deliveries", "epoch", "shard", "timer", "type", "type_id", "wake_at")

    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        shard: ShardId,
        epoch: Epoch,
        deliveries: Deliveries,
    ) -> None:
        self.type = entity_type
        self.type_id = type_id
        self.shard = shard
        self.epoch = epoch
        self.deliveries = deliveries
        self.alive = True
        self.timer: asyncio.TimerHandle | None = None
        self.wake_at = 0.0

    @property
    def claim(self) -> Claim:
        return self.type_id, self.shard, self.epoch


class Attempt:
    """One delivery under way: it takes the answer.

    Contract: a value is taken in at once, so that the next message of its pair leaves in the same
    turn of the loop. An error is taken in later: it may come in the middle of any step of the
    asking side.
    """

    __slots__ = ("_deliverer", "_home", "_is_over", "_message")

    def __init__(self, deliverer: "Deliverer", home: Home, message: Message) -> None:
        self._deliverer = deliverer
        self._home = home
        self._message = message
        self._is_over = False

    def done(self) -> bool:
        return self._is_over

    def set_result(self, value: bytes, /) -> None:
        self._is_over = True
        try:
            self._deliverer.answered(self._home, self._message, value)
        except Exception as error:
            logger.error(
                "a bug: what follows a delivery of %s failed", self._home.type.name, exc_info=traceable(error),
                extra={"action": "internal_error"},
            )  # fmt: skip

    def set_exception(self, error: Exception, /) -> None:
        self._is_over = True
        asyncio.get_running_loop().call_soon(self._deliverer.failed, self._home, self._message, error)


class Deliverer:
    def __init__(
        self,
        incarnation: Incarnation,
        settings: DeliverySettings,
        journal: Journal,
        *,
        now: Callable[[], float],
        ask: Callable[[Call, Reply], None],
        may_handle: Callable[[], bool],
        run: Callable[[Coroutine[Any, Any, None]], object],
        host_of: Callable[[int, ShardId, Epoch], EntityType | None],
        fenced: Callable[[str, ShardId, Epoch], None],
        place: Callable[[int, ShardId], None],
        journal_name: str = "",
        among_others: bool = False,
        max_args: int = sys.maxsize,
    ) -> None:
        """`host_of` returns the type of a shard that is at home here at that epoch. `fenced` learns
        of one that is not, as the journal says. `place` has a shard placed that never had a home.
        `journal_name`: the alias of the database of that journal, if it is not the cluster's.
        `among_others`: there are other journals. `max_args`: the most bytes of a message's
        arguments.
        """
        self.figures = Figures()
        self.clock = ServerClock()
        self._me = incarnation
        self._prefix = f"{incarnation}-{journal_name}" if journal_name else incarnation
        self._settings = settings
        self._journal = journal
        self._journal_name = journal_name
        self._among_others = among_others
        self._max_args = max_args
        self._now = now
        self._ask = ask
        self._may_handle = may_handle
        self._run = run
        self._host_of = host_of
        self._fenced = fenced
        self._place = place
        self._numbers = count(1)
        self._placed = 0
        "Number of places that were given."
        self._memory = Memory(settings.max_rows, settings.max_bytes)
        self._homes: dict[ShardKey, Home] = {}
        self._ready: deque[tuple[Home, Message]] = deque()
        "To be sent as soon as there is room for another one under way."
        self._under_way = 0
        self._wanting: dict[Home, None] = {}
        "Homes that want a page."
        self._reading = False
        self._page_shards = PAGE_SHARDS
        self._in_doubt: set[str] = set()
        "Messages of which is not known whether they are stored."
        self._ended: list[tuple[Home, Message]] = []
        "Messages that have taken effect in other journals, and whose rows are being deleted."
        self._resumed = asyncio.Event()
        self._net_at: float | None = None
        "When to look for what is overdue; None: no type has stored any message."
        self._heard: datetime | None = None
        self._heard_at = 0.0
        "The server's time of the newest append with messages, and the same in seconds."
        self._loop = asyncio.get_running_loop()

    @property
    def pending(self) -> int:
        """Number of messages and timers in memory."""
        return self._memory.rows

    @property
    def is_reading(self) -> bool:
        """Whether a page is wanted, or being read."""
        return self._reading or bool(self._wanting)

    def new_id(self) -> str:
        """Return the id of a new message: the incarnation is never used again. No other journal has
        it: a mark of what has taken effect names the id alone.
        """
        return f"{self._prefix}-{next(self._numbers)}"

    def new_place(self, epoch: Epoch, many: int) -> tuple[int, int]:
        """Return the `seq` and the first `position` for a commit without events that stores `many`
        messages. They come behind all messages that this home and earlier ones have stored.
        """
        first = self._placed
        if (first + many) >> POSITION_BITS != first >> POSITION_BITS:
            first = (first + many) >> POSITION_BITS << POSITION_BITS  # all of a commit have one `seq`
        self._placed = first + many
        return (epoch << ROUND_BITS) + (first >> POSITION_BITS), first & (1 << POSITION_BITS) - 1

    # -- From the hosts ----------------------------------------------------------------------------

    def begin(self, entity_type: EntityType, type_id: int, shard: ShardId, epoch: Epoch) -> None:
        """Deliver the stored messages of a shard that has started here."""
        self._touch(self._home(entity_type, type_id, shard, epoch, complete=False))

    def has(self, type_id: int, shard: ShardId) -> bool:
        """Whether a shard here may have messages or timers: its type has stored some."""
        return (type_id, shard) in self._homes

    def forget(self, type_id: int, shard: ShardId) -> None:
        """Forget a shard that is not at home here any more, or is about to leave."""
        home = self._homes.pop((type_id, shard), None)
        if home is not None:
            home.alive = False
            home.deliveries.close()
            self._wanting.pop(home, None)
            if home.timer is not None:
                home.timer.cancel()

    def staged(
        self,
        entity_type: EntityType,
        type_id: int,
        shard: ShardId,
        epoch: Epoch,
        entity: EntityId,
        changes: MessageChanges,
        at: datetime | None,
    ) -> None:
        """Take in what an entity has committed just now; `at`: the server's time then, if known."""
        home = self._homes.get((type_id, shard))
        if home is None or home.epoch != epoch:
            home = self._home(entity_type, type_id, shard, epoch, complete=True)
        for _, _, key in changes.cancels:
            home.deliveries.cancelled(entity, key)
        if at is None:
            for each in changes.sends:
                if each.key is not None:  # its former time must not come before the page does
                    home.deliveries.cancelled(entity, each.key)
            home.deliveries.look()
        elif changes.sends:
            if at is not self._heard:  # that of all commits of an append is the same
                self._heard, self._heard_at = at, at.timestamp()
                self.clock.heard(self._heard_at, self._now())
            home.deliveries.staged(staged(changes.sends, self._heard_at), self.clock.low(self._now()))
        self._touch(home)

    @contextmanager
    def storing(self, changes: MessageChanges) -> Iterator[None]:
        """Send none of these messages as long as they are being stored without events.

        After a lost answer the store is repeated. A message that was read by a page, and took
        effect before that, would be stored once more. No other home can send it meanwhile: the
        store is fenced by then.
        """
        ids = [each.id for each in changes.sends]
        self._in_doubt.update(ids)
        try:
            yield
        finally:
            self._in_doubt.difference_update(ids)

    def look(
        self, entity_type: EntityType, type_id: int, shard: ShardId, epoch: Epoch, changed: str = ""
    ) -> None:
        """Read what was stored from outside. `changed`: the message whose row an operator has
        changed.
        """
        home = self._home(entity_type, type_id, shard, epoch, complete=False)
        home.deliveries.look()
        home.deliveries.hurry(changed, self._server_now())
        self._touch(home)

    def look_again(self, type_id: int) -> None:
        """Read all shards of a type that stay here: rows that were gone may be there again."""
        for home in [each for each in self._homes.values() if each.type_id == type_id]:
            home.deliveries.look()
            self._touch(home)

    def erased(self, type_id: int, shard: ShardId, entity: EntityId) -> None:
        """Forget the messages and timers of an entity that is being erased."""
        home = self._homes.get((type_id, shard))
        if home is not None:
            home.deliveries.erased(entity)

    def resume(self) -> None:
        """Go on: the node's lease is valid again."""
        self._resumed.set()
        self._resumed = asyncio.Event()
        self._send_ready()
        self._read_soon()

    def told(self, *, uses_messages: bool) -> None:
        """Take from the rows whether any type has stored messages."""
        if not uses_messages:
            self._net_at = None
        elif self._net_at is None:
            self._net_at = self._now() + self._settings.net_seconds

    def tick(self, now: float) -> None:
        """Look now and then for what is overdue."""
        if self._net_at is not None and now >= self._net_at and self._may_handle():
            self._net_at = now + self._settings.net_seconds
            self._run(self._look_for_overdue())

    def server_time(self) -> datetime:
        """Return a time that the server has reached. `know_server_time` comes first."""
        return time_of(self._server_now())

    async def know_server_time(self) -> None:
        """Ask for the server's time if it is not known yet."""
        while not self.clock.known:
            try:
                page = await self._journal.due([], 0.0, 1)
            except JournalUnavailable:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self.clock.heard(page.now.timestamp(), self._now())

    # -- Carry out ---------------------------------------------------------------------------------

    def _home(
        self, entity_type: EntityType, type_id: int, shard: ShardId, epoch: Epoch, *, complete: bool
    ) -> Home:
        found = self._homes.get((type_id, shard))
        if found is not None and found.epoch == epoch:
            return found
        self.forget(type_id, shard)
        settings = self._settings
        machine = Deliveries(
            self._memory, self.new_id, settings.back_off, complete=complete, horizon_seconds=settings.horizon_seconds
        )  # fmt: skip
        home = self._homes[type_id, shard] = Home(entity_type, type_id, shard, epoch, machine)
        return home

    def _server_now(self) -> float:
        return self.clock.low(self._now())

    def _touch(self, home: Home) -> None:
        """Carry out what a machine wants."""
        machine = home.deliveries
        while machine.out:
            effects, machine.out = machine.out, []
            for effect in effects:
                if isinstance(effect, Send):
                    self._ready.append((home, effect.message))
                elif isinstance(effect, End):
                    self._end(home, effect.message)
                else:
                    self._run(self._change(home, effect))
        if not home.alive:
            return
        if home.timer is not None or not machine.rests:
            self._look_ahead(home)
        if self._ready:
            self._send_ready()

    def _look_ahead(self, home: Home) -> None:
        """See to it that a machine wakes in time, and gets the page that it wants."""
        machine = home.deliveries
        wake_at = machine.wake_at
        if wake_at is not None or home.timer is not None:
            self._wake_later(home, wake_at)
        if machine.room_to_read(self._server_now()):
            self._wanting[home] = None
            self._read_soon()

    def _wake_later(self, home: Home, wake_at: float | None) -> None:
        if home.timer is not None:
            if home.wake_at == wake_at:
                return
            home.timer.cancel()
            home.timer = None
        if wake_at is not None and self.clock.known:
            home.wake_at = wake_at
            # At times the estimate of the server's clock gets better.
            wait = min(self.clock.wait(wake_at, self._now()), CLOCK_SECONDS)
            home.timer = self._loop.call_later(wait, self._wake, home)

    def _wake(self, home: Home) -> None:
        home.timer = None
        home.deliveries.tick(self._server_now())
        self._touch(home)

    # -- Send --------------------------------------------------------------------------------------

    def _send_ready(self) -> None:
        ready = self._ready
        while ready and self._under_way < self._settings.most_under_way and self._may_handle():
            home, message = ready.popleft()
            if home.alive and message.state is SENT:
                self._send(home, message)

    def _send(self, home: Home, message: Message) -> None:
        if message.key is not None and message.attempt == 1:
            self.figures.lateness.add(max(0.0, self._server_now() - message.due))
        self._under_way += 1
        self.figures.retried += message.attempt > 1
        attempt = Attempt(self, home, message)
        try:
            self._ask(
                call_of(message, home.type.name, self._settings.answer_seconds, self._journal_name), attempt
            )
        except ShardingError as error:
            attempt.set_exception(error)

    def answered(self, home: Home, message: Message, value: bytes) -> None:
        """Take in an answer. It counts also when the shard has moved in the meantime."""
        self._under_way -= 1
        outcome = decode(value)
        self.figures.delivered += outcome.what in ("done", "taken")
        if home.alive:
            machine, now = home.deliveries, self.clock.low(self._now())
            if outcome.what == "done":
                machine.done(message, now)
            elif outcome.what == "taken":
                machine.taken(message)
            elif outcome.what == "early":
                machine.early(message, outcome.seconds, now)
            else:
                machine.gone(message, now)
        self._goes_on(home)

    def failed(self, home: Home, message: Message, error: Exception) -> None:
        """Take in that no answer has come, or an error as the answer."""
        self._under_way -= 1
        self._failed(home, message, error)
        self._goes_on(home)

    def _goes_on(self, home: Home) -> None:
        if home.alive:
            self._touch(home)
        else:
            self._send_ready()

    def _failed(self, home: Home, message: Message, error: Exception) -> None:
        kind = kind_of(error, among_others=self._among_others)
        if kind not in (UNKNOWN, UNREACHED):
            self.figures.failures += 1
        if kind is PARKED:
            self._parked(home, message, error)
        if not isinstance(error, ShardingError):
            error = Unavailable(told(error))
        if home.alive:
            home.deliveries.failed(message, kind, error, self._server_now())

    def _parked(self, home: Home, message: Message, error: BaseException) -> None:
        self.figures.parked += 1
        logger.error(
            "a durable message of an entity of %s to %s.%s is parked: %s", home.type.name, message.target_type,
            message.command, told(error), extra={"action": "message_parked", "entity_type": home.type.name},
        )  # fmt: skip

    # -- Changes of rows ---------------------------------------------------------------------------

    def _end(self, home: Home, message: Message) -> None:
        """Delete the row of a message that has taken effect in another journal, together with
        others.
        """
        if not self._ended:
            self._run(self._delete(self._ended))
        self._ended.append((home, message))

    async def _delete(self, ended: list[tuple[Home, Message]]) -> None:
        """Delete the rows of such messages until there are none; try until the journal answers.

        No epoch fences it: their effect is final. So those of a shard that has left go too.
        """
        pause = RETRY_SECONDS
        try:
            while ended:
                many = ended[:ENDED_ROWS]
                try:
                    await self._journal.discard([_ending(home, message) for home, message in many])
                except JournalUnavailable:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, RETRY_MAX_SECONDS)
                    continue
                pause = RETRY_SECONDS
                for home, message in many:
                    if home.alive:
                        home.deliveries.done(message, self._server_now())
                for home in dict.fromkeys(home for home, _ in many):
                    if home.alive:
                        self._touch(home)
                del ended[: len(many)]
        finally:
            ended.clear()

    async def _change(self, home: Home, effect: Change) -> None:
        """Change a message's row, and report that to the machine; try until the journal answers."""
        pause = RETRY_SECONDS
        while home.alive:
            while not self._may_handle():
                await self._resumed.wait()
            try:
                report = await self._changed(home, effect)
            except JournalUnavailable:
                await asyncio.sleep(pause)
                pause = min(2 * pause, RETRY_MAX_SECONDS)
            except ShardsFenced:
                if home.alive:
                    self._fenced(home.type.name, home.shard, home.epoch)
                return
            else:
                if home.alive:
                    report(self._server_now())
                    self._touch(home)
                return

    async def _changed(self, home: Home, effect: Change) -> Callable[[float], None]:
        """Change a message's row. Return the report of it."""
        machine, journal, message = home.deliveries, self._journal, effect.message
        gone = partial(self._was_gone, home, message)
        if isinstance(effect, SetAside):
            failures, pause = effect.failures, effect.pause
            there = await journal.set_aside(message.id, failures, pause, text_of(effect.error), home.claim)
            return partial(machine.set_aside, message, failures, pause) if there else gone
        if isinstance(effect, KeepAlone):
            # Due at once: a slow attempt may still take effect.
            error = text_of(effect.error)
            there = await journal.set_aside(message.id, message.failures, 0.0, error, home.claim)
            return partial(machine.kept_alone, message) if there else gone
        if isinstance(effect, MoveOn):
            found = await journal.discard([_ending(home, message)])
            return partial(machine.moved_on, message) if found else gone
        if isinstance(effect, Turn):
            args = _failure_args(home, message, effect.error, self._max_args)  # None: it is parked
            if args is not None:
                command = message.on_failure or ""
                there = await journal.turn(message.id, effect.new, command, args, home.claim)
                turned = _turned(home, message, effect.new, args)
                return partial(machine.turned, message, turned) if there else gone
        if not await journal.park(message.id, text_of(effect.error), home.claim):
            return gone
        self._parked(home, message, effect.error)
        return partial(machine.over, message)

    @staticmethod
    def _was_gone(home: Home, message: Message, now: float) -> None:
        """Take in that a row was not there: an earlier attempt may have given it another id."""
        home.deliveries.look()
        home.deliveries.over(message, now)

    # -- Pages -------------------------------------------------------------------------------------

    def _read_soon(self) -> None:
        if self._wanting and not self._reading and self._may_handle():
            self._reading = True
            self._run(self._read_pages())

    async def _read_pages(self) -> None:
        try:
            failures = 0
            while self._wanting and self._may_handle():
                if await self._read_page():
                    failures = 0
                else:
                    failures += 1
                    await asyncio.sleep(doubled(RETRY_SECONDS, failures, RETRY_MAX_SECONDS))
        finally:
            self._reading = False

    async def _read_page(self) -> bool:
        """Read a page for some homes that want one. False: the journal does not answer."""
        homes: dict[ShardKey, Home] = {}
        held: list[str] = []
        alone: list[str] = []
        limit = 0
        for home in list(self._wanting)[: self._page_shards]:
            del self._wanting[home]
            room = home.deliveries.room_to_read(self._server_now())
            if room:
                homes[home.type_id, home.shard] = home
                held += home.deliveries.read_begins()
                alone += home.deliveries.alone
                limit += room
        if not homes:
            return True
        try:
            page = await self._due(list(homes), min(limit, PAGE_ROWS), held, alone)
        except BaseException as error:
            for home in homes.values():
                if home.alive:
                    home.deliveries.unread()
                    self._wanting[home] = None
            if isinstance(error, JournalUnavailable):
                return False
            raise  # the next wake-up reads them
        self.clock.heard(page.now.timestamp(), self._now())
        full = len(page.messages) >= min(limit, PAGE_ROWS)
        self._page_shards = FEW_SHARDS if full else PAGE_SHARDS
        found: dict[ShardKey, list[Pending]] = {}
        for row in (each for each in page.messages if each.id not in self._in_doubt):
            found.setdefault((row.type_id, row.shard), []).append(row)
        aside: dict[ShardKey, list[Pair]] = {}
        for type_id, shard, *pair in page.aside or ():
            aside.setdefault((type_id, shard), []).append((pair[0], pair[1], pair[2]))
        for key, home in homes.items():
            if home.alive:
                due = page.next_due.get(key)
                home.deliveries.page(
                    map(read, found.get(key, ())),
                    more=key in page.more,
                    next_due=None if due is None else due.timestamp(),
                    aside=None if page.aside is None else aside.get(key, ()),
                    now=self._server_now(),
                )
                self._touch(home)
        return True

    async def _due(
        self, shards: Sequence[ShardKey], limit: int, held: Sequence[str], alone: Sequence[str]
    ) -> Page:
        page = await self._journal.due(shards, self._settings.horizon_seconds, limit, held, alone)
        if self._among_others and page.messages:
            # In this journal the commit of an effect comes after its message in the log. In another
            # one the effect could stay, and a failover lose the message.
            await self._journal.secure()
        return page

    async def _look_for_overdue(self) -> None:
        """Read the shards whose rows are overdue: no wake-up may have come for them."""
        try:
            found = await self._journal.overdue(self._me, self._settings.overdue_seconds, OVERDUE_SHARDS)
            if self._homes:
                page = await self._journal.due([], 0.0, 1)
                self.clock.heard(page.now.timestamp(), self._now())
        except JournalUnavailable:
            return
        for each in found:
            entity_type = self._host_of(each.type_id, each.shard, each.epoch)
            if entity_type is not None:
                self.look(entity_type, each.type_id, each.shard, each.epoch)
            elif not each.epoch:
                self._place(each.type_id, each.shard)


def _ending(home: Home, message: Message) -> Taking:
    """Return what ends a row without an append, or lets that of a repeating timer go on."""
    timer = None if message.key is None else (home.type_id, message.entity, message.key)
    again = None if message.again is None else (message.again[0], time_of(message.again[1]))
    return Taking(message.id, timer, again=again)


def _failure_args(home: Home, message: Message, error: ShardingError, limit: int) -> bytes | None:
    """Return the arguments of the owner's command for a failure; None: it cannot take them.

    The failure has the message's own arguments in it, so the error's text may be too much.
    """
    handler = home.type.commands.get(message.on_failure or "")
    if handler is None:
        return None
    names: Sequence[str] = ()
    target = registry.all().get(message.target_type)
    if target is not None and message.command in target.commands:
        names = target.commands[message.command].parameters
    failure = failure_of(message.target_type, message.target, message.command, names, message.args, error)
    try:
        args = handler.encode_answer(failure)
        if (over := len(args) - limit) > 0:
            args = handler.encode_answer(shortened(failure, over))
            refuse_too_large(home.type.name, handler.name, args, limit)
        return args
    except (ShardingError, *ERRORS) as refused:
        logger.error(
            "%s.%s does not take the failure of a message: %s", home.type.name, handler.name, told(refused),
            extra={"action": "failure_not_taken", "entity_type": home.type.name},
        )  # fmt: skip
        return None


def _turned(home: Home, message: Message, new: str, args: bytes) -> Message:
    return Message(
        new,
        message.entity,
        message.seq,
        message.position,
        home.type.name,
        message.entity,
        message.on_failure or "",
        args,
        message.due,
    )
