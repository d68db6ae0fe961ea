"""Shards of one type at home here: how they start, stop, and are given up.

Contract: a shard that was stopped here at an epoch does not start at it again. Who stops it is told when it has stopped,
and not before: nothing of it runs any more then, and what waited is handed back.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sharding_app.core.ids import Epoch, Incarnation, ShardId
from sharding_app.core.messages import HandBack
from sharding_app.core.shard import Shard, Slot, SlotState, Work
from sharding_app.runtime.config import NodeConfig
from sharding_app.runtime.entity_context import close_context
from sharding_app.runtime.owner import NOBODY

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host


class ShardLife:
    def __init__(
        self, host: "Host", config: NodeConfig, on_stopped: Callable[[str, ShardId, Epoch], None]
    ) -> None:
        self._host = host
        self._mailbox_limit = config.mailbox_size
        self._hand_off_timeout = config.coordinator.hand_off_timeout_seconds
        self._stop_timeout = config.stop_timeout_seconds
        self._on_stopped = on_stopped
        self._stopped_at: dict[ShardId, Epoch] = {}
        self._loop = asyncio.get_running_loop()

    # -- Start -----------------------------------------------------------------------------------------------------

    def was_stopped(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether that epoch of the shard is over here."""
        return self._stopped_at.get(number, -1) >= epoch

    def never_again(self, number: ShardId, epoch: Epoch) -> None:
        """Let that epoch of the shard be over here."""
        self._stopped_at[number] = max(epoch, self._stopped_at.get(number, -1))

    def admits(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether a shard whose row names us may start now; if it needs a lease first, that is asked for."""
        gate = self._host.gate
        if gate is None or self.was_stopped(number, epoch):
            return True
        return gate.admits(number, epoch)

    def start(self, number: ShardId, epoch: Epoch) -> bool:
        """Host a shard whose row names us at that epoch. False: it was stopped here at that epoch already."""
        host = self._host
        shard = host.shards.get(number)
        if shard is not None and shard.epoch == epoch:
            return not shard.stopping
        if self.was_stopped(number, epoch):
            return False
        if shard is not None:
            self.drop(number)
        shard = host.shards[number] = Shard(host.type.name, number, epoch, self._mailbox_limit)
        host.entity_life.shards_changed()
        host.listener.shard_started(host.type, number, epoch)
        self._begin(shard)
        return True

    # -- Stop ------------------------------------------------------------------------------------------------------

    def stop(self, number: ShardId, epoch: Epoch) -> None:
        """HandOff: hand back what waits, end what runs, then say so. Repeating it is harmless."""
        host = self._host
        shard = host.shards.get(number)
        if shard is None or shard.epoch != epoch:
            self.never_again(number, epoch)
            self.left(number, epoch)
            self._on_stopped(host.type.name, number, epoch)
            return
        if not shard.stopping:
            self._begins_to_stop(shard)
            for slot in list(shard.slots.values()) if host.entity_life.stop_message is not None else ():
                host.entity_life.passivate(slot)
            if not shard.stopped:
                self._loop.call_later(self._hand_off_timeout, self._force, shard)
        if shard.stopped:
            self.ended(shard)

    def give_up(self, number: ShardId, epoch: Epoch) -> None:
        """Its lease is lost: stop at once, without stop messages. What runs may end, but not for long."""
        shard = self._host.shards.get(number)
        if shard is None or shard.epoch != epoch:
            self.stop(number, epoch)
            return
        if shard.closed:
            return
        self._host.counters["leases_lost"] += 1
        shard.closed = True
        if not shard.stopping:
            self._begins_to_stop(shard)
        if shard.stopped:
            self.ended(shard)
        else:
            self._loop.call_later(self._stop_timeout, self._force, shard)

    def drop(self, number: ShardId) -> None:
        """Throw a shard away that lives elsewhere now: nothing of it is answered any more, what waits is handed back."""
        host = self._host
        shard = host.shards.pop(number, None)
        if shard is None:
            return
        self._begins_to_stop(shard)
        self.never_again(number, shard.epoch)
        for slot in list(shard.slots.values()):
            close_context(slot.entity)
            self._hand_back(shard, shard.drop(slot))
        self.left(number, shard.epoch)
        host.listener.shard_stopped(host.type, number, shard.epoch)

    def outdate_all(self) -> None:
        """Stop all shards at once. Nothing more of their objects is stored; a handler that runs may end, but not for long."""
        host = self._host
        host.execution.snapshots.forget_all()
        for shard in list(host.shards.values()):
            shard.closed = True
            if not shard.stopping:
                self._begins_to_stop(shard)
            for slot in list(shard.slots.values()):
                if not host.execution.outdate(slot, partial(self._outdated, slot)):
                    self._throw_away(slot)
            if shard.stopped:
                self.ended(shard)
            else:
                self._loop.call_later(self._stop_timeout, self._force, shard)

    def ended(self, shard: Shard) -> None:
        """Nothing of a stopping shard runs any more: say so."""
        host = self._host
        if host.shards.get(shard.number) is shard:
            del host.shards[shard.number]
            for slot in shard.slots.values():
                close_context(slot.entity)
            self.left(shard.number, shard.epoch)
            host.listener.shard_stopped(host.type, shard.number, shard.epoch)
        self.never_again(shard.number, shard.epoch)
        self._on_stopped(host.type.name, shard.number, shard.epoch)

    def left(self, number: ShardId, epoch: Epoch) -> None:
        """It is not at home here at that epoch, or no longer: nothing waits for its lease, and it is given back.

        An object of another epoch that is here has the lease until it has stopped.
        """
        host = self._host
        host.entity_life.shards_changed()
        if host.gate is not None and number not in host.shards:
            host.gate.left(number, epoch)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _begins_to_stop(self, shard: Shard) -> None:
        self._hand_back(shard, shard.stop())
        self._host.recovery.stops(shard)

    def _outdated(self, slot: Slot) -> None:
        """The handler of an outdated object has ended."""
        shard = slot.shard
        if shard.slots.get(slot.id) is slot:
            self._throw_away(slot)
            if shard.stopped:
                self.ended(shard)

    def _throw_away(self, slot: Slot) -> None:
        close_context(slot.entity)
        self._hand_back(slot.shard, slot.shard.drop(slot))

    def _begin(self, shard: Shard) -> None:
        """Start what runs in a shard without a message."""
        host = self._host
        if host.remembering is not None:
            host.remembering.recall(shard)
        if host.type.singleton_id is not None:
            host.entity_life.start_in(shard, host.type.singleton_id)

    def _force(self, shard: Shard) -> None:
        """What still runs when the time for a hand-off is over is given up: nothing (more) of it will be stored."""
        host = self._host
        if host.shards.get(shard.number) is not shard:
            return
        for slot in list(shard.slots.values()):
            if slot.state is not SlotState.IDLE:
                host.stopped_by_force(slot, "an entity of %s was still busy when its shard had to move")
                host.execution.give_up(slot)
            close_context(slot.entity)
            self._hand_back(shard, shard.drop(slot))
        self.ended(shard)

    def _hand_back(self, shard: Shard, works: list[Work]) -> None:
        host = self._host
        host.backlog.all_taken(works)
        back: dict[tuple[Incarnation, Epoch], list[int]] = {}
        for source, message in works:
            if source != NOBODY:
                back.setdefault((source, message.epoch), []).append(message.request)
        for (source, epoch), requests in back.items():
            host.send(source, HandBack(shard.type, shard.number, epoch, requests))
