"""Effects of the coordinator's machines: requests to their shell, to be carried out in order."""

import msgspec

from sharding_app.protocol.ids import Epoch, Incarnation
from sharding_app.protocol.messages import AnyMessage, BeginHandOff, NodeGone, Renumbered, ShardHome
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Decision, HomeChange, NumberOfWorkers

Word = ShardHome | BeginHandOff | NodeGone | Renumbered


class Decide(msgspec.Struct, frozen=True):
    """Write these changes, guarded by the term; report with `decided` or `undecided`."""

    changes: list[HomeChange]


class Bury(msgspec.Struct, frozen=True):
    """End the dead member's backends and remove its row; report with `buried` or `unburied`."""

    incarnation: Incarnation


class PutInForce(msgspec.Struct, frozen=True):
    """Put the wanted number of workers in force, guarded by the term; report with `in_force` or
    `not_in_force`.
    """

    before: NumberOfWorkers


class Renumber(msgspec.Struct, frozen=True):
    """Give the rows of some groups of shards their new shards, guarded by the term; report with
    `renumbered` or `not_renumbered`.
    """

    type: str
    before: Numbering
    upto: int
    "How many groups have changed then."
    least_epoch: Epoch
    "The shards get this epoch, or a higher one: none was ever given out for any of them."


class ReadShards(msgspec.Struct, frozen=True):
    """Read all rows of these types again: some have vanished. Report with `rows_read`."""

    types: list[str]


class ReadClosings(msgspec.Struct, frozen=True):
    """Read which shards are closed for a move: one was not known. Report with `closings_read`."""


class Tell(msgspec.Struct, frozen=True):
    """Send a message to a process."""

    to: Incarnation
    message: AnyMessage


class TellAll(msgspec.Struct, frozen=True):
    """Send the same message to many processes, encoded once."""

    to: tuple[Incarnation, ...]
    word: Word


class Note(msgspec.Struct, frozen=True):
    """One decision for the log, the timeline and the signals."""

    decision: Decision


CoordinatorEffect = Decide | Bury | PutInForce | Renumber | ReadShards | ReadClosings | Tell | TellAll | Note
