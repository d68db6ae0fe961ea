"""Remembered entities: one row for each that runs, from which it is started again.

Contract: an entity handles nothing before its start is stored. A stop by `Passivate` is stored; a
stop without it starts the entity again after a back-off. After a move, a crash or a restart of
everything the shard's rows are read, and their entities are loaded in bulk, or at a constant rate
over all shards of the region. Changes are written in batches, the newest one for each entity wins,
and a home that has lost its shard can write nothing. A row that the server does not take, or cannot
read, holds up no others. An entity whose id belongs to another shard now is forgotten here after it
has started there.
"""

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, NamedTuple, Protocol

from sharding_app.ports.journal import Journal, JournalUnavailable, Mark, RowRefused, ShardsFenced
from sharding_app.protocol.ids import ShardId
from sharding_app.redaction import told
from sharding_app.runtime.journal.batch_size import BatchSize
from sharding_app.runtime.journal.commits import Resident, ResidentShard

logger = logging.getLogger("sharding.region")

MAX_BATCH = 1000
MAX_MOVING = 500
"""Entities that are started elsewhere at the same time."""
STARTED_AT_ONCE = 1000
"""Entities that are started before the loop's other work has its turn."""
RETRY_SECONDS = 0.2


class _Wish(NamedTuple):
    """A change of an entity's row that is to be written."""

    shard: ResidentShard
    runs: bool
    slot: Resident | None = None
    "The slot to be loaded after that."


class RememberingHost(Protocol):
    """The host, as remembering sees it."""

    def spawn(self, job: Coroutine[Any, Any, None]) -> None: ...

    def load(self, slot: Resident) -> None:
        """Bring an entity into memory whose start is stored."""

    def start_elsewhere(self, entity: str) -> Awaitable[object]:
        """Start an entity whose id belongs to another shard now.

        Done when that is stored; may fail.
        """

    def fenced_shard(self, shard: ResidentShard) -> None: ...


class Remembering:
    def __init__(
        self,
        type_id: int,
        journal: Journal,
        host: RememberingHost,
        shard_of: Callable[[str], ShardId],
        now: Callable[[], float],
        *,
        rate: tuple[int, float] | None = None,
    ) -> None:
        """`rate`: entities for each interval of seconds, over all shards; None: all at once."""
        self.counters: Counter[str] = Counter()
        self._type_id = type_id
        self._journal = journal
        self._host = host
        self._shard_of = shard_of
        self._now = now
        self._rate = rate
        self._wishes: dict[tuple[ShardId, str], _Wish] = {}
        self._recalled: OrderedDict[tuple[ResidentShard, str], None] = OrderedDict()
        """Entities still to be started. One that stops before its turn is taken out, and its row is
        gone.
        """
        self._moved: deque[tuple[ResidentShard, str]] = deque()
        "Rows of entities that belong to another shard now."
        self._wake = asyncio.Event()
        self._more = asyncio.Event()
        self._some_moved = asyncio.Event()
        self._written = asyncio.Event()
        "Set once, after the next write."
        self._wanted: list[ResidentShard] = []
        self._together = BatchSize(MAX_BATCH)
        self._read_together = BatchSize(MAX_BATCH)

    # -- From the host -----------------------------------------------------------------------------

    def started(self, slot: Resident) -> None:
        """Store that an entity starts, then load it."""
        self._wishes[slot.shard.number, slot.id] = _Wish(slot.shard, True, slot)
        self._wake.set()

    def stopped(self, shard: ResidentShard, entity: str) -> None:
        """Store that an entity has passivated: it does not run again by itself."""
        self._wishes[shard.number, entity] = _Wish(shard, False)
        self._recalled.pop((shard, entity), None)
        self._wake.set()

    def erased(self, slot: Resident) -> None:
        """Take in that an entity and its row are gone: it does not start any more by itself."""
        self._recalled.pop((slot.shard, slot.id), None)

    def recall(self, shard: ResidentShard) -> None:
        """Start the entities of a shard's rows: the shard has started here."""
        self._wanted.append(shard)
        self._wake.set()

    def went_back(self, shard: ResidentShard, running: Iterable[str]) -> None:
        """Store once more that these entities run, and start those whose rows are there again.

        The server may have lost the last changes of the rows, and the objects stay.
        """
        waiting = [entity for where, entity in self._recalled if where is shard]
        for entity in (*running, *waiting):
            self._wishes.setdefault((shard.number, entity), _Wish(shard, True))
        self.recall(shard)

    async def stored_again(self, shard: ResidentShard, entity: str) -> None:
        """Wait until no row of an entity that runs is still to be stored once more."""
        while self._wishes.get((shard.number, entity)) == _Wish(shard, True):
            await self._written.wait()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._store_and_recall())
            group.create_task(self._start_recalled())
            group.create_task(self._start_moved())

    # -- Inside ------------------------------------------------------------------------------------

    async def _store_and_recall(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted or self._wishes:
                waits = False
                if self._wanted:
                    waits = await self._tried(self._read, self._read_together)
                if self._wishes:
                    waits = await self._tried(self._write, self._together) or waits
                if waits:
                    await asyncio.sleep(RETRY_SECONDS)

    async def _tried(self, step: Callable[[], Awaitable[None]], size: BatchSize) -> bool:
        """Take a step. Return whether the journal needs a pause."""
        try:
            await step()
        except JournalUnavailable as error:
            if error.answered:
                size.refused()
            logger.warning("remembered entities wait: %s", error, extra={"action": "remembering_waits"})
            return True
        return False

    async def _read(self) -> None:
        batch = self._wanted[: self._read_together.now]
        shards = {each.number: each for each in batch}
        try:
            found = await self._journal.recall(self._type_id, list(shards))
        except JournalUnavailable:
            self._wanted = self._wanted[len(batch) :] + batch  # the others come first now
            raise
        self._read_together.taken()
        del self._wanted[: len(batch)]  # one that was wanted again meanwhile is read again
        for number, entities in found.items():
            shard = shards[number]
            for entity in entities:
                wish = self._wishes.get((number, entity))
                if wish == _Wish(shard, False):
                    continue  # it has stopped since the rows were read
                home = self._home_of(entity)
                if home is None:
                    continue
                if home == number:
                    self._recalled[shard, entity] = None
                else:
                    # The extractor has changed since: from now on it lives in another shard.
                    self.counters["moved"] += 1
                    self._moved.append((shard, entity))
        self._more.set()
        self._some_moved.set()

    def _home_of(self, entity: str) -> ShardId | None:
        """Return the shard of a remembered id; None: the extractor has failed on it."""
        try:
            return self._shard_of(entity)
        except BaseException as error:  # noqa: BLE001  (the extractor may raise anything; nothing is awaited here)
            self.counters["unplaced"] += 1
            logger.error(
                "a remembered entity is not started again, its extractor raised %s", told(error),
                extra={"action": "remembered_unplaced"},
            )  # fmt: skip
            return None

    async def _write(self) -> None:
        wishes = dict(list(self._wishes.items())[: self._together.now])
        marks = [
            Mark(self._type_id, number, wish.shard.epoch, entity, wish.runs)
            for (number, entity), wish in wishes.items()
            if not wish.shard.stopping or not wish.runs
        ]
        fenced: dict[ShardId, ResidentShard] = {}
        try:
            await self._store(marks)
        except ShardsFenced as error:
            # A shard that went and came back has changes of both its lives here. The former life's
            # are refused.
            for _, number in error.shards:
                lives = [wish.shard for (place, _), wish in wishes.items() if place == number]
                fenced[number] = min(lives, key=lambda each: each.epoch)
        except JournalUnavailable:
            for key in wishes:
                self._wishes[key] = self._wishes.pop(key)  # the others come first now
            raise
        except RowRefused:
            self._together.refused()  # each is tried alone, and then as many as the server takes
            return
        for shard in fenced.values():
            self._host.fenced_shard(shard)
        for key, wish in wishes.items():
            fresh = self._wishes.get(key) == wish
            if fenced and fenced.get(key[0]) is not wish.shard:
                continue  # nothing of the batch was written: the others are written again
            if fresh:
                del self._wishes[key]
            if wish.slot is not None and not fenced:
                self.counters["started"] += 1
                self._host.load(wish.slot)
        self._written.set()
        self._written = asyncio.Event()

    async def _store(self, marks: list[Mark]) -> None:
        """Write these rows. An entity whose row the server refuses runs, and is not remembered.

        Raises ShardsFenced, JournalUnavailable, and RowRefused if one of several is refused.
        """
        if not marks:
            return
        try:
            await self._journal.remember(marks)
        except RowRefused as refused:
            if len(marks) > 1:
                raise
            self.counters["refused"] += 1
            logger.error(
                "an entity is not remembered: %s", refused.reason, extra={"action": "remember_refused"}
            )
        else:
            self._together.taken()

    async def _start_recalled(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._recalled:
                await self._start_group()
                await asyncio.sleep(0 if self._rate is None else self._rate[1])

    async def _start_group(self) -> None:
        """Start as many as the rate allows at a time.

        Entities that are here already, or whose shard has left, do not count.
        """
        room = len(self._recalled) if self._rate is None else self._rate[0]
        looked = 0
        while self._recalled and room > 0:
            (shard, entity), _ = self._recalled.popitem(last=False)
            slot = shard.start(entity, self._now())
            if slot is not None:
                room -= 1
                self.counters["recalled"] += 1
                self._host.load(slot)
            looked += 1
            if looked % STARTED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _started_elsewhere(self, entity: str) -> Awaitable[object]:
        """Start an entity in its shard. An extractor of the user's may raise when it is asked."""
        try:
            return self._host.start_elsewhere(entity)
        except Exception as error:  # noqa: BLE001
            failed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def _start_moved(self) -> None:
        """Start moved entities in their new shards.

        A row stays here until that is done. So it outlives a crash of this node, and the next home
        goes on.
        """
        while True:
            await self._some_moved.wait()
            self._some_moved.clear()
            while self._moved:
                some = [self._moved.popleft() for _ in range(min(MAX_MOVING, len(self._moved)))]
                some = [(shard, entity) for shard, entity in some if not shard.stopping]
                asked = [self._started_elsewhere(entity) for _, entity in some]
                failed: BaseException | None = None
                for (shard, entity), result in zip(
                    some, await asyncio.gather(*asked, return_exceptions=True), strict=True
                ):
                    if isinstance(result, BaseException):
                        failed = result
                        self._moved.append((shard, entity))
                    else:
                        self.stopped(shard, entity)
                if failed is not None:
                    logger.warning(
                        "entities that belong to other shards now wait: %s", told(failed),
                        extra={"action": "remembering_waits"},
                    )  # fmt: skip
                    await asyncio.sleep(RETRY_SECONDS)
