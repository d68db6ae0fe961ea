"""What a turn asks of the database, within its one transaction, and the answers."""

from typing import NamedTuple

from sharding_app.protocol.projection.view import View

Key = tuple[int, str]
"""An entity: the number of its type, and its id."""


class Position(NamedTuple):
    """How far a projection has come with the entities of a range of slices."""

    first: int
    last: int
    view: View
    turn: int = 0
    "Grows with each turn that has changed the row."
    events: int = 0
    "Number of events that were handled, ever."
    fill_type: int | None = None
    "The type that the first fill reads; None: it is over."
    fill_after: str = ""
    "The last entity that is done."
    fill_until: int | None = None
    "Until the view has passed this transaction, changes may have been handled by the fill."

    @property
    def is_filling(self) -> bool:
        return self.fill_type is not None


class Taken(NamedTuple):
    positions: list[Position]
    "All that share a slice with the part, locked to the end of the transaction."
    paused: bool
    holds: bool
    "Entities wait after a failure, or have just caught up."
    age: float
    "Seconds since the oldest of the positions was changed."


class Take(NamedTuple):
    """Lock the positions of a range of slices. Answer: `Taken`."""

    first: int
    last: int


class Change(NamedTuple):
    """New events of an entity: those of one append, from one number to another."""

    xid: int
    type_id: int
    entity: str
    slice: int
    first: int
    last: int
    erased: bool = False
    "All events from `first` on are gone."

    @property
    def key(self) -> Key:
        return self.type_id, self.entity


class Changes(NamedTuple):
    """Read the changes that the positions have not seen, in the order of their transactions.

    Answer: `Found`. Transactions are never divided.
    """

    types: tuple[int, ...]
    first: int
    last: int
    limit: int
    "Of events; the last transaction may go beyond it."


class Found(NamedTuple):
    view: View
    "All that is read is seen by it."
    bound: int | None
    "Changes of this transaction and later ones were not read; None: all were."
    changes: list[Change]
    any: bool
    "There were changes, be it of other slices."


class Held(NamedTuple):
    """An entity that waits, since the handler has failed at one of its events."""

    type_id: int
    entity: str
    slice: int
    next: int
    "The first event that is not handled."
    until: int | None = None
    "It has caught up. Until the view has passed this transaction, earlier events come again."
    failures: int = 0
    delay: float = 0.0
    "Seconds until it is tried again."
    parked: bool = False
    error: str = ""

    @property
    def key(self) -> Key:
        return self.type_id, self.entity


class ReadHeld(NamedTuple):
    """Read which of these entities wait. Answer: a list of `Held`."""

    keys: list[Key]


class ReadDue(NamedTuple):
    """Read entities that are to be tried again now. Answer: a list of `Held`."""

    first: int
    last: int
    limit: int


class PutHeld(NamedTuple):
    """Write that an entity waits, or has caught up."""

    held: Held


class DropHeld(NamedTuple):
    """Write that an entity does not wait."""

    key: Key


class ReadFilled(NamedTuple):
    """Read which views the fill has used for these. Answer: a dict of `Key` to `View`."""

    changes: list[Change]


class PutFilled(NamedTuple):
    """Write that the fill has handled what a view sees of the entities up to one."""

    type_id: int
    first: int
    last: int
    upto: str | None
    "None: up to the end."
    view: View


class ReadKeys(NamedTuple):
    """Read the next entities of a type, and the numbers of their last events. Answer: `Keys`."""

    type_id: int
    after: str
    first: int
    last: int
    limit: int
    "Of entities that are looked at, those of other slices too."


class FillKey(NamedTuple):
    entity: str
    slice: int
    first: int
    "The number of the first event that is stored."
    last: int


class Keys(NamedTuple):
    view: View
    keys: list[FillKey]
    upto: str | None
    "The last entity that was looked at; None: the end is reached."


class Span(NamedTuple):
    """Events of one entity, from one number to another."""

    type_id: int
    entity: str
    first: int
    last: int

    @property
    def key(self) -> Key:
        return self.type_id, self.entity


class StoredEvent(NamedTuple):
    type_id: int
    entity: str
    seq: int
    name: str
    version: int
    payload: bytes
    at: object
    "As the database gives times."

    @property
    def key(self) -> Key:
        return self.type_id, self.entity


class ReadEvents(NamedTuple):
    """Read events of entities, in the order of the spans. Answer: a list of `StoredEvent`, no more
    than the limit, and at least one if there is one.
    """

    spans: list[Span]
    limit: int


class ReadErased(NamedTuple):
    """Read which of these entities were erased by transactions that the positions have not seen,
    as of now. Answer: a list of `Change`.
    """

    types: tuple[int, ...]
    first: int
    last: int
    keys: list[Key]


class Look(NamedTuple):
    """Answer: the present `View`."""


class Feed(NamedTuple):
    """Let the projection handle events. Answer: None, or the text of an error.

    A `careful` one is undone by itself if it fails. Otherwise a failure ends the turn.
    """

    events: list[StoredEvent]
    careful: bool


class TellErased(NamedTuple):
    """Let the projection handle that an entity was erased. Answer and `careful` as with `Feed`."""

    key: Key
    careful: bool


class Save(NamedTuple):
    """Write these positions in place of those that were taken."""

    positions: list[Position]


Request = (
    Take
    | Changes
    | ReadHeld
    | ReadDue
    | PutHeld
    | DropHeld
    | ReadFilled
    | PutFilled
    | ReadKeys
    | ReadEvents
    | ReadErased
    | Look
    | Feed
    | TellErased
    | Save
)
