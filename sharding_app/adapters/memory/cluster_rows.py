"""The cluster's tables (types, members, homes, the term, the timeline), with the rules of the
store's SQL.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from sharding_app.adapters.memory.move_rows import MoveRow, MoveStep
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.ports.store import StaleTerm, StoreRefused
from sharding_app.protocol.coordinator.terms import begins_era, era_of, next_term
from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId, ShardKey, Term, shard_of
from sharding_app.protocol.journals import CLUSTERS_OWN, journal_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import (
    ClosedShard,
    CoordinatorRow,
    Decision,
    HomeChange,
    LeaveRequest,
    Lineage,
    Member,
    MemberState,
    NumberOfWorkers,
    Server,
    ShardRow,
    ShardStep,
    StoredShard,
    TypeConfig,
)

TIMELINE_LINES = 1000
"""Lines of the timeline that are kept of each action."""


class ClusterRows:
    """The tables. Every method is one transaction, or the moment of its commit
    (`cluster_writes`).
    """

    def __init__(
        self, is_locked: Callable[[int], bool], uses_messages: Callable[[int], bool] = lambda _: False
    ) -> None:
        """`uses_messages`: whether entities of that type have stored messages or timers."""
        self._is_locked = is_locked
        self._uses_messages = uses_messages
        self.types: dict[str, TypeConfig] = {}
        self.type_ids: dict[str, int] = {}
        self.members: dict[Incarnation, Member] = {}
        self.lock_keys: dict[Incarnation, tuple[int, int]] = {}
        self.leases_until: dict[Incarnation, float] = {}
        "Of the members' rows: until when their leases of shards and singletons last."
        self.journals_of: dict[Incarnation, frozenset[str]] = {}
        "Of the members' rows: the further journals that they use."
        self.last_age = 0
        self.coordinator = CoordinatorRow(0, None)
        self.lineage: Lineage | None = None
        "The lineage of the last election."
        self.journals_read = 0
        "The last era in which rows of shards that are lost here were looked for in the journals."
        self.shards: dict[ShardKey, ShardRow] = {}
        self.journals: dict[ShardKey, str] = {}
        "In which journal the rows of each shard's entities lie."
        self.journal_weights: Mapping[str, float] = {}
        "By which new shards are spread over the journals."
        self.numbers_here: dict[int, Numbering] = {}
        """Of a further journal: the numbers of shards that its rows follow, by the type's
        number."""
        self.left: dict[tuple[int, ShardId], str] = {}
        """Of a further journal: the shards that have moved to another one, with its name, by the
        type's number."""
        self.moves: dict[ShardKey, MoveRow] = {}
        "Shards that move to another journal."
        self.places: dict[str, str] = {}
        "Where the further journals lie, by their names."
        self.locations: dict[str, dict[ShardId, str]] = {}
        self.location_changes: dict[str, int] = {}
        self.workers: dict[str, NumberOfWorkers] = {}
        self.epochs: dict[tuple[int, ShardId], Epoch] = {}
        "The epochs again, by the type's number: the journal's fence reads them."
        self.on_decide: Callable[[Term, ShardRow | None, ShardRow], None] | None = None
        "Called with each changed row, before and after, and the term of the writer: for checks."
        self.on_take: Callable[[str, int, ShardId, Epoch, Incarnation], None] | None = None
        "Called with each shard that a home has taken (`take`): for checks."
        self.on_switch: Callable[[ShardKey, MoveRow], None] | None = None
        "Called with each shard that has just moved to another journal: for checks."
        self.timeline: list[Decision] = []

    # -- The timeline ------------------------------------------------------------------------------

    def record(self, decisions: Sequence[Decision]) -> None:
        """Add lines. Of each action the newest are kept."""
        self.timeline += decisions
        lines = Counter(each.action for each in self.timeline)
        beyond = {action: number - TIMELINE_LINES for action, number in lines.items()}
        if max(beyond.values(), default=0) <= 0:
            return
        kept = []
        for each in self.timeline:
            beyond[each.action] -= 1
            if beyond[each.action] < 0:
                kept.append(each)
        self.timeline = kept

    # -- Types -------------------------------------------------------------------------------------

    def register_types(self, configs: Sequence[TypeConfig]) -> tuple[dict[str, int], dict[str, TypeConfig]]:
        differing = {}
        for config in configs:
            known = self.types.setdefault(config.name, config)
            self.type_ids.setdefault(config.name, len(self.type_ids) + 1)
            if known.as_declared(config) != config:
                differing[config.name] = known
        return {config.name: self.type_ids[config.name] for config in configs}, differing

    # -- Members -----------------------------------------------------------------------------------

    def join(self, member: Member, lock_keys: tuple[int, int]) -> int:
        """Add a member. Joining again with the same incarnation keeps the age: the first answer may
        have been lost.
        """
        self.last_age += 1
        known = self.members.get(member.incarnation)
        age = self.last_age if known is None else known.age
        asked = None if known is None else known.asked
        self.members[member.incarnation] = msgspec.structs.replace(member, age=age, locks=0, asked=asked)
        self.lock_keys[member.incarnation] = lock_keys
        return age

    def use_journal(self, incarnation: Incarnation, name: str, place: str | None) -> str | None:
        if place is not None and place not in self.places.values():
            self.places.setdefault(name, place)
        known = self.places.get(name, "")
        if incarnation not in self.members:
            return None
        before = self.journals_of.get(incarnation, frozenset())
        if place in (None, known):
            self.journals_of[incarnation] = before - {name} if place is None else before | {name}
        return known

    def journals_in_use(self, but: Incarnation) -> frozenset[str]:
        up = [each for each, row in self.members.items() if row.state == "up" and each != but]
        return frozenset(name for each in up for name in self.journals_of.get(each, ()))

    def journals_used(self) -> frozenset[str]:
        lying = (self.journals.get((row.type, row.shard), CLUSTERS_OWN) for row in self.present())
        return frozenset(name for name in lying if name)

    def shard_journals(self, type_id: int) -> dict[ShardId, str]:
        return {
            row.shard: self.journals.get(key, CLUSTERS_OWN)
            for key, row in self.shards.items()
            if self.type_ids[row.type] == type_id
        }

    def elsewhere(self, shards: Iterable[tuple[int, ShardId]]) -> frozenset[tuple[int, ShardId]]:
        """Return those of the shards that lie in another journal than this database."""
        wanted = frozenset(shards)
        if not self.left and not any(self.journals.values()):
            return frozenset()
        names = {number: name for name, number in self.type_ids.items()}
        return frozenset(
            (number, shard)
            for number, shard in wanted
            if (number, shard) in self.left or self.journals.get((names.get(number, ""), shard))
        )

    def update_member(
        self,
        incarnation: Incarnation,
        state: MemberState | None,
        deaf: bool | None,
        server: Server | None,
        unsettled: bool,
        member: Member | None,
    ) -> bool:
        row = self.members.get(incarnation)
        if row is None:
            return False
        if member is not None:
            row = msgspec.structs.replace(
                row, roles=member.roles, types=member.types, backends=member.backends
            )
        self.members[incarnation] = msgspec.structs.replace(
            row,
            state=row.state if state is None else state,
            deaf=row.deaf if deaf is None else deaf,
            server=None if unsettled else row.server if server is None else server,
        )
        return True

    def leave(self, incarnation: Incarnation) -> None:
        self.members.pop(incarnation, None)
        self.lock_keys.pop(incarnation, None)
        self.leases_until.pop(incarnation, None)
        self.journals_of.pop(incarnation, None)

    def ask_to(self, request: LeaveRequest | None, incarnations: Sequence[Incarnation]) -> list[Incarnation]:
        there = [each for each in dict.fromkeys(incarnations) if each in self.members]
        for each in there:
            self.members[each] = msgspec.structs.replace(self.members[each], asked=request)
        return sorted(there)

    def is_locked(self, incarnation: Incarnation) -> bool:
        return any(map(self._is_locked, self.lock_keys.get(incarnation, ())))

    def with_locks(self) -> list[Member]:
        """Return every member with the locks that it holds at this moment, oldest first."""
        return [
            msgspec.structs.replace(member, locks=sum(map(self._is_locked, self.lock_keys[incarnation])))
            for incarnation, member in sorted(self.members.items(), key=lambda item: item[1].age)
        ]

    # -- The term ----------------------------------------------------------------------------------

    def check_term(self, term: Term, lineage: Lineage) -> None:
        """`lineage`: that in which the server is now."""
        if not term or term != self.coordinator.term:
            raise StaleTerm(f"the term is {self.coordinator.term}, not {term}")
        if self.lineage not in (None, lineage):
            raise StaleTerm(f"the term {term} is one of {self.lineage}, which the server has left")

    def coordinator_row(self) -> CoordinatorRow:
        return msgspec.structs.replace(self.coordinator, numbers=self.numbers)

    @property
    def numbers(self) -> int:
        return sum(each.revision + each.closings for each in self.types.values())

    def older_candidates(self, incarnation: Incarnation) -> int:
        """Count the older live candidates, to whom the coordinator's lock is left. A candidate
        without a row leaves it too.
        """
        me = self.members.get(incarnation)
        if me is None:
            return 1
        return sum(
            each.age < me.age and each.candidate and each.state == "up" and not each.deaf and each.locks == 2
            for each in self.with_locks()
        )

    def raise_term(self, incarnation: Incarnation, lineage: Lineage | None = None, now: float = 0.0) -> Term:
        same = self.lineage in (None, lineage)
        timeline = 0 if lineage is None else lineage.timeline
        term = next_term(self.coordinator.term, same_lineage=same, now_seconds=int(now), timeline=timeline)
        self.coordinator, self.lineage = CoordinatorRow(term, incarnation), lineage
        if not same and not self.places:
            self.journals_read = era_of(term)
        if begins_era(term) and self.places:
            # Further journals may follow numbers that this server has lost.
            for name, each in self.types.items():
                self.types[name] = msgspec.structs.replace(each, revision=max(each.revision + 1, term))
        return term

    # -- Rows that are lost ------------------------------------------------------------------------

    def journals_to_read(self, lineage: Lineage) -> frozenset[str] | None:
        """`lineage`: that in which the server is now. Its first election comes before all else."""
        elected = self.lineage in (None, lineage)
        if elected and era_of(self.coordinator.term) <= self.journals_read:
            return None
        return frozenset(self.places)

    def check_journals(self, lineage: Lineage) -> None:
        """Refuse to place shards of which another journal may have rows."""
        if unread := self.journals_to_read(lineage):
            raise ServerError(
                "SH004", f"it is not read yet which shards lie in the journals {', '.join(sorted(unread))}"
            )

    def restore(self, read: frozenset[str], found: Sequence[StoredShard]) -> bool:
        """Make rows for shards that were found in further journals and have none here."""
        if not read.issuperset(self.places):
            return False
        found = [each for each in found if each.type in self.types]
        for each in found:
            config = self.types[each.type]
            known = {0, *config.declared, config.number_of_shards, config.wanted}
            theirs = {each.numbering.shards, each.numbering.wanted}
            if not theirs <= known:
                declared = tuple(sorted((known | theirs) - {0}))
                self.types[each.type] = msgspec.structs.replace(config, declared=declared)
        stands = [
            (self.types[each.type].numbering.stands_for(each.shard, each.numbering), each) for each in found
        ]
        # Itself before another one, where a home had it before a copy, and the latest.
        order = ("home", "stopped", "copied")
        stands.sort(
            key=lambda found: (found[0] != found[1].shard, order.index(found[1].step), -found[1].epoch)
        )
        for shard, each in stands:
            if (each.type, shard) not in self.shards:
                self.add_stopped(each.type, self.type_ids[each.type], {shard: each.epoch})
                self.journals[each.type, shard] = each.journal
        self.journals_read = era_of(self.coordinator.term)
        return True

    def stored_shards(self, name: str) -> list[StoredShard]:
        """Return the shards that lie in this further journal."""
        numbers = self.numbers_here
        return [
            StoredShard(row.type, row.shard, row.epoch, name, row.step, numbers[type_id])
            for row in self.shards.values()
            if ((type_id := self.type_ids[row.type]), row.shard) not in self.left
        ]

    # -- Locations ---------------------------------------------------------------------------------

    def locate(self, type_name: str, locations: Mapping[ShardId, str]) -> bool:
        if type_name not in self.types:
            return False
        self.locations.setdefault(type_name, {}).update(locations)
        self.location_changes[type_name] = self.location_changes.get(type_name, 0) + 1
        return True

    def located(self, type_name: str, known: int | None) -> tuple[int, dict[ShardId, str]] | None:
        change = self.location_changes.get(type_name, 0) if type_name in self.types else None
        if change is None or change == known:
            return None
        return change, dict(sorted(self.locations.get(type_name, {}).items()))

    # -- Workers -----------------------------------------------------------------------------------

    def introduce_workers(self, numbers: Mapping[str, int]) -> None:
        for name, number in numbers.items():
            if name in self.types:
                self.workers.setdefault(name, NumberOfWorkers(name, number, number))

    def rescale(self, type_name: str, workers: int) -> NumberOfWorkers | None:
        known = self.workers.get(type_name)
        if known is not None:
            known = self.workers[type_name] = msgspec.structs.replace(known, wanted=workers)
        return known

    def put_in_force(self, before: NumberOfWorkers) -> NumberOfWorkers | None:
        known = self.workers.get(before.type)
        if known is None or known.revision != before.revision:
            return None
        known = NumberOfWorkers(known.type, known.wanted, known.wanted, known.revision + 1)
        self.workers[before.type] = known
        return known

    # -- Resizes -----------------------------------------------------------------------------------

    def resize(self, type_name: str, known: int, wanted: int) -> bool:
        """Note the number of shards that a type is to have."""
        config = self.types.get(type_name)
        if config is None or config.wanted or config.number_of_shards != known:
            return False
        groups: dict[int, set[str]] = {}
        for name, shard in self.shards:
            if name == type_name and shard < known:
                groups.setdefault(shard % min(known, wanted), set()).add(self.journals[name, shard])
        if any(len(journals) > 1 for journals in groups.values()):
            return False  # they cannot become one
        if any(of_type == type_name for of_type, _ in self.moves):
            return False
        declared = tuple(sorted({*config.declared, known, wanted}))
        self.types[type_name] = msgspec.structs.replace(
            config, wanted=wanted, revision=config.revision + 1, declared=declared
        )
        return True

    def former_shards(self, type_id: int, entity: EntityId) -> list[ShardId]:
        """Return the shards that an id had, or is to have, by the numbers of its type's resizes."""
        declared = [each.declared for name, each in self.types.items() if self.type_ids[name] == type_id]
        return [shard_of(entity, number) for numbers in declared for number in numbers]

    def renumbered(self, type_name: str, upto: int, epoch: Epoch) -> list[ShardRow]:
        """Change the numbers and the shards of some groups; return the rows of their shards."""
        config = self.types[type_name]
        before, after = config.numbering, config.numbering.after(upto)
        former, later = before.former(upto), before.later(upto)
        lived = {shard % before.groups for shard in former if (type_name, shard) in self.shards}
        for shard in sorted({*former, *later}):
            if (type_name, shard) in self.shards or (shard in later and shard % before.groups in lived):
                # One from a former, larger number lies where its entities have moved since.
                if (type_name, shard) not in self.journals or shard >= before.shards:
                    self.journals[type_name, shard] = self._journal_of_group(type_name, shard) or CLUSTERS_OWN
                self.shards[type_name, shard] = ShardRow(type_name, shard, epoch, None, "stopped")
                self.epochs[self.type_ids[type_name], shard] = epoch
        self.types[type_name] = msgspec.structs.replace(
            config,
            number_of_shards=after.shards,
            wanted=after.wanted,
            resized=after.done,
            revision=after.revision,
        )
        self._relocate(type_name, before, upto)
        return [self.shards[type_name, shard] for shard in later if (type_name, shard) in self.shards]

    def _journal_of_group(self, type_name: str, shard: ShardId) -> str | None:
        """Return the journal of the shards with which a shard becomes one, or from which it comes,
        or has become and come by a former resize; None: none of them has lived.
        """
        config = self.types[type_name]
        resized = [config.numbering.groups] if config.wanted else []
        for groups in (*resized, *config.declared[:1]):
            for name, other in sorted(self.shards):
                if name == type_name and other < config.number_of_shards and other % groups == shard % groups:
                    return self.journals[name, other]
        return None

    def _relocate(self, type_name: str, before: Numbering, upto: int) -> None:
        """Let new shards have the location of the one that they come from."""
        places = self.locations.setdefault(type_name, {})
        later = before.later(upto)
        for shard in before.former(upto):
            if shard not in later:
                places.pop(shard, None)
        for shard in later:
            if before.wanted > before.shards and shard % before.groups in places:
                places[shard] = places[shard % before.groups]
        self.location_changes[type_name] = self.location_changes.get(type_name, 0) + 1

    # -- Moves to other journals -------------------------------------------------------------------

    def is_moving(self, type_name: str) -> bool:
        """Tell whether shards of the type are on their way to another journal."""
        return any(
            key[0] == type_name and each.step in ("copying", "closed") for key, each in self.moves.items()
        )

    def begin_move(self, type_name: str, shards: Iterable[ShardId], target: str) -> list[ShardId]:
        begun = []
        if not self.types[type_name].wanted:
            for key in [(type_name, each) for each in sorted(set(shards))]:
                if key in self.shards and key not in self.moves and self.journals[key] != target:
                    self.moves[key] = MoveRow(self.journals[key], target)
                    begun.append(key[1])
        return begun

    def at_step(self, type_name: str, shards: Iterable[ShardId], step: MoveStep) -> list[ShardId]:
        """Return those of the shards whose move is at that step."""
        keys = [(type_name, each) for each in sorted(set(shards))]
        return [key[1] for key in keys if key in self.moves and self.moves[key].step == step]

    def close_until(self, type_name: str, shards: Iterable[ShardId], until: float) -> None:
        for each in shards:
            row = self.moves[type_name, each]
            self.moves[type_name, each] = row._replace(step="closed", closed_until=until)

    def open(self, type_name: str, shards: Iterable[ShardId]) -> None:
        for each in shards:
            row = self.moves[type_name, each]
            self.moves[type_name, each] = row._replace(step="copying", closed_until=None)

    def count_closing(self, type_name: str) -> None:
        config = self.types[type_name]
        self.types[type_name] = msgspec.structs.replace(config, closings=config.closings + 1)

    def switch(self, type_name: str, shards: Iterable[ShardId], target: str) -> None:
        """Let closed shards lie in another journal, without a home."""
        for key in [(type_name, each) for each in shards]:
            self.journals[key] = target
            self.moves[key] = self.moves[key]._replace(step="moved", closed_until=None)
            if self.on_switch is not None:
                self.on_switch(key, self.moves[key])
        self.count_closing(type_name)

    def closed(self) -> list[ClosedShard]:
        return [
            ClosedShard(*key, each.target)
            for key, each in sorted(self.moves.items())
            if each.step == "closed"
        ]

    def lapsed(self, now: float) -> list[ClosedShard]:
        """Return the closed shards whose closing was not renewed in time."""
        return [
            each for each in self.closed() if (self.moves[each.type, each.shard].closed_until or now) < now
        ]

    # -- Homes -------------------------------------------------------------------------------------

    def is_home(self, type_id: int, shard: ShardId, epoch: Epoch, home: Incarnation) -> bool:
        rows = (row for row in self.shards.values() if self.type_ids[row.type] == type_id)
        return any((row.shard, row.epoch, row.home) == (shard, epoch, home) for row in rows)

    def take(
        self, type_name: str, type_id: int, shards: Mapping[ShardId, Epoch], home: Incarnation
    ) -> list[ShardId]:
        """Give shards to a home, in a journal of its own database (`Journal.take`)."""
        taken = []
        for shard, epoch in shards.items():
            if (type_id, shard) in self.left:
                continue
            row = self.shards.get((type_name, shard))
            if row is None or row.epoch < epoch or (row.epoch == epoch and row.home in (home, None)):
                self.shards[type_name, shard] = ShardRow(type_name, shard, epoch, home, "home")
                self.epochs[type_id, shard] = epoch
                self.type_ids[type_name] = type_id
                taken.append(shard)
                if self.on_take is not None:
                    self.on_take(type_name, type_id, shard, epoch, home)
        return taken

    def changed_by(self, type_id: int, before: Numbering, after: Numbering) -> list[ShardId]:
        """Return the shards here whose group has changed, in such a journal."""
        shards = sorted(shard for number, shard in self.epochs if number == type_id)
        return [each for each in shards if before.modulus(each) != after.modulus(each)]

    def fence(self, type_name: str, type_id: int, shards: Iterable[ShardId]) -> None:
        """Let no home of these shards write any more, in such a journal."""
        for shard in shards:
            epoch = self.epochs[type_id, shard] = self.epochs[type_id, shard] + 1
            copied = self.shards[type_name, shard].step == "copied"
            step: ShardStep = "copied" if copied else "stopped"
            self.shards[type_name, shard] = ShardRow(type_name, shard, epoch, None, step)

    def add_like(self, type_name: str, type_id: int, former: Mapping[ShardId, ShardId]) -> None:
        """Add rows of shards as those of others are, in such a journal."""
        for shard, other in former.items():
            self.epochs[type_id, shard] = self.epochs[type_id, other]
            row = self.shards[type_name, other]
            self.shards[type_name, shard] = msgspec.structs.replace(row, shard=shard)

    def add_stopped(self, type_name: str, type_id: int, epochs: Mapping[ShardId, Epoch]) -> None:
        """Add rows of shards that no home has taken, in such a journal."""
        for shard, epoch in epochs.items():
            self.epochs[type_id, shard] = epoch
            self.shards[type_name, shard] = ShardRow(type_name, shard, epoch, None, "stopped")

    def refile_left(
        self, type_name: str, type_id: int, after: Numbering, changed: Collection[ShardId]
    ) -> None:
        """Let shards of these groups have left such a journal where those have that their entities
        come from.
        """
        before = self.numbers_here[type_id]
        groups = min(before.groups, after.groups)
        for shard in changed:
            if shard >= before.shards and (type_id, shard % groups) in self.epochs:
                # A row from a former, larger number: the others may have moved since.
                self.left.pop((type_id, shard), None)
                if elsewhere := self.left.get((type_id, shard % groups)):
                    self.left[type_id, shard] = elsewhere
        gone = sorted(
            (each for each in changed if (type_id, each) in self.left),
            key=lambda shard: self.epochs[type_id, shard],
            reverse=True,
        )
        new: dict[ShardId, ShardId] = {}
        for shard in gone:
            for later in range(shard % groups, after.most, groups):
                if (type_id, later) not in self.epochs:
                    new.setdefault(later, shard)
        self.add_stopped(
            type_name, type_id, {each: self.epochs[type_id, shard] for each, shard in new.items()}
        )
        self.left.update({(type_id, each): self.left[type_id, shard] for each, shard in new.items()})

    def rows(self, types: Sequence[str] | None) -> list[ShardRow]:
        return [
            msgspec.structs.replace(row, uses_messages=self._uses_messages(self.type_ids[row.type]))
            for key, row in sorted(self.shards.items())
            if (types is None or key[0] in types) and self.types[row.type].numbering.has(row.shard)
        ]

    def present(self) -> list[ShardRow]:
        """Return the rows of shards that there are now."""
        return [row for row in self.shards.values() if self.types[row.type].numbering.has(row.shard)]

    def homes(self, type_name: str, shards: Collection[ShardId]) -> list[ShardRow]:
        """Return the rows of these shards, with the numbers of their type."""
        return [
            msgspec.structs.replace(
                row,
                numbering=self.types[type_name].numbering,
                journal=self.journals.get((type_name, row.shard), CLUSTERS_OWN),
            )
            for row in self.rows([type_name])
            if row.shard in shards
        ]

    def any_uses_messages(self) -> bool:
        """Tell whether an entity of any type has stored a message or a timer."""
        return any(map(self._uses_messages, self.type_ids.values()))

    def permitted(self, change: HomeChange) -> HomeChange | None:
        """Return a change as it is written now: a closed shard gets no home. None: nothing is."""
        key = change.type, change.shard
        if change.step != "home" or key not in self.moves or self.moves[key].step != "closed":
            return change
        row = self.shards.get(key)
        if row is None or row.home is None:
            return None
        return msgspec.structs.replace(change, home=None, step="stopped")

    def after(self, changes: Sequence[HomeChange], due: Sequence[HomeChange]) -> list[ShardRow]:
        """Return the rows of a decision as they are when its due changes are written."""
        written = {(each.type, each.shard): _row_of(each) for each in due}
        named = dict.fromkeys((each.type, each.shard) for each in changes)
        found = (written.get(key) or self.shards.get(key) for key in named)
        return [row for row in found if row is not None]

    def change(self, term: Term, due: Sequence[HomeChange]) -> None:
        """Write the due changes of a decision."""
        for change in due:
            key = change.type, change.shard
            before = self.shards.get(key)
            if before is None:
                known = self._journal_of_group(*key)
                self.journals[key] = journal_of(*key, self.journal_weights) if known is None else known
            self.shards[key] = _row_of(change)
            self.epochs[self.type_ids[change.type], change.shard] = change.epoch
            if self.on_decide is not None:
                self.on_decide(term, before, self.shards[key])


def _row_of(change: HomeChange) -> ShardRow:
    return ShardRow(change.type, change.shard, change.epoch, change.home, change.step)


def check_row(change: HomeChange) -> None:
    """Refuse values that the columns of a row cannot hold."""
    if not 0 <= change.shard < 1 << 31:
        raise StoreRefused(f"no row has the shard {change.shard}")
    for text in (change.type, change.home or ""):
        if "\0" in text or text.encode(errors="ignore").decode() != text:
            raise StoreRefused("a text that no row holds")
