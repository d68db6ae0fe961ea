"""Entities of one type that stop, and start again without a message.

One stops when it has been idle for long, when it says so itself, when an operator wants it to, or when its shard stops:
after its stop message, if its type has one. A remembered entity or a singleton that has stopped without passivating
starts again after a back-off.
"""

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Literal

from sharding_app.core.ids import ShardId
from sharding_app.core.passivation import Passivation, passivation
from sharding_app.core.shard import Shard, Slot, SlotState
from sharding_app.runtime.config import NodeConfig
from sharding_app.runtime.entity_context import close_context, last_word

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host

SWEEP_SECONDS = 5.0
MAX_AT_A_TIME = 1000
BY_RECENCY = Passivation()
"""The shard's own order does this one."""


class EntityLife:
    def __init__(self, host: "Host", config: NodeConfig) -> None:
        settings = host.type.settings
        own = settings.passivate_after_seconds
        self.stop_message = settings.stop_message
        self.runs_again = host.remembering is not None or host.type.singleton_id is not None
        self._host = host
        self._passivate_after = config.passivate_after_seconds if own is None else own
        if self.runs_again:
            self._passivate_after = 0.0
        limit = settings.active_entity_limit
        self.limit = config.active_entity_limit if limit is None else limit
        "Of entities in memory, over all shards here; 0: none. Those that run without a message are never too many."
        self._passivation = passivation(settings.passivation or config.passivation)
        self._sweep: deque[Shard] = deque()
        "The shards in which idle entities are still to be looked for."
        self._swept_at = 0.0
        self._leaving: dict[Slot, None] = {}
        "Entities that have to leave the memory for others, and were busy. Each once, however often it was used meanwhile."
        self._spreads = False
        self._stop_timeout = config.stop_timeout_seconds
        self._restart_backoff = config.restart_backoff_seconds
        self._restarts: dict[tuple[ShardId, str], asyncio.TimerHandle] = {}
        "Entities that have stopped without passivating, until their back-off is over."
        self._loop = asyncio.get_running_loop()

    # -- Stop ------------------------------------------------------------------------------------------------------

    def passivate(self, slot: Slot) -> None:
        """Let an entity stop, after its stop message if its type has one."""
        message = self.stop_message
        if slot.shard.passivate(slot, None if message is None else last_word(slot, message)):
            self._host.finished(slot)

    def tick(self, now: float) -> None:
        """Let go what is due, some at a time: entities without messages for long, and those that were too many."""
        for slot in list(islice(self._leaving, MAX_AT_A_TIME)):
            del self._leaving[slot]
            if not self._makes_room(slot):
                self._leaving[slot] = None
        if self._passivate_after <= 0:
            return
        if not self._sweep:
            if now - self._swept_at < min(SWEEP_SECONDS, self._passivate_after / 2):
                return
            self._swept_at = now
            self._sweep.extend(self._host.shards.values())
        self._go_on_sweeping(now - self._passivate_after)

    def _go_on_sweeping(self, before: float) -> None:
        """A shard costs one look, and each entity that is due its end; so many of both at a time."""
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
        """Let every entity go that does nothing, however long; how many there were."""
        found = [slot for shard in self._host.shards.values() for slot in shard.idle()]
        for slot in found:
            self._let_go(slot)
        self._host.counters["passivated"] += len(found)
        return len(found)

    # -- Too many --------------------------------------------------------------------------------------------------

    def set_limit(self, limit: int) -> None:
        """From now on so many entities of the type may be in memory here; 0: any number."""
        self.limit = limit
        self._spread()

    def shards_changed(self) -> None:
        """The limit is shared out evenly among the shards that are here; those that come together count together."""
        if not self._spreads and self.limit:
            self._spreads = True
            self._loop.call_soon(self._spread)

    def evict(self, shard: Shard) -> None:
        """What has to go for others goes, or as soon as it does nothing."""
        evicted, shard.evicted = shard.evicted, []
        for slot in evicted:
            if not self._makes_room(slot):
                self._leaving[slot] = None

    def _spread(self) -> None:
        self._spreads = False
        shards = self._host.shards
        if self.runs_again or not shards:
            return
        each = max(1, self.limit // len(shards)) if self.limit else 0
        by_recency = self._passivation == BY_RECENCY
        for shard in shards.values():
            if by_recency or not each:
                shard.limit(each)
            else:
                shard.limit(each, None if shard.strategy is not None else self._passivation.strategy(each))
            if shard.evicted:
                self.evict(shard)

    def _makes_room(self, slot: Slot) -> bool:
        """False: it is to be looked at again, since it does something still."""
        shard = slot.shard
        if (
            slot.place is not None
            or shard.slots.get(slot.id) is not slot
            or slot.passivating
            or shard.stopping
        ):
            return True  # it is used again, or goes anyway
        if not slot.is_idle:
            return False
        self._host.counters["evicted"] += 1
        self._let_go(slot)
        return True

    def _let_go(self, slot: Slot) -> None:
        if self.stop_message is not None:
            self.passivate(slot)
            return
        self._host.execution.snapshots.put_away(slot)
        close_context(slot.entity)
        slot.shard.drop(slot)

    def steer(
        self, number: ShardId, entity: str, *, restart: bool
    ) -> Literal["away", "absent", "busy", "done"]:
        """An operator wants an entity to stop; or, while it does nothing, to be recovered anew from the journal."""
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
            self._host.reload(slot)
        return "done"

    def force_later(self, slot: Slot) -> None:
        """It has had its stop message: let it stop so soon at the latest, whatever it makes of that."""
        self._loop.call_later(self._stop_timeout, self._force, slot)

    def _force(self, slot: Slot) -> None:
        """An entity that has ignored its stop message is stopped all the same."""
        host = self._host
        if slot.shard.end(slot):
            host.stopped_by_force(slot, "an entity of %s ignored its stop message")
            host.finished(slot)

    # -- Start again -----------------------------------------------------------------------------------------------

    def stopped_by_itself(self, slot: Slot) -> None:
        """A remembered entity has stopped: for good if it passivated, else until its back-off is over."""
        remembering = self._host.remembering
        # One that stopped before, and came back for a message, may still have a restart to come.
        former = self._restarts.pop((slot.shard.number, slot.id), None)
        if former is not None:
            former.cancel()
        if slot.passivating and remembering is not None:
            remembering.stopped(slot.shard, slot.id)
        else:
            key = slot.shard.number, slot.id
            self._restarts[key] = self._loop.call_later(self._restart_backoff, self._start_again, slot)

    def start_in(self, shard: Shard, entity: str) -> None:
        """Start an entity without a message for it."""
        host = self._host
        if host.shards.get(shard.number) is shard:
            slot = shard.start(entity, host.now())
            if slot is not None:
                host.loader.want(slot)

    def _start_again(self, former: Slot) -> None:
        self._restarts.pop((former.shard.number, former.id), None)
        self._host.counters["restarted"] += 1
        self.start_in(former.shard, former.id)
