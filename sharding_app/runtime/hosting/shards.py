"""Shards of one type at home here: how they start, stop, and are given up.

Contract: a shard that was stopped here at an epoch does not start at it again. `on_stopped` is
called when the shard has stopped, and not before: then nothing of it runs any more, and messages
that waited are handed back.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Protocol

from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.messages import AnyMessage, HandBack
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ShardRow
from sharding_app.protocol.shard import Shard, SlotState, Work
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.base.interfaces import NO_CALLER, Listener
from sharding_app.runtime.execution.context import close_context
from sharding_app.runtime.execution.execution import Execution
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.erasure import Erasing
from sharding_app.runtime.hosting.parked import Backlog, EarlyEnvelopes, Room
from sharding_app.runtime.hosting.remembered import Remembering
from sharding_app.runtime.hosting.shard_leases import ShardGate
from sharding_app.runtime.hosting.workers import WorkerRuns
from sharding_app.runtime.journal.commits import Resident, ResidentShard


class ShardHost(Protocol):
    """The host of a type, as the life of its shards needs it."""

    type: EntityType
    journal_name: str
    me: Incarnation
    shards: dict[ShardId, ResidentShard]
    stopped_at: dict[ShardId, Epoch]
    """Epochs of shards that are over here, of all journals: a shard may be stopped before its row
    has said in which it lies."""
    counters: Counter[str]
    backlog: Backlog
    listener: Listener
    execution: Execution
    entity_life: EntityLife
    erasing: Erasing
    remembering: Remembering | None
    workers: WorkerRuns | None
    gate: ShardGate | None
    leaves: bool
    "The node leaves the cluster: no shard starts here any more."
    resumes: int
    may_handle: Callable[[], bool]
    send: Callable[[Incarnation, AnyMessage], None]

    @property
    def early(self) -> EarlyEnvelopes: ...

    @property
    def part(self) -> Room: ...

    async def lease(self) -> None: ...

    async def row_of(self, number: ShardId) -> ShardRow | None: ...

    async def take(self, number: ShardId, epoch: Epoch, numbers: Numbering | None = None) -> bool | None: ...

    def shards_changed(self) -> None:
        """Share the type's limit of entities out anew."""

    def life_in(self, journal: str) -> "ShardLife | None":
        """Return the life of the type's shards that lie in that journal. None: this node does not
        use it.
        """

    def row_gone(self, number: ShardId, epoch: Epoch) -> None: ...

    def begin_deliveries(self, shard: ResidentShard) -> None:
        """Deliver the messages and timers that a shard's entities have stored on former homes."""

    def forget_deliveries(self, shard: ResidentShard) -> None: ...

    def forget_followers(self, shard: ResidentShard) -> None:
        """Hand back the questions of followers that wait for commits of a shard."""

    def stopped_by_force(self, slot: Resident, text: str) -> None: ...


class ShardLife:
    def __init__(
        self, host: ShardHost, config: NodeConfig, on_stopped: Callable[[str, ShardId, Epoch], None]
    ) -> None:
        self._host = host
        self._mailbox_limit = config.mailbox_size
        self._hand_off_timeout = config.coordinator.hand_off_timeout_seconds
        self._stop_timeout = config.stop_timeout_seconds
        self._on_stopped = on_stopped
        self._stopped_at = host.stopped_at
        self._loop = asyncio.get_running_loop()

    # -- Start -------------------------------------------------------------------------------------

    def was_stopped(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether that epoch of the shard is over here."""
        return self._stopped_at.get(number, -1) >= epoch

    def may_come(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether that epoch of the shard is not here, and may still come."""
        shard = self._host.shards.get(number)
        known = shard is not None and shard.epoch >= epoch
        return not (known or self.was_stopped(number, epoch))

    async def decided(self, number: ShardId, epoch: Epoch) -> None:
        """Read the row until the shard is at home here at that epoch, or never will be."""
        host, uses_messages = self._host, False
        while True:
            resumes = host.resumes
            row = await host.row_of(number)
            here = row is not None and row.home == host.me and row.epoch == epoch and row.step == "home"
            if here and row is not None:
                if row.journal != host.journal_name:
                    await self._decided_in(row.journal, number, epoch)
                    return
                taken = await host.take(number, epoch, row.numbering)
                if taken is None:
                    continue
                uses_messages = taken or row.uses_messages
            if resumes != host.resumes:
                continue  # the lease was lost since, so the row is outdated
            if not host.may_handle():
                await host.lease()
            elif here and host.gate is not None and not self.admits(number, epoch):
                await host.gate.changed(number)
            else:
                break
        if row is None:
            host.row_gone(number, epoch)
        if row is None or not here or not self.start(number, epoch, uses_messages=uses_messages):
            shard = host.shards.get(number)
            if shard is None or shard.epoch != epoch:
                self.never_again(number, epoch)
                self.left(number, epoch)

    @property
    def room(self) -> Room:
        """The waiting room of the journal in which these shards lie."""
        return self._host.part

    async def _decided_in(self, journal: str, number: ShardId, epoch: Epoch) -> None:
        life = self._host.life_in(journal)
        if life is not None:
            self._host.early.wait_for(number, epoch, life.room)
            await life.decided(number, epoch)
        else:  # the coordinator's question is not answered, so operators hear of it
            self.never_again(number, epoch)

    def never_again(self, number: ShardId, epoch: Epoch) -> None:
        """End that epoch of the shard here."""
        self._stopped_at[number] = max(epoch, self._stopped_at.get(number, -1))

    def admits(self, number: ShardId, epoch: Epoch) -> bool:
        """Whether a shard whose row names us may start now.

        If it needs a lease first, ask for it.
        """
        gate = self._host.gate
        if gate is None or self.was_stopped(number, epoch):
            return True
        return gate.admits(number, epoch)

    def start(self, number: ShardId, epoch: Epoch, *, uses_messages: bool = False) -> bool:
        """Host a shard whose row names us at that epoch. There may be messages and timers of its
        entities if its type uses messages.

        False: it was stopped here at that epoch, or the node leaves.
        """
        host = self._host
        shard = host.shards.get(number)
        if shard is not None and shard.epoch == epoch:
            return not shard.stopping
        if self.was_stopped(number, epoch) or host.leaves:
            return False
        if shard is not None:
            self.drop(number)
        shard = host.shards[number] = Shard(host.type.name, number, epoch, Resident, self._mailbox_limit)
        host.shards_changed()
        host.listener.shard_started(host.type, number, epoch)
        self._begin(shard)
        if uses_messages:
            host.begin_deliveries(shard)
        return True

    # -- Stop --------------------------------------------------------------------------------------

    def stop(self, number: ShardId, epoch: Epoch) -> None:
        """HandOff: hand back messages that wait, end commands that run, then report.

        May be repeated.
        """
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
        """Stop a shard whose lease is lost: at once, without stop messages.

        Running commands get a short time to end.
        """
        shard = self._host.shards.get(number)
        if shard is None or shard.epoch != epoch:
            self.stop(number, epoch)
            return
        if shard.closed:
            return
        self._host.counters["leases_lost"] += 1
        self._close(shard)

    def close_all(self) -> None:
        """Stop all shards at once. Running commands and workers get a short time to end."""
        for shard in list(self._host.shards.values()):
            if not shard.closed:
                self._close(shard)

    def _close(self, shard: ResidentShard) -> None:
        shard.closed = True
        if not shard.stopping:
            self._begins_to_stop(shard)
        if shard.stopped:
            self.ended(shard)
        else:
            self._loop.call_later(self._stop_timeout, self._force, shard)

    def drop(self, number: ShardId) -> None:
        """Drop a shard that lives elsewhere now, and hand its waiting messages back.

        Nothing more of it is answered.
        """
        host = self._host
        shard = host.shards.pop(number, None)
        if shard is None:
            return
        shard.closed = True  # a part of it that goes on may not begin anything, nor ask for its lease
        self._begins_to_stop(shard)
        self.never_again(number, shard.epoch)
        for slot in list(shard.slots.values()):
            close_context(slot.entity)
            self._hand_back(shard, shard.drop(slot))
        self.left(number, shard.epoch)
        host.listener.shard_stopped(host.type, number, shard.epoch)

    def outdate_all(self) -> None:
        """Stop all shards at once: nothing more of their objects is stored.

        Running handlers get a short time to end.
        """
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

    def remember_again(self) -> None:
        """Store once more which entities run: the server may have lost their rows."""
        host = self._host
        if host.remembering is None:
            return
        for shard in host.shards.values():
            if not shard.stopping:
                running = host.entity_life.running(shard)
                erased = host.erasing.begun_in(shard)
                host.remembering.went_back(shard, [each for each in running if each not in erased])

    def ended(self, shard: ResidentShard) -> None:
        """Report that nothing of a stopping shard runs any more."""
        host = self._host
        shard.closed = True  # as in `drop`: a `run` that was given up may go on
        if host.shards.get(shard.number) is shard:
            del host.shards[shard.number]
            for slot in shard.slots.values():
                close_context(slot.entity)
            self.left(shard.number, shard.epoch)
            host.listener.shard_stopped(host.type, shard.number, shard.epoch)
        self.never_again(shard.number, shard.epoch)
        self._on_stopped(host.type.name, shard.number, shard.epoch)

    def left(self, number: ShardId, epoch: Epoch) -> None:
        """Give back the lease of a shard that is not, or no longer, at home here at that epoch.

        An object of another epoch that is here has the lease until it has stopped.
        """
        host = self._host
        host.shards_changed()
        if host.gate is not None and number not in host.shards:
            host.gate.left(number, epoch)

    # -- Inside ------------------------------------------------------------------------------------

    def _begins_to_stop(self, shard: ResidentShard) -> None:
        self._host.forget_deliveries(shard)
        self._host.forget_followers(shard)
        self._hand_back(shard, shard.stop())
        self._host.entity_life.unload(shard)
        if self._host.workers is not None:
            self._host.workers.leave(shard)

    def _outdated(self, slot: Resident) -> None:
        """Drop an outdated object whose handler has ended."""
        shard = slot.shard
        if not slot.is_gone:
            self._throw_away(slot)
            if shard.stopped:
                self.ended(shard)

    def _throw_away(self, slot: Resident) -> None:
        close_context(slot.entity)
        self._hand_back(slot.shard, slot.shard.drop(slot))

    def _begin(self, shard: ResidentShard) -> None:
        """Start the entities of a shard that run without a message."""
        host = self._host
        if host.remembering is not None:
            host.remembering.recall(shard)
        if host.type.singleton_id is not None:
            host.entity_life.start_in(shard, host.type.singleton_id)
        if host.workers is not None:
            host.workers.begin(shard)

    def _force(self, shard: ResidentShard) -> None:
        """Give up commands that still run when the time for a hand-off is over.

        No more of them is stored.
        """
        host = self._host
        if host.shards.get(shard.number) is not shard:
            return
        for slot in list(shard.slots.values()):
            runs = host.workers is not None and host.workers.give_up(slot)
            if runs or slot.state is not SlotState.IDLE:
                host.stopped_by_force(slot, "an entity of %s was still busy when its shard had to move")
                host.execution.give_up(slot)
            close_context(slot.entity)
            self._hand_back(shard, shard.drop(slot))
        self.ended(shard)

    def _hand_back(self, shard: ResidentShard, works: list[Work]) -> None:
        host = self._host
        host.backlog.all_taken(works)
        back: dict[tuple[Incarnation, Epoch], list[int]] = {}
        for source, message in works:
            if source != NO_CALLER:
                back.setdefault((source, message.epoch), []).append(message.request)
        for (source, epoch), requests in back.items():
            host.send(source, HandBack(shard.type, shard.number, epoch, requests))
