"""The rows of shards that move to another journal: where they are on their way, and in the journal
that they leave what was written meanwhile.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from sharding_app.protocol.ids import EntityId, ShardId
from sharding_app.protocol.records import Lineage

MoveStep = Literal["copying", "closed", "moved"]
NOT_CLEARED = "not cleared"
"""Before the walk along the first table: what the target had is not deleted yet."""


class MoveRow(NamedTuple):
    source: str
    target: str
    step: MoveStep = "copying"
    closed_until: float | None = None
    "By the server's clock."


class Note(NamedTuple):
    """Rows of an entity that were written or deleted since their copy."""

    id: int
    entity: EntityId
    first: int
    last: int


class Watched(NamedTuple):
    """How far the copy of a type's shards has come in the journal that they leave."""

    target: str
    shards: frozenset[ShardId]
    lineages: tuple[Lineage, Lineage]
    "Of this journal's server and of the other one's."
    walking: str = NOT_CLEARED
    "The table that is walked along; empty: both are copied."
    after: tuple[EntityId, int] = ("", 0)


class Watching:
    """In the journal that shards leave: what a move notes there."""

    def __init__(self) -> None:
        self.types: dict[int, Watched] = {}
        "By the types' numbers."
        self.notes: dict[int, list[Note]] = {}
        self.last_note = 0

    def note(self, type_id: int, entity: EntityId, numbers: Iterable[int]) -> None:
        """Note rows that a statement has written or deleted."""
        if type_id not in self.types:
            return
        if found := list(numbers):
            self.last_note += 1
            note = Note(self.last_note, entity, min(found), max(found))
            self.notes.setdefault(type_id, []).append(note)

    def end(self, type_id: int) -> None:
        self.types.pop(type_id, None)
        self.notes.pop(type_id, None)
