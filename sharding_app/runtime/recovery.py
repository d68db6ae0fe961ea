"""Objects of one type's entities come into memory: what becomes of a slot that was loaded, or has to be rebuilt.

The reading and folding is the loader's (`runtime.loader`). An entity that cannot be recovered is dropped, and whoever
waits for it is told why; its next envelope tries again.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from sharding_app.core.shard import Shard, Slot
from sharding_app.quoting import told
from sharding_app.runtime.entity_context import HostContext, close_context

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host

logger = logging.getLogger("sharding.region")


class Recovery:
    def __init__(self, host: "Host") -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

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
            shard.loaded(slot)
            host.finished(slot)
            return
        host.counters["recovery_failed"] += 1
        host.meter.trouble(slot.id, "", f"recovery_failed: {type(error).__qualname__}")
        logger.error(
            "an entity of %s cannot be recovered: %s", host.type.name, told(error),
            extra={"action": "recovery_failed", "entity_type": host.type.name},
        )  # fmt: skip
        host.listener.entity_failed(host.type, slot.id, "", error)
        failure = host.type.unrecoverable(slot.id, error)
        works = shard.drop(slot)
        host.backlog.all_taken(works)
        for source, message in works:
            host.execution.answers.fail(source, message, failure)
        if shard.stopped:
            host.shard_life.ended(shard)

    def reload(self, slot: Slot, delay: float = 0.0) -> None:
        """Throw its object away, and rebuild it after that time."""
        close_context(slot.entity)
        slot.shard.reload(slot)
        if delay:
            self._loop.call_later(delay, self._want_still, slot, slot.generation)
        else:
            self._host.loader.want(slot)

    def restart_shard(self, shard: Shard) -> None:
        """Something that its entities share may be broken: all that are idle are rebuilt when they are needed."""
        self._host.counters["shards_restarted"] += 1
        for slot in list(shard.idle_since(float("inf"))):
            close_context(slot.entity)
            shard.drop(slot)

    def _want_still(self, slot: Slot, generation: int) -> None:
        if slot.generation == generation and slot.shard.slots.get(slot.id) is slot:
            self._host.loader.want(slot)
