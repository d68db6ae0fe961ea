"""The cluster's tables: types, members, homes, the term and the timeline, with the rules that the store's SQL has."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sharding_app.core.ids import Epoch, Incarnation, ShardId, ShardKey, Term
from sharding_app.core.records import (
    CoordinatorRow,
    Decision,
    HomeChange,
    LeaveRequest,
    Lineage,
    Member,
    MemberState,
    Server,
    ShardRow,
    TypeConfig,
)
from sharding_app.core.terms import next_term
from sharding_app.ports.store import StaleTerm, StoreRefused

TIMELINE_LINES = 5000


class ClusterRows:
    """Every method is one transaction."""

    def __init__(self, is_locked: Callable[[int], bool]) -> None:
        self._is_locked = is_locked
        self.types: dict[str, TypeConfig] = {}
        self.type_ids: dict[str, int] = {}
        self.members: dict[Incarnation, Member] = {}
        self.lock_keys: dict[Incarnation, tuple[int, int]] = {}
        self.last_age = 0
        self.coordinator = CoordinatorRow(0, None)
        self.lineage: Lineage | None = None
        "Of the last election."
        self.shards: dict[ShardKey, ShardRow] = {}
        self.locations: dict[str, dict[ShardId, str]] = {}
        self.location_changes: dict[str, int] = {}
        self.epochs: dict[tuple[int, ShardId], Epoch] = {}
        "The epochs again, by the type's number: what the journal's fence looks at."
        self.on_decide: Callable[[Term, ShardRow | None, ShardRow], None] | None = None
        "Told of each changed row, before and after, with the term of who changed it: for checks."
        self.timeline: deque[Decision] = deque(maxlen=TIMELINE_LINES)

    # -- Types -----------------------------------------------------------------------------------------------------

    def register_types(self, configs: Sequence[TypeConfig]) -> tuple[dict[str, int], dict[str, TypeConfig]]:
        differing = {}
        for config in configs:
            known = self.types.setdefault(config.name, config)
            self.type_ids.setdefault(config.name, len(self.type_ids) + 1)
            if known != config:
                differing[config.name] = known
        return {config.name: self.type_ids[config.name] for config in configs}, differing

    # -- Members ---------------------------------------------------------------------------------------------------

    def join(self, member: Member, lock_keys: tuple[int, int]) -> int:
        """Joining again with the same incarnation keeps the age: the answer to the first try may have been lost."""
        self.last_age += 1
        known = self.members.get(member.incarnation)
        age = self.last_age if known is None else known.age
        asked = None if known is None else known.asked
        self.members[member.incarnation] = msgspec.structs.replace(member, age=age, locks=0, asked=asked)
        self.lock_keys[member.incarnation] = lock_keys
        return age

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

    def ask_to(self, request: LeaveRequest | None, incarnations: Sequence[Incarnation]) -> list[Incarnation]:
        there = [each for each in dict.fromkeys(incarnations) if each in self.members]
        for each in there:
            self.members[each] = msgspec.structs.replace(self.members[each], asked=request)
        return sorted(there)

    def is_locked(self, incarnation: Incarnation) -> bool:
        return any(map(self._is_locked, self.lock_keys.get(incarnation, ())))

    def with_locks(self) -> list[Member]:
        """Every member with the locks it holds at this moment, oldest first."""
        return [
            msgspec.structs.replace(member, locks=sum(map(self._is_locked, self.lock_keys[incarnation])))
            for incarnation, member in sorted(self.members.items(), key=lambda item: item[1].age)
        ]

    # -- The term --------------------------------------------------------------------------------------------------

    def check_term(self, term: Term) -> None:
        if not term or term != self.coordinator.term:
            raise StaleTerm(f"the term is {self.coordinator.term}, not {term}")

    def older_candidates(self, incarnation: Incarnation) -> int:
        """How many older live candidates there are, to whom the coordinator's lock is left; one without a row leaves it too."""
        me = self.members.get(incarnation)
        if me is None:
            return 1
        return sum(
            each.age < me.age and each.candidate and each.state == "up" and not each.deaf and each.locks == 2
            for each in self.with_locks()
        )

    def raise_term(self, incarnation: Incarnation, lineage: Lineage | None = None, now: float = 0.0) -> Term:
        same = self.lineage in (None, lineage)
        term = next_term(self.coordinator.term, same_lineage=same, now_seconds=int(now))
        self.coordinator, self.lineage = CoordinatorRow(term, incarnation), lineage
        return term

    # -- Locations -------------------------------------------------------------------------------------------------

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

    # -- Homes -----------------------------------------------------------------------------------------------------

    def rows(self, types: Sequence[str] | None) -> list[ShardRow]:
        return [row for key, row in sorted(self.shards.items()) if types is None or key[0] in types]

    def decide(self, term: Term, changes: Sequence[HomeChange]) -> list[ShardRow]:
        self.check_term(term)
        for change in changes:
            check_row(change)
        for change in changes:
            key = change.type, change.shard
            row = self.shards.get(key)
            if change.type in self.type_ids and (row.epoch if row else 0) == change.expected_epoch:
                self.shards[key] = ShardRow(change.type, change.shard, change.epoch, change.home, change.step)
                self.epochs[self.type_ids[change.type], change.shard] = change.epoch
                if self.on_decide is not None:
                    self.on_decide(term, row, self.shards[key])
        named = dict.fromkeys((change.type, change.shard) for change in changes)
        return [self.shards[key] for key in named if key in self.shards]


def check_row(change: HomeChange) -> None:
    """Refuse what the columns of a row cannot hold."""
    if not 0 <= change.shard < 1 << 31:
        raise StoreRefused(f"no row has the shard {change.shard}")
    for text in (change.type, change.home or ""):
        if "\0" in text or text.encode(errors="ignore").decode() != text:
            raise StoreRefused("a text that no row holds")
