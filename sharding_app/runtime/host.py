"""The home side of a region: the shards of one type that live in this process, and their entities.

A thin shell around `core.shard`: it runs what the machine says (`runtime.execution`), loads what is not in memory
(`runtime.loader`), and says when a shard has stopped. It knows no coordinator.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from sharding_app.core.ids import Epoch, Incarnation, ShardId
from sharding_app.core.messages import AnyMessage, Deliver, Done, HandBack
from sharding_app.core.shard import Shard, Slot, SlotState, Verdict, Work
from sharding_app.errors import BufferFull
from sharding_app.model.types import EntityType
from sharding_app.ports.clock import Clock
from sharding_app.ports.journal import Erasure, Journal, ShardsFenced
from sharding_app.ports.store import ClusterStore, StoreUnavailable
from sharding_app.runtime.backlog import Backlog
from sharding_app.runtime.entity_context import HostContext, last_word
from sharding_app.runtime.journal_writer import JournalWriter
from sharding_app.runtime.leasing import ShardGate
from sharding_app.runtime.listener import Listener
from sharding_app.runtime.loader import Permits
from sharding_app.runtime.meter import Meter
from sharding_app.runtime.owner import NOBODY, Threads, Together, Watch
from sharding_app.runtime.remembering import Remembering
from sharding_app.runtime.traced import execution_class, loader_class

logger = logging.getLogger("sharding.region")


class Host:
    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        me: Incarnation,
        *,
        send: Callable[[Incarnation, AnyMessage], None],
        writer: JournalWriter,
        journal: Journal,
        store: ClusterStore,
        clock: Clock,
        watch: Watch,
        mailbox_limit: int,
        passivate_after_seconds: float,
        stop_timeout_seconds: float,
        hand_off_timeout_seconds: float,
        restart_backoff_seconds: float,
        recovery_rate: tuple[int, float] | None,
        shard_of: Callable[[str], ShardId],
        start_entity: Callable[[str, str], None],
        command_window_seconds: float,
        max_reply_bytes: int,
        max_state_bytes: int,
        recoveries: Permits,
        may_handle: Callable[[], bool],
        together: Together | None,
        listener: Listener,
        threads: Threads,
        on_stopped: Callable[[str, ShardId, Epoch], None],
        on_fenced: Callable[[str, ShardId, Epoch], None],
    ) -> None:
        self.type = entity_type
        self.me = me
        self.shards: dict[ShardId, Shard] = {}
        self.counters: Counter[str] = Counter()
        self.backlog = Backlog()
        self.send = send
        self.listener = listener
        self.threads = threads
        self.async_handlers = 0
        self.meter = Meter(clock)
        self.execution = execution_class()(
            entity_type, type_id, writer, journal, self, watch, self.meter,
            command_window_seconds=command_window_seconds, pipeline_limit=mailbox_limit,
            max_reply_bytes=max_reply_bytes, max_state_bytes=max_state_bytes, together=together,
        )  # fmt: skip
        self._loader = loader_class()(entity_type, type_id, journal, self._new, self._loaded, recoveries)
        self._journal = journal
        self._store = store
        self._clock = clock
        self._mailbox_limit = mailbox_limit
        self._start_entity = start_entity
        self._restart_backoff = restart_backoff_seconds
        self.gate: ShardGate | None = None
        "Of a type whose shards need a lease each."
        self.remembering: Remembering | None = None
        if entity_type.settings.remember_entities:
            self.remembering = Remembering(type_id, journal, self, shard_of, clock.now, rate=recovery_rate)
        self._runs_again = self.remembering is not None or entity_type.singleton_id is not None
        self._stop_message = entity_type.settings.stop_message
        self._stop_timeout = stop_timeout_seconds
        self._hand_off_timeout = hand_off_timeout_seconds
        self._passivate_after = passivate_after_seconds
        self._may_handle = may_handle
        self._parked: list[Slot] = []
        "Busy slots whose next envelope waits for the lease."
        self._resumed: list[asyncio.Future[None]] = []
        self._on_stopped = on_stopped
        self._on_fenced = on_fenced
        self._stopped_at: dict[ShardId, Epoch] = {}
        self._early: dict[tuple[ShardId, Epoch], list[Work]] = {}
        "For shards that a region knows to live here before we do."
        self._restarts: dict[tuple[ShardId, str], asyncio.TimerHandle] = {}
        "Entities that have stopped without passivating, until their back-off is over."
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: dict[Incarnation, list[int]] = {}
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._loader.run())
            group.create_task(self.execution.snapshots.run())
            if self.remembering is not None:
                group.create_task(self.remembering.run())

    # -- Shards ----------------------------------------------------------------------------------------------------

    def admits(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether a shard whose row names us may start now; if it needs a lease first, that is asked for."""
        if self.gate is None or self._stopped_at.get(number, -1) >= epoch:
            return True
        return self.gate.admits(number, epoch)

    def start_shard(self, number: ShardId, epoch: Epoch) -> bool:
        """Host a shard whose row names us at that epoch. False: it was stopped here at that epoch already."""
        shard = self.shards.get(number)
        if shard is not None and shard.epoch == epoch:
            return not shard.stopping
        if self._stopped_at.get(number, -1) >= epoch:
            return False
        if shard is not None:
            self.drop_shard(number)
        shard = self.shards[number] = Shard(self.type.name, number, epoch, self._mailbox_limit)
        self.listener.shard_started(self.type, number, epoch)
        if self.remembering is not None:
            self.remembering.recall(shard)
        if self.type.singleton_id is not None:
            self._start_in(shard, self.type.singleton_id)
        return True

    def stop_shard(self, number: ShardId, epoch: Epoch) -> None:
        """HandOff: hand back what waits, end what runs, then say so. Repeating it is harmless."""
        shard = self.shards.get(number)
        if shard is None or shard.epoch != epoch:
            self._stopped_at[number] = max(epoch, self._stopped_at.get(number, -1))
            self._left(number, epoch)
            self._on_stopped(self.type.name, number, epoch)
            return
        if not shard.stopping:
            self._hand_back(shard, shard.stop())
            for slot in list(shard.slots.values()) if self._stop_message is not None else ():
                self._passivate(slot)
            if not shard.stopped:
                self._loop.call_later(self._hand_off_timeout, self._force_shard, shard)
        if shard.stopped:
            self._shard_stopped(shard)

    def give_up_shard(self, number: ShardId, epoch: Epoch) -> None:
        """Its lease is lost: stop at once, without stop messages. What runs may end, but not for long."""
        shard = self.shards.get(number)
        if shard is None or shard.epoch != epoch:
            self.stop_shard(number, epoch)
            return
        self.counters["leases_lost"] += 1
        if not shard.stopping:
            self._hand_back(shard, shard.stop())
        if shard.stopped:
            self._shard_stopped(shard)
        else:
            self._loop.call_later(self._stop_timeout, self._force_shard, shard)

    def _force_shard(self, shard: Shard) -> None:
        """What still runs when the time for a hand-off is over is given up: nothing (more) of it will be stored."""
        if self.shards.get(shard.number) is not shard:
            return
        for slot in list(shard.slots.values()):
            if slot.state is not SlotState.IDLE:
                self.counters["stopped_by_force"] += 1
                self.meter.trouble(slot.id, "", "stopped_by_force")
                logger.warning(
                    "an entity of %s was still busy when its shard had to move", self.type.name,
                    extra={"action": "stopped_by_force", "entity_type": self.type.name},
                )  # fmt: skip
                self.execution.give_up(slot)
            _close_context(slot.entity)
            self._hand_back(shard, shard.drop(slot))
        self._shard_stopped(shard)

    def drop_shard(self, number: ShardId) -> None:
        """Throw a shard away that lives elsewhere now: nothing of it is answered any more, what waits is handed back."""
        shard = self.shards.pop(number, None)
        if shard is None:
            return
        shard.stopping = True
        self._stopped_at[number] = max(shard.epoch, self._stopped_at.get(number, -1))
        for slot in list(shard.slots.values()):
            _close_context(slot.entity)
            self._hand_back(shard, shard.drop(slot))
        self._left(number, shard.epoch)
        self.listener.shard_stopped(self.type, number, shard.epoch)

    @property
    def entities(self) -> int:
        return sum(len(shard.slots) for shard in self.shards.values())

    # -- Envelopes -------------------------------------------------------------------------------------------------

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None:
        """Take envelopes in their order. The caller has looked at the lease."""
        now = self._clock.now()
        self.meter.batch(messages, now)
        shards = self.shards
        execution = self.execution
        for message in messages:
            shard = shards.get(message.shard)
            if self._early or shard is None or shard.epoch < message.epoch:
                if self._comes_early(source, message):
                    continue
                if shard is None:
                    self.counters["handed_back"] += 1
                    execution.hand_back(source, message)
                    continue
            verdict, slot = shard.deliver(source, message, now)
            if slot is None:
                self.counters["handed_back"] += 1
                execution.hand_back(source, message)
            elif verdict is Verdict.RUN:
                if execution.run(slot, source, message):
                    self.finished(slot)
            elif verdict is Verdict.QUEUED:
                self.backlog.waits(source, message)
            elif verdict is Verdict.LOAD:
                self.backlog.waits(source, message)
                if self.remembering is None:
                    self._loader.want(slot)
                else:
                    self.remembering.started(slot)
            elif verdict is Verdict.FULL:
                self._refuse_full(source, message)

    def again(self, slot: Slot, source: Incarnation, message: Deliver) -> None:
        """Its object was thrown away before this command began: it is the next to run."""
        if slot.state is SlotState.IDLE:
            self.receive(source, (message,))
        else:
            slot.shard.put_first(slot, (source, message))
            self.backlog.waits(source, message)

    def finished(self, slot: Slot) -> None:
        """A command is over: run what waits for the entity, until something has to wait."""
        shard, entity = slot.shard, slot.entity
        if slot.mailbox is None and not (slot.passivating or slot.ended or shard.stopping):
            shard.finished(slot)  # the usual case: nothing waits, nobody stops
            return
        while True:
            if slot.mailbox and not self._may_handle():
                self._parked.append(slot)
                return
            work = shard.finished(slot)
            if work is None:
                break
            self.backlog.taken(*work)
            if not self.execution.run(slot, *work):
                return
        if slot.entity is None:
            _close_context(entity)
        if slot.state is SlotState.LOADING:
            self._loader.want(slot)
        elif slot.passivating and not slot.ended:
            self._loop.call_later(self._stop_timeout, self._force, slot)
        elif slot.ended and not shard.stopping and self._runs_again:
            self._stopped_by_itself(slot)
        elif shard.stopping and shard.stopped:
            self._shard_stopped(shard)

    def _stopped_by_itself(self, slot: Slot) -> None:
        """A remembered entity has stopped: for good if it passivated, else until its back-off is over."""
        # One that stopped before, and came back for a message, may still have a restart to come.
        former = self._restarts.pop((slot.shard.number, slot.id), None)
        if former is not None:
            former.cancel()
        if slot.passivating and self.remembering is not None:
            self.remembering.stopped(slot.shard, slot.id)
        else:
            key = slot.shard.number, slot.id
            self._restarts[key] = self._loop.call_later(self._restart_backoff, self._start_again, slot)

    def _start_again(self, former: Slot) -> None:
        self._restarts.pop((former.shard.number, former.id), None)
        self.counters["restarted"] += 1
        self._start_in(former.shard, former.id)

    def _start_in(self, shard: Shard, entity: str) -> None:
        if self.shards.get(shard.number) is shard:
            slot = shard.start(entity, self._clock.now())
            if slot is not None:
                self._loader.want(slot)

    def load(self, slot: Slot) -> None:
        """Its start is stored: bring it into memory."""
        if slot.shard.slots.get(slot.id) is slot:
            self._loader.want(slot)

    def start_elsewhere(self, entity: str) -> None:
        self._start_entity(self.type.name, entity)

    def fenced_shard(self, number: ShardId) -> None:
        shard = self.shards.get(number)
        if shard is not None:
            self.drop_shard(number)
            self._on_fenced(self.type.name, number, shard.epoch)

    def steer(
        self, number: ShardId, entity: str, *, restart: bool
    ) -> Literal["away", "absent", "busy", "done"]:
        """An operator wants an entity to stop; or, while it does nothing, to be recovered anew from the journal."""
        shard = self.shards.get(number)
        if shard is None or shard.stopping:
            return "away"
        slot = shard.slots.get(entity)
        if slot is None:
            return "absent"
        if not restart:
            self._passivate(slot)
        elif slot.state is not SlotState.IDLE or slot.passivating or slot.pending:
            return "busy"
        else:
            self.reload(slot)
        return "done"

    async def erase(self, number: ShardId, entity: str) -> Literal["away", "busy"] | Erasure:
        """Erase an entity at its home: its object goes first, and what comes meanwhile starts one without a past.

        Raises JournalUnavailable: then it may have been erased or not, and what is stored is read again.
        """
        shard = self.shards.get(number)
        if shard is None or shard.stopping:
            return "away"
        slot = shard.slots.get(entity)
        if slot is not None and (slot.state is not SlotState.IDLE or slot.passivating or slot.pending):
            return "busy"
        if slot is None:
            slot = shard.start(entity, self._clock.now())
        else:
            _close_context(slot.entity)
            shard.reload(slot)
        if slot is None:
            return "away"
        # It is loading now, and nobody loads it: what comes for it waits in its mailbox.
        slot.seq = slot.snapshot_seq = 0
        slot.stored = None
        self.execution.snapshots.forget(entity)
        try:
            return await self._journal.erase(self.execution.type_id, number, shard.epoch, entity)
        except ShardsFenced:
            self.fenced_shard(number)
            return "away"
        finally:
            self._erased(slot)

    def _erased(self, slot: Slot) -> None:
        shard = slot.shard
        if shard.slots.get(slot.id) is not slot:
            return
        if not slot.mailbox:
            shard.drop(slot)
            if shard.stopping and shard.stopped:
                self._shard_stopped(shard)
        elif self.remembering is None:
            self._loader.want(slot)
        else:
            self.remembering.started(slot)

    def _passivate(self, slot: Slot) -> None:
        """Let an entity stop, after its stop message if its type has one."""
        message = self._stop_message
        if slot.shard.passivate(slot, None if message is None else last_word(slot, message)):
            self.finished(slot)

    def _force(self, slot: Slot) -> None:
        """An entity that has ignored its stop message is stopped all the same."""
        if slot.shard.end(slot):
            self.counters["stopped_by_force"] += 1
            self.meter.trouble(slot.id, "", "stopped_by_force")
            logger.warning(
                "an entity of %s ignored its stop message", self.type.name,
                extra={"action": "stopped_by_force", "entity_type": self.type.name},
            )  # fmt: skip
            self.finished(slot)

    def resume(self) -> None:
        """The lease is valid again: go on with what waited for it."""
        parked, self._parked = self._parked, []
        for slot in parked:
            if slot.shard.slots.get(slot.id) is slot:
                self.finished(slot)
        waiting, self._resumed = self._resumed, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def lease(self) -> None:
        """Return when the lease is valid: at once, mostly."""
        while not self._may_handle():
            future: asyncio.Future[None] = self._loop.create_future()
            self._resumed.append(future)
            await future

    def settled(self, slot: Slot) -> None:
        shard, entity = slot.shard, slot.entity
        shard.settled(slot)
        if slot.entity is None:
            _close_context(entity)
        if shard.stopping and shard.stopped:
            self._shard_stopped(shard)

    def reload(self, slot: Slot, delay: float = 0.0) -> None:
        _close_context(slot.entity)
        slot.shard.reload(slot)
        if delay:
            self._loop.call_later(delay, self._loader_wants, slot, slot.generation)
        else:
            self._loader.want(slot)

    def _loader_wants(self, slot: Slot, generation: int) -> None:
        if slot.generation == generation and slot.shard.slots.get(slot.id) is slot:
            self._loader.want(slot)

    def restart_shard(self, shard: Shard) -> None:
        """Something that its entities share may be broken: all that are idle are rebuilt when they are needed."""
        self.counters["shards_restarted"] += 1
        for slot in list(shard.idle_since(float("inf"))):
            _close_context(slot.entity)
            shard.drop(slot)

    def now(self) -> float:
        return self._clock.now()

    def fenced(self, slot: Slot) -> None:
        self.drop_shard(slot.shard.number)
        self._on_fenced(self.type.name, slot.shard.number, slot.shard.epoch)

    async def at_home(self, slot: Slot) -> bool:
        while True:
            try:
                rows = await self._store.homes(self.type.name, [slot.shard.number])
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            else:
                return any(row.home == self.me and row.epoch == slot.shard.epoch for row in rows)

    def done(self, target: Incarnation, request: int) -> None:
        if target == NOBODY:
            return
        if not self._done:
            self._loop.call_soon(self._flush_done)
        self._done.setdefault(target, []).append(request)

    def spawn(self, job: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    # -- Time ------------------------------------------------------------------------------------------------------

    def passivate_idle(self, older_than_seconds: float | None = None) -> int:
        """Forget entities that nothing was sent to for long (the type's setting, if not given); how many there were."""
        limit = self._passivate_after if older_than_seconds is None else older_than_seconds
        if older_than_seconds is None and (limit <= 0 or self._runs_again):
            return 0
        before = self._clock.now() - limit
        forgotten = 0
        for shard in self.shards.values():
            for slot in list(shard.idle_since(before)):
                forgotten += 1
                if self._stop_message is not None:
                    self._passivate(slot)
                    continue
                _close_context(slot.entity)
                shard.drop(slot)
        self.counters["passivated"] += forgotten
        return forgotten

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _new(self, slot: Slot) -> object:
        return self.type.new(slot.id, HostContext(self.type, slot, self._call))

    def _call(self, slot: Slot, command: str, args: bytes) -> None:
        """A timer of an entity: its command goes through the mailbox, and counts as no activity."""
        shard, touched = slot.shard, slot.touched
        if shard.slots.get(slot.id) is not slot:
            return
        if not self._may_handle():
            self.spawn(self._call_when_valid(slot, command, args))
            return
        self.receive(NOBODY, (Deliver(shard.type, shard.number, shard.epoch, slot.id, 0, command, args),))
        slot.touched = touched

    async def _call_when_valid(self, slot: Slot, command: str, args: bytes) -> None:
        entity = slot.entity
        await self.lease()
        if slot.entity is entity:
            self._call(slot, command, args)

    def _loaded(self, slot: Slot, error: Exception | None) -> None:
        shard = slot.shard
        if shard.slots.get(slot.id) is not slot:
            return
        if error is None:
            shard.loaded(slot)
            self.finished(slot)
            return
        self.counters["recovery_failed"] += 1
        self.meter.trouble(slot.id, "", f"recovery_failed: {type(error).__qualname__}")
        logger.error(
            "an entity of %s cannot be recovered: %s", self.type.name, error,
            extra={"action": "recovery_failed", "entity_type": self.type.name},
        )  # fmt: skip
        self.listener.entity_failed(self.type, slot.id, "", error)
        failure = self.type.unrecoverable(slot.id, error)
        works = shard.drop(slot)
        self.backlog.all_taken(works)
        for source, message in works:
            self.execution.fail(source, message, failure)
        if shard.stopping and shard.stopped:
            self._shard_stopped(shard)

    def _comes_early(self, source: Incarnation, message: Deliver) -> bool:
        """Keep what is for an epoch that may become ours. Handing it back and taking the next one would turn their order
        around; so what is handed back once, because its epoch is over here, is handed back for good."""
        key = message.shard, message.epoch
        waiting = self._early.get(key)
        if waiting is not None:
            waiting.append((source, message))
            return True
        shard = self.shards.get(message.shard)
        known = shard is not None and shard.epoch >= message.epoch
        if known or self._stopped_at.get(message.shard, -1) >= message.epoch:
            return False
        self._early[key] = [(source, message)]
        self.spawn(self._find_out(*key))
        return True

    async def _find_out(self, number: ShardId, epoch: Epoch) -> None:
        """Look at the row: the shard is at home here at that epoch, or will never be."""
        while True:
            try:
                rows = await self._store.homes(self.type.name, [number])
            except StoreUnavailable:
                await asyncio.sleep(0.1)
                continue
            here = any(row.home == self.me and row.epoch == epoch and row.step == "home" for row in rows)
            if not self._may_handle():
                await self.lease()
            elif here and self.gate is not None and not self.admits(number, epoch):
                await self.gate.changed(number)
            else:
                break
        if not here or not self.start_shard(number, epoch):
            shard = self.shards.get(number)
            if shard is None or shard.epoch != epoch:
                self._stopped_at[number] = max(epoch, self._stopped_at.get(number, -1))
        for source, message in self._early.pop((number, epoch)):
            self.receive(source, (message,))

    def _refuse_full(self, source: Incarnation, message: Deliver) -> None:
        self.counters["mailbox_full"] += 1
        self.meter.trouble(message.entity, message.command, "mailbox_full")
        text = f"{self._mailbox_limit} commands wait for {message.type!r} {message.entity!r}: slow down"
        self.execution.fail(source, message, BufferFull(text))

    def _hand_back(self, shard: Shard, works: list[Work]) -> None:
        self.backlog.all_taken(works)
        back: dict[tuple[Incarnation, Epoch], list[int]] = {}
        for source, message in works:
            if source != NOBODY:
                back.setdefault((source, message.epoch), []).append(message.request)
        for (source, epoch), requests in back.items():
            self.send(source, HandBack(shard.type, shard.number, epoch, requests))

    def _shard_stopped(self, shard: Shard) -> None:
        if self.shards.get(shard.number) is shard:
            del self.shards[shard.number]
            for slot in shard.slots.values():
                _close_context(slot.entity)
            self._left(shard.number, shard.epoch)
            self.listener.shard_stopped(self.type, shard.number, shard.epoch)
        self._stopped_at[shard.number] = max(shard.epoch, self._stopped_at.get(shard.number, -1))
        self._on_stopped(self.type.name, shard.number, shard.epoch)

    def _left(self, number: ShardId, epoch: Epoch) -> None:
        if self.gate is not None:
            self.gate.left(number, epoch)

    def _flush_done(self) -> None:
        done, self._done = self._done, {}
        for target, requests in done.items():
            self.send(target, Done(requests))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a bug: %s", error, exc_info=error, extra={"action": "internal_error"})


def _close_context(entity: object) -> None:
    context = getattr(entity, "context", None)
    if isinstance(context, HostContext):
        context.close()
