"""The coordinator's map: which members there are, which types they may host, and where each shard
lives or is about to live.

Contract: rows come in by `adopt`, members by `know`; nothing in here sends or writes. Queries cost
next to nothing for any number of shards and regions: values that follow from the members are worked
out once for each reading.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.protocol.allocation.strategy import Candidates, ClusterView, Host
from sharding_app.protocol.allocation.workers import WORKERS
from sharding_app.protocol.coordinator.strategies import Strategies
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Member, NumberOfWorkers, ShardRow
from sharding_app.protocol.versions import kept_out

MOST_SHARDS = 1 << 31
"""Rows number shards in 32 bits."""


class Placement:
    def __init__(
        self,
        strategies: Strategies,
        min_members: int,
        min_members_of_role: Mapping[str, int],
        resized_at_once: int = 1,
    ) -> None:
        self.strategies = strategies
        self.numbers: dict[str, Numbering] = {}
        "The numbers of shards of each type."
        self.resized_at_once = resized_at_once
        self.closed: dict[ShardKey, str] = {}
        "Shards that are closed for a move to another journal, and its name."
        self.unread: frozenset[str] = frozenset()
        """Further journals that may have shards of which no row is left here, since the server has
        gone on in another lineage. No shard without a row gets a home before they are read."""
        self.members: dict[Incarnation, Member] = {}
        self.suspect: frozenset[Incarnation] = frozenset()
        self.rows: dict[ShardKey, ShardRow] = {}
        self.at_home: dict[Incarnation, dict[ShardKey, None]] = {}
        "The shards at each home, according to the rows."
        self._floors: dict[ShardKey, Epoch] = {}
        """Epochs of rows that have vanished or went back in time: they were given out and are never
        used again."""
        self._homeless: dict[str, dict[ShardId, None]] = {}
        "Shards of each type that have lived somewhere, and whose rows now name no home."
        self.allocated: dict[str, dict[Incarnation, dict[ShardId, None]]] = {}
        "The shards of each region, with those that are still being written."
        self.locations: dict[str, Mapping[ShardId, str] | None] = {}
        """The locations that the application wants, for types whose strategy asks; None: not
        readable."""
        self.workers: dict[str, NumberOfWorkers] = {}
        "The numbers of workers of each set. A set whose row is not read yet gets no homes."
        self.heard: dict[Incarnation, None] = {}
        """Members that have answered our messages over the wire. Others would be given shards and
        answer no caller."""
        self.more_will_be_heard = False
        "True for a moment after an election: a member that was not heard may be heard soon."
        self.kept_out: dict[Incarnation, str] = {}
        "Members that may not join, because their release is too far from the others', and why."
        self.all_stops = False
        """An operator has asked the whole cluster to stop: nothing moves, and only shards that are
        asked for get homes."""
        self.assembled = False
        "The wanted number of nodes has been up once: from then on fewer will do."
        self._barred: dict[Incarnation, None] = {}
        self._barred_regions: dict[tuple[Incarnation, str], None] = {}
        self._min_members = min_members
        self._min_members_of_role = min_members_of_role
        self._counted: dict[ShardKey, Incarnation] = {}
        self._views: dict[str, ClusterView] = {}
        self._hosts: dict[str, Candidates] = {}

    # -- Facts -------------------------------------------------------------------------------------

    def know(self, members: Sequence[Member], suspect: Iterable[Incarnation] = ()) -> None:
        self.members = {member.incarnation: member for member in members}
        self.kept_out = kept_out(self.members.values())
        self.suspect = frozenset(suspect)
        self.all_stops = any(each.asked in ("prepare", "stop") for each in members)
        self.heard = {each: None for each in self.heard if each in self.members}
        self._barred_regions = {key: None for key in self._barred_regions if key[0] in self.members}
        self._forget_views()

    def adopt(self, row: ShardRow) -> None:
        """Take in a row as the store has it now, even if it went back in time."""
        key = row.type, row.shard
        old = self.rows.get(key)
        if old is not None and old.epoch > row.epoch:
            self._floors[key] = max(old.epoch, self._floors.get(key, 0))
        self.count(key, row.home)
        if old is not None and old.home is not None:
            self.at_home.get(old.home, {}).pop(key, None)
        if row.home is not None:
            self.at_home.setdefault(row.home, {})[key] = None
            self._homeless.get(row.type, {}).pop(row.shard, None)
        else:
            self._homeless.setdefault(row.type, {})[row.shard] = None
        self.rows[key] = row

    def vanished(self, key: ShardKey) -> None:
        """Take in that a row is gone, so that its shard has no home.

        The shard gets one like any that has lived before, unless its type has fewer shards now.
        """
        row = self.rows.pop(key, None)
        if row is not None:
            self._floors[key] = max(row.epoch, self._floors.get(key, 0))
            if row.home is not None:
                self.at_home.get(row.home, {}).pop(key, None)
        self.count(key, None)
        if self.is_shard(*key):
            self._homeless.setdefault(key[0], {})[key[1]] = None
        else:
            self._homeless.get(key[0], {}).pop(key[1], None)

    def let_go(self, key: ShardKey) -> None:
        """Stop looking after a shard that has no row, and for which none can be made."""
        self.count(key, None)
        self._homeless.get(key[0], {}).pop(key[1], None)

    def least_epoch(self, keys: Iterable[ShardKey]) -> Epoch:
        """Return an epoch that none of these shards has ever had."""
        return max((self.next_epoch(key) for key in keys), default=1)

    def next_epoch(self, key: ShardKey) -> Epoch:
        row = self.rows.get(key)
        return max(row.epoch if row is not None else 0, self._floors.get(key, 0)) + 1

    def count(self, key: ShardKey, home: Incarnation | None) -> None:
        """Count a shard at this region alone."""
        type_name, shard = key
        before = self._counted.pop(key, None)
        regions = self.allocated.setdefault(type_name, {})
        hosts = self._hosts.get(type_name)
        if before is not None:
            regions.get(before, {}).pop(shard, None)
            if hosts is not None:
                hosts.changed(before)
        if home is not None:
            regions.setdefault(home, {})[shard] = None
            self._counted[key] = home
            if hosts is not None:
                hosts.changed(home)

    def locate(self, type_name: str, locations: Mapping[ShardId, str] | None) -> None:
        self.locations[type_name] = locations
        self._views.pop(type_name, None)

    def bar(self, incarnation: Incarnation) -> None:
        """Give no more shards to a member that is dead and will be buried."""
        self._barred[incarnation] = None
        self._forget_views()

    def unbar(self, incarnation: Incarnation) -> None:
        """Give shards again to a member that was not dead after all."""
        self._barred.pop(incarnation, None)
        self._forget_views()

    def buried(self, incarnation: Incarnation) -> None:
        """Take in that a member is dead and its row is gone. It was barred: no view has it."""
        self.members.pop(incarnation, None)
        self._barred.pop(incarnation, None)

    def hear(self, incarnation: Incarnation) -> None:
        """Take in that both directions between a member and us work."""
        if incarnation not in self.heard:
            self.heard[incarnation] = None
            self._hosts.clear()

    def unhear(self, incarnations: Iterable[Incarnation]) -> None:
        for incarnation in incarnations:
            self.heard.pop(incarnation, None)
        self._hosts.clear()

    def bar_region(self, incarnation: Incarnation, type_name: str) -> None:
        """Give no more shards of that type to a member: its region is leaving."""
        self._barred_regions[incarnation, type_name] = None
        self._hosts.pop(type_name, None)

    def forget(self, incarnation: Incarnation) -> None:
        """Count nothing at a member that is gone.

        Rows that name it stay until they are rewritten.
        """
        self.members.pop(incarnation, None)
        for type_name, regions in self.allocated.items():
            for shard in regions.pop(incarnation, ()):
                self._counted.pop((type_name, shard), None)
        if not self.at_home.get(incarnation):
            self.at_home.pop(incarnation, None)
        self._leave_out(incarnation)

    # -- Conclusions -------------------------------------------------------------------------------

    def hosts_of(self, type_name: str) -> Candidates:
        """Return the regions that may take shards of a type now, oldest first, with their own."""
        found = self._hosts.get(type_name)
        if found is None:
            regions = self.allocated.setdefault(type_name, {})
            found = self._hosts[type_name] = Candidates(
                {
                    each.incarnation: regions.setdefault(each.incarnation, {})
                    for each in self.members.values()
                    if each.incarnation in self.heard and self._may_host(each, type_name)
                }
            )
        return found

    def is_shard(self, type_name: str, shard: object) -> bool:
        """Tell whether there can be such a shard."""
        if type(shard) is not int or not 0 <= shard < MOST_SHARDS:
            return False
        numbering = self.numbers.get(type_name)
        return numbering is None or numbering.has(shard)

    def is_worker(self, type_name: str, shard: ShardId) -> bool:
        """Tell whether a set of workers has, or is about to have, a worker of that number; True for
        all other types.
        """
        numbers = self.workers.get(type_name)
        return numbers is None or shard < max(numbers.workers, numbers.wanted)

    def may_live(self, key: ShardKey) -> bool:
        """Tell whether a shard may have a home now: not while it is closed for a move, or its group
        is about to be resized, not one without a row while a journal may have it, not a worker
        beyond the number in force, and none during a rescale.
        """
        if key in self.closed or (self.unread and key not in self.rows):
            return False
        type_name, shard = key
        numbering = self.numbers.get(type_name)
        if numbering is not None and numbering.closed(shard, self.resized_at_once):
            return False
        if not type_name.startswith(WORKERS):
            return True
        numbers = self.workers.get(type_name)
        return numbers is not None and not numbers.rescaling and shard < numbers.workers

    def home_of(self, key: ShardKey) -> Incarnation | None:
        """Return the home of a shard according to its row."""
        row = self.rows.get(key)
        return None if row is None else row.home

    def is_hosted(self, type_name: str) -> bool:
        """Tell whether any node hosts the type, even if it may not take shards just now."""
        return any(type_name in each.types for each in self.members.values())

    def homeless(self) -> list[ShardKey]:
        """Return shards without a home that a region can take now; none during a shutdown."""
        if self.all_stops or not self._enough_members():
            return []
        return [
            (type_name, shard)
            for type_name, shards in self._homeless.items()
            if shards and self.hosts_of(type_name)
            for shard in shards
            if self.may_live((type_name, shard))
        ]

    def is_dying(self, home: Incarnation | None) -> bool:
        """Tell whether the shards of a home are given, or will be given, to others."""
        return home is not None and (home in self._barred or home not in self.members)

    def allocate(self, key: ShardKey, requester: Incarnation | None) -> Incarnation | None:
        """Choose a home; None: there is none now."""
        hosts = self.hosts_of(key[0])
        if not hosts or not self._enough_members() or self._waits_for_the_oldest(key[0], hosts):
            return None
        if not self.may_live(key):
            return None
        return self.strategies.allocate(key[0], requester, key[1], hosts, self.view(key[0]))

    def to_move(self, type_name: str, moving: set[ShardId]) -> list[ShardId]:
        """Ask the type's strategy which shards should move now."""
        return self.strategies.rebalance(type_name, self.hosts_of(type_name), moving, self.view(type_name))

    def view(self, type_name: str) -> ClusterView:
        found = self._views.get(type_name)
        if found is None:
            found = self._views[type_name] = self._view(type_name)
        return found

    # -- Inside ------------------------------------------------------------------------------------

    def _forget_views(self) -> None:
        self._views.clear()
        self._hosts.clear()

    def _leave_out(self, incarnation: Incarnation) -> None:
        """Drop only the views that a member appears in: mostly none, and a hundred members may die
        at once.
        """
        for type_name in [name for name, hosts in self._hosts.items() if incarnation in hosts]:
            del self._hosts[type_name]

    def _may_host(self, member: Member, type_name: str) -> bool:
        """Tell whether a member may take shards of the type, once it is heard."""
        return (
            type_name in member.types
            and member.state == "up"
            and not member.deaf
            and member.incarnation not in self.suspect
            and member.incarnation not in self._barred
            and (member.incarnation, type_name) not in self._barred_regions
        )

    def _waits_for_the_oldest(self, type_name: str, hosts: Iterable[Incarnation]) -> bool:
        """Tell whether a node older than all of these may soon be heard.

        A singleton does not move back by itself.
        """
        if not self.more_will_be_heard or not type_name.startswith(SINGLETON):
            return False
        oldest = min(self.members[each].age for each in hosts)
        return any(
            each.age < oldest and each.incarnation not in self.heard and self._may_host(each, type_name)
            for each in self.members.values()
        )

    def _view(self, type_name: str) -> ClusterView:
        members = self.members.values()
        hosts = {
            each.incarnation: Host(each.incarnation, each.app_version, each.state == "leaving", each.name)
            for each in members
            if each.state != "joining"
        }
        out = self.kept_out
        unsettled = self.suspect or any(
            (each.state != "up" or each.deaf) and each.incarnation not in out for each in members
        )
        locations = self.locations.get(type_name)
        wanted = None if locations is None else MappingProxyType(locations)
        return ClusterView(MappingProxyType(hosts), not unsettled, wanted)

    def _enough_members(self) -> bool:
        if not self.assembled:
            up = [
                each
                for each in self.members.values()
                if each.state == "up"
                and each.incarnation in self.heard
                and each.incarnation not in self._barred
                and each.incarnation not in self.suspect
            ]
            self.assembled = len(up) >= self._min_members and all(
                sum(role in each.roles for each in up) >= number
                for role, number in self._min_members_of_role.items()
            )
        return self.assembled
