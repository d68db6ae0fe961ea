"""How entities of one type come into memory, stop, and start again without a message.

`runtime.journal.loader` reads and folds. An entity that cannot be recovered is dropped, and its
callers get the reason. `runtime.hosting.failed_starts` decides when it is tried again.

An entity stops when it has been idle for long, when it asks for it, when an operator asks for it,
or with its shard. If its type has a stop message, it handles that first. A remembered entity or a
singleton that has stopped without passivating starts again after a back-off. So does a worker:
`runtime.hosting.workers` has what it does in between.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Literal, Protocol

from sharding_app.errors import ShardingError, Unavailable
from sharding_app.protocol.ids import ShardId
from sharding_app.protocol.passivation.strategy import Passivation, passivation
from sharding_app.protocol.shard import SlotState
from sharding_app.protocol.supervision import Supervision
from sharding_app.redaction import told
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.base.interfaces import Listener
from sharding_app.runtime.execution.context import HostContext, close_context, last_word
from sharding_app.runtime.hosting.failed_starts import FailedStarts
from sharding_app.runtime.hosting.parked import Backlog
from sharding_app.runtime.hosting.remembered import Remembering
from sharding_app.runtime.hosting.starting import Starting, StartingHost
from sharding_app.runtime.hosting.workers import WorkerRuns
from sharding_app.runtime.journal.commits import Resident, ResidentShard
from sharding_app.runtime.journal.loader import Loader
from sharding_app.runtime.telemetry.meter import Meter

logger = logging.getLogger("sharding.region")

SWEEP_SECONDS = 5.0
MAX_AT_A_TIME = 1000
BY_RECENCY = Passivation()
"""The default. It needs no strategy object: the shard's own order is enough."""


class EntityHost(StartingHost, Protocol):
    """The host of a type, as the life of its entities needs it."""

    shards: dict[ShardId, ResidentShard]

    @property
    def shards_of_type(self) -> int: ...

    counters: Counter[str]
    backlog: Backlog
    meter: Meter
    listener: Listener
    now: Callable[[], float]
    loader: Loader
    remembering: Remembering | None
    workers: WorkerRuns | None

    def finished(self, slot: Resident) -> None: ...

    def call(self, slot: Resident, command: str, args: bytes) -> None: ...

    def may_begin(self, shard: ResidentShard) -> bool: ...

    def date(self) -> datetime:
        """Return the date that handlers are told."""
        ...

    def end_if_stopped(self, shard: ResidentShard) -> None: ...

    def stopped_by_force(self, slot: Resident, text: str) -> None: ...

    def uses_messages(self, shard: ResidentShard) -> bool:
        """Whether entities of the shard's type have stored messages or timers."""


class EntityLife:
    def __init__(self, host: EntityHost, config: NodeConfig) -> None:
        settings = host.type.settings
        own = settings.passivate_after_seconds
        self.stop_message = settings.stop_message
        self.runs_again = (
            host.remembering is not None or host.type.singleton_id is not None or host.workers is not None
        )
        self._host = host
        self._passivate_after = config.passivate_after_seconds if own is None else own
        if self.runs_again:
            self._passivate_after = 0.0
        limit = settings.active_entity_limit
        self.limit = config.active_entity_limit if limit is None else limit
        """Of entities in memory, over all shards here; 0: none. Types that run without a message
        have none.
        """
        self._passivation = passivation(settings.passivation or config.passivation)
        self._sweep: deque[ResidentShard] = deque()
        "Shards that are still to be searched for idle entities."
        self._swept_at = 0.0
        self._leaving: OrderedDict[Resident, None] = OrderedDict()
        """Busy entities that have to leave memory for others, until they are gone. Each is listed
        once, however often it is used.
        """
        self._spreads = False
        self._stop_timeout = config.stop_timeout_seconds
        self._restart_backoff = config.restart_backoff_seconds
        self._restarts: dict[tuple[ShardId, str], asyncio.TimerHandle] = {}
        "Entities that have stopped without passivating, until their back-off is over."
        self._loop = asyncio.get_running_loop()
        self.failed_starts = FailedStarts(
            settings.supervision or Supervision(), host.now, self.start_in, runs_again=self.runs_again
        )
        self._starting = Starting(host)
        self.delayed: dict[Resident, asyncio.TimerHandle] = {}
        "Entities whose own command has failed, until their back-off is over."

    @property
    def restarting(self) -> Collection[tuple[ShardId, str]]:
        """The entities that have stopped without passivating, and wait for their next start."""
        return self._restarts.keys()

    # -- Come into memory --------------------------------------------------------------------------

    def new(self, slot: Resident) -> object:
        """Return an object without a past."""
        host = self._host
        workers = 0 if host.workers is None else host.workers.total(slot.shard)
        context = HostContext(host.type, slot, host.call, host.finished, host.date, workers)
        return host.type.new(slot.id, context)

    def loaded(self, slot: Resident, error: BaseException | None) -> None:
        """Take the loader's result for a slot."""
        if slot.is_gone:
            return
        if error is None and self._host.type.on_start:
            self._host.spawn(self._start(slot))
        else:
            self._begin(slot, error)

    async def _start(self, slot: Resident) -> None:
        """Run the `@on_start` methods before the first message, as a handler would run: not without
        the node's lease, nor that of its shard.
        """
        host = self._host
        await host.lease()
        if not self._may_start(slot):
            return
        error = await self._starting.run_methods(slot)
        if slot.is_gone:
            return
        if error is None:
            self._begin(slot, None)
        else:
            close_context(slot.entity)
            self._begin(slot, error, host.type.failed(slot.id, "@on_start", error))

    def _may_start(self, slot: Resident) -> bool:
        """Whether an entity is still to start here. Without its shard's lease it is refused."""
        host = self._host
        if not slot.is_gone and not host.may_begin(slot.shard):
            text = f"{host.type.name} {slot.id!r} has not started: its shard has lost its lease"
            self.refuse(slot, Unavailable(text))
        return not slot.is_gone

    def _begin(
        self, slot: Resident, error: BaseException | None, failure: ShardingError | None = None
    ) -> None:
        """Let the first message in, or refuse those that wait. `failure`: the error for callers."""
        host, shard = self._host, slot.shard
        if error is None:
            if self.failed_starts and host.workers is None:
                self.failed_starts.forget(slot.id)
            host.execution.snapshots.put_away(slot)
            host.execution.earlier_attempts.known.loaded(slot)
            shard.loaded(slot)
            if host.type.kind == "memory":
                host.execution.note_change(slot)
            host.finished(slot)
            if host.workers is not None and not slot.is_gone:
                host.workers.loaded(slot)
            if self._may_have_a_schedule(slot) and not slot.is_gone:
                host.spawn(self._starting.keep_timers(slot))
            return
        host.counters["recovery_failed"] += 1
        host.meter.trouble(slot.id, "", f"recovery_failed: {type(error).__qualname__}")
        logger.error(
            "%s %r cannot be %s: %s", host.type.name, slot.id, "recovered" if failure is None else "started", told(error),
            extra={"action": "recovery_failed", "entity_type": host.type.name, "entity": slot.id},
        )  # fmt: skip
        host.listener.entity_failed(host.type, slot.id, "", error)
        failure = failure or host.type.unrecoverable(slot.id, error)
        if not shard.stopping:
            self.failed_starts.failed(slot, error, failure)
        self.refuse(slot, failure)

    def keep_timers_again(self) -> None:
        """Store the timers of a singleton that stays, if the server has lost some."""
        for shard in self._host.shards.values():
            for slot in shard.slots.values():
                if slot.state is not SlotState.LOADING and self._may_have_a_schedule(slot):
                    self._host.spawn(self._starting.keep_timers_again(slot))

    def _may_have_a_schedule(self, slot: Resident) -> bool:
        """Whether a singleton has `@every`, or may have had some in an earlier release."""
        host = self._host
        if host.type.singleton_id is None:
            return False
        return bool(host.type.recurring) or host.uses_messages(slot.shard)

    def refused(self, slot: Resident) -> bool:
        """Refuse the messages of an entity that failed lately. False: it is to be loaded."""
        failure = self.failed_starts.refusal(slot)
        if failure is None:
            return False
        self._host.counters["recovery_refused"] += 1
        self.refuse(slot, failure)
        return True

    def refuse(self, slot: Resident, failure: ShardingError) -> None:
        """Drop an entity, and refuse the messages that wait for it."""
        host, shard = self._host, slot.shard
        close_context(slot.entity)
        works = shard.drop(slot)
        host.backlog.all_taken(works)
        for source, message in works:
            host.execution.replies.refuse(source, message, failure)
        host.end_if_stopped(shard)

    def reload(self, slot: Resident, delay: float = 0.0) -> None:
        """Drop an entity's object, and rebuild it after `delay`, or before for the next message.

        An entity that was handling its stop message is not rebuilt: it has stopped. A worker's
        `run` ends first.
        """
        if self._host.workers is not None:
            self._host.workers.end(slot)
            if not slot.is_gone:  # without a `run` it is dropped at once
                slot.ended = True
                self._host.finished(slot)
            return
        close_context(slot.entity)
        stops = slot.shard.had_last_word(slot)
        slot.shard.reload(slot)
        self._host.execution.put_back(slot)
        if stops:
            slot.ended = True
            self._host.finished(slot)
        elif delay and not slot.mailbox and not slot.shard.stopping:
            self.delayed[slot] = self._loop.call_later(delay, self.load_now, slot)
        else:
            self._host.loader.want(slot)

    def load_now(self, slot: Resident) -> None:
        """Load an entity whose back-off is over, or for which a message has come."""
        timer = self.delayed.pop(slot, None)
        if timer is not None:
            timer.cancel()
            if not slot.is_gone:
                self._host.loader.want(slot)

    def unload(self, shard: ResidentShard) -> None:
        """Load nothing of this shard by itself any more: it stops, or has left."""
        if self.failed_starts:
            self.failed_starts.left(shard)
        for slot in [slot for slot in self.delayed if slot.shard is shard]:
            self.delayed.pop(slot).cancel()
            shard.drop(slot)

    def restart_shard(self, shard: ResidentShard) -> None:
        """Drop all idle entities of a shard: something that they share may be broken.

        Each is loaded again when it is needed; one that runs without a message, at once.
        """
        self._host.counters["shards_restarted"] += 1
        for slot in shard.idle():
            if self.runs_again:
                self.reload(slot)
            else:
                close_context(slot.entity)
                shard.drop(slot)

    # -- Stop --------------------------------------------------------------------------------------

    def passivate(self, slot: Resident) -> None:
        """Let an entity stop, after its stop message if its type has one."""
        message = self.stop_message
        if slot.shard.passivate(slot, None if message is None else last_word(slot, message)):
            self._host.finished(slot)

    def tick(self, now: float) -> None:
        """Stop idle entities, and those above the limit, some at a time."""
        self._look_again(MAX_AT_A_TIME)
        if self._passivate_after <= 0:
            return
        if not self._sweep:
            if now - self._swept_at < min(SWEEP_SECONDS, self._passivate_after / 2):
                return
            self._swept_at = now
            self._sweep.extend(self._host.shards.values())
        self._go_on_sweeping(now - self._passivate_after)

    def _go_on_sweeping(self, before: float) -> None:
        """Go on within one limit: a shard costs one look, an idle entity its end."""
        room = MAX_AT_A_TIME
        while self._sweep and room > 0:
            found = self._sweep[0].due(before, room)
            for slot in found:
                self._let_go(slot)
            self._host.counters["passivated"] += len(found)
            if len(found) < room:
                self._sweep.popleft()
            room -= 1 + len(found)

    def forget_idle(self) -> int:
        """Stop every entity that does nothing, however recent; return their number."""
        found = [slot for shard in self._host.shards.values() for slot in shard.idle()]
        for slot in found:
            self._let_go(slot)
        self._host.counters["passivated"] += len(found)
        return len(found)

    # -- The limit ---------------------------------------------------------------------------------

    def set_limit(self, limit: int) -> None:
        """Set the limit of entities in memory; 0: none."""
        self.limit = limit
        self._spread()

    def shards_changed(self) -> None:
        """Share the limit out evenly among the shards here, once for those that come together."""
        if not self._spreads and self.limit:
            self._spreads = True
            self._loop.call_soon(self._spread)

    def evict(self, shard: ResidentShard) -> None:
        """Stop the entities that were evicted; busy ones as soon as they do nothing."""
        evicted, shard.evicted = shard.evicted, []
        for slot in evicted:
            if not self._makes_room(slot):
                self._leaving[slot] = None
        # More may be evicted between two ticks than one tick looks at.
        self._look_again(2 * len(evicted))

    def _look_again(self, most: int) -> None:
        """Stop the first of the entities that have to leave, if they do nothing now."""
        for _ in range(min(most, len(self._leaving))):
            slot, _ = self._leaving.popitem(last=False)
            if not self._makes_room(slot):
                self._leaving[slot] = None

    def _spread(self) -> None:
        self._spreads = False
        shards = self._host.shards
        if self.runs_again or not shards:
            return
        each = max(1, self.limit // self._host.shards_of_type) if self.limit else 0
        by_recency = self._passivation == BY_RECENCY
        for shard in shards.values():
            if by_recency or not each:
                shard.limit(each)
            else:
                shard.limit(each, None if shard.strategy is not None else self._passivation.strategy(each))
            if shard.evicted:
                self.evict(shard)

    def _makes_room(self, slot: Resident) -> bool:
        """Stop an entity to make room. False: it is still here, look again. Its own timer may bring
        back one that stops.
        """
        if slot.place is not None or slot.is_gone or slot.shard.stopping:
            return True  # it is used again, or goes anyway
        if not slot.is_idle:
            return False
        self._host.counters["evicted"] += 1
        self._let_go(slot)
        return slot.is_gone

    def _let_go(self, slot: Resident) -> None:
        if self.stop_message is not None:
            self.passivate(slot)
            return
        self._host.execution.snapshots.put_away(slot)
        close_context(slot.entity)
        slot.shard.drop(slot)

    def operate(
        self, number: ShardId, entity: str, *, restart: bool
    ) -> Literal["away", "absent", "busy", "done"]:
        """Stop an entity for an operator, or recover one that does nothing from the journal."""
        shard = self._host.shards.get(number)
        if shard is None or shard.stopping:
            return "away"
        slot = shard.slots.get(entity)
        if slot is None:
            return "absent"
        if not restart:
            self.passivate(slot)
        elif slot.state is not SlotState.IDLE or slot.passivating or slot.pending:
            return "busy"
        else:
            self.reload(slot)
        return "done"

    def force_later(self, slot: Resident) -> None:
        """Stop an entity by force if its stop message has not stopped it in time."""
        self._loop.call_later(self._stop_timeout, self._force, slot)

    def _force(self, slot: Resident) -> None:
        """Stop an entity that has ignored its stop message."""
        host = self._host
        if slot.shard.end(slot):
            host.stopped_by_force(slot, "an entity of %s ignored its stop message")
            host.finished(slot)

    # -- Start again -------------------------------------------------------------------------------

    def running(self, shard: ResidentShard) -> list[str]:
        """Return the entities of a shard that are here, or will start again by themselves."""
        again = [entity for number, entity in self._restarts if number == shard.number]
        return list(dict.fromkeys([*shard.slots, *again, *self.failed_starts.of(shard)]))

    def stopped_by_itself(self, slot: Resident) -> None:
        """Note that an entity has stopped, and start it again later unless it passivated."""
        remembering = self._host.remembering
        # One that stopped before, and came back for a message, may still have a restart scheduled.
        self.forget_restart(slot)
        if slot.passivating and remembering is not None:
            remembering.stopped(slot.shard, slot.id)
        else:
            key = slot.shard.number, slot.id
            self._restarts[key] = self._loop.call_later(self._restart_backoff, self._start_again, slot)

    def forget_restart(self, slot: Resident) -> None:
        """Cancel the restart of an entity that has stopped without passivating, if one is due."""
        timer = self._restarts.pop((slot.shard.number, slot.id), None)
        if timer is not None:
            timer.cancel()

    def start_in(self, shard: ResidentShard, entity: str) -> None:
        """Start an entity without a message for it."""
        host = self._host
        if host.shards.get(shard.number) is shard:
            slot = shard.start(entity, host.now())
            if slot is not None:
                host.loader.want(slot)

    def _start_again(self, former: Resident) -> None:
        self._restarts.pop((former.shard.number, former.id), None)
        self._host.counters["restarted"] += 1
        self.start_in(former.shard, former.id)
