"""The entities' events: appended in groups, fenced by the shard's epoch, read back in bulk."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from sharding_app.ports.deliveries import (
    Claim,
    MessageChanges,
    MessageRow,
    Overdue,
    Page,
    ShardKey,
    Taking,
    TimerKey,
)
from sharding_app.protocol.delivery.foreign import Standing, TakenMark
from sharding_app.protocol.following import FollowedEvent
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Lineage, StoredShard

T = TypeVar("T", bound=tuple[Any, ...])

TRIM_LIMIT = 2000
"""Most events that one statement deletes: scattered rows cost a page of the write-ahead log
each."""


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
    "On the last event of a command: makes its retry safe."
    command: str | None
    """The command of that id, with its arguments in short: an id used again for another command is
    an error."""
    reply: bytes | None
    "On the last event of a command: its encoded result as it was sent (MessagePack)."
    partial: bool = False
    "On the last event of an intermediate commit: the command went on after it."


class JournalUnavailable(Exception):
    """The connection was lost, or the server refused for now. An append may or may not be
    committed: `settle` tells.

    `answered`: the server itself has said so, and may say it at once again.
    """

    def __init__(self, reason: str, *, answered: bool = False) -> None:
        super().__init__(reason)
        self.answered = answered


class ShardsLocked(JournalUnavailable):
    """Nothing of the batch was written: other sessions, named in `holders`, lock the rows of these
    (type_id, shard).
    """

    def __init__(self, holders: Mapping[tuple[int, ShardId], str]) -> None:
        super().__init__(f"{len(holders)} shard(s) are locked by others (55P03)", answered=True)
        self.holders = holders


class JournalOfAnother(Exception):
    """The database is the journal of another cluster, which is named here, or has a cluster of its
    own.
    """


class ShardsFenced(Exception):
    """Nothing of the batch was written: these (type_id, shard) have moved on to a newer epoch."""

    def __init__(self, shards: frozenset[tuple[int, ShardId]]) -> None:
        super().__init__(f"{len(shards)} shard(s) have a newer epoch")
        self.shards = shards


class RowRefused(Exception):
    """Nothing of the batch was written: the server will not take a row of it. `index` names it
    where known.
    """

    def __init__(self, reason: str, index: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.index = index


class SubjectGone(RowRefused):
    """As `RowRefused`: the row has personal data of a subject that was erased."""


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


def fast_maker(made: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return a function that makes such a named tuple out of all its fields.

    The class itself runs a Python function for each, which takes most of the time.
    """
    return partial(tuple.__new__, made)


class Mark(NamedTuple):
    """Whether an entity runs, so that it is started again after a move or a crash."""

    type_id: int
    shard: ShardId
    epoch: Epoch
    entity: str
    runs: bool


class Former(NamedTuple):
    """The values of a durable-state entity before a number; those before `since` have lost their
    payload already.
    """

    entity: str
    shard: ShardId
    epoch: Epoch
    since: int
    before: int


class Bounds(NamedTuple):
    """The most that one read returns. A row that is larger than all of it comes alone."""

    events: int = 10_000
    "Of each entity."
    rows: int = 100_000
    "Of all of them."
    bytes: int = 64 * 1024 * 1024


class History(msgspec.Struct):
    """The rows from which an entity is rebuilt, or a part of them."""

    snapshot: Snapshot | None
    "The newest one."
    events: list[StoredEvent]
    "Ascending, all after that snapshot."
    more: bool = False
    "There may be events after these: `read_from` goes on."


EVERYTHING = Bounds()
"""Bounds of a read for an operator's command or a test."""


class Outcome(msgspec.Struct, frozen=True):
    """The result of an earlier attempt of a command, as the journal has it."""

    seq: int
    command: str
    reply: bytes | None
    partial: bool


class Erasure(msgspec.Struct, frozen=True):
    """The number of rows of an entity that were erased, and whether none is left."""

    events: int = 0
    snapshots: int = 0
    remembered: int = 0
    messages: int = 0
    whole: bool = True

    def __add__(self, later: "Erasure") -> "Erasure":
        return Erasure(
            self.events + later.events,
            self.snapshots + later.snapshots,
            self.remembered + later.remembered,
            self.messages + later.messages,
            later.whole,
        )


class Archival(NamedTuple):
    """The number of rows of an archived entity that were removed, or why it stays in the
    journal.
    """

    events: int = 0
    snapshots: int = 0
    remembered: int = 0
    left: str = ""
    """"busy": it is in use. "changed": since it was read. "messages": some wait. "projections": one
    has not passed all of it. "gone": nothing was stored any more. Empty: it was removed."""


class Wanted(NamedTuple):
    """A follower's question about an entity."""

    type_id: int
    entity: str
    after: int
    "Number of the last event that it has."
    limit: int
    "Most events that it takes; 0: the number of the last one is enough."


class Reading(NamedTuple):
    """The journal's answer to a follower."""

    last: int
    "Number of the last event; 0: there is none."
    known: int | None
    "The time of the event that the follower has last (`FollowedEvent.at`); None: it is not there."
    events: list[FollowedEvent]
    "Ascending, those after it. There may be more."
    newest: int = 0
    "The time of the last event; 0: there is none."


class Trimmable(NamedTuple):
    """A page of the entities of a type that have a snapshot, in the order of their ids."""

    entities: list[str]
    "Those of them whose first event may go."
    last: str
    "The last entity of the page; empty: no page follows."


class Owned(NamedTuple):
    """A further journal of the cluster, as its database says."""

    place: str
    "The server's own identity, and the database's on it."
    lineage: Lineage
    uses_messages: bool
    "An entity of its shards has stored a message or a timer."


class Taken(NamedTuple):
    """The answer to `Journal.take`."""

    shards: frozenset[ShardId]
    "Those that are the home's. A later epoch has the others."
    uses_messages: bool
    "An entity of the type has stored a message or a timer in this journal."
    left: Mapping[ShardId, str] = MappingProxyType({})
    """Those that have moved to another journal, with its name: they have left a copy here, which is
    not used."""


class Journal(Protocol):
    """Runs one append at a time on each of its connections for appends; reads go beside them."""

    @property
    def connections(self) -> int:
        """Number of connections for appends, at least one."""
        ...

    def live_in(self, lineage: Lineage) -> None:
        """Use only a server of that lineage from now on. On any other server every call raises
        JournalUnavailable, also a call under way. Before the first of these calls any server will
        do.
        """
        ...

    async def connect(self) -> None:
        """Open the connections that are not open. Raises JournalUnavailable."""
        ...

    @property
    def lineage(self) -> Lineage | None:
        """The lineage that is used; None: any."""
        ...

    async def own(self, cluster_id: str) -> Owned:
        """Make this database a journal of that cluster, if it is not yet. Raises JournalOfAnother,
        JournalUnavailable.

        Not for the cluster's own database. Any lineage answers, whatever `live_in` has said.
        """
        ...

    async def take(
        self,
        type_name: str,
        type_id: int,
        numbers: Numbering,
        shards: Mapping[ShardId, Epoch],
        home: Incarnation,
        *,
        first: bool = False,
    ) -> Taken:
        """Let rows of these shards be written at these epochs, by that home, and at no earlier
        ones any more. `numbers`: those of the type when the home read its rows. If they are newer
        than the journal's, rows of entities that have another shard now get it first, and former
        homes of all these shards are fenced. May be repeated. Raises JournalUnavailable.

        It waits for appends under way. All that the home reads of a shard is read after it, so it
        sees each commit of former homes. In the cluster's own database nothing is taken: there the
        coordinator's row is the fence. A shard that has moved to another journal is not taken in
        its former one, whatever the coordinator's row says.

        `first`: in the lineage that `own` has found, before `live_in` lets other requests go on
        there.
        """
        ...

    async def stored_shards(self, name: str) -> list[StoredShard]:
        """Return the shards that lie in this further journal, under the name that it has in the
        cluster. Raises JournalUnavailable.
        """
        ...

    async def append(
        self, rows: Sequence[EventRow], changes: MessageChanges | None = None, *, on: int = 0
    ) -> datetime | None:
        """Commit all rows or none, on the connection of that number. Raises ShardsFenced,
        ShardsLocked, RowRefused, MessagesGone, JournalUnavailable.

        Appends that overlap must not hold rows of one shard: the later one could be committed
        without the earlier.

        If the shard's next home has taken a number already, it raises ShardsFenced: the row itself
        is not at fault.

        Messages and timers (`changes`) are taken, cancelled and stored in the same transaction;
        there is at least one event with them. With some it returns the server's time from which
        `delay` was counted, otherwise None. A row that it takes must be there, due and not parked.
        """
        ...

    async def settle(self, rows: Sequence[EventRow], *, on: int = 0) -> bool:
        """After JournalUnavailable from an append on that connection: end its old backend, see it
        gone, and tell whether the batch was committed. Appends on other connections go on. A
        payload that is empty is not compared.

        Returns True only for a commit that a synchronous standby has, if the server has one. Until
        then it raises JournalUnavailable, and is to be called again.
        """
        ...

    async def locked(self, shards: Collection[tuple[int, ShardId]]) -> Mapping[tuple[int, ShardId], str]:
        """Return which of these shards an append would have to wait for, and who holds each."""
        ...

    async def secure(self) -> None:
        """Return when everything visible at the call is as safe as an acknowledged commit.

        Raises JournalUnavailable while that cannot be said.
        """
        ...

    async def read(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, History]:
        """Read the histories of these entities in one query; an id without history has an empty
        one.

        An entity that is missing in the answer was not reached within the bounds. The first one is
        always in it.
        """
        ...

    async def read_from(self, type_id: int, entity: str, after: int, bounds: Bounds = EVERYTHING) -> History:
        """Read one entity's events after a number."""
        ...

    async def read_snapshot(self, type_id: int, entity: str, before: int) -> Snapshot | None:
        """Read the newest snapshot of an entity before a number, when a newer one is of no use."""
        ...

    async def last_seq(self, type_id: int, entity: str) -> int:
        """Read the number of an entity's last event; 0: there is none."""
        ...

    async def is_home(self, type_id: int, shard: ShardId, epoch: Epoch, home: Incarnation) -> bool:
        """Tell whether the shard's row names that home and epoch.

        A server of another lineage is not asked: it may have the same row, and lack the last events
        that the home has in memory.
        """
        ...

    async def ids(self, type_id: int, prefix: str, after: str, limit: int) -> list[str]:
        """Read the first `limit` ids that begin with a prefix and lie behind another id, in the
        order of their UTF-8: those of entities with at least one event.
        """
        ...

    async def read_last(
        self, type_id: int, entities: Sequence[str], bounds: Bounds = EVERYTHING
    ) -> dict[str, StoredEvent | None]:
        """Read the newest event of each of these entities: a durable-state entity's value. None:
        there is none.

        An entity that is missing in the answer was not reached within the bounds. The first one is
        always in it.
        """
        ...

    async def follow(self, wanted: Sequence[Wanted], page_bytes: int) -> list[Reading]:
        """Read events for followers, in the order of their questions, in one query: for each of
        them `page_bytes` at most, and one event at least.

        Visible events may not be acknowledged: see `secure`.
        """
        ...

    async def forget_states(self, type_id: int, former: Sequence[Former], window_seconds: float) -> None:
        """Delete former values of durable-state entities that are older than the retry window. Of
        the others keep only the parts that a retry needs.

        Raises ShardsFenced as `append` does: then nothing is done.
        """
        ...

    async def outcome(self, type_id: int, entity: str, command_id: str, age_ms: int) -> Outcome | None:
        """Return the committed outcome of an earlier attempt of this command, no older than
        `age_ms` when this was called. It may be somewhat older.

        None: there is none, however long the question has waited or the server has stood still.
        """
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
        *,
        keep_events: int = 1,
    ) -> int:
        """Delete all but the newest snapshots, and at most `limit` events before a number that are
        older than a time, covered by a kept snapshot, and not among the newest `keep_events`.

        Return the number of these events: `limit` says that there may be more.
        """
        ...

    async def trimmable(
        self, type_id: int, after: str, window_seconds: float, keep_events: int, limit: int
    ) -> Trimmable:
        """Read a page of a type's snapshots behind an entity's id, and say of which of these
        entities `trim` may delete an event.
        """
        ...

    async def remember(self, marks: Sequence[Mark]) -> None:
        """Store which entities run, fenced as events are. Raises as `append` does.

        An earlier call that raised `JournalUnavailable` may still execute: it has come to an end
        before anything of this call is stored.
        """
        ...

    async def recall(self, type_id: int, shards: Sequence[ShardId]) -> dict[ShardId, list[str]]:
        """Read which entities of these shards ran."""
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
        """Erase one piece of an entity: its last `at_most` events; together with the first event
        everything else.

        `before` counts the earlier pieces. The timeline notes the sum and `by`. Raises ShardsFenced
        and JournalUnavailable. After JournalUnavailable the caller asks again: once a call
        executes, no statement of an earlier call can execute any more. Until the last piece is
        erased the caller makes sure that nothing of this entity runs or is written.
        """
        ...

    async def archive(
        self, type_id: int, shard: ShardId, epoch: Epoch, entity: str, *, mark: str
    ) -> Archival:
        """Remove an entity that stands in a closed file, all of it at once, if it has that mark, no
        message waits and all projections have passed it. Projections learn nothing of it.

        Raises ShardsFenced and JournalUnavailable, after which the caller asks again, as with
        `erase`. Until it has returned the caller makes sure that nothing of this entity runs or is
        written.
        """
        ...

    async def stage(
        self,
        sends: Sequence[MessageRow],
        cancels: Sequence[TimerKey] = (),
        takes: Sequence[Taking] = (),
        *,
        claim: Claim | None = None,
    ) -> datetime:
        """Store messages and timers without events, of entities that store none, and cancel timers.
        Fenced as events are: new rows by their epochs, cancellations by the `claim` of their home.
        Raises as `append` does, and returns the server's time as it does.

        A row whose id is there stays as it is, so a call may be repeated. One that `takes` foreign
        messages leaves marks of them, and raises MessagesGone if it is: the first has stored all.
        Neither answer comes before a synchronous standby has the rows of the first call.
        """
        ...

    async def discard(self, takes: Sequence[Taking]) -> list[str]:
        """Take rows without events, for entities that store none. The reply to a row is stored if
        the row was there. Returns the ids of those that were. Raises as `append` does.

        A call may be repeated: rows that are gone are left out. After JournalUnavailable no
        statement of an earlier call executes any more once a later one does.
        """
        ...

    async def due(
        self,
        shards: Sequence[tuple[int, ShardId]],
        horizon_seconds: float,
        limit: int,
        held: Collection[str] = (),
        alone: Collection[str] = (),
    ) -> Page:
        """Read the rows of these shards that are due within the horizon and not parked, but those
        of `held`.

        A message is left out while an earlier one of its owner to its target was set aside, and is
        not held or is one of `alone`. The page says which pairs wait for one that is beyond the
        horizon.
        """
        ...

    async def timers(self, type_id: int, entity: str, prefix: str) -> tuple[datetime, dict[str, str | None]]:
        """Read how the timers of an entity repeat whose keys begin so, by key; and the server's
        time. Parked ones are left out.
        """
        ...

    async def set_aside(
        self, message: str, failures: int, delay_seconds: float, error: str, claim: Claim
    ) -> bool:
        """Let a row be due that many seconds from now, for its owner's home. False: it is gone.

        Raises ShardsFenced and JournalUnavailable.
        """
        ...

    async def park(self, message: str, error: str, claim: Claim) -> bool:
        """Deliver a row no more until an operator decides. As `set_aside`."""
        ...

    async def turn(self, message: str, new: str, command: str, args: bytes, claim: Claim) -> bool:
        """Let a row become a message of its owner to itself under a new id, due now: the command
        that the sender has named for a failure. As `set_aside`.
        """
        ...

    # Messages between journals: `ports.deliveries` says what a foreign row and a mark are.

    async def standing(self, messages: Collection[str], *, secured: bool = False) -> dict[str, Standing]:
        """Read which of these rows are here, by id. One that is gone is not in the answer.

        `secured`: what is gone stays gone, also after a failover to a synchronous standby. Raises
        JournalUnavailable.
        """
        ...

    async def marked(self, messages: Collection[str]) -> dict[str, bool]:
        """Read which of these messages have a mark here, and whether it is partial. Raises
        JournalUnavailable.
        """
        ...

    async def marks(self, shards: Sequence[ShardKey], after: str, limit: int) -> list[TakenMark]:
        """Read the first `limit` marks of these shards behind an id, in the order of their ids.
        Raises JournalUnavailable.
        """
        ...

    async def unmark(self, messages: Collection[str], claim: Claim) -> None:
        """Remove marks of a shard for its home. Raises ShardsFenced and JournalUnavailable."""
        ...

    async def overdue(self, home: Incarnation, late_seconds: float, limit: int) -> list[Overdue]:
        """Find shards with rows that have been due for that number of seconds: those at that home,
        and those that never had one.
        """
        ...

    async def close(self) -> None: ...
