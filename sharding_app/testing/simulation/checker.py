"""Sees everything that happens in a world, and checks the promises at that moment.

It listens at three places: the server's tables (each commit, each decision), the entities (each
handler that begins and ends), and the clients (each call and its end). It knows homes and epochs
from the decisions, never from the nodes: a node that believes something else is caught.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.adapters.memory.message_rows import Stored
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.entities.base import Entity
from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import (
    STORED,
    AskTimeout,
    BufferFull,
    EntityFailed,
    InvalidCall,
    NotSerializable,
    PartiallyApplied,
    Rejected,
    ShardingError,
    Unavailable,
    UnreadableEvent,
)
from sharding_app.ports.journal import EventRow, Snapshot
from sharding_app.protocol.ids import EntityId, Epoch, Incarnation, ShardId, ShardKey, Term
from sharding_app.protocol.messages import Answer, AnyMessage, Done, Failed, HandBack
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import Lineage, ShardRow
from sharding_app.protocol.region import OVERHEAD_BYTES
from sharding_app.testing.simulation import closings, promises
from sharding_app.testing.simulation.archives import Archives
from sharding_app.testing.simulation.clients import MUST_FAIL
from sharding_app.testing.simulation.hosts import all_hosts, home_of, shard_at
from sharding_app.testing.simulation.in_memory import NAMES as IN_MEMORY
from sharding_app.testing.simulation.in_memory import is_in_memory
from sharding_app.testing.simulation.loop import Process
from sharding_app.testing.simulation.memory_checker import MemoryChecker
from sharding_app.testing.simulation.message_checker import MessageChecker
from sharding_app.testing.simulation.overlaps import BOUND_SECONDS, Overlap
from sharding_app.testing.simulation.promises import Call, Entry, PromiseBroken
from sharding_app.testing.simulation.registry import Instance
from sharding_app.testing.simulation.schedules import Schedules
from sharding_app.testing.simulation.senders import SENDERS
from sharding_app.testing.simulation.states import States, is_state, tokens_of
from sharding_app.testing.simulation.stubborn import Stubborn
from sharding_app.testing.simulation.tails import Tails
from sharding_app.testing.simulation.timers import Timers
from sharding_app.testing.simulation.trace import Trace
from sharding_app.testing.simulation.virtual_node import DRIFT, LINKS, MAILBOX, REGION, WINDOW_SECONDS
from sharding_app.testing.simulation.workers import WorkerChecker

if TYPE_CHECKING:
    from sharding_app.runtime.node.node import Node
    from sharding_app.runtime.node.process import Process as AskingProcess
    from sharding_app.testing.simulation.workload import Ending
    from sharding_app.testing.simulation.world import World

GLOBAL_LOOK_EVERY = 4
ROUNDING_SECONDS = 1e-6
LEAST_WINDOW_SECONDS = (WINDOW_SECONDS - LINKS.max_flight_seconds) * (1 - DRIFT)
"""A command may count as older than it is by the flight of one frame."""
MAY_HAPPEN = (AskTimeout, BufferFull, Unavailable)
ALSO = {
    "reject": Rejected,
    "fail": EntityFailed,
    "add_in_steps": PartiallyApplied,
    "bake_in_steps": PartiallyApplied,
    "bake_and_stall": PartiallyApplied,
    "hand_on": EntityFailed,
    "go_round": EntityFailed,
    "cross": EntityFailed,
    "set_and_fail": EntityFailed,
    "set_out_in_steps": PartiallyApplied,
    "set_out_and_fail": EntityFailed,
}
"""Errors of single commands. An entity that hands on fails when the other one does."""


Check = TypeVar("Check", bound=Callable[..., None])


def recorded(check: Check) -> Check:
    """Give a broken promise to the world: the runtime would take it for its own error."""

    @functools.wraps(check)
    def checked(self: Witness, *args: object, **kwargs: object) -> None:
        try:
            check(self, *args, **kwargs)
        except PromiseBroken as error:
            self.world.broke(error)

    return cast(Check, checked)


RESULTS = (Answer, Failed, Done)
CIRCLES = 8
CIRCLE_SECONDS = 0.2
"""One home may hand one command back this often within this time. Repeated frames count."""
ROUNDS = 12
ROUNDS_SECONDS = 1.0
"""A shard may get this many epochs within this time."""


class Handling(NamedTuple):
    """A handler that runs now."""

    entity: str
    node: Incarnation
    epoch: Epoch
    aware: bool
    "No row that its server has lost can have misled the node."


class Witness:
    def __init__(self, world: World, server: MemoryServer, trace: Trace) -> None:
        self.journal: dict[str, list[Entry]] = {}
        self.calls: list[Call] = []
        self.unanswered: dict[int, Call] = {}
        self.by_token: dict[str, Call] = {}
        self.forbidden: dict[str, Call] = {}
        "Tokens that a failed handler had staged."
        self.homes: dict[tuple[str, ShardId, Epoch], Incarnation | None] = {}
        "By shard and epoch: the home that was decided."
        self._callers: dict[int, tuple[Process, float]] = {}
        "Process of each call, and how long it had been awake at the call."
        self.commits = 0
        self.handled = 0
        self.decisions = 0
        self.world = world
        self._server = server
        self._trace = trace
        self._running: dict[int, Handling] = {}
        self._live: dict[int, Instance] = {}
        self._runs = 0
        self._looks = 0
        self._last: dict[str, Handling] = {}
        self._names: dict[int, str] = {}
        self._bounces: dict[tuple[object, ...], tuple[int, float]] = {}
        self._rounds: dict[ShardKey, tuple[int, float]] = {}
        "Commands that one home handed back at one epoch: how often, and since when."
        self._answered: dict[str, list[Call]] = {}
        self._taken: dict[str, int] = {}
        "For each entity the last number that was to be written a second time."
        self.cycles_refused: dict[str, None] = {}
        "Tokens of calls that were refused since they would have waited for themselves."
        server.cluster.on_decide = self.decided
        for name, each in world.servers.items():
            each.journal.on_commit = functools.partial(self.committed, name)
            each.journal.on_taken = self.number_taken
            each.standby.on_lost = functools.partial(self.went_back, name)
            each.journal.on_erase = functools.partial(self.erased, name)
            each.journal.on_archive = self.archived
            each.journal.on_snapshot = self.snapshot_taken
        self.erasing: dict[str, list[Epoch]] = {}
        """Erasures that an operator waits for, by entity: the epochs of their homes. An operator
        whose home has crashed waits for ever, and the statement may execute until the next epoch.
        """
        self.cut_short: dict[str, tuple[Epoch, float]] = {}
        """The last erasure of each entity that has lost its home: its epoch, and when its operator
        was told.
        """
        self.bookings: dict[str, str] = {}
        self._books: dict[str, Call] = {}
        self.own_rows: dict[str, Incarnation] = {}
        "Rows that users' functions have written, and the node on which they ran."
        self.lost_rows: dict[str, None] = {}
        "Own rows that an asynchronous standby lacked."
        self._booked: dict[str, Call] = {}
        "Calls whose answer confirmed their row, by its token."
        self.past: dict[int, None] = {}
        "Calls about an entity as it was before it was erased."
        self._erased_at: dict[str, float] = {}
        "When each entity was erased last, or went back."
        self.statement_failed_at = float("-inf")
        "When the server has last refused a statement of a user's own."
        self._former: dict[str, list[tuple[float, tuple[Entry, ...]]]] = {}
        "The journals of each entity that has been erased or has gone back, and when."
        self._gone: dict[str, None] = {}
        "Tokens that were stored, and have been erased or lost since."
        self._lost_rows = False
        "An asynchronous standby has been promoted."
        self._lost_numbers: dict[tuple[Lineage, str], Numbering] = {}
        "By lineage and type: numbers of shards at the promotion of an asynchronous standby."
        self._tails = Tails()
        self.states = States()
        self.timers = Timers(world.broke)
        self.messages = MessageChecker(world)
        self.archives = Archives(world)
        self.schedules = Schedules(world)
        for each in world.servers.values():
            each.messages.on_changes = self.schedules.changed
            if world.cast.in_memory:
                each.messages.on_discard = self.schedules.goes_on
        self.memory = MemoryChecker(world)
        self.stubborn = Stubborn(lambda: world.now)
        self.workers = WorkerChecker(world)

    # -- The journal -------------------------------------------------------------------------------

    def number_taken(self, row: EventRow) -> None:
        """Note an event whose number another event has."""
        self._taken[f"{self.name_of(row.type_id)}/{row.entity}"] = row.seq

    @recorded
    def committed(self, name: str, rows: Sequence[EventRow]) -> None:
        """Check promises 1, 3, 4 and 5 at a commit in a journal."""
        server = self.world.servers[name]
        session = server.serving
        writer = session.client if session is not None else ""
        self.commits += 1
        self.world.followers.committed(server, rows)
        self.world.projections.committed(rows)
        touched: dict[str, None] = {}
        for row in rows:
            type_name = self.name_of(row.type_id)
            entity = f"{type_name}/{row.entity}"
            entries = self.journal.setdefault(entity, [])
            if is_state(row):
                new = self.states.stored(entity, row, entries, self.world.now)
            else:
                new = [Entry(row.seq, row.epoch, token_of(row), self.world.now)]
            entries += new
            touched[entity] = None
            self._trace.note(
                writer, entity, "committed %s #%d %s at epoch %d", entity, row.seq, [each.token for each in new], row.epoch
            )  # fmt: skip
            current = server.cluster.epochs.get((row.type_id, row.shard), 0)
            if row.epoch != current:
                raise PromiseBroken(
                    1, "one_writer", f"{writer} wrote at epoch {row.epoch}, the shard's is {current}", entity
                )
            home = self.homes.get((type_name, row.shard, row.epoch))
            if home != writer:
                raise PromiseBroken(
                    1, "one_writer", f"{writer} wrote at epoch {row.epoch}, whose home is {home}", entity
                )
            if self.world.journals:
                self.world.where.committed(name, type_name, row, writer)
            if type_name in SENDERS:
                self.messages.committed(entity, new, server.journal.began(row))
            for token in (each.token for each in new):
                if (call := self.by_token.get(token)) is not None:
                    promises.others_have_stored(call, self.journal)
                    if call.says == "nothing":
                        promises.error_says_what_is_stored(call, (token,))
                if token in self.forbidden:
                    raise PromiseBroken(
                        3, "failed_is_not_stored", f"{token!r} of a failed command was stored", entity
                    )
        for entity in touched:
            entries = self.journal[entity]
            promises.epochs_do_not_fall(entity, entries)
            promises.no_gaps(entity, entries)
            promises.stored_once(entity, entries)
            promises.order_is_kept(entity, entries, self.by_token)

    @recorded
    def own_row(self, writer: Incarnation, token: str, rows: Sequence[EventRow]) -> None:
        """Check promises 1 and 5 when a user's own row is committed."""
        self.world.transition(
            "own row", "with events" if self.bookings.get(token) == "book" else "alone", "committed"
        )
        if token in self.own_rows:
            raise PromiseBroken(
                5, "effect_once", f"{writer} books {token!r}, as {self.own_rows[token]} has done"
            )
        self.own_rows[token] = writer
        booked = self._books.get(token)
        if booked is not None and booked.says == "nothing":
            raise PromiseBroken(
                3, "failed_is_not_stored", f"{booked.error!r}, and now the row of {token!r} is there"
            )
        node = self.world.node_of(writer)
        if not rows and (node is None or not self.world.is_valid(node)):
            raise PromiseBroken(1, "one_writer", f"{writer} books {token!r}, and no fence looks at it")

    @recorded
    def erased(
        self, name: str, type_id: int, entity_id: str, events: int, messages: Sequence[Stored]
    ) -> None:
        """Check promise 3 at an erasure: only entities for which an operator waits are erased.

        With several journals it has a part in the cluster's own too, for messages from outside.
        """
        entity = f"{self.name_of(type_id)}/{entity_id}"
        self._trace.note("world", entity, "%s is erased, %d events", entity, events)
        epoch = self._epoch_of(entity)
        is_awaited = epoch in self.erasing.get(entity, ())
        if events and not is_awaited and not self._was_cut_short(entity, epoch):
            raise PromiseBroken(
                3,
                "nothing_is_erased_late",
                f"{events} events went, and the operator was told of the end before",
                entity,
            )
        self.messages.is_erased(type_id, entity_id, messages)
        server = self.world.servers[name]
        if events or self.world.server_of_entity(self.name_of(type_id), entity_id) is server:
            self.world.transition("entity", "stored", "erased")
            self.world.projections.erased((type_id, entity_id))
            self._is_gone(entity)

    @recorded
    def archived(self, type_id: int, entity_id: str) -> None:
        """Check the archive of an entity in the moment when it leaves the journal."""
        entity = f"{self.name_of(type_id)}/{entity_id}"
        self._trace.note("world", entity, "%s is archived", entity)
        self.archives.removed(type_id, entity_id)
        self.messages.is_archived(entity)
        self._is_gone(entity)

    def _is_gone(self, entity: str) -> None:
        """Expect a new life of the entity, from its first event."""
        self.world.followers.erased(entity)
        entries = self.journal.get(entity, [])
        self._is_of_the_past(entity, entries, [])
        entries.clear()

    def erased_when(self, entity: str) -> float:
        """Return when an entity was erased last, or went back."""
        return self._erased_at.get(entity, 0.0)

    def _epoch_of(self, entity: str) -> Epoch:
        type_name, _, entity_id = entity.partition("/")
        key = type_name, self.world.shard_of(type_name, entity_id)
        row = self.world.server_of(*key).cluster.shards.get(key)
        return 0 if row is None else row.epoch

    def _was_cut_short(self, entity: str, present: Epoch) -> bool:
        """Whether its home has let go of the shard while it erased, and told the operator to try
        again.

        The statement may execute until the shard has a new epoch. At the old one the entity does
        not start again, so nothing goes that is newer than what the operator was told.
        """
        epoch, told_at = self.cut_short.get(entity, (-1, 0.0))
        return present == epoch and all(each.at <= told_at for each in self.journal.get(entity, ()))

    @recorded
    def snapshot_taken(self, snapshot: Snapshot) -> None:
        """Check promise 4 when a snapshot is stored: it is the fold of the first events."""
        entity = f"{self.name_of(snapshot.type_id)}/{snapshot.entity}"
        tokens = msgspec.json.decode(snapshot.state)["tokens"]
        stored = [entry.token for entry in self.journal.get(entity, ())[: snapshot.seq]]
        self.world.transition("entity", "stored", "snapshot")
        if tokens != stored or len(stored) != snapshot.seq:
            raise PromiseBroken(
                4,
                "state_is_the_fold",
                f"a snapshot at #{snapshot.seq} has {tokens[-3:]}, the journal {stored[-3:]}",
                entity,
            )

    @recorded
    def went_back(self, name: str) -> None:
        """Check promise 3 at a promotion: the new server lacks nothing that was acknowledged."""
        server = self.world.servers[name]
        asynchronous = server.standby.asynchronous
        if not name:
            self.world.where.cluster_went_back()
        stored = self._stored_in(server)
        self._own_rows_went_back(asynchronous=asynchronous)
        self.schedules.went_back()
        self.memory.went_back()
        self.world.followers.went_back(server)
        self.world.projections.went_back()
        self._goes_by(stored, asynchronous=asynchronous)
        if name:
            self.world.where.went_back(name, server)
        if asynchronous:
            self.messages.tail_is_lost(server)
            self.world.registry.went_back(of_the_cluster=not name)
        if asynchronous and not name:
            self.workers.went_back()
            self._last.clear()
            self._lost_rows = True

    def moved_behind_a_failover(self, key: ShardKey, journal: str) -> None:
        """Go by the rows of a shard's new journal, if the former one has failed over since it was
        copied: what that one has lost is there.
        """
        stored = self._stored_in(self.world.servers[journal])
        mine = {each: rows for each, rows in stored.items() if self._shard_of(each) == key}
        self._goes_by(mine, asynchronous=True)

    def _shard_of(self, entity: str) -> ShardKey:
        type_name, _, entity_id = entity.partition("/")
        return type_name, self.world.shard_of(type_name, entity_id)

    def _stored_in(self, server: MemoryServer) -> dict[str, list[Entry]]:
        """Return the entries of the entities that lie in a server's journal, by its rows."""
        stored: dict[str, list[Entry]] = {}
        rows = {
            entity: events
            for (type_id, entity_id), events in server.journal.events.items()
            for entity in (f"{self.name_of(type_id)}/{entity_id}",)
            if self.world.lies_in(server, *entity.split("/", 1))
        }
        for entity in {**self._of_journal(server), **rows}:
            # It may have lost its only row.
            left = rows.get(entity) or self._rows_elsewhere(server, entity)
            if self.states.keeps(entity):
                stored[entity] = self.states.went_back(entity, left, self.journal[entity])
            else:
                stored[entity] = [_entry(each) for each in left.values()]
        return stored

    def _goes_by(self, stored: Mapping[str, Sequence[Entry]], *, asynchronous: bool) -> None:
        """Take these entries for the journal of their entities."""
        for entity, found in stored.items():
            entries = self.journal.setdefault(entity, [])
            kept = self._known(entity, found, entries)
            if entries == kept:
                continue
            # An unconfirmed erasure has vanished too: the rows that it erased are there again.
            before = list(entries)
            lost = {each.token: None for each in before if each not in kept}
            entries[:] = kept
            self.world.transition("commit", "not confirmed", "vanished")
            self._trace.note("world", entity, "%s goes back to #%d", entity, len(kept))
            if asynchronous:
                self._tails.lost(entity, before, self._answered.get(entity, ()), self.world.now)
                self._is_of_the_past(entity, before, kept)
                continue
            for call in self._answered.get(entity, ()):
                told = promises.newest_seen(call)
                if told > len(kept) or any(token in lost for token in call.tokens):
                    raise PromiseBroken(
                        3, "acknowledged_survives_promotion",
                        f"{call.client}#{call.number} {call.command} was told of #{told}, the standby has {len(kept)}", entity,
                    )  # fmt: skip

    def _known(self, entity: str, found: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries as they are known. A row has the time at which its transaction began,
        and one that was copied to another journal the epoch of its copy.
        """
        if self.world.where.has_moved(self._shard_of(entity)):
            of_token = {(each.seq, each.token): each for each in entries}
            return [of_token.get((each.seq, each.token), each) for each in found]
        known = {each[:3]: each for each in entries}
        return [known.get(each[:3], each) for each in found]

    def _of_journal(self, server: MemoryServer) -> dict[str, list[Entry]]:
        """Return what is known of the entities whose rows lie in a server's journal."""
        if not self.world.journals:
            return self.journal
        return {
            entity: entries
            for entity, entries in self.journal.items()
            if self.world.server_of_entity(*entity.split("/", 1)) is server
        }

    def _rows_elsewhere(self, server: MemoryServer, entity: str) -> Mapping[int, Committed]:
        """Return the events of an entity in a further journal, if the cluster's own server has lost
        where its shard lies: that row is made again where the shard's rows are found. They are all
        there, if a resize was lost that had joined shards, or a part, if a move was that had begun.
        """
        key = self._shard_of(entity)
        if server is not self.world.server or key in server.cluster.shards:
            return {}
        found = server.cluster.type_ids[key[0]], entity.partition("/")[2]
        there = [each.journal.events.get(found) for name, each in self.world.servers.items() if name]
        return next(filter(None, there), {})

    def _own_rows_went_back(self, *, asynchronous: bool) -> None:
        there = {token: None for each in self.world.servers.values() for token in each.journal.beside}
        for token in [each for each in self.own_rows if each not in there]:
            del self.own_rows[token]
            call = self._booked.pop(token, None)
            if asynchronous:
                self.lost_rows[token] = None
            elif call is not None:
                raise PromiseBroken(
                    3, "acknowledged_survives_promotion",
                    f"{call.client}#{call.number} {call.command} was told of the row {token!r}, the standby has it not", call.entity,
                )  # fmt: skip

    def _is_of_the_past(self, entity: str, before: Sequence[Entry], kept: Sequence[Entry]) -> None:
        """Disregard earlier answers about the entity, but for those that what is kept still shows.

        A call that is not answered, and whose token is lost, has left no trace in it.
        """
        for each in before:
            if each in kept:
                continue
            self._gone[each.token] = None
            call = self.by_token.get(each.token)
            if call is not None and call.ended is None:
                call.forgotten = True
        self._erased_at[entity] = self.world.now
        self._former.setdefault(entity, []).append((self.world.now, tuple(before)))
        for call in self._answered.pop(entity, ()):
            if promises.is_shown_by(call, kept):
                self._answered.setdefault(entity, []).append(call)
            else:
                self.past[id(call)] = None

    # -- Decisions ---------------------------------------------------------------------------------

    @recorded
    def decided(self, term: Term, before: ShardRow | None, after: ShardRow) -> None:
        """Check promise 7 at a decision, and that no shard moves while its home may handle."""
        session = self._server.serving
        writer = session.client if session is not None else ""
        self.decisions += 1
        subject = f"{after.type}/{after.shard}"
        self._trace.note(
            writer, None, "decided %s -> %s epoch %d %s", subject, after.home, after.epoch, after.step
        )
        row = self._server.cluster.coordinator
        if term != row.term or row.incarnation != writer:
            raise PromiseBroken(
                7, "one_coordinator_counts",
                f"{writer} decided in term {term}, the term is {row.term} of {row.incarnation}", subject,
            )  # fmt: skip
        known = before.epoch if before is not None else 0
        moved = before is None or before.home != after.home
        if after.epoch < known or (moved and after.epoch == known):
            raise PromiseBroken(7, "epochs_rise", f"epoch {known} -> {after.epoch}", subject)
        if before is not None and moved and before.home is not None:
            self._has_let_go(before)
        closings.check(self.world, before, after)
        if after.epoch != known:
            self._has_another_epoch(after)
        self.homes[after.type, after.shard, after.epoch] = after.home
        self.world.where.decided((after.type, after.shard))
        self.world.judge.decided(writer, before, after)
        self.world.transition("shard row", before.step if before is not None else "none", after.step)

    def _has_another_epoch(self, row: ShardRow) -> None:
        """Check that no shard goes from home to home without a pause."""
        times, since = self._rounds.get((row.type, row.shard), (0, self.world.now))
        if self.world.now - since > ROUNDS_SECONDS:
            times, since = 0, self.world.now
        self._rounds[row.type, row.shard] = times + 1, since
        if times >= ROUNDS:
            detail = f"it gets its {times + 1}. epoch within {self.world.now - since:.3f} s"
            raise PromiseBroken(14, "nothing_goes_in_circles", detail, f"{row.type}/{row.shard}")

    def _has_let_go(self, row: ShardRow) -> None:
        """Check that the former home has stopped the shard, or that its lease is over."""
        node = self.world.node_of(str(row.home))
        if node is None or not self.world.is_valid(node) or self.world.overlaps.excuses(row.home):
            return
        shard = shard_at(node, row.type, row.shard)
        if shard is not None and shard.epoch == row.epoch and not shard.stopped:
            raise PromiseBroken(
                2, "let_go_before_moved",
                f"{row.home} is valid and has not stopped epoch {row.epoch}", f"{row.type}/{row.shard}",
            )  # fmt: skip

    # -- Entities ----------------------------------------------------------------------------------

    def lies_in_the_cluster(self, entity: Entity) -> bool:
        made = type(entity)._sharding_type
        if made is None:
            return True
        return self.world.server_of_entity(made.name, entity.entity_id) is self._server

    def cycle_refused(self, token: str) -> None:
        self.cycles_refused[token] = None

    def handling_begins(self, entity: Entity) -> int:
        self._runs += 1
        self._begins(self._runs, entity)
        return self._runs

    @recorded
    def _begins(self, run: int, entity: Entity) -> None:
        """Check promise 2 when a handler begins."""
        made = type(entity)._sharding_type
        if made is None:
            return
        node = self.world.running_node()
        name = f"{made.name}/{entity.entity_id}"
        self.handled += 1
        if node is None:
            raise PromiseBroken(2, "one_instance", "handled outside of any node", name)
        shard = home_of(node, made.name, entity.entity_id)
        if shard is None:
            raise PromiseBroken(2, "one_instance", f"{node.incarnation} handled, and does not host it", name)
        heard = self.world.has_heard(node)
        now = Handling(name, node.incarnation, shard.epoch, heard or not self._lost_rows)
        if not self.world.is_valid(node):
            raise PromiseBroken(2, "handles_while_valid", f"{node.incarnation} handled without a lease", name)
        lives_here = shard.number in self._shards_of(made.name, entity.entity_id, node)
        if not lives_here and not self.world.overlaps.excuses(node.incarnation):
            raise PromiseBroken(2, "one_shard", f"{node.incarnation} handled in shard {shard.number}", name)
        if self.homes.get((made.name, shard.number, shard.epoch)) != node.incarnation:
            raise PromiseBroken(
                7, "hosts_what_the_row_says", f"{node.incarnation} hosts at epoch {shard.epoch}", name
            )
        self._live[run] = self.world.registry.begins(entity, node, made, shard)
        if made.name in IN_MEMORY:
            apart = self.world.overlaps.excuses(node.incarnation)
            self.memory.handles(entity, (now.node, now.epoch), apart=apart, heard=heard)
        last = self._last.get(name)
        if last is not None and last.epoch > now.epoch and self.world.overlaps.excuses(now.node):
            self.world.transition("former home", "let go unheard", "handles")
            return
        # A home without news of a promotion may go on by a row that the server has lost.
        if (
            last is not None
            and last.aware
            and (last.epoch > now.epoch or (last.epoch == now.epoch and last.node != now.node))
        ):
            raise PromiseBroken(2, "one_instance", f"{now} handles after {last}", name)
        for other in self._running.values():
            if other.entity == name and self._still_counts(other):
                raise PromiseBroken(2, "one_at_a_time", f"{now} beside {other}", name)
        self._last[name] = now
        self._running[run] = now
        current = not self.world.journals or self.world.where.is_current(made.name, shard.number, shard.epoch)
        self._tails.handles(name, aware=heard and current, now=self.world.now)

    def _shards_of(self, type_name: str, entity: EntityId, node: Node) -> list[ShardId]:
        """Return the entity's shard by the numbers in the rows.

        A home without news of a promotion may go by a step of a resize that the server has lost: by
        the numbers of its lineage, as they were at the end of that.
        """
        found = [self.world.shard_of(type_name, entity)]
        lineage = node.lifeline.lease.lineage
        if lineage is not None and not self.world.has_heard(node):
            lost = self._lost_numbers.get((lineage, type_name))
            if lost is not None:
                found.append(lost.shard_of(entity))
        return found

    def is_losing_its_tail(self) -> None:
        """Keep the numbers of shards, the remembered entities and the replies that the server has,
        just before it goes back in time.
        """
        self.world.registry.is_losing_its_tail(self._server)
        self.messages.is_losing_its_tail(self._server)
        lineage = self._server.identity.lineage
        for name, config in self._server.cluster.types.items():
            self._lost_numbers[lineage, name] = config.numbering

    def handling_ends(self, handle: object) -> None:
        if isinstance(handle, int):
            self._running.pop(handle, None)
            instance = self._live.pop(handle, None)
            if instance is not None:
                self.world.registry.ends(instance)

    def answers_beside(self, entity: Entity) -> None:
        """Note that a concurrent query is answered: a home without news of a promotion does so from
        what is lost.
        """
        made, node = type(entity)._sharding_type, self.world.running_node()
        if made is not None and node is not None and not self.world.overlaps.excuses(node.incarnation):
            name = f"{made.name}/{entity.entity_id}"
            aware, shard = self.world.has_heard(node), home_of(node, made.name, entity.entity_id)
            if shard is not None and self.world.journals:
                aware = aware and self.world.where.is_current(made.name, shard.number, shard.epoch)
            self._tails.handles(name, aware=aware, now=self.world.now)

    @recorded
    def stops(self, entity: Entity, how: Ending) -> None:
        self.world.registry.stops(entity, how)

    def _still_counts(self, handling: Handling) -> bool:
        """Whether that handler belongs to an object that is still in use."""
        node = self.world.node_of(handling.node)
        if node is None or not self.world.is_valid(node) or self.world.overlaps.excuses(handling.node):
            return False
        type_name, _, entity_id = handling.entity.partition("/")
        shard = home_of(node, type_name, entity_id)
        return shard is not None and shard.epoch == handling.epoch

    # -- Clients -----------------------------------------------------------------------------------

    @recorded
    def called(self, call: Call, process: Process | None, forbidden: str | None) -> None:
        self.calls.append(call)
        self.unanswered[id(call)] = call
        if process is not None:
            self._callers[id(call)] = process, process.awake
        for token in call.tokens:
            former = self.by_token.setdefault(token, call)
            former.repeated = former.repeated or call.repeated
        if call.books:
            self._books.setdefault(call.books, call)
        if forbidden is not None:
            self.forbidden[forbidden] = call
        self._trace.note(
            call.client, call.entity, "calls #%d %s %s%s", call.number, call.entity, call.command, call.tokens
        )

    @recorded
    def answered(self, call: Call) -> None:
        """Check promises 2, 3, 5 and 8 at an answer."""
        self.unanswered.pop(id(call), None)
        self._in_time(call)
        promises.answers_keep_order(call, self.unanswered.values())
        what = repr(call.error) if call.error is not None else call.value
        self._trace.note(call.client, call.entity, "#%d is answered: %s", call.number, what)
        in_memory = is_in_memory(call.entity)
        if call.error is not None:
            if in_memory:
                self.memory.failed(call)
            else:
                self._says_what_is_stored(call)
            self._failed(call, call.error)
        elif call.command in MUST_FAIL:
            raise PromiseBroken(
                3, "failures_are_told", f"{call.command} answered {call.value!r}", call.entity
            )
        elif in_memory:
            self.memory.answered(call)
        else:
            self._answered_by_the_journal(call)

    def _answered_by_the_journal(self, call: Call) -> None:
        if call.books:
            if call.books in self.own_rows:
                self._booked[call.books] = call
            elif call.books not in self.lost_rows:  # else it vanished while its answer was on its way
                raise PromiseBroken(3, "acknowledged_is_stored", f"no row of {call.books!r}", call.entity)
            return
        if call.command == "send_on":
            self.messages.is_stored(str(call.value), call.began)
            return
        entries = self.journal.get(call.entity, ())
        if call.began <= self._erased_at.get(call.entity, -1.0):
            self.past[id(call)] = None  # it may be of the time before the erasure, and its answer too
            promises.answer_has_been_right(call, entries, self._since(call.entity, call.began), self._gone)
            return
        before = self._answered.setdefault(call.entity, [])
        if call.tokens:
            promises.acknowledged_is_stored(call, entries)
            promises.others_have_stored(call, self.journal)
        elif self._is_of_a_tail(call, entries, before):
            return
        before.append(call)

    @recorded
    def listed(self, made: EntityType, prefix: str, began: float, ids: Sequence[str]) -> None:
        """Check a list of a type's ids: what was acknowledged before it began is in it.

        What was erased since, or went back, need not be.
        """
        of = f"{made.name}/"
        known = {
            each.removeprefix(of): None for each in (*self.journal, *self._former) if each.startswith(of)
        }
        wanted = [
            entity.removeprefix(of)
            for entity, calls in self._answered.items()
            if entity.startswith(of)
            and any(each.tokens and (each.ended or 0.0) <= began for each in calls)
            and self.journal.get(entity)
            and not self._since(entity, began)
        ]
        self._trace.note("world", None, "lists %s%s: %s", of, prefix, ids)
        promises.list_is_whole(f"{of}{prefix}", ids, prefix, wanted, known)

    def _says_what_is_stored(self, call: Call) -> None:
        """Check an error against the rows that are stored by now.

        Later commits are checked when they come.
        """
        error = call.error
        if isinstance(error, ShardingError) and not isinstance(error, Rejected) and error.code not in STORED:
            raise PromiseBroken(
                8, "errors_are_typed", f"no word on what {error.code!r} has stored", call.entity
            )
        if call.says == "nothing" and call.books in self.own_rows:
            raise PromiseBroken(
                3, "failed_is_not_stored", f"{error!r}, and the row of {call.books!r} is there", call.entity
            )
        stored = {entry.token: None for entry in self.journal.get(call.entity, ())}
        promises.error_says_what_is_stored(call, stored if call.says == "nothing" else stored | self._gone)

    def _since(self, entity: str, began: float) -> list[Sequence[Entry]]:
        """Return the journals that an entity has had and lost since then."""
        return [entries for at, entries in self._former.get(entity, ()) if at >= began]

    def _is_of_a_tail(self, call: Call, entries: Sequence[Entry], before: Sequence[Call]) -> bool:
        """Check an answer against the journal, or else against a tail that its home still knew.

        Return whether it was the latter.
        """
        try:
            promises.read_is_linearizable(call, entries, before)
        except PromiseBroken:
            tail = self._tails.of(call)
            if tail is None:
                self._is_linearizable(call, entries, before)
                return False
            self._is_linearizable(call, tail.entries, tail.answered)
            tail.answered.append(call)
            self.past[id(call)] = None
            return True
        return False

    def _is_linearizable(self, call: Call, entries: Sequence[Entry], before: Sequence[Call]) -> None:
        try:
            promises.read_is_linearizable(call, entries, before)
        except PromiseBroken:
            of = self.world.overlaps.of(call)
            if not any(self._knew_no_more(each, call, entries, before) for each in of):
                raise
            self.world.transition("former home", "let go unheard", "answers of the past")
            self.past[id(call)] = None

    def _knew_no_more(
        self, overlap: Overlap, call: Call, entries: Sequence[Entry], before: Sequence[Call]
    ) -> bool:
        """Whether that is the answer of a home that cannot know yet that it is one no more.

        It includes all of that home's own events. It includes its successor's too if the home has
        read the entity since.
        """
        type_name, _, entity_id = call.entity.partition("/")
        epoch = overlap.epochs.get((type_name, self.world.shard_of(type_name, entity_id)))
        if epoch is None:
            return False
        if any(promises.is_of(call, former) for former in self._since(call.entity, overlap.since)):
            return True
        its_own = sum(entry.epoch <= epoch for entry in entries)
        try:
            promises.read_is_linearizable(call, entries, before, most=its_own)
        except PromiseBroken:
            return False
        return True

    def _failed(self, call: Call, error: BaseException) -> None:
        """Check that the error may happen, and that its reason is true."""
        if isinstance(error, NotSerializable):
            self._was_refused(call, error)
            return
        if isinstance(error, UnreadableEvent):
            self._does_not_start(call, error)
            return
        also = ALSO.get(call.command)
        too_old = (
            isinstance(error, InvalidCall)
            and error.code == "too_old"
            and self.world.now - call.began > LEAST_WINDOW_SECONDS
        )
        statement_failed = (
            (bool(call.books) or call.command == "set_out_together")
            and isinstance(error, EntityFailed)
            and error.params.get("error") == ServerError.__name__
            and self.statement_failed_at >= call.began
        )
        if not (
            isinstance(error, MAY_HAPPEN) or too_old or statement_failed or (also and isinstance(error, also))
        ):
            raise PromiseBroken(8, "errors_are_typed", f"{call.command} failed with {error!r}", call.entity)

    def _was_refused(self, call: Call, error: NotSerializable) -> None:
        """Check that a constraint has refused a row of this call. Nothing else is refused here."""
        if any(token in self.world.obstacles.refused for token in _all_of(call)):
            self.world.transition("row", "refused", "told")
        elif call.entity in self._taken:
            number = self._taken[call.entity]
            raise PromiseBroken(1, "one_writer", f"two wrote number {number}: {error}", call.entity)
        else:
            raise PromiseBroken(
                8, "errors_are_true", f"no row of {call.command} was refused: {error}", call.entity
            )

    def _does_not_start(self, call: Call, error: UnreadableEvent) -> None:
        """Check that the entity would not start."""
        if not self.stubborn.excuses(call.entity.partition("/")[2], call.began):
            raise PromiseBroken(8, "errors_are_true", f"{call.command} failed with {error!r}", call.entity)
        self.world.transition("remembered", "does not start", "told")

    def was_lost(self, token: str) -> bool:
        """Whether a token was stored, and is gone."""
        return token in self._gone

    def abandoned(self, client: str) -> None:
        """Drop the calls of a client that has crashed: their outcome will never be known."""
        for key, call in list(self.unanswered.items()):
            if call.client == client:
                del self.unanswered[key]

    @recorded
    def look_at_calls(self) -> None:
        """Check promise 8 (every call ends) and promise 9 (the clients' buffers are bounded)."""
        for client in self.world.clients:
            if client.started:
                self._memory_is_bounded(client.asking)
        for call in self.unanswered.values():
            self._in_time(call)

    def _in_time(self, call: Call) -> None:
        """Check that a call ends when its timeout says. Pauses of its process do not count."""
        process, awake = self._callers.get(id(call), (None, 0.0))
        if process is not None and process.awake - awake > call.patience:
            raise PromiseBroken(
                8, "every_call_ends_in_time",
                f"{call.client}#{call.number} {call.command} waits since {process.awake - awake:.2f} s", call.entity,
            )  # fmt: skip

    # -- The layer ---------------------------------------------------------------------------------

    @recorded
    def sent(self, client: str, channel: str, body: Sequence[AnyMessage]) -> None:
        """Check promises 2 and 14 when a frame goes out.

        No node answers without a lease, and no command goes to and fro between a region and a home
        without a pause.
        """
        for message in body:
            if isinstance(message, HandBack):
                self._handed_back(client, channel, message)
        if not any(isinstance(message, RESULTS) for message in body):
            return
        node = self.world.node_of(client)
        if node is not None and not self.world.is_valid(node):
            raise PromiseBroken(2, "answers_while_valid", f"{client} answered without a lease")

    def _handed_back(self, home: str, channel: str, message: HandBack) -> None:
        for request in message.requests[:1]:
            key = home, channel, message.type, message.epoch, request
            times, since = self._bounces.get(key, (0, self.world.now))
            if self.world.now - since > CIRCLE_SECONDS:
                times, since = 0, self.world.now
            self._bounces[key] = times + 1, since
            if times >= CIRCLES:
                detail = f"{home} hands back one command for the {times + 1}. time in {self.world.now - since:.3f} s"
                raise PromiseBroken(14, "nothing_goes_in_circles", detail, f"{message.type}/{message.shard}")

    # -- After a turn ------------------------------------------------------------------------------

    @recorded
    def look(self, node: Node) -> None:
        """Check promises 2, 7 and 9 for one node after its turn; all instances now and then."""
        self._looks += 1
        self._lease_is_earned(node)
        if not self._looks % GLOBAL_LOOK_EVERY:
            self._memory_is_bounded(node)
            self._mailboxes_are_bounded(node)
            self.world.registry.look()
            self.world.judge.look()
        homes, me = self.homes, node.incarnation
        for host in all_hosts(node):
            for number, shard in host.shards.items():
                home = homes.get((shard.type, number, shard.epoch))
                if home != me:
                    raise PromiseBroken(
                        7, "hosts_what_the_row_says",
                        f"{me} hosts it at epoch {shard.epoch}, whose home is {home}", f"{shard.type}/{number}",
                    )  # fmt: skip

    def _lease_is_earned(self, node: Node) -> None:
        """Compare a node's belief in its lease with the server's side.

        It must end in time after the server has last heard the node: before the server ends the
        silent sessions and other nodes act on that.
        """
        heard = self._server.sessions.lifelines_heard.get(node.incarnation, 0.0)
        ends = self.world.lease_ends(node)
        if ends > heard + BOUND_SECONDS + ROUNDING_SECONDS:
            detail = f"{node.incarnation} believes in its lease until {ends - heard:.2f} s after the server has heard it"
            raise PromiseBroken(2, "lease_is_earned", detail)

    def _mailboxes_are_bounded(self, node: Node) -> None:
        """Check promise 9 for what waits at entities. A command that had its turn and could not
        begin is put back, beside a full mailbox.
        """
        most = MAILBOX + 1
        for host in all_hosts(node):
            beside = host.execution.beside
            if beside is not None and beside.most_waiting > most:
                detail = f"{beside.most_waiting} answers wait for a commit"
                raise PromiseBroken(9, "memory_is_bounded", detail, host.type.name)
            for shard in host.shards.values():
                for slot in shard.slots.values():
                    mailbox = slot.mailbox
                    if mailbox is not None and len(mailbox) > most:
                        raise PromiseBroken(9, "memory_is_bounded", f"{len(mailbox)} in a mailbox", slot.id)

    def _memory_is_bounded(self, asking: AskingProcess) -> None:
        """Check promise 9 for regions and links, whose contents are counted again."""
        calls: dict[str, tuple[int, int]] = {}
        for pending in asking.region_client.pending.values():
            number, size = calls.get(pending.call.type, (0, 0))
            calls[pending.call.type] = number + 1, size + len(pending.call.args) + OVERHEAD_BYTES
        for name, (number, size) in calls.items():
            if number > REGION.max_calls or size > REGION.max_bytes:
                raise PromiseBroken(
                    9, "memory_is_bounded", f"a region of {name} holds {number} commands, {size} bytes"
                )
        for peer, line in asking.links._tasks.items():
            sender, receiver = line.link._sender, line.link._receiver
            queued = [*sender.others.items, *sender.deliveries.items]
            size, held = sum(map(len, queued)), sum(size for _, size in receiver.held.values())
            if (
                len(queued) > LINKS.max_queue_messages
                or size > LINKS.max_queue_bytes
                or len(receiver.held) > LINKS.window_frames
                or held > LINKS.window_bytes
            ):
                raise PromiseBroken(
                    9,
                    "memory_is_bounded",
                    f"the link to {peer} holds {len(queued)} messages of {size} bytes,"
                    f" and {len(receiver.held)} frames of {held} bytes",
                )

    def name_of(self, type_id: int) -> str:
        if type_id not in self._names:
            self._names = {number: name for name, number in self._server.cluster.type_ids.items()}
        return self._names[type_id]


def _entry(committed: Committed) -> Entry:
    row = committed.row
    return Entry(row.seq, row.epoch, token_of(row), committed.at)


def _all_of(call: Call) -> list[str]:
    """Return every token that a call may have stored."""
    return [*call.tokens, call.books, *(token for _, token in call.along)]


def token_of(row: EventRow) -> str:
    """Return the token of an event, or the last one of a state.

    An event that only ends a command gets a token of its own.
    """
    if is_state(row):
        return next(reversed(tokens_of(row)), "")
    return str(msgspec.json.decode(row.payload).get("token", f"{row.entity}#{row.seq} ends"))
