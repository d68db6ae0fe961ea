"""The coordinator: decides where shards live. One counts for the whole cluster, by its term (promise 7).

    A shard's row, as the coordinator moves it

      (none), stopped ──allocate──> home (starting) ──ShardStarted──> home
                                      ^                                 │ rebalance, leaving
                 home dead or gone    │                                 v
             home ────────────────────┤ epoch + 1                   handoff: BeginHandOff, acks, HandOff,
             handoff ─────────────────┘<─────ShardStopped, timeout── ShardStopped

Contract: first the row, then the message. A decision is an effect (`Decide`) whose result comes back as `decided`;
nothing is told before that. What is told is told again until it is acknowledged or the row has moved on. A dead
home's journal backends are ended and its row removed (`Bury`) before its shards' epochs are raised.
Calls change the state and leave what has to be done in `out`; the shell carries it out in order.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from sharding_app.core.allocation import ClusterView, Host, ShardAllocationStrategy
from sharding_app.core.effects import Bury, CoordinatorEffect, Decide, Note
from sharding_app.core.handoff import HandOffs
from sharding_app.core.ids import Epoch, Incarnation, ShardId, ShardKey, Term
from sharding_app.core.messages import NodeGone, NoHome, RegisterAck
from sharding_app.core.records import Decision, HomeChange, Member, ShardRow
from sharding_app.core.tells import Tells


class CoordinatorSettings(msgspec.Struct, frozen=True):
    retry_seconds: float = 0.25
    "Between repetitions of what has not been acknowledged."
    begin_hand_off_wait_seconds: float = 1.0
    hand_off_timeout_seconds: float = 60.0
    rebalance_interval_seconds: float = 10.0
    max_concurrent_hand_offs: int = 100
    proxy_expiry_seconds: float = 30.0
    min_members: int = 1
    "Nothing is allocated before so many nodes are up. Afterwards fewer will do: failover waits for nobody."
    min_members_of_role: dict[str, int] = {}


class _Starting:
    __slots__ = ("announce", "epoch", "home", "told_at")

    def __init__(self, home: Incarnation, epoch: Epoch, announce: bool) -> None:
        self.home = home
        self.epoch = epoch
        self.announce = announce
        "It lived elsewhere before: everybody is told of the new home, not only those who asked."
        self.told_at = float("-inf")


class Coordinator:
    def __init__(
        self,
        me: Incarnation,
        term: Term,
        settings: CoordinatorSettings,
        strategy_of: Callable[[str], ShardAllocationStrategy],
    ) -> None:
        self.me = me
        self.term = term
        self.settings = settings
        self.strategy_of = strategy_of
        self.members: dict[Incarnation, Member] = {}
        self.suspect: frozenset[Incarnation] = frozenset()
        self.proxies: dict[Incarnation, tuple[tuple[str, ...], float]] = {}
        self.rows: dict[ShardKey, ShardRow] = {}
        self.allocated: dict[str, dict[Incarnation, dict[ShardId, None]]] = {}
        "How many shards each region has, counting those that are still being written."
        self.locations: dict[str, Mapping[ShardId, str] | None] = {}
        "What the application wants, for types whose strategy asks for it; None: it could not be read."
        self.waiters: dict[ShardKey, dict[Incarnation, None]] = {}
        self.writing: dict[ShardKey, None] = {}
        self.starting: dict[ShardKey, _Starting] = {}
        self.burying: dict[Incarnation, None] = {}
        self.fencing: dict[Incarnation, dict[ShardKey, None]] = {}
        "Shards of a dead home whose epochs are being raised; NodeGone is told when none is left."
        self.undone: list[HomeChange] = []
        self.leaving_regions: dict[tuple[Incarnation, str], None] = {}
        self.rebalancing = True
        self.assembled = False
        "The wanted number of nodes has been there."
        self.out: list[CoordinatorEffect] = []
        self.tells = Tells(self.out)
        self.handoffs = HandOffs(self)
        self._rebalanced_at = float("-inf")
        self._unfinished: dict[str, None] = {}
        "Types whose last round moved something: the next one begins when nothing of theirs moves any more."
        self._moved: dict[str, set[ShardId]] = {}
        "What rounds that follow each other have chosen: each shard moves once, so that they come to an end."
        self._counted: dict[ShardKey, Incarnation] = {}
        self._at_home: dict[Incarnation, dict[ShardKey, None]] = {}
        "What the rows say lives at each home."
        self._views: dict[str, ClusterView] = {}
        self._hosts: dict[str, dict[Incarnation, dict[ShardId, None]]] = {}
        "Both worked out anew when the members change."

    # -- What the store says ---------------------------------------------------------------------------------------

    def loaded(self, rows: Iterable[ShardRow], members: Sequence[Member], now: float) -> None:
        """Take over: all rows, and all members, as they were after the term was raised."""
        self._know(members)
        living = {each.incarnation for each in members if each.locks}
        for row in rows:
            self._adopt(row)
            self.assembled = self.assembled or row.home in living
            if row.step == "handoff":
                self.handoffs.resume(row, now)
            elif row.home is not None:
                self.starting[row.type, row.shard] = _Starting(row.home, row.epoch, announce=False)
        self._rebalanced_at = now
        for member in members:
            self.tells.to(member.incarnation, RegisterAck(self.term, self.me))
        self._note("coordinator_elected", self.me, f"term {self.term}")
        self.tick(now)

    def members_read(
        self,
        members: Sequence[Member],
        dead: Iterable[Incarnation],
        suspect: Iterable[Incarnation],
        now: float,
    ) -> None:
        """A new reading of the member rows, and what `core.membership` concludes from it."""
        before = self.members
        self.suspect = frozenset(suspect)
        self._know(members)
        for incarnation in dead:
            if incarnation in self.members and incarnation not in self.burying:
                self.burying[incarnation] = None
                self._note("node_dead", incarnation, self.members[incarnation].name)
                self.out.append(Bury(incarnation))
        self._forget_views()
        self._fence_orphans(now)
        for incarnation, member in self.members.items():
            old = before.get(incarnation)
            if old is None or old.state != member.state or old.types != member.types:
                self._note(f"node_{member.state}", incarnation, member.name)
                self.tells.to(incarnation, RegisterAck(self.term, self.me))
        for incarnation in before:
            if incarnation not in self.members:
                self._note("node_left", incarnation, before[incarnation].name)
                self._fence(incarnation, now)
        self._serve_waiters(now)
        self.handoffs.members_changed(now)
        if before.keys() != self.members.keys() or any(
            before[each].state != member.state for each, member in self.members.items()
        ):
            self.rebalance(now, [name for name, wanted in self.locations.items() if wanted])

    def locations_read(self, type_name: str, locations: Mapping[ShardId, str] | None, now: float) -> None:
        """What the application wants of a type whose strategy asks for it; None: it could not be read."""
        before = self.locations.get(type_name)
        self.locations[type_name] = locations
        self._views.pop(type_name, None)
        if locations and locations != before:
            self.rebalance(now, [type_name])

    def buried(self, incarnation: Incarnation, now: float) -> None:
        """Its backends are ended and its row is gone: its shards' epochs can be raised."""
        self.burying.pop(incarnation, None)
        self.members.pop(incarnation, None)
        self._forget_views()
        self._fence(incarnation, now)

    def unburied(self, incarnation: Incarnation) -> None:
        """The store was not reachable: the next reading finds it dead again."""
        self.burying.pop(incarnation, None)
        self._forget_views()

    def decided(self, changes: Sequence[HomeChange], rows: Sequence[ShardRow], now: float) -> None:
        """The changes are written (or had been overtaken): `rows` is what holds now."""
        for change in changes:
            self.writing.pop((change.type, change.shard), None)
        for row in rows:
            key = row.type, row.shard
            old = self.rows.get(key)
            self._adopt(row)
            if row.step == "home" and row.home is not None and (old is None or old.epoch != row.epoch):
                moved = old is not None
                self.handoffs.forget(key)
                self.starting[key] = _Starting(row.home, row.epoch, announce=moved)
            elif row.step == "handoff":
                self.handoffs.marked(row, now)
        for incarnation in list(self.fencing):
            self._fenced(incarnation, changes)
        self._fence_orphans(now)
        self._serve_waiters(now)
        self._tell_hosts(now)

    def undecided(self, changes: Sequence[HomeChange]) -> None:
        """The store was not reachable: whether they were written is not known. They are tried again."""
        self.undone.extend(changes)

    # -- What regions say ------------------------------------------------------------------------------------------

    def proxy_registered(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        self.proxies[incarnation] = tuple(types), now
        self.tells.to(incarnation, RegisterAck(self.term, self.me))

    def get_shard_home(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], now: float
    ) -> None:
        for shard in shards:
            key = type_name, shard
            row = self.rows.get(key)
            if row is not None and row.home is not None and row.step == "home" and not self._in_motion(key):
                self.tells.home(source, self.term, row)
            else:
                self.waiters.setdefault(key, {})[source] = None
        self._serve_waiters(now, [(type_name, shard) for shard in shards])

    def shard_started(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], epochs: Sequence[Epoch]
    ) -> None:
        for shard, epoch in zip(shards, epochs, strict=True):
            key = type_name, shard
            start = self.starting.get(key)
            if start is None or start.home != source or start.epoch != epoch:
                continue
            del self.starting[key]
            row = self.rows[key]
            told = self.waiters.pop(key, {})
            if start.announce:
                told = {**dict.fromkeys(self._everybody(type_name)), **told}
            for incarnation in told:
                self.tells.home(incarnation, self.term, row)

    def regions_leave(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        """These regions hand their shards over, and get none any more (said again until they have none)."""
        for type_name in types:
            self.leaving_regions[incarnation, type_name] = None
            self._hosts.pop(type_name, None)
            self._hosts.pop(type_name, None)
            shards = self.allocated.get(type_name, {}).get(incarnation, {})
            keys = [(type_name, shard) for shard in shards]
            self.handoffs.begin([key for key in keys if key not in self.handoffs.active], now)

    # -- Time ------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.undone:
            changes, self.undone = self.undone, []
            self.out.append(Decide(changes))
        for incarnation, (_, seen) in list(self.proxies.items()):
            if now - seen > self.settings.proxy_expiry_seconds:
                del self.proxies[incarnation]
        self._tell_hosts(now)
        self.handoffs.tick(now)
        if now - self._rebalanced_at >= self.settings.rebalance_interval_seconds:
            self._rebalanced_at = now
            self.rebalance(now)
        elif self._unfinished:
            self._next_rounds(now)

    @property
    def busy(self) -> bool:
        """Whether something waits for an acknowledgement, so that the shell should tick soon."""
        return bool(self.starting or self.handoffs.active or self.undone or self.burying)

    def rebalance(self, now: float, types: Collection[str] | None = None) -> None:
        """Ask the strategies of these types, or of all, which shards should move."""
        for name in self.allocated if types is None else types:
            self._moved[name] = set()
            self._unfinished[name] = None
        self._next_rounds(now)

    def _next_rounds(self, now: float) -> None:
        """Ask for types of which nothing moves any more; what moves something is asked again afterwards."""
        if not self.rebalancing:
            self._unfinished.clear()
            return
        moving: dict[str, set[ShardId]] = {}
        for name, shard in chain(self.handoffs.active, self.handoffs.queued):
            moving.setdefault(name, set()).add(shard)
        landing = {name for (name, _), start in self.starting.items() if start.announce}
        for name in list(self._unfinished):
            moved = self._moved[name]
            if moved and (name in moving or name in landing):
                continue
            allocations = {each: sorted(shards) for each, shards in self.hosts_of(name).items()}
            chosen = self.strategy_of(name).rebalance(allocations, moving.get(name, set()), self.view(name))
            fresh = [shard for shard in chosen if shard not in moved]
            moved.update(fresh)
            self.handoffs.begin([(name, shard) for shard in fresh], now)
            if not fresh:
                del self._unfinished[name]

    # -- Views -----------------------------------------------------------------------------------------------------

    def view(self, type_name: str) -> ClusterView:
        found = self._views.get(type_name)
        if found is None:
            found = self._views[type_name] = self._make_view(type_name)
        return found

    def hosts_of(self, type_name: str) -> dict[Incarnation, dict[ShardId, None]]:
        """The regions that may take shards of a type now, oldest first, with what they have."""
        found = self._hosts.get(type_name)
        if found is None:
            regions = self.allocated.setdefault(type_name, {})
            found = self._hosts[type_name] = {
                each.incarnation: regions.setdefault(each.incarnation, {})
                for each in self.members.values()
                if each.state == "up"
                and not each.deaf
                and type_name in each.types
                and each.incarnation not in self.burying
                and (each.incarnation, type_name) not in self.leaving_regions
                and each.incarnation not in self.suspect
            }
        return found

    def allocate(self, key: ShardKey, requester: Incarnation | None) -> Incarnation | None:
        hosts = self.hosts_of(key[0])
        if not hosts or not self._enough_members():
            return None
        return self.strategy_of(key[0]).allocate(requester, key[1], hosts, self.view(key[0]))

    def change(
        self, key: ShardKey, home: Incarnation | None, step: str, *, raise_epoch: bool = True
    ) -> HomeChange:
        """Make a change of a row, and count it as allocated from now on, so that the next choice sees it."""
        row = self.rows.get(key)
        epoch = row.epoch if row is not None else 0
        self.writing[key] = None
        if home is not None:
            self._count(key, home)
        return HomeChange(
            type=key[0], shard=key[1], expected_epoch=epoch, epoch=epoch + 1 if raise_epoch else epoch, home=home,
            step="handoff" if step == "handoff" else "home" if home is not None else "stopped",
        )  # fmt: skip

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _know(self, members: Sequence[Member]) -> None:
        self.members = {member.incarnation: member for member in members}
        self._forget_views()

    def _forget_views(self) -> None:
        self._views.clear()
        self._hosts.clear()

    def _make_view(self, type_name: str) -> ClusterView:
        hosts = {
            each.incarnation: Host(each.incarnation, each.app_version, each.state == "leaving", each.name)
            for each in self.members.values()
            if each.state != "joining"
        }
        unsettled = self.suspect or any(each.state != "up" or each.deaf for each in self.members.values())
        return ClusterView(hosts, not unsettled, self.locations.get(type_name))

    def _count(self, key: ShardKey, home: Incarnation | None) -> None:
        """Let a shard count as this region's alone."""
        type_name, shard = key
        before = self._counted.pop(key, None)
        regions = self.allocated.setdefault(type_name, {})
        if before is not None:
            regions.get(before, {}).pop(shard, None)
        if home is not None:
            regions.setdefault(home, {})[shard] = None
            self._counted[key] = home

    def _enough_members(self) -> bool:
        if not self.assembled:
            up = [
                each
                for each in self.members.values()
                if each.state == "up" and each.incarnation not in self.burying
            ]
            wanted = self.settings.min_members_of_role
            self.assembled = len(up) >= self.settings.min_members and all(
                sum(role in each.roles for each in up) >= number for role, number in wanted.items()
            )
        return self.assembled

    def _in_motion(self, key: ShardKey) -> bool:
        row = self.rows.get(key)
        dying = (
            row is not None
            and row.home is not None
            and (row.home in self.burying or row.home not in self.members)
        )
        return dying or key in self.writing or key in self.starting or key in self.handoffs.active

    def _adopt(self, row: ShardRow) -> None:
        key = row.type, row.shard
        old = self.rows.get(key)
        if old is not None and old.epoch > row.epoch:
            return
        self._count(key, row.home)
        if old is not None and old.home is not None:
            self._at_home.get(old.home, {}).pop(key, None)
        if row.home is not None:
            self._at_home.setdefault(row.home, {})[key] = None
        self.rows[key] = row

    def _serve_waiters(self, now: float, keys: Iterable[ShardKey] | None = None) -> None:
        """Allocate what is asked for and lives nowhere; refuse what nobody can host."""
        changes = []
        hopeless: dict[str, dict[Incarnation, None]] = {}
        for key in list(self.waiters) if keys is None else keys:
            asking = self.waiters.get(key)
            if not asking or self._in_motion(key):
                continue
            row = self.rows.get(key)
            if row is not None and row.home is not None:
                for incarnation in self.waiters.pop(key):
                    self.tells.home(incarnation, self.term, row)
                continue
            home = self.allocate(key, next(iter(asking)))
            if home is not None:
                changes.append(self.change(key, home, "home"))
            elif not any(key[0] in each.types for each in self.members.values()):
                hopeless.setdefault(key[0], {}).update(self.waiters.pop(key))
        for type_name, incarnations in hopeless.items():
            for incarnation in incarnations:
                self.tells.to(incarnation, NoHome(self.term, type_name, "no_host"))
        if changes:
            self.out.append(Decide(changes))

    def _fence(self, dead: Incarnation, now: float) -> None:
        """Raise the epochs of all shards of a home that is no more, and give them new homes.

        While a write about one of them is under way nothing is done: `decided` comes back to it.
        """
        keys = list(self._at_home.get(dead, ()))
        if dead in self.fencing or any(key in self.writing for key in keys):
            return
        if not keys:
            self._at_home.pop(dead, None)
            self._forget_region(dead)
            self._tell_gone(dead)
            return
        self.fencing[dead] = dict.fromkeys(keys)
        for key in keys:
            self.starting.pop(key, None)
            self.handoffs.forget(key)
        changes = [self.change(key, self.allocate(key, None), "home") for key in keys]
        self._forget_region(dead)
        self._note("shards_fenced", dead, f"{len(keys)} shards")
        self.out.append(Decide(changes))

    def _forget_region(self, dead: Incarnation) -> None:
        for type_name, regions in self.allocated.items():
            for shard in regions.pop(dead, ()):
                self._counted.pop((type_name, shard), None)

    def _fence_orphans(self, now: float) -> None:
        """Homes without a member row: they left, or gave up, or a former coordinator buried them and died."""
        for home, keys in list(self._at_home.items()):
            if keys and home not in self.members and home not in self.burying:
                self._fence(home, now)

    def _fenced(self, dead: Incarnation, changes: Sequence[HomeChange]) -> None:
        left = self.fencing[dead]
        for change in changes:
            left.pop((change.type, change.shard), None)
        if not left:
            del self.fencing[dead]
            self._tell_gone(dead)

    def _tell_gone(self, incarnation: Incarnation) -> None:
        for each in [*self.members, *self.proxies]:
            self.tells.to(each, NodeGone(self.term, incarnation))

    def _everybody(self, type_name: str) -> list[Incarnation]:
        return [*self.members, *(each for each, (types, _) in self.proxies.items() if type_name in types)]

    def _tell_hosts(self, now: float) -> None:
        for (type_name, shard), start in self.starting.items():
            if now - start.told_at >= self.settings.retry_seconds:
                start.told_at = now
                self.tells.host(start.home, self.term, type_name, shard, start.epoch)

    def _note(self, action: str, subject: str, detail: str = "") -> None:
        self.out.append(Note(Decision(action, subject, detail)))
