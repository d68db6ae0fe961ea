"""The asking side of a process: its regions, what they wait for, and the futures of those who wait.

Contract: every ask ends with a value or a typed error (`runtime.refusals`), at the latest at its deadline. Homes come from
the coordinator; when it is silent, from the store's rows, which say the same. A process that hosts nothing (a web process,
a shell) runs this and nothing else.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

import msgspec

from sharding_app.core.histogram import Histogram
from sharding_app.core.ids import Incarnation, ShardId, shard_of
from sharding_app.core.messages import Answer, AnyMessage, Done, Failed, HandBack, NoHome, ShardHome
from sharding_app.core.parcel import Parcel
from sharding_app.core.region import AskHomes, Forward, Region, RegionLimits, Total, outstanding_at
from sharding_app.core.terms import era_of
from sharding_app.ports.clock import Clock
from sharding_app.runtime.outgoing import Outgoing
from sharding_app.runtime.refusals import Refusals, error_of

SHORT_TIMEOUT_SECONDS = 1.0
"Shorter waits get a timer of their own; the others are seen by the sweep."
WATCH_AFTER_SECONDS = 0.5
"A home that owes an answer for longer is looked up in the store now and then."

LET_GO_AFTER_SECONDS = 60.0
"A reply that is late by so much is lost: not even its route waits for it any more."


class Homes(Protocol):
    """Who knows where shards live (`runtime.homes`)."""

    def ask(self, type_name: str, shards: list[ShardId], *, again: bool) -> None: ...

    def found(self, type_name: str, shards: Iterable[ShardId]) -> None: ...

    def not_found(self, type_name: str) -> None: ...

    def watch(self, homes: set[Incarnation]) -> None: ...


class Asker:
    def __init__(
        self,
        incarnation: Incarnation,
        clock: Clock,
        put: Callable[[Incarnation, AnyMessage], bool],
        homes: Homes,
        limits: RegionLimits,
        default_timeout: float,
    ) -> None:
        self.incarnation = incarnation
        self.pending: dict[int, Parcel] = {}
        self.regions: dict[str, Region] = {}
        self.unexpected = 0
        "Replies that no caller waits for: it has had one already."
        self.asks = 0
        self.answers = 0
        self._total = Total()
        self._shards: dict[str, int] = {}
        self._shard_ids: dict[str, Callable[[str], ShardId]] = {}
        self._clock = clock
        self._homes = homes
        self._limits = limits
        self._timeout = default_timeout
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._outgoing = Outgoing(incarnation, put, self._not_sent)
        self._blocked, self._send = self._outgoing.blocked, self._outgoing.send  # needed for each command
        self._refusals = Refusals(limits.max_parcels)
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
    ) -> Region:
        """Make the region of a type; `shard_id` goes before the hash."""
        region = self.regions.get(type_name)
        if region is None:
            limits = msgspec.structs.replace(self._limits, max_waiting=max_waiting)
            region = self.regions[type_name] = Region(type_name, self.pending, limits, self._total)
            self._shards[type_name] = number_of_shards
            self._refusals.roles[type_name] = role
            if shard_id is not None:
                self._shard_ids[type_name] = shard_id
        return region

    @property
    def home_seconds(self) -> Histogram:
        """How long it took to learn where shards live."""
        return self._total.home_seconds

    def shard_of(self, type_name: str, entity: str) -> ShardId:
        own = self._shard_ids.get(type_name)
        return shard_of(entity, self._shards[type_name]) if own is None else own(entity)

    def find(self, type_name: str, shards: list[ShardId]) -> None:
        """Have these shards placed, without a message for them."""
        region = self.regions[type_name]
        region.find(shards, self._clock.now())
        self._carry_out(region, self._clock.now())

    # -- Asking ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        type_name: str,
        entity: str,
        command: str,
        args: bytes,
        timeout: float | None = None,
        command_id: str = "",
        *,
        tell: bool = False,
        safe: bool = True,
        chain: tuple[str, ...] = (),
        trace: str = "",
        waited: float = 0.0,
    ) -> "asyncio.Future[bytes]":
        """Send a command; the future has its encoded result, or a ShardingError. `add_type` was called before. `waited`: so
        long ago the caller has called."""
        region = self.regions[type_name]
        now = self._clock.now()
        future: asyncio.Future[bytes] = self._loop.create_future()
        if timeout is None:
            timeout = self._timeout
        own = self._shard_ids.get(type_name)
        shard = shard_of(entity, self._shards[type_name]) if own is None else own(entity)
        self._last = request = self._last + 1
        parcel = Parcel(
            request, type_name, shard, entity, command, args, now - waited, now - waited + timeout, None if tell else future,
            command_id, safe, chain, trace,
        )  # fmt: skip
        self.asks += 1
        if self._closed:
            self._refusals.refuse(parcel, "stopped")
            return future
        if region.submit(parcel, now):
            if self._blocked or parcel.home is None or not self._send(parcel, parcel.home, now):
                self._outgoing.forward(parcel, now)
        else:
            self._carry_out(region, now)
        if not tell and timeout < SHORT_TIMEOUT_SECONDS and not future.done():
            timer = self._loop.call_later(max(0.0, timeout - waited), self._time_out, parcel)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    # -- What comes back -------------------------------------------------------------------------------------------

    def answered(self, message: Answer, now: float) -> None:
        """The most frequent of all messages, on a way of its own."""
        parcel = self.pending.pop(message.request, None)
        if parcel is not None:
            self.answers += 1
            region = self.regions[parcel.type]
            region.resolved(parcel, now)
            if region.out:
                self._carry_out(region, now)
            future = parcel.reply
            if future is not None and not future.done():
                future.set_result(message.value)
        else:
            self.unexpected += 1

    def receive(self, source: Incarnation, message: AnyMessage) -> bool:
        """Take a message that is for the asking side; False: it is not."""
        match message:
            case Answer():
                self.answered(message, self._clock.now())
            case Failed():
                parcel = self.pending.pop(message.request, None)
                if parcel is None:
                    self.unexpected += 1
                else:
                    self._resolve(parcel)
                    self._refusals.failed(parcel, error_of(message))
            case Done():
                for request in message.requests:
                    parcel = self.pending.pop(request, None)
                    if parcel is not None:
                        self._resolve(parcel)
            case HandBack():
                region = self.regions.get(message.type)
                if region is not None:
                    parcels = [self.pending[each] for each in message.requests if each in self.pending]
                    region.handed_back(source, message.epoch, parcels, self._clock.now())
                    self._carry_out(region, self._clock.now())
            case ShardHome():
                self.homes_told(
                    message.type, message.home, zip(message.shards, message.epochs, strict=True), message.term
                )
            case NoHome():
                self.no_home(message.type, message.reason, message.shards)
            case _:
                return False
        return True

    def homes_told(
        self, type_name: str, home: Incarnation, shards: Iterable[tuple[ShardId, int]], term: int = 0
    ) -> None:
        region = self.regions.get(type_name)
        if region is None:
            return
        now = self._clock.now()
        for shard, epoch in shards:
            region.home_told(shard, home, epoch, now, era_of(term))
            self._homes.found(type_name, (shard,))
        self._carry_out(region, now)

    def no_home(self, type_name: str, reason: str, shards: Collection[ShardId] = ()) -> None:
        region = self.regions.get(type_name)
        if region is not None:
            if shards:
                self._homes.found(type_name, shards)
            else:
                self._homes.not_found(type_name)
            region.no_home(reason, self._clock.now(), shards)
            self._carry_out(region, self._clock.now())

    def hold(self, type_name: str, shards: Iterable[ShardId]) -> None:
        """BeginHandOff: what is sent to these shards waits until their home is told again."""
        region = self.regions.get(type_name)
        if region is not None:
            region.hand_off_begins(shards, self._clock.now())

    def left(self, incarnation: Incarnation) -> None:
        """That home ends in order: what is sent to its shards waits until their homes are told again."""
        for region in self.regions.values():
            region.left(incarnation, self._clock.now())

    def gone(self, incarnation: Incarnation) -> None:
        """That process is fenced or has left: what was outstanding there goes elsewhere, or fails."""
        now = self._clock.now()
        unsent = self._outgoing.gone(incarnation)
        regions = [each for each in self.regions.values() if each.knows(incarnation)]
        lost = outstanding_at(incarnation, self.pending.values()) if regions else {}
        for region in regions:
            region.gone(incarnation, now, lost.get(region.type, ()), unsent)
            self._carry_out(region, now)

    # -- Time ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Sweep what has waited too long, ask again for what is still unknown, send what links had no room for."""
        now = self._clock.now()
        late = [each for each in self.pending.values() if each.deadline <= now]
        for parcel in late:
            if not parcel.told:
                self._time_out(parcel)
        self._let_go([each for each in late if now - each.deadline >= LET_GO_AFTER_SECONDS])
        self._outgoing.tick(now)
        self._homes.watch(self._slow_homes(now))
        for region in self.regions.values():
            region.tick(now)
            self._carry_out(region, now)

    def _slow_homes(self, now: float) -> set[Incarnation]:
        """Homes that have owed an answer for a while. Their links may be quiet: what was sent is acknowledged."""
        slow: set[Incarnation] = set()
        for parcel in self.pending.values():
            if now - parcel.born < WATCH_AFTER_SECONDS:
                break
            if parcel.home is not None:
                slow.add(parcel.home)
        return slow

    def close(self) -> None:
        """Tell all callers that wait, and all that ask from now on."""
        self._closed = True
        for parcel in list(self.pending.values()):
            self._refusals.refuse(parcel, "stopped")
        self.pending.clear()

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _carry_out(self, region: Region, now: float) -> None:
        while region.out:
            effects, region.out = region.out, []
            for effect in effects:
                if isinstance(effect, Forward):
                    self._outgoing.forward(effect.parcel, now)
                elif isinstance(effect, AskHomes):
                    self._homes.ask(region.type, effect.shards, again=effect.again)
                else:
                    self._refusals.refuse(effect.parcel, effect.reason)

    def _resolve(self, parcel: Parcel) -> None:
        region = self.regions[parcel.type]
        region.resolved(parcel, self._clock.now())
        if region.out:
            self._carry_out(region, self._clock.now())

    def _not_sent(self, parcel: Parcel) -> None:
        if self.pending.pop(parcel.request, None) is not None:
            self._resolve(parcel)

    def _let_go(self, late: list[Parcel]) -> None:
        """Their replies are lost: a home takes a process that was silent for minutes for dead. Routes must not wait for them;
        no new home is told before the former one has ended what it had, or is fenced."""
        if late:
            self._outgoing.let_go(late)
        for parcel in late:
            if parcel.home is not None and self.pending.pop(parcel.request, None) is not None:
                self._resolve(parcel)

    def _time_out(self, parcel: Parcel) -> None:
        future = parcel.reply
        if parcel.told or (isinstance(future, asyncio.Future) and future.done()):
            return
        waited = self._clock.now() - parcel.born
        self.regions[parcel.type].abandon(parcel, self._clock.now())
        self._refusals.timed_out(parcel, waited)
