"""Messages and jobs that wait at a host: for their shard's row, for the lease, or in a mailbox.

* `Backlog` counts the bytes of all messages that wait, by sender. Link credit shrinks by them: a
  flood waits at its source.
* `EarlyEnvelopes` came before this node knows that their shard lives here.
* `Suspended` work goes on when the node's lease is back.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.shard import Work
from sharding_app.runtime.journal.commits import Resident

OVERHEAD_BYTES = 200


class Backlog:
    """Bytes of envelopes that wait in mailboxes, by sending process."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        self._bytes: dict[Incarnation, int] = {}

    def of(self, source: Incarnation) -> int:
        return self._bytes.get(source, 0)

    def waits(self, source: Incarnation, message: Deliver) -> None:
        self._bytes[source] = self._bytes.get(source, 0) + len(message.args) + OVERHEAD_BYTES

    def taken(self, source: Incarnation, message: Deliver) -> None:
        """Count an envelope off.

        One that was never counted (our own stop message) changes nothing.
        """
        left = self._bytes.get(source, 0) - len(message.args) - OVERHEAD_BYTES
        if left > 0:
            self._bytes[source] = left
        else:
            self._bytes.pop(source, None)

    def all_taken(self, works: Iterable[Work]) -> None:
        for source, message in works:
            self.taken(source, message)


class Suspended:
    """Busy entities, and jobs, that wait while the node's lease is lost."""

    def __init__(self, finished: Callable[[Resident], None]) -> None:
        """`finished` goes on with an entity's mailbox."""
        self._finished = finished
        self._parked: list[tuple[Resident, int]] = []
        """Busy slots whose next envelope waits, with their generation: a rebuilt entity goes on by
        itself.
        """
        self._jobs: list[asyncio.Future[None]] = []
        self._loop = asyncio.get_running_loop()

    def park(self, slot: Resident) -> None:
        """Let a busy entity go on with its mailbox when the lease is back."""
        self._parked.append((slot, slot.generation))

    def back(self) -> "asyncio.Future[None]":
        """Return a future that is done when the lease is back.

        The caller checks whether it still is.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        self._jobs.append(future)
        return future

    def resume(self) -> None:
        """Go on with all that waited: the lease is valid again."""
        parked, self._parked = self._parked, []
        for slot, generation in parked:
            if slot.generation == generation and not slot.is_gone:
                self._finished(slot)
        waiting, self._jobs = self._jobs, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Homes(Protocol):
    """The shards of a host (`runtime.hosting.shards`)."""

    def may_come(self, number: ShardId, epoch: Epoch) -> bool: ...

    async def decided(self, number: ShardId, epoch: Epoch) -> None: ...


class Room(Protocol):
    """What waits for a journal (`runtime.hosting.journal_part`)."""

    backlog: Backlog
    has_room: Callable[[Incarnation], bool]
    "Tells whether more envelopes of a process may wait for journals that stand still."

    def stands_still(self) -> bool: ...


class EarlyEnvelopes:
    """Envelopes of a shard that this node does not know to live here.

    Contract: they wait, in their order, until the shard's row says whether that epoch is at home
    here. To hand one back and take the next would reverse their order. So once one is handed back
    because its epoch is over here, all later ones of that epoch are handed back too. They count
    against their sender's credit until their callers give up: the row, or the shard's lease, may be
    long in coming, and the sender has calls for other types too. Once the row has said in which
    journal the shard lies, they wait for that one: while it stands still, they take a share of the
    credit at most, and the host refuses later ones.
    """

    def __init__(
        self,
        homes: Homes,
        room: Room,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        receive: Callable[[Incarnation, Sequence[Deliver]], None],
        expired: Callable[[Incarnation, Deliver], None],
        refuse: Callable[[Incarnation, Deliver], None],
    ) -> None:
        """`room` is theirs until the journal is known. `receive` takes envelopes whose shard is
        decided; `expired` and `refuse` fail one.
        """
        self.waiting: dict[tuple[ShardId, Epoch], list[Work]] = {}
        self._homes = homes
        self._room = room
        self._rooms: dict[tuple[ShardId, Epoch], Room] = {}
        "Of those whose journal is known."
        self._spawn = spawn
        self._receive = receive
        self._expired = expired
        self._refuse = refuse

    def keep(self, source: Incarnation, message: Deliver) -> bool:
        """Keep an envelope whose epoch may become ours, and later ones behind it, or refuse it.

        False: it is not early.
        """
        key = message.shard, message.epoch
        waiting = self.waiting.get(key)
        if waiting is None and not self._homes.may_come(*key):
            return False
        room = self._rooms.get(key)
        if room is not None and room.stands_still() and not room.has_room(source):
            self._refuse(source, message)
            return True
        if waiting is None:
            waiting = self.waiting[key] = []
            self._spawn(self._pass_on(*key))
        waiting.append((source, message))
        (room or self._room).backlog.waits(source, message)
        return True

    def wait_for(self, number: ShardId, epoch: Epoch, room: Room) -> None:
        """Let the envelopes of a shard wait for the journal in which it lies."""
        key = number, epoch
        if key not in self.waiting:
            return
        former = self._rooms.get(key, self._room).backlog
        self._rooms[key] = room
        for source, message in self.waiting[key]:
            former.taken(source, message)
            room.backlog.waits(source, message)

    def tick(self, now: float) -> None:
        """Fail envelopes whose callers have given up."""
        for key, waiting in self.waiting.items():
            late = [work for work in waiting if 0 < work[1].deadline_ms <= now * 1000]
            if late:
                gone, backlog = set(map(id, late)), self._rooms.get(key, self._room).backlog
                self.waiting[key] = [work for work in waiting if id(work) not in gone]
                for source, message in late:
                    backlog.taken(source, message)
                    self._expired(source, message)

    async def _pass_on(self, number: ShardId, epoch: Epoch) -> None:
        await self._homes.decided(number, epoch)
        backlog = self._rooms.pop((number, epoch), self._room).backlog
        for source, message in self.waiting.pop((number, epoch)):
            backlog.taken(source, message)
            self._receive(source, (message,))
