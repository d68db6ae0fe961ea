"""The entities' events: appended in groups, fenced by the shard's epoch, read back in bulk."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from sharding_app.core.ids import Epoch, ShardId
from sharding_app.core.records import Lineage

TRIM_LIMIT = 2000
"""Events that one statement deletes: rows that lie scattered are a page of the write-ahead log each."""


class EventRow(NamedTuple):
    """One event as it is stored, in the order of the table's columns."""

    type_id: int
    entity: str
    seq: int
    shard: ShardId
    epoch: Epoch
    name: str
    version: int
    payload: bytes
    "JSON text."
    command_id: str | None
    "On the last event of a command: what makes its retry safe."
    command: str | None
    "The command of that id, with its arguments in short: an id used again for another command is an error."
    reply: bytes | None
    "On the last event of a command: its encoded result, as it went out (MessagePack)."
    partial: bool = False
    "On the last event of an intermediate commit: the command went on after it."


class JournalUnavailable(Exception):
    """The connection was lost or the server refused for now. An append may or may not have been committed:
    `settle` tells. `answered`: the server itself has said so, and may say it at once again."""

    def __init__(self, reason: str, *, answered: bool = False) -> None:
        super().__init__(reason)
        self.answered = answered


class ShardsLocked(JournalUnavailable):
    """Nothing of the batch was written: others hold the rows of these (type_id, shard). `holders` says who they are."""

    def __init__(self, holders: Mapping[tuple[int, ShardId], str]) -> None:
        super().__init__(f"{len(holders)} shard(s) are locked by others (55P03)", answered=True)
        self.holders = holders


class ShardsFenced(Exception):
    """Nothing of the batch was written: these (type_id, shard) have moved on to a newer epoch."""

    def __init__(self, shards: frozenset[tuple[int, ShardId]]) -> None:
        super().__init__(f"{len(shards)} shard(s) have a newer epoch")
        self.shards = shards


class RowRefused(Exception):
    """Nothing of the batch was written: the server will not take a row of it. `index` names it where known."""

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


class Snapshot(msgspec.Struct, frozen=True):
    type_id: int
    entity: str
    seq: int
    shard: ShardId
    epoch: Epoch
    state: bytes
    "JSON text."


class StoredEvent(NamedTuple):
    seq: int
    name: str
    version: int
    payload: bytes


class Mark(NamedTuple):
    """An entity runs (and is to run again), or does not any more."""

    type_id: int
    shard: ShardId
    epoch: Epoch
    entity: str
    runs: bool


class Former(NamedTuple):
    """The values of a durable-state entity before a number; those before `since` have lost their payload already."""

    entity: str
    shard: ShardId
    epoch: Epoch
    since: int
    before: int


class Bounds(NamedTuple):
    """How much one read brings at most; a row that is larger than all of it comes alone."""

    events: int = 10_000
    "Of each entity."
    rows: int = 100_000
    "Of all of them."
    bytes: int = 64 * 1024 * 1024


class History(msgspec.Struct):
    """What an entity is rebuilt from, or a part of it."""

    snapshot: Snapshot | None
    "The newest one."
    events: list[StoredEvent]
    "Ascending, all after that snapshot."
    more: bool = False
    "There may be events after these: `read_from` goes on."


EVERYTHING = Bounds()
"""As much as a command of an operator, or a test, may read at once."""


class Outcome(msgspec.Struct, frozen=True):
    """What an earlier attempt of a command left in the journal."""

    seq: int
    command: str
    reply: bytes | None
    partial: bool


class Erasure(msgspec.Struct, frozen=True):
    """How many rows of an entity were erased, and whether none is left."""

    events: int = 0
    snapshots: int = 0
    remembered: int = 0
    whole: bool = True

    def __add__(self, later: "Erasure") -> "Erasure":
        return Erasure(
            self.events + later.events,
            self.snapshots + later.snapshots,
            self.remembered + later.remembered,
            later.whole,
        )


class Journal(Protocol):
    """One append at a time for each instance; reads go beside it."""

    def live_in(self, lineage: Lineage) -> None:
        """From now on only a server of that lineage is used: on any other, every call raises JournalUnavailable, those
        that are under way too. Before the first of these calls any server will do."""
        ...

    async def connect(self) -> None:
        """Open the connections that are not open. Raises JournalUnavailable; does nothing where all are there."""
        ...

    async def append(self, rows: Sequence[EventRow]) -> None:
        """Commit all rows or none. Raises ShardsFenced, ShardsLocked, RowRefused, JournalUnavailable.

        Where the shard's next home has taken a number already, it is ShardsFenced: the row itself is not to blame.
        """
        ...

    async def settle(self, rows: Sequence[EventRow]) -> bool:
        """After JournalUnavailable: end the old backend, see it gone, and say whether the batch was committed.

        Yes is said only of a commit that a synchronous standby has, where the server has one; until then it raises
        JournalUnavailable, and is to be asked again.
        """
        ...

    async def locked(self, shards: Collection[tuple[int, ShardId]]) -> Mapping[tuple[int, ShardId], str]:
        """Find which of these shards an append would have to wait for, and who holds them."""
        ...

    async def secure(self) -> None:
        """Return when all that was visible at the call is as safe as a commit that was acknowledged.

        Raises JournalUnavailable while that cannot be said.
        """
        ...

    async def read(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        """Read what these entities are rebuilt from, in one query; an id without history has an empty one.

        One that is not in the answer was not reached within the bounds. The first one is always in it.
        """
        ...

    async def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        """Read one entity's events after a number."""
        ...

    async def read_snapshot(self, type_id: int, entity: str, before: int) -> Snapshot | None:
        """Read the newest snapshot of an entity before a number, where a newer one is of no use."""
        ...

    async def last_seq(self, type_id: int, entity: str) -> int:
        """Read the number of an entity's last event; 0: there is none."""
        ...

    async def read_last(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, StoredEvent | None]:
        """Read the newest event of each of these entities: a durable-state entity's value; None: there is none.

        One that is not in the answer was not reached within the bounds. The first one is always in it.
        """
        ...

    async def forget_states(self, type_id: int, former: Sequence[Former], window_seconds: float) -> None:
        """Forget former values of durable-state entities that are older than the retry window, and of the others all but
        what a retry needs. Raises ShardsFenced as `append` does: then nothing is done."""
        ...

    async def outcome(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        """Find what an earlier attempt of this command, not older than that, committed."""
        ...

    async def save_snapshots(self, snapshots: Sequence[Snapshot]) -> None:
        """Write snapshots, fenced as events are. Raises as `append` does."""
        ...

    async def trim(
        self,
        type_id: int,
        entity: str,
        before: int,
        keep_snapshots: int,
        window_seconds: float,
        limit: int = TRIM_LIMIT,
    ) -> bool:
        """Forget all but the newest snapshots, and events before a number that are older than the retry window: so many
        of them at most. True: there may be more of these."""
        ...

    async def remember(self, marks: Sequence[Mark]) -> None:
        """Store which entities run, fenced as events are. Raises as `append` does; what an earlier call that raised
        `JournalUnavailable` may still do has come to an end before anything of this one is stored."""
        ...

    async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        """Read the entities of these shards that ran."""
        ...

    async def remembered_shards(self, type_id: int) -> list[ShardId]:
        """Read which shards have entities that ran."""
        ...

    async def erase(
        self,
        type_id: int,
        shard: ShardId,
        epoch: Epoch,
        entity: str,
        *,
        at_most: int,
        before: Erasure,
        by: str,
    ) -> Erasure:
        """Erase one piece of an entity: its last events, at most that many; with the first one all else.

        `before` counts the earlier pieces. The timeline notes the sum, and who wanted it. Raises ShardsFenced; and
        JournalUnavailable, after which the caller asks again: no statement of an earlier call can execute any more
        when this one does. The caller sees to it that nothing of this entity runs, or is written, until the last
        piece is erased.
        """
        ...

    async def close(self) -> None: ...
