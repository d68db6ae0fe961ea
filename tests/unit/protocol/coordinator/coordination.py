"""A coordinator machine with a store that always answers, and regions that do what they are told,
unless told not to.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from sharding_app.adapters.memory.cluster_rows import ClusterRows, check_row
from sharding_app.ports.store import StoreRefused
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.coordinator.effects import (
    Bury,
    Decide,
    Note,
    ReadClosings,
    ReadShards,
    Renumber,
    Tell,
    TellAll,
)
from sharding_app.protocol.coordinator.machine import Coordinator
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.ids import ShardKey, Term
from sharding_app.protocol.messages import (
    AnyMessage,
    BeginHandOff,
    HandOff,
    HostShard,
    NodeGone,
    RegisterAck,
    ShardHome,
)
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Decision, HomeChange, Member, ShardRow

TYPE = "shop.Cart"
M = TypeVar("M", bound=AnyMessage)


def node(name: str, age: int, **changes: Any) -> Member:
    fields: dict[str, Any] = {
        "incarnation": name, "name": f"node-{name}", "host": "here", "pid": age, "age": age, "state": "up",
        "types": (TYPE,), "locks": 2,
    }  # fmt: skip
    return Member(**{**fields, **changes})


class Play:
    """Time stands still unless `wait` is called."""

    def __init__(
        self,
        members: Sequence[Member],
        *,
        strategy: ShardAllocationStrategy | None = None,
        strategy_of: Callable[[str], ShardAllocationStrategy] | None = None,
        strategy_clock: Callable[[], float] = float,
        settings: CoordinatorSettings | None = None,
        rows: Iterable[ShardRow] = (),
        numbers: Mapping[str, int] | None = None,
        unheard: Collection[str] = (),
        store: ClusterRows | None = None,
        term: Term = 1,
        starts_nothing: Collection[str] = (),
        unread: Collection[str] = (),
    ) -> None:
        chosen = strategy or LeastShardAllocation()
        self.now = 0.0
        self.members = {each.incarnation: each for each in members}
        self.store = store
        "Whose rules hold for the rows, if one is given."
        self.rows: dict[ShardKey, ShardRow] = (
            store.shards if store is not None else {(row.type, row.shard): row for row in rows}
        )
        self.told: list[tuple[str, AnyMessage]] = []
        self.notes: list[Decision] = []
        self.silent: set[str] = set()
        "Processes that do not react."
        self.unheard = set(unheard)
        "Those whose registrations do not arrive."
        self.starts_nothing = set(starts_nothing)
        "Those that never start a shard, but do the rest."
        self.on_decide: Callable[[HomeChange], None] = lambda _: None
        self.refused: set[ShardKey] = set()
        "Shards whose rows the store refuses to write."
        self.decided_times = 0
        self.steps: list[Renumber] = []
        "Steps of resizes, in their order."
        self.no_step = False
        "The store takes none."
        first = next(iter(self.members))
        self.machine = Coordinator(
            first, term, settings or CoordinatorSettings(), strategy_of or (lambda _: chosen), strategy_clock
        )
        known = {name: Numbering(number) for name, number in (numbers or {}).items()}
        if store is not None:
            known |= {name: config.numbering for name, config in store.types.items()}
        self.machine.placement.unread = frozenset(unread)
        self.machine.types_read(known)
        self.read_closings()
        self.machine.loaded(list(self.rows.values()), list(members), self.now)
        self.play()

    # -- What happens ------------------------------------------------------------------------------

    def ask(self, who: str, *shards: int, type_name: str = TYPE) -> None:
        self.machine.get_shard_home(who, type_name, shards, self.now)
        self.play()

    def read(self, *, dead: Sequence[str] = (), suspect: Sequence[str] = ()) -> None:
        """Read the member rows."""
        self.machine.members_read(list(self.members.values()), dead, suspect, self.now)
        self.play()

    def join(self, *members: Member) -> None:
        self.members.update({each.incarnation: each for each in members})
        self.read()

    def change(self, name: str, **changes: Any) -> None:
        self.members[name] = msgspec.structs.replace(self.members[name], **changes)
        self.read()

    def die(self, name: str) -> None:
        self.silent.add(name)
        self.read(dead=[name])

    def wait(self, seconds: float, step: float = 0.05) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + step)
            self.machine.tick(self.now)
            self.play()

    # -- What is to be seen ------------------------------------------------------------------------

    def homes(self, type_name: str = TYPE) -> dict[int, str | None]:
        return {shard: row.home for (name, shard), row in sorted(self.rows.items()) if name == type_name}

    def shards_of(self, name: str) -> list[int]:
        return [shard for shard, home in self.homes().items() if home == name]

    def heard(self, who: str, kind: type[M]) -> list[M]:
        return [message for to, message in self.told if to == who and isinstance(message, kind)]

    def gone(self, who: str) -> list[str]:
        """Whose end this process was told of."""
        return [each.incarnation for each in self.heard(who, NodeGone)]

    def noted(self, action: str) -> list[str]:
        return [each.subject for each in self.notes if each.action == action]

    # -- Inside ------------------------------------------------------------------------------------

    def play(self) -> None:
        """Carry out what the machine wants, and let the processes answer, until nothing is left."""
        machine = self.machine
        while machine.outbox.effects:
            effects = machine.outbox.take()
            for effect in effects:
                match effect:
                    case Decide():
                        self.decided_times += 1
                        self.refuse_or_write(effect.changes)
                    case ReadShards() | ReadClosings():
                        self._read(effect)
                    case Bury():
                        self.members.pop(effect.incarnation, None)
                        machine.buried(effect.incarnation, self.now)
                    case Tell():
                        self.told.append((effect.to, effect.message))
                        self._react(effect.to, effect.message)
                    case TellAll():
                        for who in effect.to:
                            self.told.append((who, effect.word))
                        for who in effect.to:
                            self._react(who, effect.word)
                    case Renumber():
                        self._renumber(effect)
                    case Note():
                        self.notes.append(effect.decision)

    def _read(self, effect: ReadShards | ReadClosings) -> None:
        if isinstance(effect, ReadClosings):
            self.read_closings()
            return
        found = [row for row in self.rows.values() if row.type in effect.types]
        self.machine.rows_read(effect.types, found, self.now)

    def _renumber(self, effect: Renumber) -> None:
        """Take a step of a resize by the rules of the store."""
        self.steps.append(effect)
        if self.store is None or self.no_step:
            self.machine.not_renumbered(effect.type, self.now)
            return
        shards = {*effect.before.former(effect.upto), *effect.before.later(effect.upto)}
        homes = [
            row.home for (name, shard), row in self.rows.items() if name == effect.type and shard in shards
        ]
        assert not any(homes), "no shard of the step has a home"
        rows = self.store.renumbered(effect.type, effect.upto, effect.least_epoch)
        after = self.store.types[effect.type].numbering
        self.machine.renumbered(effect.type, effect.before, after, rows, self.now)

    def read_closings(self) -> None:
        """Read which shards are closed, as the shell does."""
        if self.store is None:
            return
        closed = self.store.closed()
        opened = self.machine.closings.opened(closed)
        rows = [self.store.shards[name, shard] for name, shards in opened.items() for shard in shards]
        self.machine.closings_read(closed, rows, self.now)

    def refuse_or_write(self, given: Sequence[HomeChange]) -> None:
        bad = [each for each in given if (each.type, each.shard) in self.refused or self._cannot_be(each)]
        if bad:
            self.machine.refused(bad, "the test wants it so", self.now)
        changes = [each for each in given if each not in bad]
        if changes:
            self.machine.decided(changes, self._write(changes), self.now)

    def _cannot_be(self, change: HomeChange) -> bool:
        try:
            if self.store is not None:
                check_row(change)
        except StoreRefused:
            return True
        return False

    def _write(self, changes: Sequence[HomeChange]) -> list[ShardRow]:
        if self.store is not None:
            epochs, numbers = self.store.epochs, self.store.type_ids
            due = [
                permitted
                for each in changes
                if epochs.get((numbers[each.type], each.shard), 0) == each.expected_epoch
                and (permitted := self.store.permitted(each))
            ]
            answer = self.store.after(changes, due)
            self.store.change(1, due)
            return answer
        for each in changes:
            self.on_decide(each)
            row = self.rows.get((each.type, each.shard))
            if (row.epoch if row is not None else 0) == each.expected_epoch:
                self.rows[each.type, each.shard] = ShardRow(
                    each.type, each.shard, each.epoch, each.home, each.step
                )
        keys = dict.fromkeys((each.type, each.shard) for each in changes)
        return [self.rows[key] for key in keys if key in self.rows]

    def _react(self, who: str, message: AnyMessage) -> None:
        if who in self.silent or who not in self.members:
            return
        match message:
            case HostShard() if who not in self.starts_nothing:
                self.machine.shard_started(who, message.type, message.shards, message.epochs, self.now)
            case RegisterAck() if not message.heard and who not in self.unheard:
                self.machine.registered(who, message.term, self.now)
            case BeginHandOff():
                self.machine.handoffs.acknowledged(who, message.type, message.shards, self.now)
            case HandOff():
                self.machine.handoffs.stopped(who, message.type, message.shards, message.epochs, self.now)


def told_home(play: Play, who: str, shard: int) -> str | None:
    """The home that this process was told last."""
    found = None
    for message in play.heard(who, ShardHome):
        if shard in message.shards:
            found = message.home
    return found
