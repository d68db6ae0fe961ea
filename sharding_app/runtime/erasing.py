"""Erasing an entity where it lives: its object goes first, and what comes meanwhile starts one without a past."""

from typing import TYPE_CHECKING, Literal

from sharding_app.core.ids import ShardId, is_entity_id
from sharding_app.core.shard import Slot, SlotState
from sharding_app.ports.journal import Erasure, ShardsFenced
from sharding_app.runtime.entity_context import close_context

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host


async def erase(host: "Host", number: ShardId, entity: str) -> Literal["away", "busy"] | Erasure:
    """Erase an entity at its home.

    Raises JournalUnavailable: then it may have been erased or not, and what is stored is read again.
    """
    shard = host.shards.get(number)
    if shard is None or shard.stopping or not is_entity_id(entity):
        return "away"
    slot = shard.slots.get(entity)
    if slot is not None and (slot.state is not SlotState.IDLE or slot.passivating or slot.pending):
        return "busy"
    if slot is None:
        slot = shard.start(entity, host.now())
    else:
        close_context(slot.entity)
        shard.reload(slot)
    if slot is None:
        return "away"
    # It is loading now, and nobody loads it: what comes for it waits in its mailbox.
    slot.seq = slot.snapshot_seq = 0
    slot.stored = None
    host.execution.snapshots.forget(entity)
    host.recovery.failed_starts.forget(entity)
    try:
        return await host.journal.erase(host.execution.type_id, number, shard.epoch, entity)
    except ShardsFenced:
        host.fenced_shard(number)
        return "away"
    finally:
        _go_on(host, slot)


def _go_on(host: "Host", slot: Slot) -> None:
    """Begin anew for what has come meanwhile; else there is nothing left of it."""
    shard = slot.shard
    if shard.slots.get(slot.id) is not slot:
        return
    if not slot.mailbox:
        shard.drop(slot)
        if shard.stopped:
            host.shard_life.ended(shard)
    elif host.remembering is None:
        host.loader.want(slot)
    else:
        host.remembering.started(slot)
