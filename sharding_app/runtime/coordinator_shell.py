"""The coordinator's shell: it reads rows, steps the machine, writes decisions, then announces them.

It runs only while the lifeline holds the coordinator's lock, and ends at the first write that a
newer term refuses. At rest it reads the members a few times a second. A `Suspect` or a registration
makes it read at once.
"""

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, assert_never

from sharding_app.ports.clock import Clock
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.ports.store import ClusterStore, StaleTerm, StoreRefused, StoreUnavailable
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.coordinator.effects import (
    Bury,
    CoordinatorEffect,
    Decide,
    Note,
    PutInForce,
    ReadClosings,
    ReadShards,
    Renumber,
    Tell,
    TellAll,
    Word,
)
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.operator import COORDINATOR_ACTIONS
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.coordinator.terms import begins_era, decided_in_era, era_of
from sharding_app.protocol.ids import Incarnation, ShardId, Term
from sharding_app.protocol.liveness.membership import Membership
from sharding_app.protocol.messages import (
    Announcement,
    AnyMessage,
    BeginHandOffAck,
    GetShardHome,
    GracefulShutdownReq,
    NodeGone,
    OperatorRequest,
    Register,
    RegisterProxy,
    Renumbered,
    ShardStarted,
    ShardStopped,
    Suspect,
)
from sharding_app.protocol.records import (
    Decision,
    HomeChange,
    Member,
    NumberOfWorkers,
    Server,
    ShardRow,
    StoredShard,
)
from sharding_app.runtime.base.waiting import set_within

logger = logging.getLogger("sharding.coordinator")

T = TypeVar("T")

LOOK_SECONDS = 0.25
REFILE_SECONDS = 5.0
LAPSED_SECONDS = 1.0
"""Between looks for closed shards that are to be opened."""
BUSY_SECONDS = 0.025
QUICK_LOOK_SECONDS = 0.01
QUICK_FOR_SECONDS = 0.5
RETRY_SECONDS = 0.1
REREAD_SECONDS = 0.5
"""Between attempts to read the further journals after a failover."""
MOST_EARLY = 10_000
"""Messages that are kept until the rows are read."""

MOST_CHANGES = 2000
"""Limit for one statement. The shards of a hundred dead nodes are written and announced in
steps.
"""
MOST_SHARDS = 2000
"""Limit for one announcement, far below the limit of a message."""

TO_BE_SEEN = frozenset(("strategy_failed", "decision_refused", "node_unheard"))
"""Decisions that report a fault to mend."""
IN_THE_TIMELINE_ALONE = frozenset(("shards_placed",))
"""Decisions of which the start of a cluster makes many: they are logged as details."""
LOGGED_CHARACTERS = 200
"""Longest detail of a decision in the log. The timeline has all of it."""

FOR_THE_COORDINATOR = (
    GetShardHome,
    GracefulShutdownReq,
    Register,
    RegisterProxy,
    ShardStarted,
    ShardStopped,
    BeginHandOffAck,
    Suspect,
    OperatorRequest,
)


class CoordinatorShell:
    def __init__(
        self,
        me: Incarnation,
        term: Term,
        store: ClusterStore,
        clock: Clock,
        put: Callable[[Incarnation, AnyMessage], bool],
        put_all: Callable[[Sequence[Incarnation], AnyMessage], None],
        settings: CoordinatorSettings,
        strategy_of: Callable[[str], ShardAllocationStrategy],
        ttl_seconds: float,
        on_decision: Callable[[Decision], None],
        ping_interval_seconds: float = 0.5,
        former_until: float = float("-inf"),
        journals: Mapping[str, Journal] = MappingProxyType({}),
    ) -> None:
        """`former_until`: until then leases of a lineage that the server has left may be valid.
        `journals`: the further ones, by their names.
        """
        self.machine = Coordinator(me, term, settings, strategy_of, clock.now)
        self.term = term
        self.decisions: deque[Decision] = deque(maxlen=200)
        self.handled: Counter[str] = Counter()
        self._store = store
        self._clock = clock
        self._put = put
        self._put_all = put_all
        self._membership = Membership(ttl_seconds, me, ping_interval_seconds=ping_interval_seconds)
        self._on_decision = on_decision
        self._former_until = former_until
        self._unrecorded: list[Decision] = []
        self._wake = asyncio.Event()
        self._look_at = 0.0
        self._quick_until = 0.0
        self._loaded = False
        self._telling = False
        "`_tell` will run in this turn of the loop."
        self._early: list[tuple[Incarnation, AnyMessage]] = []
        self._location_changes: dict[str, int] = {}
        self._types_of: frozenset[tuple[str, ...]] | None = None
        "The members and their types when the rows of types were read last."
        self._refiled_at = float("-inf")
        self._closings = 0
        "How often shards were closed or opened, when this was read last."
        self._lapsed_at = float("-inf")
        self._journals = journals
        self._unread: dict[str, None] = {}
        "Types whose shards' rows have to be read again."

    async def run(self) -> None:
        """Coordinate until a newer term is met. Cancelled when the lock is lost."""
        reading: asyncio.Task[None] | None = None
        try:
            await self._load()
            if self.machine.placement.unread:
                reading = asyncio.create_task(self._read_journals(), name="lost rows")
            while True:
                await self._turn()
        except StaleTerm:
            logger.warning("term %d is over", self.term, extra={"action": "coordinator_stale"})
        finally:
            if reading is not None:
                reading.cancel()

    def receive(self, source: Incarnation, message: AnyMessage) -> bool:
        """Take a message for the coordinator. Return False for any other message."""
        if not isinstance(message, FOR_THE_COORDINATOR):
            return False
        if isinstance(message, OperatorRequest) and message.action not in COORDINATOR_ACTIONS:
            return False
        if not self._loaded:
            if len(self._early) < MOST_EARLY:  # all of them are said again
                self._early.append((source, message))
            return True
        self.handled[type(message).__name__] += 1
        self._take(source, message, self._clock.now())
        self._wake.set()
        if not self._telling:
            # Do not wait for a decision that is being written: announcements are about rows that
            # are written.
            self._telling = True
            asyncio.get_running_loop().call_soon(self._tell)
        return True

    def _take(self, source: Incarnation, message: AnyMessage, now: float) -> None:
        if isinstance(message, Register | Suspect):
            self._look_at = now
        if isinstance(message, Suspect) and any(
            each in self.machine.members for each in message.incarnations
        ):
            self._quick_until = now + QUICK_FOR_SECONDS
        self.machine.receive(source, message, now)

    def told_numbers(self, numbers: int) -> None:
        """Read the types again if the numbers of shards of any have changed, or shards were closed
        or opened: `numbers` is the sum of their revisions and closings.
        """
        revisions = sum(each.revision for each in self.machine.placement.numbers.values())
        if self._loaded and numbers != revisions + self._closings:
            self._types_of = None
            self.look_now()

    def look_now(self) -> None:
        self._look_at = self._clock.now()
        self._wake.set()

    # -- Inside ------------------------------------------------------------------------------------

    async def _load(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable):
                server, members = await self._store.members()
                rows = await self._store.shards()
                now = self._clock.now()
                if now < self._former_until and not decided_in_era(self.term, rows):
                    # A home whose row is lost may still handle messages. Dead nodes are noticed
                    # while we wait.
                    self._membership.judge(now, server, members)
                    await asyncio.sleep(min(self._former_until - now, LOOK_SECONDS))
                    continue
                await self._read_types(members)
                for type_name, locations in (await self._read_locations(members)).items():
                    self.machine.placement.locate(type_name, locations)
                self.machine.worker_sets.read(await self._read_workers(members))
                self.machine.placement.unread = await self._journals_to_read()
                self._take_over(server, members, rows)
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _journals_to_read(self) -> frozenset[str]:
        """Return the further journals that may have shards whose rows are lost."""
        if not self._journals or not era_of(self.term):
            return frozenset()
        unread = await self._store.journals_to_read()
        if unread is None and not begins_era(self.term):
            return frozenset()
        # That there are such journals at all may be lost too.
        return frozenset(self._journals) | (unread or frozenset())

    async def _read_journals(self) -> None:
        """Find the shards of which rows are lost. This goes on beside the rest: a journal that does
        not answer holds up the first homes of shards alone.
        """
        told = ""
        while True:
            try:
                unread = self.machine.placement.unread | (await self._store.journals_to_read() or frozenset())
                found: list[StoredShard] = []
                for name in sorted(unread):
                    if name not in self._journals:
                        raise JournalUnavailable(f"this node does not know the journal {name!r}")
                    found += await self._journals[name].stored_shards(name)
                if await self._store.restore_shards(self.term, unread, found):
                    self.machine.journals_read(await self._store.shards(), self._clock.now())
                    self._wake.set()
                    return
            except StaleTerm:
                return  # the next write of the coordinator says so
            except (JournalUnavailable, StoreUnavailable) as error:
                if str(error) != told:
                    told = str(error)
                    logger.warning(
                        "shards without a home wait until all further journals say which shards they have, since this server"
                        " has gone on in another lineage: %s", told, extra={"action": "journals_unread"},
                    )  # fmt: skip
            except Exception:
                # Whatever it is: without another attempt these shards would wait for ever.
                logger.exception("reading the further journals failed", extra={"action": "journals_unread"})
            await asyncio.sleep(REREAD_SECONDS)

    def _take_over(self, server: Server, members: list[Member], rows: list[ShardRow]) -> None:
        now = self._clock.now()
        self.machine.loaded(rows, members, now)
        self._loaded = True
        verdict = self._membership.judge(now, server, members)
        self.machine.members_read(members, verdict.dead, verdict.suspect, now)
        self._look_at = min(verdict.next_look, now + LOOK_SECONDS)
        for source, message in self._early:
            try:
                self.receive(source, message)
            except Exception:
                # As with later ones, it costs the others nothing.
                logger.exception(
                    "an early message cannot be handled", extra={"action": "early_message_failed"}
                )
        self._early.clear()

    async def _turn(self) -> None:
        now = self._clock.now()
        if now >= self._look_at:
            await self._look()
        self.machine.tick(self._clock.now())
        await self._carry_out()
        if self.machine.outbox.effects:
            return
        now = self._clock.now()
        due = self._look_at
        if self.machine.busy:
            due = min(due, now + BUSY_SECONDS, self.machine.audience.due)
        if now < self._quick_until:
            due = min(due, now + QUICK_LOOK_SECONDS)
            self._look_at = min(self._look_at, due)
        await set_within(self._wake, max(0.0, due - now))
        self._wake.clear()

    async def _look(self) -> None:
        self._look_at = self._clock.now() + LOOK_SECONDS
        read: tuple[float, Server, list[Member]] | None = None
        try:
            server, members = await self._store.members()
            read = self._clock.now(), server, members
            await self._read_types(members)
            numbers = await self._read_workers(members)
        except StoreUnavailable:
            self._look_at = self._clock.now() + RETRY_SECONDS
            if read is not None:  # another table is locked: the dead do not wait for it
                self.machine.fencing.found_dead(self._membership.judge(*read).dead)
            return
        now = self._clock.now()
        verdict = self._membership.judge(now, server, members)
        if verdict.dead:
            self._quick_until = 0.0
        self.machine.members_read(members, verdict.dead, verdict.suspect, now)
        self._look_at = min(self._look_at, max(verdict.next_look, now + QUICK_LOOK_SECONDS))
        for type_name, locations in (await self._read_locations(members)).items():
            self.machine.locations_read(type_name, locations, self._clock.now())
        if numbers:
            self.machine.workers_read(numbers, self._clock.now())
        with contextlib.suppress(StoreUnavailable):
            await self._open_lapsed()

    async def _read_workers(self, members: list[Member]) -> list[NumberOfWorkers]:
        """Read how many workers each set has, and is to have, if any node hosts workers."""
        if any(each.startswith(WORKERS) for member in members for each in member.types):
            return await self._store.workers()
        return []

    async def _read_types(self, members: list[Member]) -> None:
        """Read how many shards each type has, and which are closed, if the members or their types
        have changed, or any of this has.
        """
        hosted = frozenset((member.incarnation, *member.types) for member in members)
        if hosted != self._types_of:
            found = await self._store.types()
            self.machine.types_read({each.name: each.numbering for each in found})
            closings = sum(each.closings for each in found)
            if closings:
                await self._read_closings()
            # The next news tell of a closing between the two readings: their sum is another one.
            self._closings, self._types_of = closings, hosted
        await self._refile()

    async def _read_closings(self) -> None:
        """Read which shards are closed, and the rows of those that are so no more."""
        closed = await self._store.closed_shards()
        rows: list[ShardRow] = []
        for name, shards in self.machine.closings.opened(closed).items():
            rows += await self._store.homes(name, shards)
        self.machine.closings_read(closed, rows, self._clock.now())

    async def _open_lapsed(self) -> None:
        """Open the closed shards whose closing was not renewed: the command that moves them has
        stopped.
        """
        now = self._clock.now()
        if self.machine.placement.closed and now - self._lapsed_at >= LAPSED_SECONDS:
            self._lapsed_at = now
            opened = await self._store.open_lapsed(self.term)
            if opened:
                self.machine.closings.lapsed(opened)
                self._types_of = None

    async def _refile(self) -> None:
        """Give messages their present shards that were stored from outside while a type was
        resized: a transaction may know the numbers of its beginning.
        """
        now = self._clock.now()
        resized = any(each.revision for each in self.machine.placement.numbers.values())
        if resized and now - self._refiled_at >= REFILE_SECONDS:
            self._refiled_at = now
            await self._store.refile(self.term)

    async def _read_locations(self, members: list[Member]) -> dict[str, dict[ShardId, str] | None]:
        """Read changes of where the application wants shards, by type; None if unknown."""
        found: dict[str, dict[ShardId, str] | None] = {}
        for name in dict.fromkeys(each for member in members for each in member.types):
            if self.machine.placement.strategies.wants_locations(name):
                try:
                    news = await self._store.locations(name, self._location_changes.get(name))
                except StoreUnavailable:
                    found[name] = None
                    self._location_changes.pop(name, None)
                else:
                    if news is not None:
                        self._location_changes[name], found[name] = news
        return found

    async def _carry_out(self) -> None:
        machine = self.machine
        while machine.outbox.effects:
            self._tell()
            effects = machine.outbox.take()
            changes = [change for each in effects if isinstance(each, Decide) for change in each.changes]
            for first in range(0, len(changes), MOST_CHANGES):
                await self._decide(changes[first : first + MOST_CHANGES])
            for effect in effects:
                await self._carry_out_one(effect)
        if self._unread:
            await self._read_shards()
        if self._unrecorded and not machine.busy:
            decisions, self._unrecorded = self._unrecorded, []
            await self._record(decisions)

    async def _carry_out_one(self, effect: CoordinatorEffect) -> None:
        match effect:
            case Decide():
                pass  # written before, many in one statement
            case Bury():
                await self._bury(effect.incarnation)
            case PutInForce():
                await self._put_in_force(effect.before)
            case Renumber():
                await self._renumber(effect)
            case ReadShards():
                self._unread.update(dict.fromkeys(effect.types))
            case ReadClosings():
                self._types_of = None
                self.look_now()
            case Note():
                self._note(effect.decision)
            case Tell() | TellAll():
                raise RuntimeError(f"{effect!r} was not sent with the messages before")
            case _:
                assert_never(effect)

    def _tell(self) -> None:
        """Send the machine's messages. Effects that have to be written stay in their place."""
        self._telling = False
        for_all: dict[tuple[Incarnation, ...], list[Word]] = {}
        for each in self.machine.outbox.take_messages():
            if isinstance(each, Tell):
                self._put(each.to, each.message)
            else:
                for_all.setdefault(each.to, []).append(each.word)
        for targets, words in for_all.items():
            for some in _parts(words):
                self._put_all(targets, some[0] if len(some) == 1 else Announcement(some))

    async def _record(self, decisions: list[Decision]) -> None:
        try:
            await self._store.record(decisions)
        except StoreRefused:
            if len(decisions) > 1:
                for half in _halves(decisions):
                    await self._record(half)
                return
            logger.warning(
                "the timeline cannot hold %s", ascii(decisions[0]), extra={"action": "timeline_gap"}
            )
        except StoreUnavailable:
            logger.info("the timeline misses %d lines", len(decisions), extra={"action": "timeline_gap"})

    async def _read_shards(self) -> None:
        """Read the rows of types of which some have vanished, since an operator has deleted them or
        they were changed by a step of a resize whose answer was lost.
        """
        types = list(self._unread)
        logger.warning(
            "rows of shards are gone, or have changed unseen: those of %s are read again",
            ", ".join(types),
            extra={"action": "rows_gone"},
        )
        try:
            rows = await self._store.shards(types)
        except StoreUnavailable:
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._unread.clear()
        self.machine.rows_read(types, rows, self._clock.now())

    async def _decide(self, changes: list[HomeChange]) -> None:
        try:
            rows = await self._store.decide(self.term, changes)
        except StoreRefused as error:
            # One of them can never be written. Without the halves all others would wait for it.
            if len(changes) > 1:
                for half in _halves(changes):
                    await self._decide(half)
                return
            logger.error(
                "the decision about shard %s/%s is refused: %s", changes[0].type, changes[0].shard, error,
                extra={"action": "decision_refused", "entity_type": changes[0].type},
            )  # fmt: skip
            self.machine.refused(changes, str(error), self._clock.now())
        except StoreUnavailable as error:
            logger.warning("a decision has to wait: %s", error, extra={"action": "decision_waits"})
            if error.answered:
                # One row may be locked by another session. The others must not wait for it.
                if len(changes) > 1:
                    for half in _halves(changes):
                        await self._decide(half)
                    return
                if self.machine.wait_for(changes[0], self._clock.now()):
                    return
            self.machine.undecided(changes)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self.machine.decided(changes, rows, self._clock.now())
            written = {(row.type, row.shard): row.epoch for row in rows}
            if changes and all(written.get((each.type, each.shard)) != each.epoch for each in changes):
                # All had been overtaken. Pause, or this might loop without end.
                await asyncio.sleep(RETRY_SECONDS)

    async def _bury(self, incarnation: Incarnation) -> None:
        try:
            buried = await self._store.bury(self.term, incarnation)
        except StoreUnavailable as error:
            logger.warning("a dead node has to wait: %s", error, extra={"action": "bury_waits"})
            self.machine.unburied(incarnation)
            await asyncio.sleep(RETRY_SECONDS)
            return
        if buried:
            self.machine.buried(incarnation, self._clock.now())
        else:
            logger.info("node %s came back in time", incarnation, extra={"action": "bury_refused"})
            self.machine.unburied(incarnation)
            self.look_now()

    async def _put_in_force(self, before: NumberOfWorkers) -> None:
        try:
            now_is = await self._store.put_in_force(self.term, before)
            if now_is is None:
                self.machine.worker_sets.read(await self._store.workers())
        except StoreUnavailable as error:
            logger.warning("a rescale has to wait: %s", error, extra={"action": "rescale_waits"})
            self.machine.worker_sets.not_in_force(before)
            await asyncio.sleep(RETRY_SECONDS)
        else:
            self.machine.in_force(before, now_is, self._clock.now())

    async def _renumber(self, effect: Renumber) -> None:
        try:
            found = await self._store.renumber(
                self.term, effect.type, effect.before, effect.upto, effect.least_epoch
            )
        except StoreUnavailable as error:
            logger.warning("a resize has to wait: %s", error, extra={"action": "resize_waits"})
            found = None
        if found is None:
            # Whether it is written is read with the types.
            self._types_of = None
            self.machine.not_renumbered(effect.type, self._clock.now())
        else:
            self.machine.renumbered(effect.type, effect.before, *found, self._clock.now())

    def _note(self, decision: Decision) -> None:
        level = logging.WARNING if decision.action in TO_BE_SEEN else logging.INFO
        if decision.action in IN_THE_TIMELINE_ALONE:
            level = logging.DEBUG
        detail = decision.detail
        if len(detail) > LOGGED_CHARACTERS:
            detail = f"{detail[:LOGGED_CHARACTERS]}... (the timeline has the whole line)"
        logger.log(
            level, "%s: %s %s", decision.action, decision.subject, detail,
            extra={"action": decision.action, "subject": decision.subject, "term": self.term},
        )  # fmt: skip
        self.decisions.append(decision)
        self._unrecorded.append(decision)
        self._on_decision(decision)


def _halves(items: Sequence[T]) -> tuple[list[T], list[T]]:
    half = len(items) // 2
    return list(items[:half]), list(items[half:])


def _parts(words: list[Word]) -> Iterator[list[Word]]:
    """Split words into announcements of some thousand shards at most."""
    part: list[Word] = []
    size = 0
    for word in words:
        part.append(word)
        size += 1 if isinstance(word, NodeGone | Renumbered) else 1 + len(word.shards)
        if size >= MOST_SHARDS:
            yield part
            part, size = [], 0
    if part:
        yield part
