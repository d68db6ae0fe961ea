"""The calling side of a process: its regions, its open calls, and the futures of its callers.

Contract: every ask ends with a value or a typed error (`runtime.asking.undelivered`), at its
deadline at the latest. Homes come from the coordinator. When it is silent, they come from the
store's rows, which say the same. A process that hosts nothing (a web process, a shell) runs only
this.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import msgspec

from sharding_app.errors import ShardingError
from sharding_app.ports.clock import Clock
from sharding_app.protocol.builtin_commands import EVENTS
from sharding_app.protocol.call import LONGEST_SECONDS, Call
from sharding_app.protocol.coordinator.terms import era_of
from sharding_app.protocol.following import MARGIN_SECONDS
from sharding_app.protocol.histogram import Histogram
from sharding_app.protocol.ids import Incarnation, ShardId, Term, shard_of
from sharding_app.protocol.messages import (
    Answer,
    AnyMessage,
    Busy,
    Done,
    Failed,
    HandBack,
    NoHome,
    Renumbered,
    ShardHome,
)
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.pending_call import PendingCall, Reply
from sharding_app.protocol.region import AskHomes, Forward, RegionLimits, RegionRoutes, Total, outstanding_at
from sharding_app.runtime.asking.outbox import Outbox
from sharding_app.runtime.asking.undelivered import Refusals, error_of

SHORT_TIMEOUT_SECONDS = 1.0
"Shorter timeouts get a timer of their own; the sweep finds the others."
WATCH_AFTER_SECONDS = 0.5
"A home that owes an answer for longer is looked up in the store now and then."

LET_GO_AFTER_SECONDS = 60.0
"A reply that is overdue by this much is lost. Its route no longer waits for it."


class Locator(Protocol):
    """The locator of shards (`runtime.asking.shard_locator`)."""

    term: Term

    def ask(self, type_name: str, shards: list[ShardId], *, again: bool) -> None: ...

    def found(self, type_name: str, shards: Iterable[ShardId]) -> None: ...

    def not_found(self, type_name: str) -> None: ...

    def watch(self, homes: set[Incarnation]) -> None: ...


class RegionClient:
    def __init__(
        self,
        incarnation: Incarnation,
        clock: Clock,
        outbox: Outbox,
        locator: Locator,
        limits: RegionLimits,
        default_timeout: float,
    ) -> None:
        self.incarnation = incarnation
        self.pending: dict[int, PendingCall] = {}
        self.regions: dict[str, RegionRoutes] = {}
        self.unexpected = 0
        "Replies to calls that are not open any more, or are not at the home that replies."
        self.asks = 0
        "Number of asks so far, and the `PendingCall.request` of the last one."
        self.answers = 0
        self._total = Total()
        self._shards: dict[str, int] = {}
        self._shard_ids: dict[str, Callable[[str], ShardId]] = {}
        "Functions that say the shards of a type's ids; without one the hash and the number do."
        self._numberings: dict[str, tuple[int, Numbering]] = {}
        "Of types whose shards the hash says: their numbers, and the era in which these were read."
        self._clock = clock
        self._outbox = outbox
        self._locator = locator
        self._limits = limits
        self._timeout = default_timeout
        self._loop = asyncio.get_running_loop()
        self._refusals = Refusals(limits.max_calls)
        self.drops = self._refusals.drops
        self._closed = False

    def add_type(
        self,
        type_name: str,
        number_of_shards: int,
        role: str = "",
        *,
        shard_id: Callable[[str], ShardId] | None = None,
        max_waiting: int | None = None,
    ) -> RegionRoutes:
        """Create the region of a type. `shard_id` takes precedence over the hash."""
        region = self.regions.get(type_name)
        if region is None:
            limits = msgspec.structs.replace(self._limits, max_waiting=max_waiting)
            region = self.regions[type_name] = RegionRoutes(type_name, self.pending, limits, self._total)
            self._shards[type_name] = number_of_shards
            self._refusals.roles[type_name] = role
            if shard_id is not None:
                self._shard_ids[type_name] = shard_id
            else:
                self._numberings[type_name] = -1, Numbering(number_of_shards)
        return region

    def numbering(self, type_name: str) -> Numbering | None:
        """Return the numbers of a type's shards; None: an extractor of its own says the shards."""
        found = self._numberings.get(type_name)
        return None if found is None else found[1]

    def renumbered(self, type_name: str, numbering: Numbering, term: Term) -> None:
        """Take in the numbers of a type's shards, unless newer ones are known. A server that went
        back in time begins an era in which an older revision may hold.
        """
        found, era = self._numberings.get(type_name), era_of(term)
        if found is None or (era, numbering.revision) <= (found[0], found[1].revision):
            return
        self._numberings[type_name] = era, numbering
        if numbering == found[1]:
            return
        self._shards[type_name] = numbering.shards
        if numbering.resizing:
            self._shard_ids[type_name] = numbering.shard_of
        else:
            self._shard_ids.pop(type_name, None)
        region, now = self.regions[type_name], self._clock.now()
        region.renumbered(numbering.shard_of, numbering.has, now)
        self._carry_out(region, now)

    @property
    def home_seconds(self) -> Histogram:
        """Times that it took to learn the homes of shards."""
        return self._total.home_seconds

    @property
    def unfinished(self) -> bool:
        """Whether a call is open that does more than wait for an entity's next event."""
        return any(each.call.command != EVENTS for each in self.pending.values())

    def shard_of(self, type_name: str, entity: str) -> ShardId:
        own = self._shard_ids.get(type_name)
        return shard_of(entity, self._shards[type_name]) if own is None else own(entity)

    def find(self, type_name: str, shards: list[ShardId]) -> None:
        """Have these shards placed, without a message for them."""
        region = self.regions[type_name]
        region.find(shards, self._clock.now())
        self._carry_out(region, self._clock.now())

    # -- Asking ------------------------------------------------------------------------------------

    def ask(self, call: Call, safe: bool = True, waited: float = 0.0) -> "asyncio.Future[bytes]":
        """Send a command. The future yields its encoded result, or a ShardingError.

        Call `add_type` before. `safe`: it may be handled again. `waited`: seconds since the
        caller's call.
        """
        future: asyncio.Future[bytes] = self._loop.create_future()
        pending = self.ask_for(call, None if call.tell else future, safe, waited)
        timeout = pending.deadline - pending.born
        if not call.tell and timeout < SHORT_TIMEOUT_SECONDS and not future.done():
            timer = self._loop.call_later(max(0.0, timeout - waited), self._time_out, pending)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def ask_for(self, call: Call, reply: Reply | None, safe: bool, waited: float = 0.0) -> PendingCall:
        """Send a command whose outcome goes to `reply`; None: no caller waits for it."""
        type_name, timeout = call.type, call.timeout
        region = self.regions[type_name]
        now = self._clock.now()
        timeout = min(self._timeout if timeout is None else timeout, LONGEST_SECONDS)
        own = self._shard_ids.get(type_name)
        shard = shard_of(call.entity, self._shards[type_name]) if own is None else own(call.entity)
        called = now - waited
        self.asks = request = self.asks + 1
        pending = PendingCall(request, call, shard, called, called + timeout, reply, safe)
        if self._closed:
            self._refusals.refuse(pending, "stopped")
        elif region.submit(pending, now):
            self._outbox.forward(pending)
        else:
            self._carry_out(region, now)
        return pending

    # -- Replies -----------------------------------------------------------------------------------

    def answered(self, source: Incarnation, message: Answer, now: float) -> None:
        """Resolve a call.

        Answers have a path of their own because they are the most frequent messages.
        """
        pending = self._taken(source, message.request)
        if pending is not None:
            self.answers += 1
            region = self.regions[pending.call.type]
            region.resolved(pending, now)
            if region.out:
                self._carry_out(region, now)
            reply = pending.reply
            if reply is not None and not reply.done():
                reply.set_result(message.value)
        else:
            self.unexpected += 1

    def receive(self, source: Incarnation, message: AnyMessage) -> bool:
        """Take a message for the calling side. Return False for any other message."""
        match message:
            case Answer():
                self.answered(source, message, self._clock.now())
            case Failed():
                pending = self._taken(source, message.request)
                if pending is None:
                    self.unexpected += 1
                else:
                    self._resolve(pending)
                    self._refusals.failed(pending, error_of(message))
            case Done():
                for request in message.requests:
                    pending = self._taken(source, request)
                    if pending is not None:
                        self._resolve(pending)
            case HandBack():
                region = self.regions.get(message.type)
                if region is not None:
                    calls = [self.pending[each] for each in message.requests if each in self.pending]
                    region.handed_back(source, message.epoch, calls, self._clock.now())
                    self._carry_out(region, self._clock.now())
            case Busy():
                self._told_why(source, message)
            case _:
                return self._told_where(message)
        return True

    def _told_where(self, message: AnyMessage) -> bool:
        """Take a message about shards and their homes. Return False for any other message."""
        match message:
            case ShardHome():
                self.homes_told(
                    message.type, message.home, zip(message.shards, message.epochs, strict=True), message.term
                )
            case NoHome():
                if message.term >= self._locator.term:
                    shards = self._not_there(message)
                    if shards or not message.shards:
                        self.no_home(message.type, message.reason, shards)
            case Renumbered():
                self.renumbered(message.type, message.numbering, message.term)
            case _:
                return False
        return True

    def _not_there(self, message: NoHome) -> list[ShardId]:
        """Return the shards that have no home. The word that there are none such may be late: the
        store may have told of a resize since. Numbers on which it rests came before it.
        """
        numbering = self.numbering(message.type)
        if message.reason != "no_such_shard" or numbering is None or not numbering.revision:
            return message.shards
        return [each for each in message.shards if not numbering.has(each)]

    def homes_told(
        self, type_name: str, home: Incarnation, shards: Iterable[tuple[ShardId, int]], term: int = 0
    ) -> None:
        region = self.regions.get(type_name)
        if region is None:
            return
        now = self._clock.now()
        for shard, epoch in shards:
            region.home_told(shard, home, epoch, now, era_of(term))
            self._locator.found(type_name, (shard,))
        self._carry_out(region, now)

    def no_home(self, type_name: str, reason: str, shards: Collection[ShardId] = ()) -> None:
        region = self.regions.get(type_name)
        if region is not None:
            if shards:
                self._locator.found(type_name, shards)
            else:
                self._locator.not_found(type_name)
            region.no_home(reason, self._clock.now(), shards)
            self._carry_out(region, self._clock.now())

    def hold(self, type_name: str, shards: Iterable[ShardId]) -> None:
        """BeginHandOff: hold messages for these shards until their home is announced again."""
        region = self.regions.get(type_name)
        if region is not None:
            region.hand_off_begins(shards, self._clock.now())

    def left(self, incarnation: Incarnation) -> None:
        """Hold messages for a home that ends in order, until its shards' homes are known again."""
        for region in self.regions.values():
            region.left(incarnation, self._clock.now())

    def gone(self, incarnation: Incarnation) -> None:
        """Send the open calls of a process elsewhere, or fail them: it is fenced or has left."""
        now = self._clock.now()
        unsent = self._outbox.gone(incarnation)
        regions = [each for each in self.regions.values() if each.knows(incarnation)]
        lost = outstanding_at(incarnation, self.pending.values()) if regions else {}
        for region in regions:
            region.gone(incarnation, now, lost.get(region.type, ()), unsent)
            self._carry_out(region, now)

    # -- Time --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time out late calls, ask again for unknown homes, and send to links that were full."""
        now = self._clock.now()
        late = [each for each in self.pending.values() if each.deadline <= now]
        for pending in late:
            if not pending.told:
                self._time_out(pending)
        self._let_go([each for each in late if now - each.deadline >= LET_GO_AFTER_SECONDS])
        self._outbox.tick()
        self._locator.watch(self._slow_homes(now))
        for region in self.regions.values():
            region.tick(now)
            self._carry_out(region, now)

    def _slow_homes(self, now: float) -> set[Incarnation]:
        """Return homes that have owed an answer for a while.

        Links do not show them: the frames are acknowledged.
        """
        slow: set[Incarnation] = set()
        for pending in self.pending.values():
            if now - pending.born < WATCH_AFTER_SECONDS:
                break
            if (
                pending.call.command == EVENTS
                and now < pending.deadline - MARGIN_SECONDS
                and not self.regions[pending.call.type].wait_behind(pending)
            ):
                continue  # it waits for an event, and the home owes nothing
            if pending.home is not None:
                slow.add(pending.home)
        return slow

    def calls_by_chain(self) -> dict[tuple[str, ...], list[PendingCall]]:
        """Return the open calls of entities, by the chain of entities that led to them."""
        found: dict[tuple[str, ...], list[PendingCall]] = {}
        for pending in self.pending.values():
            if pending.call.chain and not pending.call.tell:
                found.setdefault(pending.call.chain, []).append(pending)
        return found

    def waits_for(self, pending: PendingCall) -> bool:
        """Tell whether a caller still waits for that call, and a home has it."""
        reply = pending.reply
        return (
            self.pending.get(pending.request) is pending
            and pending.home is not None
            and not (pending.told or reply is None or reply.done())
        )

    def close(self) -> None:
        """Fail all open calls, and all later ones."""
        self._closed = True
        for pending in list(self.pending.values()):
            self._refusals.refuse(pending, "stopped")
        self.pending.clear()

    # -- Inside ------------------------------------------------------------------------------------

    def _carry_out(self, region: RegionRoutes, now: float) -> None:
        while region.out:
            effects, region.out = region.out, []
            for effect in effects:
                if isinstance(effect, Forward):
                    self._outbox.forward(effect.pending)
                elif isinstance(effect, AskHomes):
                    self._locator.ask(region.type, effect.shards, again=effect.again)
                else:
                    self._refusals.refuse(effect.pending, effect.reason)

    def _taken(self, home: Incarnation, request: int) -> PendingCall | None:
        """Take out an open call that its home has resolved.

        A process that was declared gone may still speak: its death belongs to a former era, or the
        process has been away. Its calls wait here or are under way to another home by then.
        """
        pending = self.pending.get(request)
        if pending is None or pending.home != home:
            return None
        del self.pending[request]
        return pending

    def _resolve(self, pending: PendingCall) -> None:
        region = self.regions[pending.call.type]
        region.resolved(pending, self._clock.now())
        if region.out:
            self._carry_out(region, self._clock.now())

    def not_sent(self, pending: PendingCall, error: ShardingError | None) -> None:
        """Take back a command that never left (`Outbox`), with the error for its caller."""
        if pending.request not in self.pending:
            return
        if pending.home is None:  # that home is gone since, and the command waits for the next one
            self.regions[pending.call.type].abandon(pending, self._clock.now())
        else:
            del self.pending[pending.request]
            self._resolve(pending)
        if error is not None:
            self._refusals.failed(pending, error)

    def _told_why(self, source: Incarnation, message: Busy) -> None:
        """Keep the reason why calls wait, for the errors of their callers."""
        for pending in map(self.pending.get, message.requests):
            if pending is not None and pending.home == source:
                pending.busy = message

    def _let_go(self, late: list[PendingCall]) -> None:
        """Give up replies that are long overdue, so that routes do not wait for them.

        They are lost: a home declares a process dead after minutes of silence. A new home is
        announced only after the former one has finished its commands or is fenced.
        """
        if late:
            self._outbox.let_go(late)
        for pending in late:
            if pending.home is not None and self.pending.pop(pending.request, None) is not None:
                self._resolve(pending)

    def _time_out(self, pending: PendingCall) -> None:
        reply = pending.reply
        if pending.told or (reply is not None and reply.done()):
            return
        waited = self._clock.now() - pending.born
        self.regions[pending.call.type].abandon(pending, self._clock.now())
        self._refusals.timed_out(pending, waited)
