"""Objects of one type's entities come into memory: what becomes of a slot that was loaded, or has to be rebuilt.

The reading and folding is the loader's (`runtime.loader`). An entity that cannot be recovered is dropped, and its callers
are told why; when it is tried again is up to `runtime.failed_starts`.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sharding_app.core.shard import Shard, Slot
from sharding_app.core.supervision import Supervision
from sharding_app.errors import ShardingError
from sharding_app.quoting import told
from sharding_app.runtime.entity_context import HostContext, close_context
from sharding_app.runtime.failed_starts import FailedStarts

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host

logger = logging.getLogger("sharding.region")


class Recovery:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()
        settings = host.type.settings
        self.failed_starts = FailedStarts(
            settings.supervision or Supervision(), host.now, host.entity_life.start_in,
            runs_again=host.entity_life.runs_again,
        )  # fmt: skip
        self.delayed: dict[Slot, asyncio.TimerHandle] = {}
        "Entities whose own work has failed, until their back-off is over."

    def new(self, slot: Slot) -> object:
        """An object without a past."""
        host = self._host
        return host.type.new(slot.id, HostContext(host.type, slot, host.call))

    def loaded(self, slot: Slot, error: BaseException | None) -> None:
        """The loader is through with it."""
        host, shard = self._host, slot.shard
        if shard.slots.get(slot.id) is not slot:
            return
        if error is None:
            if self.failed_starts:
                self.failed_starts.forget(slot.id)
            host.execution.snapshots.put_away(slot)
            host.execution.retries.known.loaded(slot)
            shard.loaded(slot)
            host.finished(slot)
            return
        host.counters["recovery_failed"] += 1
        host.meter.trouble(slot.id, "", f"recovery_failed: {type(error).__qualname__}")
        logger.error(
            "%s %r cannot be recovered: %s", host.type.name, slot.id, told(error),
            extra={"action": "recovery_failed", "entity_type": host.type.name, "entity": slot.id},
        )  # fmt: skip
        host.listener.entity_failed(host.type, slot.id, "", error)
        failure = host.type.unrecoverable(slot.id, error)
        if not shard.stopping:
            self.failed_starts.failed(slot, error, failure)
        self._refuse(slot, failure)

    def refused(self, slot: Slot) -> bool:
        """Refuse an entity that failed lately; False: it is to be loaded."""
        failure = self.failed_starts.refusal(slot)
        if failure is None:
            return False
        self._host.counters["recovery_refused"] += 1
        self._refuse(slot, failure)
        return True

    def _refuse(self, slot: Slot, failure: ShardingError) -> None:
        host, shard = self._host, slot.shard
        works = shard.drop(slot)
        host.backlog.all_taken(works)
        for source, message in works:
            host.execution.answers.refuse(source, message, failure)
        if shard.stopped:
            host.shard_life.ended(shard)

    def reload(self, slot: Slot, delay: float = 0.0) -> None:
        """Throw its object away, and rebuild it: after that time, or when the next message comes for it.

        One that was handling its stop message is not rebuilt: it has stopped.
        """
        close_context(slot.entity)
        stops = slot.shard.had_last_word(slot)
        slot.shard.reload(slot)
        self._host.execution.retries.put_back(slot)
        if stops:
            slot.ended = True
            self._host.finished(slot)
        elif delay and not slot.mailbox and not slot.shard.stopping:
            self.delayed[slot] = self._loop.call_later(delay, self.load_now, slot)
        else:
            self._host.loader.want(slot)

    def load_now(self, slot: Slot) -> None:
        """The time for which its own failures keep it away is over, or somebody needs it before."""
        timer = self.delayed.pop(slot, None)
        if timer is not None:
            timer.cancel()
            if slot.shard.slots.get(slot.id) is slot:
                self._host.loader.want(slot)

    def stops(self, shard: Shard) -> None:
        """A shard stops, or has left: nothing of it is brought into memory any more by itself."""
        if self.failed_starts:
            self.failed_starts.left(shard)
        for slot in [slot for slot in self.delayed if slot.shard is shard]:
            self.delayed.pop(slot).cancel()
            shard.drop(slot)

    def restart_shard(self, shard: Shard) -> None:
        """Something that its entities share may be broken: all that are idle are rebuilt when they are needed."""
        self._host.counters["shards_restarted"] += 1
        for slot in shard.idle():
            close_context(slot.entity)
            shard.drop(slot)
