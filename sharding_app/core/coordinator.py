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

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from sharding_app.core.allocation import ShardAllocationStrategy
from sharding_app.core.audience import Audience
from sharding_app.core.burials import Burials
from sharding_app.core.effects import CoordinatorEffect, Decide, Note, ReadShards
from sharding_app.core.handoff import HandOffs
from sharding_app.core.ids import Epoch, Incarnation, ShardId, ShardKey, Term
from sharding_app.core.messages import NoHome, RegisterAck
from sharding_app.core.moves import Moves
from sharding_app.core.placement import Placement
from sharding_app.core.records import Decision, HomeChange, Member, ShardRow
from sharding_app.core.rounds import Rounds
from sharding_app.core.strategies import Strategies
from sharding_app.core.tells import Tells
from sharding_app.core.terms import begins_era, lowest_epoch

TRUST_SECONDS = 3.0
"""A new coordinator takes it for granted for so long that homes of shards can be heard: a former one has heard them. And it
waits for so long to hear all nodes that are older than the one that a singleton would go to."""

IN_VAIN_SECONDS = 60.0
MOST_IN_VAIN = 500
"""So many names of types are remembered: whoever asks may ask for any name."""

REFUSED_AGAIN_SECONDS = 5.0
"""A change of a row that the store refuses is tried again so late: what is refused now may be refused for long."""

LOCKED_AGAIN_SECONDS = 2.0
"""One that the store could not make, of a row that another session has locked say: asking waits for it, and so do others."""


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
    __slots__ = ("announce", "epoch", "fresh", "home", "told_at")

    def __init__(self, home: Incarnation, epoch: Epoch, *, announce: bool, fresh: bool) -> None:
        self.home = home
        self.epoch = epoch
        self.announce = announce
        "It lived elsewhere before: everybody is told of the new home, not only those who asked."
        self.fresh = fresh
        "We have decided it, rather than found it so: the timeline tells of it."
        self.told_at = float("-inf")


class Coordinator:
    def __init__(
        self,
        me: Incarnation,
        term: Term,
        settings: CoordinatorSettings,
        strategy_of: Callable[[str], ShardAllocationStrategy],
        strategy_clock: Callable[[], float] = float,
    ) -> None:
        """`strategy_clock` tells how long a strategy takes; without it none takes any time."""
        self.me = me
        self.term = term
        self.settings = settings
        strategies = Strategies(strategy_of, strategy_clock, self._note)
        self.placement = Placement(strategies, settings.min_members, settings.min_members_of_role)
        self.waiters: dict[ShardKey, dict[Incarnation, None]] = {}
        self.writing: dict[ShardKey, None] = {}
        self.starting: dict[ShardKey, _Starting] = {}
        self.undone: list[HomeChange] = []
        self._in_vain: dict[str, float] = {}
        "When a type was last asked for that no node hosts; of a few hundred names at most."
        self._trusted: dict[Incarnation, None] = {}
        "Members that count as heard though they have not been, for the moment after our election."
        self._trust_until = float("inf")
        self._refused: dict[ShardKey, tuple[HomeChange, float]] = {}
        "Changes of rows that the store refused, and when each is tried again: until then nothing is done about the shard."
        self.out: list[CoordinatorEffect] = []
        self.tells = Tells(self.out)
        self.audience = Audience(self)
        self.moves = Moves(self.out)
        self.burials = Burials(self)
        self.handoffs = HandOffs(self)
        self.rounds = Rounds(self)

    @property
    def members(self) -> dict[Incarnation, Member]:
        return self.placement.members

    # -- What the store says ---------------------------------------------------------------------------------------

    def loaded(self, rows: Iterable[ShardRow], members: Sequence[Member], now: float) -> None:
        """Take over: all rows, and all members, as they were after the term was raised."""
        living = {each.incarnation for each in members if each.locks}
        # Whether the others are dead has not been judged yet: until then they count for nothing.
        self.placement.know(members, [each.incarnation for each in members if each.incarnation not in living])
        for row in rows:
            self.placement.adopt(row)
            self.placement.assembled = self.placement.assembled or row.home in living
            if row.step == "handoff":
                self.handoffs.resume(row, now)
            elif row.home is not None:
                self.starting[row.type, row.shard] = _Starting(
                    row.home, row.epoch, announce=False, fresh=False
                )
        self.rounds.loaded(now)
        self.placement.hear(self.me)
        self._trusted = {each: None for each in self.placement.at_home if each in living and each != self.me}
        self._trust_until = now + TRUST_SECONDS
        self.placement.more_will_be_heard = True
        for incarnation in self._trusted:
            self.placement.hear(incarnation)
        for member in members:
            self._acknowledge(member.incarnation)
        self._note("coordinator_elected", self.me, f"term {self.term}")
        if begins_era(self.term):
            self._note("database_moved_on", self.me, "another timeline or system: entities are read again")
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
        self.placement.know(members, suspect)
        self.placement.hear(self.me)
        if before.keys() != self.members.keys():
            self.audience.changed()
        self.burials.found_dead(dead)
        self.burials.fence_orphans(now)
        for incarnation, member in self.members.items():
            old = before.get(incarnation)
            if old is None or old.state != member.state or old.types != member.types:
                self._note(f"node_{member.state}", incarnation, member.name)
                self._acknowledge(incarnation)
        for incarnation in before:
            if incarnation not in self.members:
                self._note("node_left", incarnation, before[incarnation].name)
                self.burials.fence(incarnation, now)
        self._serve_waiters(now)
        self.handoffs.members_changed(now)
        if before.keys() != self.members.keys() or any(
            before[each].state != member.state for each, member in self.members.items()
        ):
            self.rounds.begin(now, [name for name, wanted in self.placement.locations.items() if wanted])

    def locations_read(self, type_name: str, locations: Mapping[ShardId, str] | None, now: float) -> None:
        """What the application wants of a type whose strategy asks for it; None: it could not be read."""
        before = self.placement.locations.get(type_name)
        self.placement.locate(type_name, locations)
        if locations and locations != before:
            self.rounds.begin(now, [type_name])

    def buried(self, incarnation: Incarnation, now: float) -> None:
        """Its backends are ended and its row is gone: its shards' epochs can be raised."""
        self.burials.buried(incarnation, now)

    def unburied(self, incarnation: Incarnation) -> None:
        """The store was not reachable, and the next reading finds it dead again; or it came back in time."""
        self.burials.unburied(incarnation)

    def decided(self, changes: Sequence[HomeChange], rows: Sequence[ShardRow], now: float) -> None:
        """The changes are written (or had been overtaken): `rows` is what holds now."""
        there = {(row.type, row.shard) for row in rows}
        gone: dict[str, None] = {}
        for change in changes:
            key = change.type, change.shard
            self.writing.pop(key, None)
            self._refused.pop(key, None)
            if key not in there and change.expected_epoch:
                self._vanished(key)
                gone[change.type] = None
            elif key not in there:
                self._drop(change, "the cluster knows no such type")
        if gone:
            self.out.append(ReadShards(list(gone)))
        for row in rows:
            key = row.type, row.shard
            old = self.placement.rows.get(key)
            self.placement.adopt(row)
            if row.step == "home" and row.home is not None and (old is None or old.epoch != row.epoch):
                moved = old is not None
                self.handoffs.forget(key)
                self.starting[key] = _Starting(row.home, row.epoch, announce=moved, fresh=True)
            elif row.step == "handoff":
                self.handoffs.marked(row, now)
            elif row.step == "stopped":
                # It has stopped and nobody could take it: the next one who can gets it, asked for or not.
                self.handoffs.forget(key)
        self.burials.decided(changes)
        self.burials.fence_orphans(now)
        self._serve_waiters(now)
        self._tell_hosts(now)

    def types_read(self, numbers: Mapping[str, int]) -> None:
        """How many shards each type has. One whose data was removed may have fewer now: the others have no rows any more."""
        self.placement.numbers = numbers
        for key in [key for key in self.placement.rows if not self.placement.is_shard(*key)]:
            self._vanished(key)
        for key in [key for key in self.waiters if not self.placement.is_shard(*key)]:
            for incarnation in self.waiters.pop(key):
                self.tells.to(incarnation, NoHome(self.term, key[0], "no_such_shard", [key[1]]))

    def rows_read(self, types: Sequence[str], rows: Sequence[ShardRow], now: float) -> None:
        """All rows of these types, read since some had vanished."""
        there = {(row.type, row.shard) for row in rows}
        for key in [key for key in self.placement.rows if key[0] in types]:
            if key not in there and key not in self.writing:
                self._vanished(key)
        for row in rows:
            key = row.type, row.shard
            if key not in self.writing and row != self.placement.rows.get(key):
                self.placement.adopt(row)
        self.burials.fence_orphans(now)
        self._serve_waiters(now)

    def refused(self, changes: Sequence[HomeChange], why: str, now: float) -> None:
        """The store answered that it cannot write these. The others of their batch are written."""
        for change in changes:
            key = change.type, change.shard
            if not change.expected_epoch:
                self.writing.pop(key, None)
                self._drop(change, why)
                continue
            if key not in self._refused:
                self._note("decision_refused", f"{key[0]}/{key[1]}", why)
            # Its former home is not fenced before this is written, so nothing goes on without it.
            self._refused[key] = change, now + REFUSED_AGAIN_SECONDS

    def wait_for(self, change: HomeChange, now: float) -> bool:
        """The store does not write this one now, and others may have to wait while it is asked: it is asked again after a
        while. False: it is of a shard that lives nowhere yet, whose askers wait."""
        if change.expected_epoch:
            self._refused[change.type, change.shard] = change, now + LOCKED_AGAIN_SECONDS
        return bool(change.expected_epoch)

    def undecided(self, changes: Sequence[HomeChange]) -> None:
        """The store was not reachable: whether they were written is not known. They are tried again."""
        self.undone.extend(changes)

    # -- What regions say ------------------------------------------------------------------------------------------

    def registered(self, incarnation: Incarnation, term: Term, now: float) -> None:
        """A node's word over the wire. One that names our term answers what we have told it: both ways work."""
        if incarnation not in self.members:
            return  # its row is about to be read, and then it is told
        if term == self.term:
            self._trusted.pop(incarnation, None)
            if incarnation not in self.placement.heard:
                self.placement.hear(incarnation)
                self._serve_waiters(now)
                self.rounds.begin(now, [name for name, wanted in self.placement.locations.items() if wanted])
        self._acknowledge(incarnation)

    def proxy_registered(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        self.audience.registered(incarnation, types, now)
        self.tells.to(incarnation, RegisterAck(self.term, self.me))

    def get_shard_home(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], now: float
    ) -> None:
        impossible = [shard for shard in shards if not self.placement.is_shard(type_name, shard)]
        if impossible:
            self.tells.to(source, NoHome(self.term, type_name, "no_such_shard", impossible))
            shards = [shard for shard in shards if self.placement.is_shard(type_name, shard)]
        for shard in shards:
            key = type_name, shard
            row = self.placement.rows.get(key)
            if row is not None and row.home is not None and row.step == "home" and not self._in_motion(key):
                self.tells.home(source, self.term, row)
            else:
                self.waiters.setdefault(key, {})[source] = None
        self._serve_waiters(now, [(type_name, shard) for shard in shards])

    def shard_started(
        self,
        source: Incarnation,
        type_name: str,
        shards: Sequence[ShardId],
        epochs: Sequence[Epoch],
        now: float,
    ) -> None:
        for shard, epoch in zip(shards, epochs, strict=True):
            key = type_name, shard
            start = self.starting.get(key)
            if start is None or start.home != source or start.epoch != epoch:
                continue
            del self.starting[key]
            if start.fresh:
                self.moves.started(key, source, now)
            row = self.placement.rows[key]
            if start.announce:
                self.audience.moved(type_name, source, shard, epoch)
            for incarnation in self.waiters.pop(key, ()):
                if not start.announce or not self.audience.includes(incarnation, type_name):
                    self.tells.home(incarnation, self.term, row)
        self.audience.tick(now)

    def given_up(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], epochs: Sequence[Epoch]
    ) -> None:
        """Their home has stopped them by itself, and says so until their rows have moved on: they get new epochs."""
        changes = []
        for shard, epoch in zip(shards, epochs, strict=True):
            key = type_name, shard
            row = self.placement.rows.get(key)
            at_home = row is not None and row.home == source and row.epoch == epoch and row.step == "home"
            settled = key not in self.writing and key not in self.handoffs.active
            if at_home and settled and not self.placement.is_dying(source) and not self.placement.all_stops:
                self.starting.pop(key, None)
                changes.append(self.change(key, self.placement.allocate(key, None), "home"))
                self._note("shard_given_up", f"{type_name}/{shard}")
        if changes:
            self.out.append(Decide(changes))

    def regions_leave(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        """These regions hand their shards over, and get none any more (said again until they have none)."""
        for type_name in types:
            self.placement.bar_region(incarnation, type_name)
            shards = self.placement.allocated.get(type_name, {}).get(incarnation, {})
            keys = [(type_name, shard) for shard in shards]
            self.handoffs.begin([key for key in keys if key not in self.handoffs.active], now)

    # -- Time ------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.undone:
            changes, self.undone = self.undone, []
            self.out.append(Decide(changes))
        if again := [change for change, at in self._refused.values() if now >= at]:
            for change in again:
                self._refused[change.type, change.shard] = change, now + REFUSED_AGAIN_SECONDS
            self.out.append(Decide(again))
        if self.placement.more_will_be_heard and now >= self._trust_until:
            self._end_trust(now)
        self.audience.expire(now, self.settings.proxy_expiry_seconds)
        self.audience.tick(now)
        self._tell_hosts(now)
        self.handoffs.tick(now)
        self.rounds.tick(now)
        self.moves.tick(now, busy=self.busy)

    def asked_in_vain(self, now: float) -> list[str]:
        """Types that no node hosts and that were asked for within a minute."""
        self._in_vain = {
            name: at
            for name, at in self._in_vain.items()
            if now - at < IN_VAIN_SECONDS and not self.placement.is_hosted(name)
        }
        return list(self._in_vain)

    @property
    def busy(self) -> bool:
        """Whether something waits for an acknowledgement, so that the shell should tick soon."""
        return bool(
            self.starting
            or self.handoffs.active
            or self.undone
            or self.burials.busy
            or self.rounds.busy
            or self.audience.busy
        )

    def change(
        self, key: ShardKey, home: Incarnation | None, step: str, *, raise_epoch: bool = True
    ) -> HomeChange:
        """Make a change of a row, and count it as allocated from now on, so that the next choice sees it."""
        row = self.placement.rows.get(key)
        epoch = row.epoch if row is not None else 0
        self.writing[key] = None
        if home is not None:
            self.placement.count(key, home)
        return HomeChange(
            type=key[0], shard=key[1], expected_epoch=epoch,
            epoch=max(self.placement.next_epoch(key), lowest_epoch(self.term)) if raise_epoch else epoch, home=home,
            step="handoff" if step == "handoff" else "home" if home is not None else "stopped",
        )  # fmt: skip

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _in_motion(self, key: ShardKey) -> bool:
        row = self.placement.rows.get(key)
        dying = row is not None and self.placement.is_dying(row.home)
        return dying or key in self.writing or key in self.starting or key in self.handoffs.active

    def _serve_waiters(self, now: float, keys: Iterable[ShardKey] | None = None) -> None:
        """Allocate what is asked for, or has lived before, and lives nowhere; refuse what nobody can host."""
        changes = []
        hopeless: dict[str, dict[Incarnation, None]] = {}
        for key in [*self.waiters, *self.placement.homeless()] if keys is None else list(keys):
            asking = self.waiters.get(key, {})
            if self._in_motion(key):
                continue
            row = self.placement.rows.get(key)
            if row is not None and row.home is not None:
                for incarnation in self.waiters.pop(key, ()):
                    self.tells.home(incarnation, self.term, row)
                continue
            home = self.placement.allocate(key, next(iter(asking), None))
            if home is not None:
                changes.append(self.change(key, home, "home"))
            elif asking and not self.placement.is_hosted(key[0]):
                hopeless.setdefault(key[0], {}).update(self.waiters.pop(key))
        for type_name, incarnations in hopeless.items():
            if len(self._in_vain) < MOST_IN_VAIN:
                self._in_vain[type_name] = now
            for incarnation in incarnations:
                self.tells.to(incarnation, NoHome(self.term, type_name, "no_host"))
        if changes:
            self.out.append(Decide(changes))

    def _end_trust(self, now: float) -> None:
        for incarnation in self._trusted:
            self._note(
                "node_unheard",
                incarnation,
                self.members[incarnation].name if incarnation in self.members else "",
            )
        self.placement.unhear(self._trusted)
        self._trusted.clear()
        self.placement.more_will_be_heard = False
        self._serve_waiters(now)

    def _acknowledge(self, incarnation: Incarnation) -> None:
        heard = incarnation in self.placement.heard and incarnation not in self._trusted
        self.tells.to(incarnation, RegisterAck(self.term, self.me, heard))

    def _vanished(self, key: ShardKey) -> None:
        self.placement.vanished(key)
        self.starting.pop(key, None)
        self.handoffs.forget(key)

    def _drop(self, change: HomeChange, why: str) -> None:
        """A shard that lives nowhere cannot be placed: those who asked are told, and nothing else waits for it."""
        key = change.type, change.shard
        self.placement.let_go(key)
        self._note("decision_refused", f"{key[0]}/{key[1]}", why)
        for incarnation in self.waiters.pop(key, ()):
            self.tells.to(incarnation, NoHome(self.term, change.type, "refused", [change.shard]))

    def _tell_hosts(self, now: float) -> None:
        for (type_name, shard), start in self.starting.items():
            if now - start.told_at >= self.settings.retry_seconds:
                start.told_at = now
                self.tells.host(start.home, self.term, type_name, shard, start.epoch)

    def _note(self, action: str, subject: str, detail: str = "") -> None:
        self.out.append(Note(Decision(action, subject, detail)))
