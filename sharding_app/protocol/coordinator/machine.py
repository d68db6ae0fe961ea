"""The coordinator decides where shards live. One counts at a time, by its term (promise 7).

    A shard's row, as the coordinator moves it

      (none), stopped ──allocate──> home (starting) ──ShardStarted──> home
                                      ^                                 │ rebalance, leaving
                 home dead or gone    │                                 v
             home ────────────────────┤ epoch + 1                   handoff: BeginHandOff, acks,
             handoff ─────────────────┘<───── ShardStopped ─────── HandOff, ShardStopped

Contract: first the row, then the message. A decision is an effect (`Decide`) whose result comes
back as `decided`; no process is told before that. The coordinator repeats each message until it is
acknowledged or the row has moved on. A dead home's journal backends are ended and its row removed
(`Bury`) before its shards' epochs are raised.

Messages come in by `receive`, reports of the store by the other methods, time by `tick`. They
change the state and add effects to `outbox`; the shell carries these out in order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy
from sharding_app.protocol.coordinator.audience import Audience
from sharding_app.protocol.coordinator.closings import Closings
from sharding_app.protocol.coordinator.fencing import Fencing
from sharding_app.protocol.coordinator.handoff import HandOffs
from sharding_app.protocol.coordinator.operator import Operator
from sharding_app.protocol.coordinator.outbox import Outbox
from sharding_app.protocol.coordinator.placement import Placement
from sharding_app.protocol.coordinator.rebalancing import Rebalancing
from sharding_app.protocol.coordinator.resizing import Resizing
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.coordinator.strategies import Strategies
from sharding_app.protocol.coordinator.tables import Starting, Tables
from sharding_app.protocol.coordinator.terms import begins_era
from sharding_app.protocol.coordinator.timeline import Timeline
from sharding_app.protocol.coordinator.worker_sets import WorkerSets
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId, ShardKey, Term
from sharding_app.protocol.messages import (
    AnyMessage,
    BeginHandOffAck,
    GetShardHome,
    GracefulShutdownReq,
    NoHome,
    OperatorReply,
    OperatorRequest,
    Register,
    RegisterAck,
    RegisterProxy,
    ShardStarted,
    ShardStopped,
)
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import ClosedShard, HomeChange, Member, NumberOfWorkers, ShardRow

TRUST_SECONDS = 3.0
"""For this time after its election a coordinator counts the living homes of shards as heard,
because a former coordinator has heard them. For the same time no singleton is placed while a node
that is older than all hosts may still be heard."""

IN_VAIN_SECONDS = 60.0
MOST_IN_VAIN = 500
"""Limit of remembered type names: a caller may ask for any name."""

REFUSED_AGAIN_SECONDS = 5.0
"""Pause before a change that the store refused is tried again: the cause may last."""

LOCKED_AGAIN_SECONDS = 2.0
"""Pause before a change is tried again that the store could not make, for example because another
session has locked the row: each attempt waits for the lock, and other changes wait with it."""


class Coordinator:
    def __init__(
        self,
        me: Incarnation,
        term: Term,
        settings: CoordinatorSettings,
        strategy_of: Callable[[str], ShardAllocationStrategy],
        strategy_clock: Callable[[], float] = float,
    ) -> None:
        """`strategy_clock` measures the time of strategies; with the default none takes any."""
        self.me = me
        self.term = term
        self.settings = settings
        self.outbox = Outbox(term)
        strategies = Strategies(strategy_of, strategy_clock, self.outbox.note)
        self.placement = Placement(
            strategies, settings.min_members, settings.min_members_of_role, settings.resized_at_once
        )
        self.tables = Tables(term, self.placement)
        self.audience = Audience(self.placement, self.outbox)
        self.timeline = Timeline(self.outbox)
        self.handoffs = HandOffs(self.tables, self.outbox, self.audience, self.timeline, settings)
        self.fencing = Fencing(self.tables, self.outbox, self.audience, self.timeline, self.handoffs)
        self.rebalancing = Rebalancing(self.tables, self.handoffs, settings.rebalance_interval_seconds)
        self.worker_sets = WorkerSets(self.tables, self.outbox, self.handoffs)
        self.resizing = Resizing(self.tables, self.outbox, self.handoffs, self.audience)
        self.closings = Closings(self.tables, self.outbox, self.handoffs)
        self.operator = Operator(me, self.tables, self.outbox, self.handoffs, self.rebalancing)
        self.waiters: dict[ShardKey, dict[Incarnation, None]] = {}
        "Processes that have asked for a shard's home and are not answered yet."
        self.undone: list[HomeChange] = []
        self._in_vain: dict[str, float] = {}
        "When each type that no node hosts was last asked for; MOST_IN_VAIN types at most."
        self._trusted: dict[Incarnation, None] = {}
        """Members that count as heard for TRUST_SECONDS after the election, though they have not
        been."""
        self._trust_until = float("inf")
        self._refused: dict[ShardKey, tuple[HomeChange, float]] = {}
        """Changes that the store refused or could not make, and when each is tried again. Until
        then their shards are left alone."""

    @property
    def members(self) -> dict[Incarnation, Member]:
        return self.placement.members

    # -- Reports of the store ----------------------------------------------------------------------

    def loaded(self, rows: Iterable[ShardRow], members: Sequence[Member], now: float) -> None:
        """Take over from all rows and all members, as read after the term was raised."""
        living = {each.incarnation for each in members if each.locks}
        # Members without locks are not judged yet: until then they count as suspect.
        self.placement.know(members, [each.incarnation for each in members if each.incarnation not in living])
        for row in rows:
            self.placement.adopt(row)
            self.placement.assembled = self.placement.assembled or row.home in living
            if row.step == "handoff":
                self.handoffs.resume(row, now)
            elif row.home is not None:
                self.tables.starting[row.type, row.shard] = Starting(
                    row.home, row.epoch, announce=False, fresh=False
                )
        self.rebalancing.loaded(now)
        self.placement.hear(self.me)
        self._trusted = {each: None for each in self.placement.at_home if each in living and each != self.me}
        self._trust_until = now + TRUST_SECONDS
        self.placement.more_will_be_heard = True
        for incarnation in self._trusted:
            self.placement.hear(incarnation)
        for member in members:
            self._acknowledge(member.incarnation)
        self.outbox.note("coordinator_elected", self.me, f"term {self.term}")
        if begins_era(self.term):
            self.outbox.note(
                "database_moved_on", self.me, "another timeline or system: entities are read again"
            )
        self.tick(now)

    def members_read(
        self,
        members: Sequence[Member],
        dead: Iterable[Incarnation],
        suspect: Iterable[Incarnation],
        now: float,
    ) -> None:
        """Take in a reading of the member rows, and the judgement of `protocol.liveness.membership`
        about it.
        """
        before = self.members
        self.placement.know(members, suspect)
        self.placement.hear(self.me)
        if before.keys() != self.members.keys():
            self.audience.changed()
        self.fencing.found_dead(dead)
        self.fencing.fence_orphans(now)
        for incarnation, member in self.members.items():
            old = before.get(incarnation)
            if old is None or old.state != member.state or old.types != member.types:
                self.outbox.note(f"node_{member.state}", incarnation, _told(member))
                self._acknowledge(incarnation)
        for incarnation in before:
            if incarnation not in self.members:
                self.outbox.note("node_left", incarnation, before[incarnation].name)
                self.fencing.fence(incarnation, now)
        self._serve_waiters(now)
        self.handoffs.members_changed(now)
        if before.keys() != self.members.keys() or any(
            before[each].state != member.state for each, member in self.members.items()
        ):
            self.rebalancing.begin(now, [name for name, wanted in self.placement.locations.items() if wanted])

    def locations_read(self, type_name: str, locations: Mapping[ShardId, str] | None, now: float) -> None:
        """Take in the locations that the application wants, for a type whose strategy asks; None:
        not readable.
        """
        before = self.placement.locations.get(type_name)
        self.placement.locate(type_name, locations)
        if locations and locations != before:
            self.rebalancing.begin(now, [type_name])

    def workers_read(self, numbers: Sequence[NumberOfWorkers], now: float) -> None:
        """Take in how many workers each set has, and is to have."""
        self.worker_sets.read(numbers)
        for key in [key for key in self.waiters if not self.placement.is_worker(*key)]:
            for incarnation in self.waiters.pop(key):
                self.outbox.tell(incarnation, NoHome(self.term, key[0], "no_such_shard", [key[1]]))
        self.worker_sets.tick(now)
        self._serve_waiters(now)

    def in_force(self, before: NumberOfWorkers, now_is: NumberOfWorkers | None, now: float) -> None:
        """Take in the row of a set whose wanted number was to be put in force; None: it had changed
        since it was read.
        """
        self.worker_sets.in_force(before, now_is)
        self._serve_waiters(now)

    def buried(self, incarnation: Incarnation, now: float) -> None:
        """Take in that a member's backends and row are gone: its shards' epochs can be raised."""
        self.fencing.buried(incarnation, now)

    def unburied(self, incarnation: Incarnation) -> None:
        """Take in that a member was not buried: it came back in time, or the store was not
        reachable and the next reading finds the member dead again.
        """
        self.fencing.unburied(incarnation)

    def decided(self, changes: Sequence[HomeChange], rows: Sequence[ShardRow], now: float) -> None:
        """Take in that the changes are written, or had been overtaken.

        `rows` are the current rows.
        """
        there = {(row.type, row.shard) for row in rows}
        gone: dict[str, None] = {}
        for change in changes:
            key = change.type, change.shard
            self.tables.writing.pop(key, None)
            self._refused.pop(key, None)
            if key not in there and change.expected_epoch:
                self._vanished(key)
                gone[change.type] = None
            elif key not in there:
                self._drop(change, "the cluster knows no such type")
        self.outbox.read_shards(gone)
        for row in rows:
            key = row.type, row.shard
            old = self.placement.rows.get(key)
            self.placement.adopt(row)
            if row.step == "home" and row.home is not None and (old is None or old.epoch != row.epoch):
                moved = old is not None
                self.handoffs.forget(key)
                self.tables.starting[key] = Starting(row.home, row.epoch, announce=moved, fresh=True)
            elif row.step == "handoff":
                self.handoffs.marked(row, now)
            elif row.step == "stopped":
                # It has stopped and no region could take it: the next region that can gets it,
                # asked for or not.
                self.handoffs.forget(key)
        self.closings.decided(changes, rows)
        self.fencing.decided(changes)
        self.fencing.fence_orphans(now)
        self._serve_waiters(now)
        self._tell_hosts(now)

    def types_read(self, numbers: Mapping[str, Numbering]) -> None:
        """Take in the numbers of shards of each type.

        A type whose data was removed may have fewer now: its other shards have no rows any more.
        """
        self.resizing.read(numbers)
        for key in [key for key in self.placement.rows if not self.placement.is_shard(*key)]:
            self._vanished(key)
        self._refuse_no_shards()

    def journals_read(self, rows: Iterable[ShardRow], now: float) -> None:
        """Take in that the further journals were read: `rows` are all that there are now. Those
        that are not known were lost with a failover, and are made again.
        """
        self.placement.unread = frozenset()
        restored: dict[str, list[ShardId]] = {}
        for row in rows:
            if (row.type, row.shard) not in self.placement.rows:
                self.placement.adopt(row)
                restored.setdefault(row.type, []).append(row.shard)
        for type_name, shards in restored.items():
            self.outbox.note("shards_restored", type_name, ",".join(map(str, sorted(shards))))
        self._serve_waiters(now)

    def renumbered(
        self, type_name: str, before: Numbering, after: Numbering, rows: Sequence[ShardRow], now: float
    ) -> None:
        """Take in that a step of a resize is written; `rows` are those of its shards now. If it has
        changed nothing, a part of the rows has moved, and the rest follows.
        """
        self.resizing.renumbered(type_name, before, after)
        if after == before:
            return
        for key in [key for key in self.placement.rows if key[0] == type_name]:
            if not self.placement.is_shard(*key):
                self._vanished(key)
        for row in rows:
            self.placement.adopt(row)
        self._refuse_no_shards()
        self._serve_waiters(now)

    def not_renumbered(self, type_name: str, now: float) -> None:
        """Take in that a step of a resize is not written, or that this is not known."""
        self.resizing.not_renumbered(type_name, now)

    def closings_read(self, closed: Sequence[ClosedShard], opened: Sequence[ShardRow], now: float) -> None:
        """Take in which shards are closed for a move, and the rows of those that were so and are
        open again.
        """
        self.closings.read(closed, opened)
        self._serve_waiters(now)

    def rows_read(self, types: Sequence[str], rows: Sequence[ShardRow], now: float) -> None:
        """Take in all rows of these types, read because some had vanished."""
        there = {(row.type, row.shard) for row in rows}
        for key in [key for key in self.placement.rows if key[0] in types]:
            if key not in there and key not in self.tables.writing:
                self._vanished(key)
        for row in rows:
            key = row.type, row.shard
            if key not in self.tables.writing and row != self.placement.rows.get(key):
                self.placement.adopt(row)
                if row.step == "handoff" and key not in self.handoffs.active:
                    self.handoffs.resume(row, now)
        self.fencing.fence_orphans(now)
        self._serve_waiters(now)

    def refused(self, changes: Sequence[HomeChange], why: str, now: float) -> None:
        """Take in that the store can never write these changes.

        The others of their batch are written.
        """
        for change in changes:
            key = change.type, change.shard
            if not change.expected_epoch:
                self.tables.writing.pop(key, None)
                self._drop(change, why)
                continue
            if key not in self._refused:
                self.outbox.note("decision_refused", f"{key[0]}/{key[1]}", why)
            # Its former home is not fenced before this is written, so the shard cannot go on
            # without it.
            self._refused[key] = change, now + REFUSED_AGAIN_SECONDS

    def wait_for(self, change: HomeChange, now: float) -> bool:
        """Postpone a change that the store cannot write now, since others may wait for it.

        False: the shard has no home yet and its askers wait, so the change is not postponed.
        """
        if change.expected_epoch:
            self._refused[change.type, change.shard] = change, now + LOCKED_AGAIN_SECONDS
        return bool(change.expected_epoch)

    def undecided(self, changes: Sequence[HomeChange]) -> None:
        """Take in that the store was not reachable: the changes may be written or not.

        They are tried again.
        """
        self.undone.extend(changes)

    # -- Messages ----------------------------------------------------------------------------------

    def receive(self, source: Incarnation, message: AnyMessage, now: float) -> None:
        match message:
            case GetShardHome():
                told = self.resizing.tell_if_others(source, message.type, message.numbering)
                self.get_shard_home(source, message.type, message.shards, now, by_others=told)
            case ShardStarted() | BeginHandOffAck() if not self._has_asked(message.term):
                pass
            case ShardStarted():
                self.shard_started(source, message.type, message.shards, message.epochs, now)
            case ShardStopped():
                self.handoffs.stopped(source, message.type, message.shards, message.epochs, now)
                if message.given_up:
                    self.given_up(source, message.type, message.shards, message.epochs)
            case BeginHandOffAck():
                self.handoffs.acknowledged(source, message.type, message.shards, now)
            case Register():
                self.registered(source, message.term, now)
            case RegisterProxy():
                self.proxy_registered(source, message.types, now)
            case GracefulShutdownReq():
                # Each node for itself: no message makes another node's regions leave.
                self.regions_leave(source, message.types, now)
            case OperatorRequest():
                outcome = self.operator.carry_out(message, now)
                self.outbox.tell(source, OperatorReply(message.request, *outcome))

    def registered(self, incarnation: Incarnation, term: Term, now: float) -> None:
        """Take in a node's Register.

        One with our term answers our RegisterAck: both directions work.
        """
        if incarnation not in self.members:
            return  # it is acknowledged when its row has been read
        if term == self.term:
            self._trusted.pop(incarnation, None)
            if incarnation not in self.placement.heard:
                self.placement.hear(incarnation)
                self._serve_waiters(now)
                self.rebalancing.begin(
                    now, [name for name, wanted in self.placement.locations.items() if wanted]
                )
        self._acknowledge(incarnation)

    def proxy_registered(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        self.audience.registered(incarnation, types, now)
        self.outbox.tell(incarnation, RegisterAck(self.term, self.me))

    def get_shard_home(
        self,
        source: Incarnation,
        type_name: str,
        shards: Sequence[ShardId],
        now: float,
        *,
        by_others: bool = False,
    ) -> None:
        """Tell where shards live, once they have a home.

        `by_others`: the process knows them by other numbers than the present ones, so one that does
        not exist is no fault of its call. It asks again by the present numbers.
        """
        placement = self.placement
        possible: list[ShardId] = []
        impossible: list[ShardId] = []
        for shard in shards:
            there = placement.is_shard(type_name, shard) and placement.is_worker(type_name, shard)
            (possible if there else impossible).append(shard)
        if impossible and not by_others:
            self.outbox.tell(source, NoHome(self.term, type_name, "no_such_shard", impossible))
        for shard in possible:
            key = type_name, shard
            row = self.placement.rows.get(key)
            if row is not None and row.home is not None and row.step == "home" and not self._in_motion(key):
                self.outbox.home(source, row)
            else:
                self.waiters.setdefault(key, {})[source] = None
        self._serve_waiters(now, [(type_name, shard) for shard in possible])

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
            start = self.tables.starting.get(key)
            if start is None or start.home != source or start.epoch != epoch:
                continue
            del self.tables.starting[key]
            if start.fresh:
                self.timeline.started(key, source, now)
            row = self.placement.rows[key]
            if start.announce:
                self.audience.moved(type_name, source, shard, epoch)
            for incarnation in self.waiters.pop(key, ()):
                if not start.announce or not self.audience.includes(incarnation, type_name):
                    self.outbox.home(incarnation, row)
        self.audience.tick(now)

    def given_up(
        self, source: Incarnation, type_name: str, shards: Sequence[ShardId], epochs: Sequence[Epoch]
    ) -> None:
        """Give new epochs to shards that their home has stopped by itself; it repeats this until
        their rows have moved on.
        """
        changes = []
        for shard, epoch in zip(shards, epochs, strict=True):
            key = type_name, shard
            row = self.placement.rows.get(key)
            at_home = row is not None and row.home == source and row.epoch == epoch and row.step == "home"
            settled = key not in self.tables.writing and key not in self.handoffs.active
            if at_home and settled and not self.placement.is_dying(source) and not self.placement.all_stops:
                self.tables.starting.pop(key, None)
                changes.append(self.tables.place(key, self.placement.allocate(key, None)))
                self.outbox.note("shard_given_up", f"{type_name}/{shard}")
        self.outbox.decide(changes)

    def regions_leave(self, incarnation: Incarnation, types: Sequence[str], now: float) -> None:
        """Move all shards of these regions away, and give them no more.

        The node repeats this until they have none.
        """
        for type_name in types:
            self.placement.bar_region(incarnation, type_name)
            shards = self.placement.allocated.get(type_name, {}).get(incarnation, {})
            keys = [(type_name, shard) for shard in shards]
            self.handoffs.begin([key for key in keys if key not in self.handoffs.active], now)

    # -- Time --------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        if self.undone:
            changes, self.undone = self.undone, []
            self.outbox.decide(changes)
        if again := [change for change, at in self._refused.values() if now >= at]:
            for change in again:
                self._refused[change.type, change.shard] = change, now + REFUSED_AGAIN_SECONDS
            self.outbox.decide(again)
        if self.placement.more_will_be_heard and now >= self._trust_until:
            self._end_trust(now)
        self.audience.expire(now, self.settings.proxy_expiry_seconds)
        self.audience.tick(now)
        self._tell_hosts(now)
        self.handoffs.tick(now)
        self.worker_sets.tick(now)
        self.resizing.tick(now)
        self.closings.tick(now)
        self.rebalancing.tick(now)
        self.timeline.tick(now, busy=self.busy)

    def asked_in_vain(self, now: float) -> list[str]:
        """Return the types that no node hosts and that were asked for within the last minute."""
        self._in_vain = {
            name: at
            for name, at in self._in_vain.items()
            if now - at < IN_VAIN_SECONDS and not self.placement.is_hosted(name)
        }
        return list(self._in_vain)

    @property
    def busy(self) -> bool:
        """Whether an acknowledgement is awaited, so that the shell should tick soon."""
        return bool(
            self.tables.starting
            or self.handoffs.active
            or self.undone
            or self.fencing.busy
            or self.rebalancing.busy
            or self.worker_sets.busy
            or self.resizing.busy
            or self.closings.busy
            or self.audience.busy
        )

    # -- Inside ------------------------------------------------------------------------------------

    def _has_asked(self, term: Term) -> bool:
        """Whether an answer with this term is one to this coordinator.

        One to a former coordinator may come late. If the server went back in time since, the home
        may have stopped the shard at the epoch of its row, and only the lost rows said so.
        """
        return term == self.term

    def _in_motion(self, key: ShardKey) -> bool:
        row = self.placement.rows.get(key)
        dying = row is not None and self.placement.is_dying(row.home)
        return (
            dying or key in self.tables.writing or key in self.tables.starting or key in self.handoffs.active
        )

    def _serve_waiters(self, now: float, keys: Iterable[ShardKey] | None = None) -> None:
        """Place shards without a home that are asked for or have lived before; refuse types that no
        node hosts.
        """
        changes = []
        hopeless: dict[str, dict[Incarnation, None]] = {}
        if keys is None:
            keys = [*self.waiters, *self.placement.homeless(), *self.worker_sets.missing()]
        for key in keys:
            asking = self.waiters.get(key, {})
            if self._in_motion(key):
                continue
            row = self.placement.rows.get(key)
            if row is not None and row.home is not None:
                for incarnation in self.waiters.pop(key, ()):
                    self.outbox.home(incarnation, row)
                continue
            home = self.placement.allocate(key, next(iter(asking), None))
            if home is not None:
                changes.append(self.tables.place(key, home))
            elif asking and not self.placement.is_hosted(key[0]):
                hopeless.setdefault(key[0], {}).update(self.waiters.pop(key))
        for type_name, incarnations in hopeless.items():
            if len(self._in_vain) < MOST_IN_VAIN:
                self._in_vain[type_name] = now
            for incarnation in incarnations:
                self.outbox.tell(incarnation, NoHome(self.term, type_name, "no_host"))
        self.outbox.decide(changes)

    def _end_trust(self, now: float) -> None:
        for incarnation in self._trusted:
            self.outbox.note(
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
        self.outbox.tell(incarnation, RegisterAck(self.term, self.me, heard))

    def _refuse_no_shards(self) -> None:
        """Answer those that wait for shards that there are not. They were told the numbers."""
        for key in [key for key in self.waiters if not self.placement.is_shard(*key)]:
            for incarnation in self.waiters.pop(key):
                self.resizing.tell(incarnation, key[0])
                self.outbox.tell(incarnation, NoHome(self.term, key[0], "no_such_shard", [key[1]]))

    def _vanished(self, key: ShardKey) -> None:
        self.placement.vanished(key)
        self.tables.starting.pop(key, None)
        self.handoffs.forget(key)

    def _drop(self, change: HomeChange, why: str) -> None:
        """Give up placing a shard that has no home yet, and answer those who asked: nothing else
        waits for it.
        """
        key = change.type, change.shard
        self.placement.let_go(key)
        self.outbox.note("decision_refused", f"{key[0]}/{key[1]}", why)
        for incarnation in self.waiters.pop(key, ()):
            self.outbox.tell(incarnation, NoHome(self.term, change.type, "refused", [change.shard]))

    def _tell_hosts(self, now: float) -> None:
        for (type_name, shard), start in self.tables.starting.items():
            if now - start.told_at >= self.settings.retry_seconds:
                start.told_at = now
                self.outbox.host(start.home, type_name, shard, start.epoch)


def _told(member: Member) -> str:
    """A node's name and its release, so that the timeline tells which one came when."""
    return f"{member.name}, version {member.app_version}" if member.app_version else member.name
