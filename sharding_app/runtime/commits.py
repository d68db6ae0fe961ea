"""What a command commits: its rows, and what happens when the outcome is known."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Deliver
from sharding_app.core.shard import Slot
from sharding_app.model.staging import Record
from sharding_app.ports.journal import EventRow
from sharding_app.runtime.journal_writer import Commit, NotCommitted

Follower = Callable[[NotCommitted | None], None]


class Outcomes(Protocol):
    """Who answers (`runtime.execution.Execution`)."""

    def committed(self, commit: "CommandCommit") -> None: ...

    def not_committed(self, commit: "CommandCommit", why: NotCommitted, detail: str) -> None: ...


class CommandCommit(Commit):
    """The last commit of a command: the answer waits for it, and by default the next command too."""

    __slots__ = ("followers", "message", "outcomes", "overlapping", "partly", "snapshot", "source", "value")

    def __init__(
        self,
        slot: Slot,
        rows: Sequence[EventRow],
        outcomes: Outcomes,
        source: Incarnation,
        message: Deliver,
        value: bytes,
    ) -> None:
        self.slot = slot
        self.generation = slot.generation
        self.rows = rows
        self.outcomes = outcomes
        self.source = source
        self.message = message
        self.value = value
        self.overlapping = False
        "Pipelined: the next command runs already."
        self.partly = False
        "The command has committed a part before: it cannot be handed back any more."
        self.snapshot = False
        "A snapshot is due after it."
        self.followers: list[Follower] | None = None
        "Answers that have seen the state which this commit makes durable."

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        if why is None:
            self.outcomes.committed(self)
        else:
            self.outcomes.not_committed(self, why, detail)
        if self.followers is not None:
            for follower in self.followers:
                follower(why)

    def follow(self, follower: Follower) -> None:
        if self.followers is None:
            self.followers = []
        self.followers.append(follower)


class StepCommit(Commit):
    """A commit in the middle of a command: the handler waits for it."""

    __slots__ = ("future",)

    def __init__(self, slot: Slot, rows: Sequence[EventRow], future: "asyncio.Future[None]") -> None:
        super().__init__(slot, rows)
        self.future = future

    def resolved(self, why: NotCommitted | None, detail: str = "") -> None:
        if self.future.done():
            return
        if why is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(StepFailed(why, detail))


class StepFailed(Exception):
    """`await self.persist(...)` did not reach the journal."""

    def __init__(self, why: NotCommitted, detail: str = "") -> None:
        super().__init__(f"{why.value} {detail}".rstrip())
        self.why = why
        self.detail = detail


def number_rows(
    type_id: int,
    slot: Slot,
    records: Sequence[Record],
    command_id: str,
    command: str,
    value: bytes | None,
    *,
    partial: bool,
) -> list[EventRow]:
    """Give the records the entity's next numbers; the last one carries what makes a retry safe."""
    shard = slot.shard
    entity, number, epoch, seq = slot.id, shard.number, shard.epoch, slot.seq
    rows = []
    for name, version, data, _ in records[:-1]:
        seq += 1
        rows.append(EventRow(type_id, entity, seq, number, epoch, name, version, data, None, None, None))
    name, version, data, _ = records[-1]
    slot.seq = seq = seq + 1
    rows.append(
        EventRow(
            type_id, entity, seq, number, epoch, name, version, data, command_id, command, value, partial
        )
    )
    return rows
