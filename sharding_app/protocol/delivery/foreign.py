"""Messages whose rows lie in another journal than their effects: decisions of their target's home.

Contract: such a message takes effect once, though no transaction reaches both its row and its
effect.

* Its handler runs only after the journal of the row has said that the row waits there.
* The commit of the handler makes a mark in its own journal, and fails if there is one.
* A failure is told only if there is no mark: an earlier delivery may have taken effect.
* A mark is removed once its row is gone, and while no delivery of the message is in hand: one that
  is may have asked for the row before that was gone. A partial mark is removed once its row is
  parked too: an operator may let the handler run again.
* A row moves to another journal with its shard, and is there before it leaves its former one. So it
  is gone once the journal that the mark names has not had it, and after that no other journal of
  the cluster. All of these are asked twice: while they are asked in turn, a row may move from one
  that is asked later to one that was asked before.

A delivery comes in hand before it asks for the row. So it is enough to look for those in hand after
the journal has said that a row is gone: a later one asks after that.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sharding_app.protocol.delivery.outcome import GONE, Outcome
from sharding_app.protocol.ids import Epoch, ShardId

LEAST_AGE_SECONDS = 2.0
"""A mark is left alone for this time: the home of the message's owner deletes the row meanwhile."""

Place = tuple[int, ShardId]
"""A type's number, and a shard."""


class Standing(NamedTuple):
    """A row as its journal has it."""

    parked: bool
    seconds: float
    "Until it is due, by the clock of that journal's server. 0: it is due."


class TakenMark(NamedTuple):
    """The mark of a message that has taken effect here."""

    id: str
    "Of the message."
    type_id: int
    shard: ShardId
    "Together with `type_id`: that of the entity that took it."
    journal: str
    "In which the row lies."
    partial: bool
    "A handler has committed in its middle, and did not end."
    age: float
    "Seconds since it was made, by the clock of its journal's server."


def before_the_handler(found: Standing | None) -> Outcome | None:
    """Return the outcome of a delivery whose row is found so; None: its handler may run."""
    if found is None or found.parked:
        return GONE
    return Outcome("early", found.seconds) if found.seconds > 0.0 else None


class Search:
    """Looks for the rows of some marks. Ask the journals that they name, and then twice all
    journals of the cluster, as the rows of its shards name them by then.
    """

    def __init__(self, marks: Iterable[TakenMark]) -> None:
        self._left = {each.id: each for each in marks if each.age >= LEAST_AGE_SECONDS}
        "Marks whose rows were not found so far."

    def named(self) -> dict[str, list[str]]:
        """Return the messages whose rows are to be looked for, by the journals that marks name."""
        found: dict[str, list[str]] = {}
        for each in self._left.values():
            found.setdefault(each.journal, []).append(each.id)
        return found

    def left(self) -> list[str]:
        """Return the messages whose rows are to be looked for in all journals."""
        return list(self._left)

    def answer(self, asked: Iterable[str], rows: Mapping[str, Standing] | None) -> None:
        """Take in which of these rows stand in a journal; None: it does not answer."""
        for message in asked:
            row = None if rows is None else rows.get(message)
            stands = row is not None and not (self._left[message].partial and row.parked)
            if rows is None or stands:
                del self._left[message]

    def spent(self, in_hand: Callable[[TakenMark], bool]) -> dict[Place, list[str]]:
        """Return the messages whose marks may be removed, by shard. `in_hand` tells the present,
        which is later than all answers.
        """
        found: dict[Place, list[str]] = {}
        for each in self._left.values():
            if not in_hand(each):
                found.setdefault((each.type_id, each.shard), []).append(each.id)
        return found


class MarkedShards:
    """Which shards at home here may have marks: all that have come, until a look finds none."""

    def __init__(self) -> None:
        self._without: dict[Place, Epoch] = {}
        "Shards that had none at the last look, at these epochs."
        self._touched: set[Place] = set()
        "Shards that have taken a foreign message since the look began."

    def took(self, place: Place) -> None:
        """Take in that a shard makes a mark."""
        self._touched.add(place)

    def begin(self, homes: Mapping[Place, Epoch], busy: Iterable[Place]) -> list[Place]:
        """Return the shards to look at now. `busy`: those that are about to make marks."""
        self._touched.update(busy)
        self._without = {
            place: epoch
            for place, epoch in self._without.items()
            if homes.get(place) == epoch and place not in self._touched
        }
        self._touched = set(busy)
        return [place for place in homes if place not in self._without]

    def end(self, looked_at: Iterable[Place], homes: Mapping[Place, Epoch], marked: Iterable[Place]) -> None:
        """Take in the end of a look that went through all marks of these shards. `homes`: those of
        its beginning.
        """
        skipped = self._touched.union(marked)
        self._without |= {place: homes[place] for place in looked_at if place not in skipped}
