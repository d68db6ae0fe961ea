"""The steps of the store's statements: the rows that each locks, in order, and those that it reads
again after a wait.

A row that is not committed is not seen; only another insert of it waits for it.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from sharding_app.adapters.memory.cluster_rows import check_row
from sharding_app.adapters.memory.locks import Key, Lock
from sharding_app.adapters.memory.steps import Pause, Steps
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, Term, shard_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import (
    ClosedShard,
    HomeChange,
    LeaveRequest,
    Member,
    MemberState,
    NumberOfWorkers,
    Server,
    ShardRow,
    StoredShard,
    TypeConfig,
)

if TYPE_CHECKING:
    from sharding_app.adapters.memory.server import MemoryServer

COORDINATOR: Key = ("coordinator",)
CLUSTER: Key = ("cluster",)


def node_key(incarnation: Incarnation) -> Key:
    return "node", incarnation


def type_key(name: str) -> Key:
    """Of the columns of a type's row."""
    return "type", name


def type_id_key(name: str) -> Key:
    """Of its number and its name: takes share them, and come before or behind changes of shards."""
    return "type's id", name


def type_row_key(name: str) -> Key:
    """Of its next version: an insert that finds the row waits until that is committed, or not."""
    return "type's row", name


def shard_key(type_id: int, shard: ShardId) -> Key:
    return "shard", type_id, shard


class Moving:
    """The rows of entities that a step of a resize gives other shards, or the first of them."""

    def __init__(
        self, server: "MemoryServer", type_name: str, before: Numbering, upto: int, at_most: int
    ) -> None:
        self._server = server
        self._type_id = type_id = server.cluster.type_ids[type_name]
        self._wanted = before.wanted
        former = frozenset(before.former(upto))
        marked = sorted(
            (shard, entity)
            for (owner, shard), entities in server.journal.remembered.items()
            if owner == type_id and shard in former
            for entity in entities
            if self._later(entity) != shard
        )
        messages = sorted(
            each.row.id
            for each in server.messages.rows.values()
            if each.row.type_id == type_id
            and each.row.shard in former
            and self._later(each.row.entity) != each.row.shard
        )
        taken = sorted(
            message
            for message, each in server.messages.marks.items()
            if each.taker[0] == type_id
            and each.taker[1] in former
            and self._later(each.taker[3]) != each.taker[1]
        )
        self.marked, self.messages, self.taken = marked[:at_most], messages[:at_most], taken[:at_most]
        self._all = all(len(each) < at_most for each in (marked, messages, taken))

    def carry_out(self) -> bool:
        """Move them. Return whether that was all."""
        remembered, messages = self._server.journal.remembered, self._server.messages
        for shard, entity in self.marked:
            del remembered[self._type_id, shard][entity]
            remembered.setdefault((self._type_id, self._later(entity)), {})[entity] = None
        for message in self.messages:
            if stored := messages.rows.get(message):
                messages.refile(stored, self._later(stored.row.entity))
        for message in self.taken:
            mark = messages.marks[message]
            taker = (mark.taker[0], self._later(mark.taker[3]), *mark.taker[2:])
            messages.marks[message] = mark._replace(taker=taker)
        return self._all

    def _later(self, entity: str) -> ShardId:
        return shard_of(entity, self._wanted)


class ClusterWrites:
    def __init__(self, server: "MemoryServer") -> None:
        self._server = server
        self._rows = server.cluster

    def register_types(
        self, configs: Sequence[TypeConfig]
    ) -> Steps[tuple[dict[str, int], dict[str, TypeConfig]]]:
        new = sorted(each.name for each in configs if each.name not in self._rows.types)
        for name in new:
            yield Lock(type_key(name))
        if new:
            yield Pause.COMMIT
        return self._rows.register_types(configs)

    def join(self, member: Member, lock_keys: tuple[int, int]) -> Steps[int]:
        """Add a member. The cluster's row is locked first: ages follow each other."""
        yield Lock(CLUSTER)
        yield Lock(node_key(member.incarnation))
        yield Pause.COMMIT
        return self._rows.join(member, lock_keys)

    def update_member(
        self,
        incarnation: Incarnation,
        state: MemberState | None,
        deaf: bool | None,
        server: Server | None,
        unsettled: bool,
        member: Member | None,
    ) -> Steps[bool]:
        yield from self._hold_member(incarnation)
        return self._rows.update_member(incarnation, state, deaf, server, unsettled, member)

    def come_back(
        self, incarnation: Incarnation, server: Server | None
    ) -> Steps[tuple[Server, list[ShardRow]] | None]:
        """Run as one statement: the homes are those of its beginning, however long it waits for the
        member's row.
        """
        homes = [row for row in self._rows.rows(None) if row.home == incarnation]
        yield from self._hold_member(incarnation)
        if not self._rows.update_member(incarnation, None, None, server, server is None, None):
            return None
        return self._server.identity, homes

    def leave(self, incarnation: Incarnation) -> Steps[None]:
        """Remove a member's row. A row that is being inserted is not seen, and stays."""
        if incarnation in self._rows.members:
            yield from self._hold_member(incarnation)
            self._rows.leave(incarnation)

    def ask_to(
        self, request: LeaveRequest | None, incarnations: Sequence[Incarnation]
    ) -> Steps[list[Incarnation]]:
        there = sorted(each for each in set(incarnations) if each in self._rows.members)
        for each in there:
            yield Lock(node_key(each))
        if there:
            yield Pause.COMMIT
        return self._rows.ask_to(request, there)

    def locate(self, type_name: str, locations: Mapping[ShardId, str]) -> Steps[bool]:
        yield from self._hold_type(type_name)
        return self._rows.locate(type_name, locations)

    def introduce_workers(self, numbers: Mapping[str, int]) -> Steps[None]:
        for name in sorted(numbers):
            if name not in self._rows.workers:
                yield from self._hold_type(name)
        self._rows.introduce_workers(numbers)

    def rescale(self, type_name: str, workers: int) -> Steps[NumberOfWorkers | None]:
        if type_name in self._rows.workers:
            yield from self._hold_type(type_name)
        return self._rows.rescale(type_name, workers)

    def put_in_force(self, term: Term, before: NumberOfWorkers) -> Steps[NumberOfWorkers | None]:
        yield from self.guard(term)
        known = self._rows.workers.get(before.type)
        if known is not None and known.revision == before.revision:
            yield from self._hold_type(before.type)
        return self._rows.put_in_force(before)

    def resize(self, type_name: str, known: int, wanted: int) -> Steps[bool]:
        self._rows.check_journals(self._server.identity.lineage)
        yield from self._hold_type(type_name)
        return self._rows.resize(type_name, known, wanted)

    def renumber(
        self, term: Term, type_name: str, before: Numbering, upto: int, least_epoch: Epoch, at_most: int
    ) -> Steps[tuple[Numbering, list[ShardRow]] | None]:
        """Lock the type's row, the messages that move, then the rows of the shards; write all of it
        at the end.
        """
        yield from self.guard(term)
        self._rows.check_journals(self._server.identity.lineage)
        if self._is_other(type_name, before):
            return None
        yield Lock(type_key(type_name))
        if self._is_other(type_name, before) or self._rows.is_moving(type_name):
            return None
        moving = Moving(self._server, type_name, before, upto, at_most)
        for message in moving.messages:
            yield Lock(("message", message))
        type_id = self._rows.type_ids[type_name]
        shards = sorted({*before.former(upto), *before.later(upto)})
        for shard in shards:
            yield Lock(shard_key(type_id, shard))
        rows = [
            self._rows.shards[type_name, each] for each in shards if (type_name, each) in self._rows.shards
        ]
        if any(each.home is not None for each in rows):
            return None
        yield Pause.COMMIT
        # A timer that was waited for may have another id now.
        if not Moving(self._server, type_name, before, upto, at_most).carry_out():
            return before, []
        epoch = max([least_epoch, *(each.epoch + 1 for each in rows)])
        found = self._rows.renumbered(type_name, upto, epoch)
        return self._rows.types[type_name].numbering, found

    def _is_other(self, type_name: str, numbering: Numbering) -> bool:
        config = self._rows.types.get(type_name)
        return config is None or not config.wanted or config.revision != numbering.revision

    def restore_shards(self, term: Term, read: frozenset[str], found: Sequence[StoredShard]) -> Steps[bool]:
        self._rows.check_term(term, self._server.identity.lineage)
        yield Lock(COORDINATOR)
        self._rows.check_term(term, self._server.identity.lineage)
        if not read.issuperset(self._rows.places):
            return False
        for name in sorted({each.type for each in found if each.type in self._rows.types}):
            yield Lock(type_key(name))
        yield Pause.COMMIT
        return self._rows.restore(read, found)

    def refile(self) -> Steps[None]:
        """Give messages of shards that there are no more their present ones."""
        cluster = self._rows
        names = {number: name for name, number in cluster.type_ids.items()}
        yield Pause.COMMIT
        for stored in list(self._server.messages.rows.values()):
            numbering = cluster.types[names[stored.row.type_id]].numbering
            if not numbering.has(stored.row.shard):
                self._server.messages.refile(stored, stored.row.shard % numbering.groups)

    def begin_move(self, type_id: int, shards: Sequence[ShardId], target: str) -> Steps[list[ShardId]]:
        type_name = self._name_of(type_id)
        if type_name is None:
            return []
        yield from self._hold_type(type_name)
        return self._rows.begin_move(type_name, shards, target)

    def close_shards(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> Steps[list[ShardId]]:
        """Lock the type's row and then those of the shards, as a step of a resize does: decisions
        that are under way come first.
        """
        type_name = self._name_of(type_id)
        if type_name is None or not self._rows.at_step(type_name, shards, "copying"):
            return []
        yield Lock(type_key(type_name))
        for shard in sorted(set(shards)):
            if (type_id, shard) in self._rows.epochs:
                yield Lock(shard_key(type_id, shard))
        yield Pause.COMMIT
        found = self._rows.at_step(type_name, shards, "copying")
        self._rows.close_until(type_name, found, self._server.now() + seconds)
        self._rows.count_closing(type_name)
        return found

    def renew_closings(self, type_id: int, shards: Sequence[ShardId], seconds: float) -> Steps[list[ShardId]]:
        type_name = self._name_of(type_id)
        if type_name is None:
            return []
        for shard in self._rows.at_step(type_name, shards, "closed"):
            yield Lock(("move", type_id, shard))
        yield Pause.COMMIT
        found = self._rows.at_step(type_name, shards, "closed")
        self._rows.close_until(type_name, found, self._server.now() + seconds)
        return found

    def open_shards(self, type_id: int, shards: Sequence[ShardId]) -> Steps[list[ShardId]]:
        type_name = self._name_of(type_id)
        if type_name is None or not self._rows.at_step(type_name, shards, "closed"):
            return []
        yield Lock(type_key(type_name))
        for shard in self._rows.at_step(type_name, shards, "closed"):
            yield Lock(("move", type_id, shard))
        yield Pause.COMMIT
        found = self._rows.at_step(type_name, shards, "closed")
        self._rows.open(type_name, found)
        self._rows.count_closing(type_name)
        return found

    def fence_moving(
        self, type_id: int, shards: Sequence[ShardId], source: str
    ) -> Steps[dict[ShardId, Epoch]]:
        """Give closed shards without a home an epoch that none of their homes has had."""
        type_name = self._name_of(type_id)
        if type_name is None:
            return {}
        for shard in sorted(set(shards)):
            if (type_id, shard) in self._rows.epochs:
                yield Lock(shard_key(type_id, shard))
        yield Pause.COMMIT
        raised: dict[ShardId, Epoch] = {}
        for shard in self._rows.at_step(type_name, shards, "closed"):
            key = type_name, shard
            row = self._rows.shards[key]
            if row.home is None and self._rows.journals[key] == source:
                raised[shard] = self._rows.epochs[type_id, shard] = row.epoch + 1
                self._rows.shards[key] = msgspec.structs.replace(row, epoch=row.epoch + 1)
        return raised

    def open_lapsed(self, term: Term) -> Steps[list[ClosedShard]]:
        yield from self.guard(term)
        types = sorted({each.type for each in self._rows.lapsed(self._server.now())})
        for name in types:
            yield Lock(type_key(name))
        if types:
            yield Pause.COMMIT
        # A closing that was renewed meanwhile has not lapsed.
        found = [each for each in self._rows.lapsed(self._server.now()) if each.type in types]
        for name in sorted({each.type for each in found}):
            self._rows.open(name, [each.shard for each in found if each.type == name])
            self._rows.count_closing(name)
        return found

    def _name_of(self, type_id: int) -> str | None:
        return next((name for name, number in self._rows.type_ids.items() if number == type_id), None)

    def decide(self, term: Term, changes: Sequence[HomeChange]) -> Steps[list[ShardRow]]:
        """Lock the existing rows in one order, whatever their epochs; then insert new rows.

        A row that another transaction inserts is not there to be changed, and is waited for only by
        an insert of the same row.
        """
        yield from self.guard(term)
        self._check(changes)
        # A shard that is new in a resize lies where the others of its group do.
        for name in sorted({each.type for each in changes if not each.expected_epoch}):
            if name in self._rows.types:
                yield Lock(type_key(name), shared=True)
        numbers, epochs = self._rows.type_ids, self._rows.epochs
        known = {(numbers[each.type], each.shard): each for each in changes if each.type in numbers}
        ordered = sorted(known.items(), key=itemgetter(0))
        for key, _ in ordered:
            if key in epochs:
                yield Lock(shard_key(*key))
        due: list[HomeChange] = []
        for key, change in ordered:
            if epochs.get(key) == change.expected_epoch:
                yield Lock(shard_key(*key))
                if epochs[key] == change.expected_epoch and (permitted := self._rows.permitted(change)):
                    due.append(permitted)
        for key, change in ordered:
            if not change.expected_epoch and key not in epochs:
                yield Lock(shard_key(*key))
                if key not in epochs and (permitted := self._rows.permitted(change)):
                    due.append(permitted)
        answer = self._rows.after(changes, due)
        yield Pause.COMMIT
        self._rows.change(term, due)
        return answer

    def _check(self, changes: Sequence[HomeChange]) -> None:
        for change in changes:
            check_row(change)
        if any(not each.expected_epoch for each in changes):
            self._rows.check_journals(self._server.identity.lineage)

    def bury(self, term: Term, incarnation: Incarnation) -> Steps[bool]:
        """End the member's sessions and remove its row. The sessions end at once, also if the
        transaction is rolled back.
        """
        yield from self.guard(term)
        if incarnation in self._rows.members:
            yield Lock(node_key(incarnation))
        if self._rows.is_locked(incarnation):
            return False
        # Its connections are named after it, whatever its row lists. One that may not be ended does
        # not stop the burial.
        self._server.end_those_of(incarnation)
        yield from self.leave(incarnation)
        return True

    def raise_term(self, incarnation: Incarnation) -> Steps[Term]:
        """Raise the term after the former coordinator's writes under way, which share the term's
        row.
        """
        yield Lock(COORDINATOR)
        server = self._server
        lineage = server.identity.lineage
        if self._rows.places and self._rows.lineage not in (None, lineage):
            for name in sorted(self._rows.types):
                yield Lock(type_key(name))
        yield Pause.COMMIT
        return self._rows.raise_term(incarnation, lineage, server.date().timestamp())

    def guard(self, term: Term) -> Steps[None]:
        """Share the term's row to the end. Raises StaleTerm, also if it was raised during the
        wait.
        """
        self._rows.check_term(term, self._server.identity.lineage)
        yield Lock(COORDINATOR, shared=True)
        self._rows.check_term(term, self._server.identity.lineage)

    def _hold_type(self, type_name: str) -> Steps[None]:
        if type_name in self._rows.types:
            yield Lock(type_key(type_name))
            yield Pause.COMMIT

    def _hold_member(self, incarnation: Incarnation) -> Steps[None]:
        if incarnation in self._rows.members:
            yield Lock(node_key(incarnation))
            yield Pause.COMMIT
