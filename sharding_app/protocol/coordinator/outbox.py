"""The coordinator's effects, in their order: changes to write, messages to send, lines to note.

Contract: all parts add their effects here. Shards of one type for one recipient share a message
until the effects are taken.
"""

from collections.abc import Callable, Iterable
from typing import Any

from sharding_app.protocol.coordinator.effects import (
    Bury,
    CoordinatorEffect,
    Decide,
    Note,
    PutInForce,
    ReadClosings,
    ReadShards,
    Renumber,
    Tell,
    TellAll,
    Word,
)
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.protocol.messages import AnyMessage, BeginHandOff, HandOff, HostShard, ShardHome
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Decision, HomeChange, NumberOfWorkers, ShardRow


class Outbox:
    def __init__(self, term: Term) -> None:
        self.term = term
        self.effects: list[CoordinatorEffect] = []
        self._open: dict[tuple[object, ...], tuple[list[Any], ...]] = {}
        "The lists of messages that more shards may join."

    def take(self) -> list[CoordinatorEffect]:
        """Return all effects, and begin new ones."""
        self._open.clear()
        effects, self.effects = self.effects, []
        return effects

    def take_messages(self) -> list[Tell | TellAll]:
        """Return the messages, and begin new ones. The other effects stay in their place."""
        effects = self.take()
        self.effects = [each for each in effects if not isinstance(each, Tell | TellAll)]
        return [each for each in effects if isinstance(each, Tell | TellAll)]

    # -- Effects -----------------------------------------------------------------------------------

    def decide(self, changes: list[HomeChange]) -> None:
        if changes:
            self.effects.append(Decide(changes))

    def bury(self, incarnation: Incarnation) -> None:
        self.effects.append(Bury(incarnation))

    def put_in_force(self, before: NumberOfWorkers) -> None:
        self.effects.append(PutInForce(before))

    def renumber(self, type_name: str, before: Numbering, upto: int, least_epoch: Epoch) -> None:
        self.effects.append(Renumber(type_name, before, upto, least_epoch))

    def read_shards(self, types: Iterable[str]) -> None:
        if names := list(types):
            self.effects.append(ReadShards(names))

    def read_closings(self) -> None:
        self.effects.append(ReadClosings())

    def note(self, action: str, subject: str, detail: str = "") -> None:
        self.effects.append(Note(Decision(action, subject, detail)))

    # -- Messages ----------------------------------------------------------------------------------

    def tell(self, to: Incarnation, message: AnyMessage) -> None:
        self.effects.append(Tell(to, message))

    def tell_all(self, to: tuple[Incarnation, ...], word: Word) -> None:
        if to:
            self.effects.append(TellAll(to, word))

    def home(self, to: Incarnation, row: ShardRow) -> None:
        if row.home is not None:
            self._join(self.tell, to, ShardHome, (row.type, row.home), row.shard, row.epoch)

    def host(self, to: Incarnation, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        self._join(self.tell, to, HostShard, (type_name,), shard, epoch)

    def hand_off(self, to: Incarnation, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        self._join(self.tell, to, HandOff, (type_name,), shard, epoch)

    def begin_hand_off(self, to: tuple[Incarnation, ...], type_name: str, shard: ShardId) -> None:
        self._join(self.tell_all, to, BeginHandOff, (type_name,), shard)

    def _join(
        self,
        send: Callable[[Any, Any], None],
        to: object,
        kind: Callable[..., object],
        facts: tuple[str, ...],
        *of_shard: int,
    ) -> None:
        """Add a shard, and its epoch, to the open message of this kind and these facts."""
        key = (to, kind, facts)
        columns = self._open.get(key)
        if columns is None:
            columns = self._open[key] = tuple([] for _ in of_shard)
            send(to, kind(self.term, *facts, *columns))
        for column, value in zip(columns, of_shard, strict=True):
            column.append(value)
