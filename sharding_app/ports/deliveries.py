"""Messages and timers that wait in the journal: rows of `sharding_message`, made and deleted by
appends.

A row is inserted by the append that stores the events of the command that staged it. It is deleted
by the append that stores the events of the command that it causes. So each takes effect once,
however often it is delivered in between. A timer is a message of an entity to itself with a `key`.

With several journals the row lies with its owner, and the entities of its target may lie in another
database. Such a row is *foreign* for its target: no append reaches it. The append of the target
leaves a *mark* instead (a row of `sharding_taken`), and the owner's home deletes the row later. A
second append for that message finds the mark. A mark stays until its row is gone.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from sharding_app.protocol.ids import Epoch, ShardId

TimerKey = tuple[int, str, str]
"""A timer: the number of its owner's type, its owner, and its key."""

ShardKey = tuple[int, ShardId]
"""A type's number, and a shard."""

Claim = tuple[int, ShardId, Epoch]
"""A type's number, a shard, and the epoch at which its home acts."""


PairKey = tuple[int, ShardId, str, str, str]
"""Owner and target of messages: a type's number, a shard and an id; a type's name and an id. The
owner's id is "" for messages from outside: they have no sender, and no place among those that their
target sends to itself."""

ASIDE_PAIRS = 1000
"""Most pairs of which a page says that a message of theirs was set aside."""


class MessageRow(NamedTuple):
    """A message or a timer as it is staged, in the order of the table's columns.

    A row without a key is a message: it is due at once, and goes out after all earlier ones of its
    owner to its target. A row that is to wait has a key: otherwise later ones would wait behind it.
    """

    id: str
    "Made where it is staged, never used twice."
    type_id: int
    shard: ShardId
    entity: str
    "The owner, together with `type_id` and `shard`: its home delivers the row."
    epoch: Epoch | None
    "At which the owner's home writes. None: it was stored from outside, and owner is the target."
    seq: int
    "Number of the owner's last event in that commit."
    position: int
    "Place within the commit."
    target_type: str
    target: str
    command: str
    args: bytes
    due: datetime | None = None
    "None: `delay` seconds after the append, by the server's clock."
    delay: float = 0.0
    key: str | None = None
    "Of a timer. Any other one of its owner with that key is replaced."
    every: str | None = None
    "Of a repeating timer: when it repeats (`protocol.delivery.recurrence`)."
    reply_to: str | None = None
    on_failure: str | None = None

    @property
    def timer(self) -> TimerKey | None:
        return None if self.key is None else (self.type_id, self.entity, self.key)


Taker = tuple[int, ShardId, Epoch, str]
"""An entity that takes a message: a type's number, a shard, its epoch, and an id."""


class Taking(NamedTuple):
    """A row that the commit of its target takes: the effect of the message and the end of the row
    are one.
    """

    id: str
    timer: TimerKey | None = None
    "Of a timer: an earlier commit of the same append may cancel or replace it."
    park: bool = False
    "The commit is in the middle of a handler: the row is parked as partly applied, not deleted."
    resumed: bool = False
    "An earlier commit of the same handler has parked it."
    again: tuple[str, datetime] | None = None
    "Of a repeating timer: the row goes on with this new id, due then."
    reply: MessageRow | None = None
    "`discard` alone stores it, if it finds the row. In an append the reply is one of `sends`."
    foreign: str | None = None
    "The journal in which the row lies: the append leaves a mark. None: the row lies here."
    taker: Taker | None = None
    "Of a foreign row: the entity whose commit takes it."


class MessageChanges(NamedTuple):
    """The messages and timers of an append: rows that are taken, then cancelled, then stored."""

    sends: Sequence[MessageRow] = ()
    cancels: Sequence[TimerKey] = ()
    takes: Sequence[Taking] = ()

    def __bool__(self) -> bool:
        return bool(self.sends or self.cancels or self.takes)


class Pending(NamedTuple):
    """A message or a timer that waits, as its owner's home reads it."""

    id: str
    type_id: int
    shard: ShardId
    entity: str
    seq: int
    position: int
    target_type: str
    target: str
    command: str
    args: bytes
    due: datetime
    key: str | None
    every: str | None
    reply_to: str | None
    on_failure: str | None
    failures: int
    occasion: datetime | None
    "Of a repeating timer whose firing has failed: the time at which that was due."
    outside: bool
    "It was stored from outside."


class Page(NamedTuple):
    """The rows of some shards that are due, in the order in which they go out."""

    now: datetime
    "The server's clock."
    messages: list[Pending]
    more: frozenset[ShardKey]
    "The shards with further rows that are due, which were not held."
    next_due: Mapping[ShardKey, datetime]
    "When the first of the other rows of a shard is due, if it has any."
    aside: list[PairKey] | None
    """The pairs that have a message beyond the horizon, which was set aside and is not held. None:
    they are more than `ASIDE_PAIRS`."""


class MessagesGone(Exception):
    """Nothing of the batch was written: rows that it takes do not wait there.

    Those of `gone` were taken, cancelled, replaced or parked before. Those of `early` are not due
    yet; the values are the seconds that they have left by the server's clock. Those of `marked` are
    foreign, and have a mark; the values tell whether it is partial.
    """

    def __init__(
        self,
        gone: frozenset[str],
        early: Mapping[str, float] | None = None,
        marked: Mapping[str, bool] | None = None,
    ) -> None:
        self.gone = gone
        self.early = dict(early or {})
        self.marked = dict(marked or {})
        super().__init__(
            f"{len(gone)} message(s) are gone, {len(self.early)} not due yet, {len(self.marked)} marked"
        )

    @property
    def ids(self) -> frozenset[str]:
        return self.gone | self.early.keys() | self.marked.keys()


class Overdue(NamedTuple):
    """A shard with rows that should have gone out: its home may not know of them."""

    type_id: int
    shard: ShardId
    epoch: Epoch
    "0: the shard has never had a home."


PARTLY_APPLIED = "partly applied: the handler has committed in its middle, and did not end"
"""The error of a row that a commit in the middle of a handler has parked."""
PARTLY_ELSEWHERE = "partly applied: it took effect in part in a journal that its target has left since"
"""The error of one that a move has parked."""


def joined(parts: Sequence[MessageChanges | None]) -> tuple[MessageChanges | None, int]:
    """Join the changes of the first commits of a batch, as many as may share an append, and return
    their number.

    A commit has to wait for the next append if it takes a row that an earlier one of the batch
    takes, cancels or replaces: the server then finds the row gone. Of all that the commits do with
    the key of a timer the last one counts.
    """
    sends: list[MessageRow] = []
    timers: dict[TimerKey, MessageRow | None] = {}
    takes: dict[str, Taking] = {}
    for count, changes in enumerate(parts):
        if changes is None:
            continue
        for each in changes.takes:
            if each.id in takes or each.timer in timers:
                return _changes(sends, timers, takes), count
        for each in changes.takes:
            takes[each.id] = each
        for key in changes.cancels:
            timers[key] = None
        for row in changes.sends:
            if row.key is None:
                sends.append(row)
            else:
                timers[row.type_id, row.entity, row.key] = row
    return _changes(sends, timers, takes) or None, len(parts)


def _changes(
    sends: list[MessageRow], timers: Mapping[TimerKey, MessageRow | None], takes: Mapping[str, Taking]
) -> MessageChanges:
    rows = [row for row in timers.values() if row is not None]
    cancels = [key for key, row in timers.items() if row is None]
    return MessageChanges([*sends, *rows], cancels, list(takes.values()))
