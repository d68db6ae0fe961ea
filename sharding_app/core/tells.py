"""Messages that a machine wants to have sent, gathered: what goes to the same process in one step goes in one message."""

from typing import Any

from sharding_app.core.effects import Tell, TellAll, Word
from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.core.messages import (
    AnyMessage,
    BeginHandOff,
    HandOff,
    HostShard,
    ShardHome,
)
from sharding_app.core.records import ShardRow


class Tells:
    """Adds `Tell`s to an effect list; shards of one type for one recipient share a message until the list is taken."""

    def __init__(self, out: list[Any]) -> None:
        self.out = out
        self._open: dict[tuple[object, ...], Any] = {}

    def taken(self) -> None:
        """The list was emptied: begin new messages."""
        self._open.clear()

    def to(self, incarnation: Incarnation, message: AnyMessage) -> None:
        self.out.append(Tell(incarnation, message))

    def home(self, to: Incarnation, term: Term, row: ShardRow) -> None:
        if row.home is None:
            return
        key = (to, ShardHome, row.type, row.home)
        message = self._open.get(key)
        if message is None:
            message = self._open[key] = ShardHome(term, row.type, row.home, [], [])
            self.to(to, message)
        message.shards.append(row.shard)
        message.epochs.append(row.epoch)

    def host(self, to: Incarnation, term: Term, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        key = (to, HostShard, type_name)
        message = self._open.get(key)
        if message is None:
            message = self._open[key] = HostShard(term, type_name, [], [])
            self.to(to, message)
        message.shards.append(shard)
        message.epochs.append(epoch)

    def hand_off(self, to: Incarnation, term: Term, type_name: str, shard: ShardId, epoch: Epoch) -> None:
        key = (to, HandOff, type_name)
        message = self._open.get(key)
        if message is None:
            message = self._open[key] = HandOff(term, type_name, [], [])
            self.to(to, message)
        message.shards.append(shard)
        message.epochs.append(epoch)

    def begin_hand_off(self, to: tuple[Incarnation, ...], term: Term, type_name: str, shard: ShardId) -> None:
        key = (to, BeginHandOff, type_name)
        message = self._open.get(key)
        if message is None:
            message = self._open[key] = BeginHandOff(term, type_name, [])
            self.all(to, message)
        message.shards.append(shard)

    def all(self, to: tuple[Incarnation, ...], word: Word) -> None:
        if to:
            self.out.append(TellAll(to, word))
