"""The home side of a region: the envelopes for the entities of one type that live in this process.

A thin shell around `protocol.shard`. It runs the commands that the machine lets through
(`runtime.execution.execution`) and loads entities that are not in memory
(`runtime.journal.loader`). It knows no coordinator. Beside it: `shards` (they start and stop),
`entities` (they come into memory, stop, and start again), `parked` (messages that wait for the row,
and for the lease).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.staging import args_limit
from sharding_app.errors import BufferFull, InvalidCall, InvalidEntityId, ShardingError
from sharding_app.ports.deliveries import MessageChanges
from sharding_app.ports.journal import Journal, JournalUnavailable
from sharding_app.ports.store import StoreRefused, StoreUnavailable
from sharding_app.protocol.builtin_commands import DUE, FOR_THE_HOME, IDS
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, is_entity_id
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.messages import AnyMessage, Deliver, Done, Renumbered
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ShardRow
from sharding_app.protocol.shard import FULL, IDLE, LOAD, LOADING, QUEUED, RUN, Verdict, Work
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from sharding_app.runtime.base.interfaces import NO_CALLER
from sharding_app.runtime.base.memory import out_of_memory
from sharding_app.runtime.base.shared_round import Rounds
from sharding_app.runtime.delivery.deliverer import Deliverer
from sharding_app.runtime.execution.context import close_context
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.hosting import listing
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.erasure import Erasing
from sharding_app.runtime.hosting.following import Following
from sharding_app.runtime.hosting.parked import Backlog, EarlyEnvelopes, Suspended
from sharding_app.runtime.hosting.remembered import Remembering
from sharding_app.runtime.hosting.shard_leases import ShardGate
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.hosting.workers import WorkerRuns
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from sharding_app.runtime.journal.loader import Loader, Permits
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.runtime.telemetry import tracing
from sharding_app.runtime.telemetry.meter import Meter

logger = logging.getLogger("sharding.region")

REPLY_ROOM_BYTES = 1024
"""Room in a message beside the reply."""
LOOK_AGAIN_SECONDS = 0.1


class Numbers(Protocol):
    """The numbers of shards, as the asking side of the node knows them."""

    def told(self) -> Renumbered | None:
        """Return the type's present numbers as they are told to others; None: they never change."""

    def learn(self, rows: Iterable[ShardRow]) -> None:
        """Take in the numbers that rows bear. Without them no shard of these rows is started."""


class Part(Protocol):
    """The node's part that works with the journal of a host's shards
    (`runtime.hosting.journal_part`).
    """

    name: str
    journal: Journal
    writer: JournalWriter
    recoveries: Permits
    deliverer: Deliverer
    following: Following
    secured: Rounds
    others: Callable[[str], Journal] | None
    "Returns another journal by its name, if there are others."
    backlog: Backlog
    has_room: Callable[[Incarnation], bool]

    def stands_still(self) -> bool: ...

    @property
    def clusters(self) -> "Part | None":
        """The part that works with the cluster's own journal, if it is another one: messages from
        outside lie there.
        """

    async def take(
        self,
        type_name: str,
        type_id: int,
        me: Incarnation,
        shards: Mapping[ShardId, Epoch],
        numbers: Numbering | None,
    ) -> tuple[frozenset[ShardId], bool | None]: ...


class Region(Protocol):
    """All hosts of the type in this node (`runtime.hosting.region`)."""

    stopped_at: dict[ShardId, Epoch]

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None: ...

    def life_in(self, journal: str) -> ShardLife | None: ...

    @property
    def number_of_shards(self) -> int: ...

    def shards_changed(self) -> None: ...


class TypeHost:
    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        me: Incarnation,
        config: NodeConfig,
        ports: NodePorts,
        *,
        part: Part,
        region: Region,
        send: Callable[[Incarnation, AnyMessage], None],
        may_handle: Callable[[], bool],
        shard_of: Callable[[str], ShardId],
        numbers: Numbers,
        start_entity: Callable[[str, str], Awaitable[object]],
        on_stopped: Callable[[str, ShardId, Epoch], None],
        on_fenced: Callable[[str, ShardId, Epoch], None],
        on_failed: Callable[[], None],
    ) -> None:
        self.type = entity_type
        self.type_id = type_id
        self.me = me
        self.part = part
        self.journal_name = part.name
        self.shards: dict[ShardId, ResidentShard] = {}
        self.stopped_at = region.stopped_at
        self.counters: Counter[str] = Counter()
        self.backlog = part.backlog
        self.taken = self.backlog.taken
        self.waits = self.backlog.waits
        self.send = send
        self.may_handle = may_handle
        self.journal = part.journal
        self.clusters_journal = None if part.clusters is None else part.clusters.journal
        self.listener = ports.listener
        self.threads = ports.threads
        self.closing = False
        self.leaves = False
        "Its node leaves the cluster: no shard starts here any more."
        self.resumes = 0
        "Grows when the node's lease is lost, and when it has come back."
        self.now = ports.clock.now
        self.meter = Meter(ports.clock, part.writer.figures.writers)
        self.gate: ShardGate | None = None
        "Set for a type whose shards need a lease each."
        self.remembering: Remembering | None = None
        if entity_type.settings.remember_entities:
            self.remembering = Remembering(
                type_id, part.journal, self, shard_of, ports.clock.now, rate=config.recovery_rate
            )
        self.workers: WorkerRuns | None = (
            WorkerRuns(self, ports.watch, config.stop_timeout_seconds) if entity_type.workers else None
        )
        self.shard_life = tracing.part(ShardLife)(self, config, on_stopped)
        self.entity_life = EntityLife(self, config)
        self.erasing = Erasing(self)
        self.suspended = Suspended(self.finished)
        self.execution = tracing.part(Execution)(
            entity_type, type_id, part.writer, part.journal, self, ports.watch, self.meter,
            command_window_seconds=config.command_window_seconds, pipeline_limit=config.mailbox_size,
            max_reply_bytes=min(config.max_reply_bytes, config.links.max_message_bytes - REPLY_ROOM_BYTES),
            max_args_bytes=args_limit(config.links.max_message_bytes),
            max_state_bytes=config.max_state_bytes, check_state=config.check_state, together=None if part.name else ports.together, journal_name=part.name, others=part.others,
        )  # fmt: skip
        self.loader = tracing.part(Loader)(
            entity_type, type_id, part.journal, self.entity_life.new, self.entity_life.loaded, part.recoveries,
            config.recovery, ports.watch,
        )  # fmt: skip
        self.early = EarlyEnvelopes(
            self.shard_life, part, self.spawn, region.receive, self.execution.replies.expired,
            self._refuse_still,
        )  # fmt: skip
        self.life_in = region.life_in
        self.shards_changed = region.shards_changed
        self._region = region
        self._deliverer = deliverer = part.deliverer
        self._deliverers = [deliverer] if part.clusters is None else [deliverer, part.clusters.deliverer]
        self._following = part.following
        self.execution.followed = part.following.shards
        self.new_message_id = deliverer.new_id
        self.new_message_place = deliverer.new_place
        self.storing = deliverer.storing
        self.server_time = deliverer.server_time
        self.know_server_time = deliverer.know_server_time
        self._numbers = numbers
        self._store = ports.store
        self._all_journals = {CLUSTERS_OWN: ports.journal, **ports.journals}
        self._shard_of = shard_of
        self._date = ports.date
        self._mailbox_limit = config.mailbox_size
        self._retain_seconds = config.retention_interval_seconds
        self._start_entity = start_entity
        self._on_fenced = on_fenced
        self._on_failed = on_failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: dict[Incarnation, list[int]] = {}
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.loader.run())
            group.create_task(self.execution.snapshots.run())
            if self.execution.retention.deletes:
                if len(self._all_journals) > 1:
                    self.execution.retention.lying = self._lying_here
                group.create_task(self.execution.retention.run(self._store, self.me, self._retain_seconds))
            if self.remembering is not None:
                group.create_task(self.remembering.run())

    def close(self) -> None:
        self.closing = True
        for task in self._tasks:
            task.cancel()

    @property
    def entities(self) -> int:
        return sum(len(shard.slots) for shard in self.shards.values())

    # -- Envelopes ---------------------------------------------------------------------------------

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None:
        """Take envelopes in their order. The caller has checked the lease."""
        now = self.now()
        now_ms = int(now * 1000)
        self.meter.batch(messages, now)
        shards = self.shards
        early = self.early.waiting
        execution = self.execution
        stands_still = self.part.stands_still()
        for message in messages:
            if message.deadline_ms and message.deadline_ms <= now_ms:
                execution.replies.expired(source, message)  # no entity is loaded for it
                continue
            shard = shards.get(message.shard)
            if early or shard is None or shard.epoch < message.epoch:
                if self.early.keep(source, message):
                    continue
                if shard is None:
                    self.counters["handed_back"] += 1
                    execution.replies.hand_back(source, message)
                    continue
            if message.command in FOR_THE_HOME:
                self._for_the_home(source, message, shard)
                continue
            if stands_still and not self.part.has_room(source):
                self._refuse_still(source, message)
                continue
            verdict, slot = shard.deliver(source, message, now)
            if shard.evicted:
                self.entity_life.evict(shard)
            if slot is None:
                self.counters["handed_back"] += 1
                execution.replies.hand_back(source, message)
            elif verdict is not RUN:
                self._keep(verdict, slot, source, message)
            elif execution.run(slot, source, message):
                self.finished(slot)

    def _for_the_home(self, source: Incarnation, message: Deliver, shard: ResidentShard) -> None:
        """Handle a message to the home of an entity, which the entity does not see."""
        if message.command == IDS:
            self.spawn(self._list_ids(source, message))
        elif self._sent_elsewhere(source, message):
            pass
        elif message.command == DUE:
            self._told_of_due(source, message, shard)
        elif shard.stopping or shard.epoch != message.epoch:
            self.counters["handed_back"] += 1
            self.execution.replies.hand_back(source, message)
        else:
            self._following.asked(self.execution, shard, source, message)

    def _keep(self, verdict: Verdict, slot: Resident, source: Incarnation, message: Deliver) -> None:
        """Take in an envelope that cannot run now, unless it is a query that need not wait."""
        beside = self.execution.beside
        if beside is not None and beside.takes(slot, source, message):
            if verdict is QUEUED:
                slot.shard.withdraw(slot)
            return
        if verdict is QUEUED:
            self.backlog.waits(source, message)
            if self.entity_life.delayed:
                self.entity_life.load_now(slot)
        elif verdict is LOAD:
            self._bring_in(slot, source, message)
        elif verdict is FULL:
            self._refuse_full(source, message)

    def again(self, slot: Resident, source: Incarnation, message: Deliver) -> None:
        """Take back a command whose object was dropped before the command began. It runs next."""
        if slot.state is IDLE:
            self.receive(source, (message,))
        else:
            slot.shard.put_first(slot, (source, message))
            self.backlog.waits(source, message)

    def ask_again(self, slot: Resident, queries: Sequence[Work]) -> None:
        """Take back queries whose object was dropped before their answers left. They run next."""
        if slot.state is IDLE:
            for source, message in queries:
                self.receive(source, (message,))
            return
        refused = slot.shard.put_back(slot, queries)
        for work in queries[: len(queries) - len(refused)]:
            self.backlog.waits(*work)
        for work in refused:
            self._refuse_full(*work)

    def finished(self, slot: Resident) -> None:
        """Run the entity's next commands after one is over, until one has to wait."""
        shard, entity = slot.shard, slot.entity
        if slot.mailbox is None and not (slot.passivating or slot.ended or shard.stopping):
            shard.finished(slot)  # the usual case: nothing waits, nothing stops
            return
        while True:
            if slot.mailbox and not self.may_handle():
                self.suspended.park(slot)
                return
            work = shard.finished(slot)
            if work is None:
                break
            self.backlog.taken(*work)
            if not self.execution.run(slot, *work):
                return
        if slot.entity is None:
            close_context(entity)
            self.execution.snapshots.put_away(slot)
        if self.workers is not None and (slot.ended or slot.passivating) and not shard.stopping:
            self.workers.end(slot)
            return
        if (slot.state is LOADING or slot.ended) and (slot.pending or self.erasing.wants(slot)):
            return  # it stops behind its commits (`settled`), or is erased
        if slot.state is LOADING:
            self.loader.want(slot)
        elif slot.passivating and not slot.ended:
            self.entity_life.force_later(slot)
        elif slot.ended and not shard.stopping and self.entity_life.runs_again:
            self.entity_life.stopped_by_itself(slot)
        else:
            self.end_if_stopped(shard)

    def settled(self, slot: Resident) -> None:
        if slot.shard.settled(slot):
            self.finished(slot)
        else:
            self.end_if_stopped(slot.shard)

    def end_if_stopped(self, shard: ResidentShard) -> None:
        if shard.stopped:
            self.shard_life.ended(shard)

    def call(self, slot: Resident, command: str, args: bytes) -> None:
        """Run a timer's command through the entity's mailbox. It counts as no activity."""
        shard = slot.shard
        if slot.is_gone:
            return
        if not self.may_handle():
            self.spawn(self._call_when_valid(slot, command, args))
            return
        self.receive(NO_CALLER, (Deliver(shard.type, shard.number, shard.epoch, slot.id, 0, command, args),))

    async def _call_when_valid(self, slot: Resident, command: str, args: bytes) -> None:
        entity = slot.entity
        await self.lease()
        if slot.entity is entity:
            self.call(slot, command, args)

    def _bring_in(self, slot: Resident, source: Incarnation, message: Deliver) -> None:
        """Load an entity for its first envelope.

        Our callers send no id that the tables do not take. Such an id must not get among those that
        are read together.
        """
        only = self.type.singleton_id if self.workers is None else str(slot.shard.number)
        if only is not None and message.entity != only:
            slot.shard.drop(slot)
            text = f"{self.type.name}: the one entity of shard {slot.shard.number} is {only!r}, not {message.entity!r}"
            self.execution.replies.refuse(source, message, InvalidCall(text))
            self.end_if_stopped(slot.shard)
            return
        if is_entity_id(message.entity):
            if self._sent_elsewhere(source, message):
                slot.shard.drop(slot)
                self.end_if_stopped(slot.shard)
                return
            self.backlog.waits(source, message)
            if self.entity_life.failed_starts and self.entity_life.refused(slot):
                return
            if self.workers is not None:
                self.workers.want(slot)
            elif self.remembering is None:
                self.loader.want(slot)
            else:
                self.remembering.started(slot)
            return
        self.counters["bad_entity_ids"] += 1
        slot.shard.drop(slot)
        text = f"an id of {message.type!r} that no entity can have came from {source}: it is refused"
        logger.warning(text, extra={"action": "bad_entity_id", "entity_type": message.type})
        self.execution.replies.refuse(source, message, InvalidEntityId(text))
        self.end_if_stopped(slot.shard)

    def _sent_elsewhere(self, source: Incarnation, message: Deliver) -> bool:
        """Hand back a message for an entity that a resize has given to another shard, after the
        numbers by which its sender finds that one.
        """
        told = self._numbers.told()
        if told is None or told.numbering.shard_of(message.entity) == message.shard:
            return False
        self.counters["handed_back"] += 1
        if source != NO_CALLER:
            self.send(source, told)
        self.execution.replies.hand_back(source, message)
        return True

    def has(self, number: ShardId, entity: str) -> bool:
        """Tell whether that is the entity's shard."""
        told = self._numbers.told()
        return told is None or told.numbering.shard_of(entity) == number

    def _refuse_full(self, source: Incarnation, message: Deliver) -> None:
        text = f"{self._mailbox_limit} commands wait for {message.type!r} {message.entity!r}: slow down"
        self._refuse(source, message, "mailbox_full", text)

    def _refuse_still(self, source: Incarnation, message: Deliver) -> None:
        text = (
            f"{message.type!r} {message.entity!r}: many calls of this process wait for a journal that does not go on, so no"
            " more of them may wait (LINK_WINDOW_BYTES)"
        )
        self._refuse(source, message, "journal_still", text)

    def _refuse(self, source: Incarnation, message: Deliver, why: str, text: str) -> None:
        self.counters[why] += 1
        self.meter.trouble(message.entity, message.command, why)
        self.execution.replies.refuse(source, message, BufferFull(text))

    @property
    def shards_of_type(self) -> int:
        """The number of the type's shards in this node, whatever journal they lie in."""
        return self._region.number_of_shards

    # -- For executions and remembering ------------------------------------------------------------

    def done(self, target: Incarnation, request: int) -> None:
        if target == NO_CALLER:
            return
        if not self._done:
            self._loop.call_soon(self._flush_done)
        self._done.setdefault(target, []).append(request)

    def _flush_done(self) -> None:
        done, self._done = self._done, {}
        for target, requests in done.items():
            self.send(target, Done(requests))

    def may_begin(self, shard: ResidentShard) -> bool:
        """Whether a message that a shard has taken in may still begin.

        Until then the shard needs its lease. After a blocked loop this is called before the timer
        that ends the lease.
        """
        return not shard.closed and (self.gate is None or self.gate.holds(shard.number))

    async def lease(self) -> None:
        """Return when the lease is valid; mostly at once."""
        while not self.may_handle():
            await self.suspended.back()

    def spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug concerns its job, and would follow a retried command to the next node. Without
            # memory nothing here can be relied on.
            if out_of_memory(error):
                logger.critical(
                    "no memory is left: %r", error, exc_info=error, extra={"action": "out_of_memory"}
                )
                self._on_failed()
            else:
                logger.error("a bug: %s", error, exc_info=error, extra={"action": "internal_error"})

    def stopped_by_force(self, slot: Resident, text: str) -> None:
        """Count and log an entity that did not stop in its time. `text` names its type by %s."""
        self.counters["stopped_by_force"] += 1
        self.meter.trouble(slot.id, "", "stopped_by_force")
        logger.warning(
            text, self.type.name, extra={"action": "stopped_by_force", "entity_type": self.type.name}
        )

    def load(self, slot: Resident) -> None:
        """Load an entity whose start is stored."""
        if not slot.is_gone:
            self.loader.want(slot)

    def reload(self, slot: Resident, delay: float = 0.0) -> None:
        self.entity_life.reload(slot, delay)

    def restart_shard(self, shard: ResidentShard) -> None:
        self.entity_life.restart_shard(shard)

    def start_elsewhere(self, entity: str) -> Awaitable[object]:
        return self._start_entity(self.type.name, entity)

    def fenced(self, slot: Resident) -> None:
        self.shard_life.drop(slot.shard.number)
        self._on_fenced(self.type.name, slot.shard.number, slot.shard.epoch)

    def row_gone(self, number: ShardId, epoch: Epoch) -> None:
        """Report a shard without a row.

        The sender of its envelopes knew a row that has vanished.
        """
        self._on_fenced(self.type.name, number, epoch)

    def fenced_shard(self, shard: ResidentShard) -> None:
        """Drop a shard whose rows were refused, unless it has gone and come back here since."""
        if self.shards.get(shard.number) is shard:
            self.shard_life.drop(shard.number)
            self._on_fenced(self.type.name, shard.number, shard.epoch)

    async def row_of(self, number: ShardId) -> ShardRow | None:
        """Read a shard's row from the store; ask until it answers."""
        while True:
            try:
                rows = await self._store.homes(self.type.name, [number])
            except StoreRefused:
                return None  # there can be no such row, whatever the sender of the envelopes says
            except StoreUnavailable:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                self._numbers.learn(rows)
                return rows[0] if rows else None

    async def number_of_workers(self) -> int:
        """Read the number of workers in force from the store; ask until it answers."""
        while True:
            try:
                numbers = {each.type: each.workers for each in await self._store.workers()}
            except StoreUnavailable:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
            else:
                return numbers.get(self.type.name, 0)

    async def take(self, number: ShardId, epoch: Epoch, numbers: Numbering | None = None) -> bool | None:
        """Make a shard ours in its journal, and secure all that it will read at its start
        (`Journal.secure`). Return whether its type has messages there, if the journal says so;
        False also where only the shard's row says it.

        None: not yet, look again.
        """
        try:
            taken, uses_messages = await self.part.take(
                self.type.name, self.type_id, self.me, {number: epoch}, numbers
            )
        except JournalUnavailable:
            taken, uses_messages = frozenset(), None
        if number not in taken:
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
            return None
        return bool(uses_messages)

    # -- Messages and timers -----------------------------------------------------------------------

    @property
    def knows_server_time(self) -> bool:
        return self._deliverer.clock.known

    def date(self) -> datetime:
        """Return the date that handlers are told.

        It is this machine's, but none before one that the journal's server has reached: the command
        of a durable timer sees the time for which it was set.
        """
        date = self._date()
        return max(date, self.server_time()) if self._deliverer.clock.known else date

    def staged(self, slot: Resident, changes: MessageChanges, at: datetime | None) -> None:
        shard = slot.shard
        if self.shards.get(shard.number) is shard and not shard.stopping:
            self._deliverer.staged(
                self.type, self.execution.type_id, shard.number, shard.epoch, slot.id, changes, at
            )

    def begin_deliveries(self, shard: ResidentShard) -> None:
        for each in self._deliverers:
            each.begin(self.type, self.type_id, shard.number, shard.epoch)

    def uses_messages(self, shard: ResidentShard) -> bool:
        return any(each.has(self.type_id, shard.number) for each in self._deliverers)

    def forget_deliveries(self, shard: ResidentShard) -> None:
        for each in self._deliverers:
            each.forget(self.type_id, shard.number)

    def forget_messages(self, slot: Resident) -> None:
        """Forget the messages and timers of an entity that is being erased."""
        for each in self._deliverers:
            each.erased(self.type_id, slot.shard.number, slot.id)

    def _told_of_due(self, source: Incarnation, message: Deliver, shard: ResidentShard) -> None:
        """Read what was stored or changed from outside for an entity of a shard."""
        if not shard.stopping and shard.epoch == message.epoch:
            changed = message.args.decode(errors="replace")
            for each in self._deliverers:
                each.look(self.type, self.type_id, shard.number, shard.epoch, changed)
        self.done(source, message.request)

    # -- Followers ---------------------------------------------------------------------------------

    def forget_followers(self, shard: ResidentShard) -> None:
        self._following.left(self.execution.type_id, shard.number)

    def changed(self, slot: Resident) -> None:
        self._following.changed(self.execution.type_id, slot.shard.number, slot.id)

    def erased(self, slot: Resident) -> None:
        """Tell the followers of an entity that nothing of it is left."""
        self._following.erased(self.execution.type_id, slot.shard.number, slot.id)

    def is_followed(self, shard: ResidentShard, entity: str) -> bool:
        """Tell whether an entity has followers, or had some lately."""
        return entity in self._following.shards.get((self.execution.type_id, shard.number), ())

    # -- Lists of ids ------------------------------------------------------------------------------

    async def _list_ids(self, source: Incarnation, message: Deliver) -> None:
        """Answer with a page of the type's ids, or the reason why there is none."""
        execution = self.execution
        try:
            value = await listing.page(
                self.type, execution.type_id, self._all_journals, self._lying, message, self.now
            )
        except ShardingError as error:
            execution.replies.fail(source, message, error)
        else:
            self.counters["ids_listed"] += 1
            execution.replies.answer(source, message, value)

    async def _lying(self) -> tuple[Callable[[str], str | None], frozenset[str]]:
        places = await self._store.shard_journals(self.type_id)

        def journal_of(entity: str) -> str | None:
            try:
                return places.get(self._shard_of(entity), CLUSTERS_OWN)
            except Exception:  # noqa: BLE001  (an extractor is the user's)
                return None

        return journal_of, frozenset(places.values())

    async def _lying_here(self) -> Callable[[str], bool]:
        journal_of, _ = await self._lying()
        return lambda entity: journal_of(entity) == self.part.name

    async def at_home(self, slot: Resident) -> bool:
        shard = slot.shard
        while not slot.is_gone:
            try:
                return await self.journal.is_home(self.type_id, shard.number, shard.epoch, self.me)
            except JournalUnavailable:
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
        return False
