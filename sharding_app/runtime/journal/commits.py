"""The commits of entities that are in memory here: their rows, and the consequences of their
outcome.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import TypeAlias

from sharding_app.entities.staging import Record
from sharding_app.ports.deliveries import MessageChanges, MessagesGone
from sharding_app.ports.journal import EventRow, RowRefused, SubjectGone, fast_maker
from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.shard import Shard, Slot
from sharding_app.redaction import traceable

logger = logging.getLogger("sharding.journal")

_last_row = fast_maker(EventRow)


class NotCommitted(Enum):
    """Reasons why a commit is not in the journal."""

    FENCED = "fenced"
    "Its shard has a newer epoch: it lives elsewhere."
    REFUSED = "refused"
    "The server refused one of its rows."
    ERASED = "erased"
    "A row has personal data of a subject that was erased."
    SUPERSEDED = "superseded"
    "An earlier commit failed, so its numbers no longer follow."
    UNAVAILABLE = "unavailable"
    "The connection was lost before the commit."
    TAKEN = "taken"
    "The message that its command carries had taken effect before, or is not due."
    MARKED = "marked"
    "The same of a message whose row lies in another journal: it has a mark."
    PARTLY = "partly"
    "An earlier delivery of such a message has committed in its middle, and did not end."


def why_refused(refused: RowRefused) -> NotCommitted:
    return NotCommitted.ERASED if isinstance(refused, SubjectGone) else NotCommitted.REFUSED


def why_taken(gone: MessagesGone, messages: Iterable[str]) -> tuple["NotCommitted", float]:
    """Return why a commit that takes these messages is not in the journal, and the seconds until
    they are due.
    """
    marked = [gone.marked[each] for each in messages if each in gone.marked]
    if marked:
        return NotCommitted.PARTLY if any(marked) else NotCommitted.MARKED, 0.0
    return NotCommitted.TAKEN, max((gone.early.get(each, 0.0) for each in messages), default=0.0)


LARGE_BYTES = 32 * 1024
"""An append holds so many bytes for each row that it may have. In larger ones commits would wait
long for each other, and the process would hold all of them twice.
"""
Follower = Callable[[NotCommitted | None], None]
OnCommit: TypeAlias = list[Callable[[Sequence[EventRow]], None]]
"""Functions that are called with committed rows."""


class Resident(Slot):
    """One entity in memory here: its place in the shard, and its place in the journal."""

    __slots__ = (
        "answers", "doomed", "ids", "known_since", "left_nothing", "seq", "snapshot_seq", "stored", "tail",
    )  # fmt: skip

    shard: "ResidentShard"

    def __init__(self, entity_id: EntityId, shard: "ResidentShard") -> None:
        super().__init__(entity_id, shard)
        self.seq = 0
        "Number of its last event, staged ones included."
        self.snapshot_seq = 0
        self.answers = 0
        "Of a pipelined type: the answers that wait for commits."
        self.tail: LastCommit | None = None
        "Of a pipelined type: the last commit that is under way."
        self.doomed: LastCommit | None = None
        """The last commit of the object that was dropped, until it has failed: replies of the next
        object go out behind those of its commands."""
        self.stored: bytes | None = None
        "Of a durable-state entity: the fingerprint of the state that was stored last."
        self.ids: dict[str, float] | None = None
        "Command ids that were put to the journal, and when (`runtime.execution.known_ids`)."
        self.left_nothing: set[str] | None = None
        "Ids of commands of which the homes before this one have stored nothing, once one is known."
        self.known_since: float | None = None
        "Since when `ids` is complete; None: it has not been loaded."

    def drop_object(self) -> None:
        super().drop_object()
        tail, self.tail = self.tail, None
        if tail is not None and not tail.is_resolved:
            self.doomed = tail
            tail.follow(partial(self._has_failed, tail))

    def _has_failed(self, commit: "LastCommit", _: NotCommitted | None) -> None:
        if self.doomed is commit:
            self.doomed = None

    async def commits_settled(self) -> None:
        """Wait until no commit of its commands is under way."""
        if self.tail is not None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.tail.follow(lambda _: None if future.done() else future.set_result(None))
            await future


ResidentShard: TypeAlias = Shard[Resident]
"""A shard that lives here."""


class Commit:
    """The rows that one command staged. Subclasses handle the outcome."""

    message_changes: MessageChanges | None = None
    "Messages and timers that go with the rows."
    at: datetime | None = None
    "The server's time of a commit with some; None: its answer was lost."
    early = 0.0
    "With `TAKEN`: the seconds until its message is due; 0: it is gone."

    def __init__(self, slot: Resident, rows: Sequence[EventRow]) -> None:
        self.slot = slot
        self.generation = slot.generation
        self.rows = rows

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        raise NotImplementedError

    @property
    def key(self) -> tuple[int, ShardId]:
        row = self.rows[0]
        return row.type_id, row.shard

    @property
    def weight(self) -> int:
        """The number of rows; large ones count for several."""
        size = sum([len(row.payload) for row in self.rows])
        return len(self.rows) + size // LARGE_BYTES


class LastCommit(Commit):
    """The last commit of a command. Replies that depend on the state after it follow it."""

    followers: list[Follower] | None = None
    is_resolved = False

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        try:
            if why is None:
                self.committed()
            else:
                self.not_committed(why, detail)
        finally:
            # Followers must not wait for ever behind an error in the outcome of this command.
            try:
                for follower in self.followers or ():
                    _tell(follower, why)
            finally:
                self.is_resolved = True

    def committed(self) -> None:
        raise NotImplementedError

    def not_committed(self, why: NotCommitted, detail: str) -> None:
        raise NotImplementedError

    def follow(self, follower: Follower) -> None:
        if self.followers is None:
            self.followers = []
        self.followers.append(follower)


class StepCommit(Commit):
    """A commit in the middle of a command. The handler waits for it."""

    def __init__(
        self,
        slot: Resident,
        rows: Sequence[EventRow],
        changes: MessageChanges | None,
        future: "asyncio.Future[datetime | None]",
    ) -> None:
        super().__init__(slot, rows)
        self.message_changes = changes
        self.future = future

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        if self.future.done():
            return
        if why is None:
            self.future.set_result(self.at)
        else:
            self.future.set_exception(StepFailed(why, detail, self.early))


class StepFailed(Exception):
    """`await self.persist(...)` did not reach the journal."""

    def __init__(self, why: NotCommitted, detail: str = "", early: float = 0.0) -> None:
        super().__init__(f"{why.value} {detail}".rstrip())
        self.why = why
        self.detail = detail
        self.early = early


def _tell(follower: Follower, why: NotCommitted | None) -> None:
    try:
        follower(why)
    except MemoryError:
        raise  # nothing here can be relied on any more: the node ends
    except BaseException as error:
        logger.error(
            "a bug: a follower of a commit failed",
            exc_info=traceable(error),
            extra={"action": "internal_error"},
        )


def tell_committed(on_commit: OnCommit, rows: Sequence[EventRow]) -> None:
    """Call the functions that follow commits. An error in one of them costs no commit."""
    for function in on_commit:
        try:
            function(rows)
        except Exception as error:
            logger.error(
                "a bug: a function that follows commits failed", exc_info=traceable(error),
                extra={"action": "internal_error"},
            )  # fmt: skip


def number_rows(
    type_id: int,
    slot: Resident,
    records: Sequence[Record],
    command_id: str,
    command: str,
    value: bytes | None,
    *,
    partial: bool,
) -> list[EventRow]:
    """Give the records the entity's next numbers.

    The last row carries the values that make a retry safe.
    """
    shard = slot.shard
    entity, number, epoch, seq = slot.id, shard.number, shard.epoch, slot.seq
    rows = []
    for name, version, data, _ in records[:-1]:
        seq += 1
        rows.append(EventRow(type_id, entity, seq, number, epoch, name, version, data, None, None, None))
    name, version, data, _ = records[-1]
    slot.seq = seq = seq + 1
    rows.append(
        _last_row(
            (type_id, entity, seq, number, epoch, name, version, data, command_id, command, value, partial)
        )
    )
    return rows
