"""Envelopes for a shard that a region knows to live here before we do.

Contract: they wait, in their order, until the shard's row says whether that epoch is at home here. Handing one back and
taking the next one would turn their order around; so what is handed back once, because its epoch is over here, is handed
back for good. What waits counts against its sender's credit, until its caller has given up: the row, or the shard's lease, may be
long in coming, and the sender has calls for other types too.
"""

from typing import TYPE_CHECKING

from sharding_app.core.ids import Epoch, Incarnation, ShardId
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Work

if TYPE_CHECKING:
    from sharding_app.runtime.host import Host


class EarlyEnvelopes:
    def __init__(self, host: "Host") -> None:
        self.waiting: dict[tuple[ShardId, Epoch], list[Work]] = {}
        self._host = host

    def keep(self, source: Incarnation, message: Deliver) -> bool:
        """Keep what is for an epoch that may become ours, and behind it what comes for the same one. False: it is not early."""
        host = self._host
        key = message.shard, message.epoch
        waiting = self.waiting.get(key)
        if waiting is not None:
            waiting.append((source, message))
            host.backlog.waits(source, message)
            return True
        shard = host.shards.get(message.shard)
        known = shard is not None and shard.epoch >= message.epoch
        if known or host.shard_life.was_stopped(*key):
            return False
        self.waiting[key] = [(source, message)]
        host.backlog.waits(source, message)
        host.spawn(self._find_out(*key))
        return True

    def tick(self, now: float) -> None:
        """Fail what its callers do not wait for any more."""
        for key, waiting in self.waiting.items():
            late = [work for work in waiting if 0 < work[1].deadline_ms <= now * 1000]
            if late:
                gone = set(map(id, late))
                self.waiting[key] = [work for work in waiting if id(work) not in gone]
                for source, message in late:
                    self._host.backlog.taken(source, message)
                    self._host.execution.answers.expired(source, message)

    async def _find_out(self, number: ShardId, epoch: Epoch) -> None:
        """Look at the row: the shard is at home here at that epoch, or will never be."""
        host = self._host
        while True:
            resumes = host.resumes
            row = await host.row_of(number)
            here = row is not None and row.home == host.me and row.epoch == epoch and row.step == "home"
            if here and not await host.secure():
                continue
            if resumes != host.resumes:
                continue  # as old as that, the row says nothing any more
            if not host.may_handle():
                await host.lease()
            elif here and host.gate is not None and not host.shard_life.admits(number, epoch):
                await host.gate.changed(number)
            else:
                break
        if row is None:
            host.row_gone(number, epoch)
        if not here or not host.shard_life.start(number, epoch):
            shard = host.shards.get(number)
            if shard is None or shard.epoch != epoch:
                host.shard_life.never_again(number, epoch)
                host.shard_life.left(number, epoch)
        for source, message in self.waiting.pop((number, epoch)):
            host.backlog.taken(source, message)
            host.receive(source, (message,))
