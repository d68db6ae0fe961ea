"""Snapshots: when they are due, and how they reach the journal beside everything else.

Contract: a snapshot is of committed state only. No reply waits for it, and its failure costs only a
longer recovery. Of several that wait for one entity the newest is written. One that the server does
not take holds up no others. `due` is asked when a command is committed. A pipelined entity runs
nothing else until that commit is through, so that its state is then the journal's.
"""

import asyncio
import logging
from collections import Counter
from itertools import accumulate, islice
from typing import Any

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.staging import Record
from sharding_app.errors import ShardingError
from sharding_app.ports.journal import (
    Former,
    Journal,
    JournalUnavailable,
    RowRefused,
    ShardsFenced,
    Snapshot,
)
from sharding_app.protocol.ids import ShardId
from sharding_app.redaction import told
from sharding_app.runtime.journal.batch_size import BatchSize
from sharding_app.runtime.journal.commits import Resident
from sharding_app.runtime.journal.retention import Retention

logger = logging.getLogger("sharding.journal")

MAX_BATCH = 100
BATCH_BYTES = 8 * 1024 * 1024
"""Most bytes of the snapshots of one statement, after the first one. It is copied several times."""
WAITING_BYTES = 64 * 1024 * 1024
"""Most bytes of the snapshots that wait. Beyond it the oldest one is given up: another follows."""
RETRY_SECONDS = 0.5
FORGET_EVERY = 100
"""Number of new values of a durable-state entity after which former ones are put away,"""
FORGET_BYTES = 1024 * 1024
"""or their size."""


class Snapshots:
    def __init__(
        self,
        entity_type: EntityType,
        type_id: int,
        journal: Journal,
        retention: Retention,
        max_bytes: int,
    ) -> None:
        settings = entity_type.settings
        self.counters: Counter[str] = Counter()
        self._type = entity_type
        self._type_id = type_id
        self._journal = journal
        self._retention = retention
        self._every = settings.snapshot_every or 0
        self._when = settings.snapshot_when
        self._sourced = entity_type.kind == "event_sourced"
        self._forgets = entity_type.kind == "durable_state"
        self._max_bytes = max_bytes
        self._waiting: dict[str, Snapshot] = {}
        self._waiting_bytes = 0
        self._former: dict[str, Former] = {}
        self._together = BatchSize(MAX_BATCH)
        self._wake = asyncio.Event()

    def due(self, slot: Resident, record: Record) -> bool:
        """Whether a snapshot is to be taken after the commit that ends with this record."""
        if not self._sourced:
            former = slot.seq - slot.snapshot_seq
            return self._forgets and (former >= FORGET_EVERY or former * len(record[2]) >= FORGET_BYTES)
        if self._every and slot.seq - slot.snapshot_seq >= self._every:
            return True
        if self._when is None or record[3] is None:  # None: a record of ours, not a user's event
            return False
        try:
            return bool(self._when(slot.entity, record[3], slot.seq))
        except BaseException as error:  # noqa: BLE001  (the user's predicate may raise anything: nothing else depends on it)
            self._failed(f"snapshot_when raised {told(error)}")
            return False

    def committed(self, slot: Resident) -> None:
        """Take the snapshot that is due: all of the entity's state is committed."""
        if slot.entity is None:
            return
        if self._forgets:
            self.put_away(slot)
            return
        slot.snapshot_seq = slot.seq
        try:
            state = self._type.dump_state(slot.entity)
        except BaseException as error:  # noqa: BLE001  (so may its `snapshot()`)
            self._failed(
                str(error) if isinstance(error, ShardingError) else f"snapshot() raised {told(error)}"
            )
            return
        if len(state) > self._max_bytes:
            self._failed(
                f"its state has {len(state)} bytes, more than the {self._max_bytes} of MAX_STATE_BYTES"
            )
            return
        shard = slot.shard
        self._put(Snapshot(self._type_id, slot.id, slot.seq, shard.number, shard.epoch, state))
        self._wake.set()

    def _put(self, snapshot: Snapshot) -> None:
        """Let a snapshot wait, in the place of an older one of its entity."""
        former = self._waiting.get(snapshot.entity)
        self._waiting_bytes += len(snapshot.state) - (0 if former is None else len(former.state))
        self._waiting[snapshot.entity] = snapshot
        while self._waiting_bytes > WAITING_BYTES and len(self._waiting) > 1:
            self._drop([next(iter(self._waiting.values()))], "too many wait for the server")

    def _remove(self, snapshot: Snapshot) -> None:
        """Take a snapshot out, unless a newer one of its entity waits in its place."""
        if self._waiting.get(snapshot.entity) is snapshot:
            del self._waiting[snapshot.entity]
            self._waiting_bytes -= len(snapshot.state)

    def put_away(self, slot: Resident) -> None:
        """Forget the former values of a durable-state entity, as far as no retry needs them.

        Called when the entity comes into memory, when it leaves, and now and then between. For
        durable-state types `slot.snapshot_seq` is the number up to which that is done.
        """
        if not self._forgets or slot.seq <= max(1, slot.snapshot_seq):
            return
        waiting = self._former.get(slot.id)
        since = slot.snapshot_seq if waiting is None else waiting.since
        self._former[slot.id] = Former(slot.id, slot.shard.number, slot.shard.epoch, since, slot.seq)
        slot.snapshot_seq = slot.seq
        self._wake.set()

    def forget(self, entity: str) -> None:
        """Drop everything that waits here for an entity: it is to be erased."""
        if (snapshot := self._waiting.get(entity)) is not None:
            self._remove(snapshot)
        self._former.pop(entity, None)

    def forget_all(self) -> None:
        """Drop everything that waits here: it may be of states that the journal has lost."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._former.clear()

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._former:
                try:
                    await self._write()
                except JournalUnavailable:
                    await asyncio.sleep(RETRY_SECONDS)

    async def _write(self) -> None:
        """Write one batch of snapshots or of former values: a type has only one of the two."""
        waiting: dict[str, Any] = self._waiting or self._former
        batch = list(islice(waiting, self._together.now))
        if self._waiting:
            sizes = accumulate(len(self._waiting[entity].state) for entity in batch)
            batch = batch[: max(1, sum(size <= BATCH_BYTES for size in sizes))]
        try:
            if self._waiting:
                await self._save([self._waiting[entity] for entity in batch])
            else:
                await self._forget_former([self._former[entity] for entity in batch])
        except JournalUnavailable as error:
            if error.answered:
                self._together.refused()
            for entity in batch:
                _to_the_end(waiting, entity)
            raise

    async def _save(self, batch: list[Snapshot]) -> None:
        try:
            await self._journal.save_snapshots(batch)
        except ShardsFenced as fenced:
            self._drop([each for each in batch if (each.type_id, each.shard) in fenced.shards], "fenced")
        except RowRefused as refused:
            if len(batch) > 1:
                self._together.refused()
            else:
                self._drop(batch, refused.reason)
        else:
            self._together.taken()
            await self._saved(batch)

    async def _forget_former(self, former: list[Former]) -> None:
        fenced: frozenset[tuple[int, ShardId]] = frozenset()
        try:
            await self._journal.forget_states(self._type_id, former, self._retention.window_seconds)
        except ShardsFenced as error:
            fenced = error.shards  # its next home forgets them
        except RowRefused as refused:
            if len(former) > 1:
                self._together.refused()
                return
            logger.warning(
                "former values of an entity of %s stay: %s", self._type.name, refused.reason,
                extra={"action": "forget_refused", "entity_type": self._type.name},
            )  # fmt: skip
        else:
            self._together.taken()
        for each in former:
            done = not fenced or (self._type_id, each.shard) in fenced
            if done and self._former.get(each.entity) is each:
                del self._former[each.entity]

    async def _saved(self, batch: list[Snapshot]) -> None:
        for each in batch:
            self.counters["snapshots_saved"] += 1
            self._remove(each)
            await self._retention.behind(each.entity, each.seq)

    def _failed(self, reason: str) -> None:
        self.counters["snapshots_failed"] += 1
        logger.error(
            "no snapshot of an entity of %s: %s", self._type.name, reason,
            extra={"action": "snapshot_failed", "entity_type": self._type.name},
        )  # fmt: skip

    def _drop(self, batch: list[Snapshot], reason: str) -> None:
        for each in batch:
            self.counters["snapshots_dropped"] += 1
            self._remove(each)
        if batch:
            logger.warning(
                "%d snapshots of %s are not kept: %s", len(batch), self._type.name, reason,
                extra={"action": "snapshot_dropped", "entity_type": self._type.name},
            )  # fmt: skip


def _to_the_end(waiting: dict[str, Any], entity: str) -> None:
    """Let the others come first, if the entity still waits."""
    if entity in waiting:
        waiting[entity] = waiting.pop(entity)
