"""Entities of one type that stop, and start again without a message.

One stops when it has been idle for long, when it says so itself, when an operator wants it to, or when its shard stops:
after its stop message, if its type has one. A remembered entity or a singleton that has stopped without passivating
starts again after a back-off.
"""

import asyncio
from typing import TYPE_CHECKING, Literal

from sharding_app.core.ids import ShardId
from sharding_app.core.shard import Shard, Slot, SlotState
from sharding_app.runtime.config import NodeConfig
from sharding_app.runtime.entity_context import close_context, last_word

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host


class EntityLife:
    def __init__(self, host: "Host", config: NodeConfig) -> None:
        settings = host.type.settings
        own = settings.passivate_after_seconds
        self.stop_message = settings.stop_message
        self.runs_again = host.remembering is not None or host.type.singleton_id is not None
        self._host = host
        self._passivate_after = config.passivate_after_seconds if own is None else own
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

    def passivate_idle(self, older_than_seconds: float | None = None) -> int:
        """Forget entities that nothing was sent to for long (the type's setting, if not given); how many there were."""
        host = self._host
        limit = self._passivate_after if older_than_seconds is None else older_than_seconds
        if older_than_seconds is None and (limit <= 0 or self.runs_again):
            return 0
        before = host.now() - limit
        forgotten = 0
        for shard in host.shards.values():
            for slot in list(shard.idle_since(before)):
                forgotten += 1
                if self.stop_message is not None:
                    self.passivate(slot)
                    continue
                host.execution.snapshots.put_away(slot)
                close_context(slot.entity)
                shard.drop(slot)
        host.counters["passivated"] += forgotten
        return forgotten

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
