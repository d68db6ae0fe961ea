"""Sees everything that happens in a world, and checks the promises in the moment that it does.

It listens at three places: the server's tables (each commit, each decision), the entities (each handler that begins
and ends), and the clients (each call and its end). What it knows of homes and epochs comes from the decisions, never
from the nodes: a node that believes something else is caught.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec

from sharding_app.adapters.memory.journal_rows import Committed
from sharding_app.adapters.memory.server import MemoryServer
from sharding_app.adapters.memory.sessions import ServerError
from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term, shard_of
from sharding_app.core.messages import Answer, AnyMessage, Done, Failed, HandBack
from sharding_app.core.records import ShardRow
from sharding_app.errors import (
    STORED,
    AskTimeout,
    BadCall,
    BufferFull,
    EntityFailed,
    NotStorable,
    PartlyApplied,
    Rejected,
    ShardingError,
    Unavailable,
)
from sharding_app.model.entity import EventSourced
from sharding_app.ports.journal import EventRow, Snapshot
from sharding_app.simulation import promises
from sharding_app.simulation.overlaps import Overlap
from sharding_app.simulation.promises import Call, Entry, PromiseBroken
from sharding_app.simulation.registry import Instance
from sharding_app.simulation.scheduler import Process
from sharding_app.simulation.tails import Tails
from sharding_app.simulation.trace import Trace
from sharding_app.simulation.virtual_node import LINKS, REGION

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node
    from sharding_app.runtime.process import Process as AskingProcess
    from sharding_app.simulation.workload import Ending
    from sharding_app.simulation.world import World

GLOBAL_LOOK_EVERY = 4
MAY_HAPPEN = (AskTimeout, BufferFull, Unavailable)
ALSO = {"reject": Rejected, "fail": EntityFailed, "add_in_steps": PartlyApplied}


Check = TypeVar("Check", bound=Callable[..., None])


def recorded(check: Check) -> Check:
    """Give a broken promise to the world, not to whoever happens to run: the runtime would take it for its own."""

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
"""So often in so short a time one command may be handed back by one home. Frames that are repeated count."""


class Handling(NamedTuple):
    """A handler that runs now."""

    entity: str
    node: Incarnation
    epoch: Epoch


class Witness:
    def __init__(self, world: World, server: MemoryServer, trace: Trace) -> None:
        self.journal: dict[str, list[Entry]] = {}
        self.calls: list[Call] = []
        self.unanswered: dict[int, Call] = {}
        self.by_token: dict[str, Call] = {}
        self.forbidden: dict[str, Call] = {}
        "Tokens that a failed handler had staged."
        self.homes: dict[tuple[str, ShardId, Epoch], Incarnation | None] = {}
        "Who was decided to be the home of a shard at an epoch."
        self._callers: dict[int, tuple[Process, float]] = {}
        "Who made a call, and how long that process had been awake then."
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
        "Commands that were handed back by one home at one epoch: how often, and since when."
        self._answered: dict[str, list[Call]] = {}
        server.journal.on_commit = self.committed
        server.cluster.on_decide = self.decided
        server.standby.on_lost = self.went_back
        server.journal.on_erase = self.erased
        server.journal.on_snapshot = self.snapshot_taken
        self.erasing: dict[str, int] = {}
        "Erasures that an operator waits for, by entity."
        self.bookings: dict[str, str] = {}
        self._books: dict[str, Call] = {}
        self.own_rows: dict[str, Incarnation] = {}
        "Rows that users' functions have written, and the node in which they did."
        self.lost_rows: dict[str, None] = {}
        "Those of them that an asynchronous standby lacked."
        self._booked: dict[str, Call] = {}
        "Calls that were told of their row, by its token."
        self.past: dict[int, None] = {}
        "Calls about what an entity was before it was erased."
        self._erased_at: dict[str, float] = {}
        self._tails = Tails()

    # -- The journal -----------------------------------------------------------------------------------------------

    @recorded
    def committed(self, rows: Sequence[EventRow]) -> None:
        """Promises 1, 3, 4 and 5, in the moment of a commit."""
        session = self._server.serving
        writer = session.client if session is not None else ""
        self.commits += 1
        touched: dict[str, None] = {}
        for row in rows:
            type_name = self.name_of(row.type_id)
            entity = f"{type_name}/{row.entity}"
            token = token_of(row)
            entries = self.journal.setdefault(entity, [])
            entries.append(Entry(row.seq, row.epoch, token, self.world.now))
            touched[entity] = None
            self._trace.note(
                writer, entity, "committed %s #%d %s at epoch %d", entity, row.seq, token, row.epoch
            )
            current = self._server.cluster.epochs.get((row.type_id, row.shard), 0)
            if row.epoch != current:
                raise PromiseBroken(
                    1, "one_writer", f"{writer} wrote at epoch {row.epoch}, the shard's is {current}", entity
                )
            home = self.homes.get((type_name, row.shard, row.epoch))
            if home != writer:
                raise PromiseBroken(
                    1, "one_writer", f"{writer} wrote at epoch {row.epoch}, whose home is {home}", entity
                )
            if (call := self.by_token.get(token)) is not None and call.says == "nothing":
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
        """Promises 1 and 5, in the moment in which a user's own row is committed."""
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
    def erased(self, type_id: int, entity_id: str, events: int) -> None:
        """Promise 3, in the moment of an erasure: only what an operator waits for is erased."""
        entity = f"{self.name_of(type_id)}/{entity_id}"
        self._trace.note("world", entity, "%s is erased, %d events", entity, events)
        if events and not self.erasing.get(entity):
            raise PromiseBroken(
                3,
                "nothing_is_erased_late",
                f"{events} events went, and the operator was told of the end before",
                entity,
            )
        self.world.transition("entity", "stored", "erased")
        entries = self.journal.get(entity, [])
        entries.clear()
        self._is_of_the_past(entity)

    @recorded
    def snapshot_taken(self, snapshot: Snapshot) -> None:
        """Promise 4, in the moment in which a snapshot is stored: it is the fold of the first events."""
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
    def went_back(self) -> None:
        """Promise 3, in the moment of a promotion: what the new server lacks was acknowledged to no caller."""
        stored = {
            f"{self.name_of(type_id)}/{entity}": [_entry(each) for each in events.values()]
            for (type_id, entity), events in self._server.journal.events.items()
        }
        self._own_rows_went_back()
        for entity in {**self.journal, **stored}:
            entries, kept = self.journal.setdefault(entity, []), stored.get(entity, [])
            if entries == kept:
                continue
            # An erasure that was not confirmed either has vanished with the rest: what it erased is there again.
            lost = {each.token: None for each in entries if each not in kept}
            if self._server.standby.asynchronous:
                self._tails.lost(entity, entries, self.world.now)
            entries[:] = kept
            self.world.transition("commit", "not confirmed", "vanished")
            self._trace.note("world", entity, "%s goes back to #%d", entity, len(kept))
            if self._server.standby.asynchronous:
                self._is_of_the_past(entity)
                continue
            for call in self._answered.get(entity, ()):
                told = promises.newest_seen(call)
                if told > len(kept) or any(token in lost for token in call.tokens):
                    raise PromiseBroken(
                        3, "acknowledged_survives_promotion",
                        f"{call.client}#{call.number} {call.command} was told of #{told}, the standby has {len(kept)}", entity,
                    )  # fmt: skip
        if self._server.standby.asynchronous:
            self.world.registry.went_back()
            self._last.clear()

    def _own_rows_went_back(self) -> None:
        for token in [each for each in self.own_rows if each not in self._server.journal.beside]:
            del self.own_rows[token]
            call = self._booked.pop(token, None)
            if self._server.standby.asynchronous:
                self.lost_rows[token] = None
            elif call is not None:
                raise PromiseBroken(
                    3, "acknowledged_survives_promotion",
                    f"{call.client}#{call.number} {call.command} was told of the row {token!r}, the standby has it not", call.entity,
                )  # fmt: skip

    def _is_of_the_past(self, entity: str) -> None:
        """What was told of the entity until now says nothing of what it is now."""
        self._erased_at[entity] = self.world.now
        for call in self._answered.pop(entity, ()):
            self.past[id(call)] = None

    # -- Decisions -------------------------------------------------------------------------------------------------

    @recorded
    def decided(self, term: Term, before: ShardRow | None, after: ShardRow) -> None:
        """Promise 7, in the moment of a decision; and no shard moves while its home may still handle."""
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
        self.homes[after.type, after.shard, after.epoch] = after.home
        self.world.judge.decided(writer, before, after)
        self.world.transition("shard row", before.step if before is not None else "none", after.step)

    def _has_let_go(self, row: ShardRow) -> None:
        """The former home has stopped the shard, or its lease is over."""
        node = self.world.node_of(str(row.home))
        if node is None or not self.world.is_valid(node) or self.world.overlaps.excuses(row.home):
            return
        host = node.hosts.get(row.type)
        shard = host.shards.get(row.shard) if host is not None else None
        if shard is not None and shard.epoch == row.epoch and not shard.stopped:
            raise PromiseBroken(
                2, "let_go_before_moved",
                f"{row.home} is valid and has not stopped epoch {row.epoch}", f"{row.type}/{row.shard}",
            )  # fmt: skip

    # -- Entities --------------------------------------------------------------------------------------------------

    def handling_begins(self, entity: EventSourced) -> int:
        self._runs += 1
        self._begins(self._runs, entity)
        return self._runs

    @recorded
    def _begins(self, run: int, entity: EventSourced) -> None:
        """Promise 2, in the moment in which a handler begins."""
        made = type(entity)._sharding_type
        if made is None:
            return
        node = self.world.running_node()
        name = f"{made.name}/{entity.entity_id}"
        self.handled += 1
        if node is None:
            raise PromiseBroken(2, "one_instance", "handled outside of any node", name)
        number = shard_of(entity.entity_id, made.settings.number_of_shards or 0)
        shard = node.hosts[made.name].shards.get(number)
        if shard is None:
            raise PromiseBroken(2, "one_instance", f"{node.incarnation} handled, and does not host it", name)
        now = Handling(name, node.incarnation, shard.epoch)
        if not self.world.is_valid(node):
            raise PromiseBroken(2, "handles_while_valid", f"{node.incarnation} handled without a lease", name)
        if self.homes.get((made.name, number, shard.epoch)) != node.incarnation:
            raise PromiseBroken(
                7, "hosts_what_the_row_says", f"{node.incarnation} hosts at epoch {shard.epoch}", name
            )
        self._live[run] = self.world.registry.begins(entity, node, made, shard)
        last = self._last.get(name)
        if last is not None and last.epoch > now.epoch and self.world.overlaps.excuses(now.node):
            self.world.transition("former home", "let go unheard", "handles")
            return
        if last is not None and (
            last.epoch > now.epoch or (last.epoch == now.epoch and last.node != now.node)
        ):
            raise PromiseBroken(2, "one_instance", f"{now} handles after {last}", name)
        for other in self._running.values():
            if other.entity == name and self._still_counts(other):
                raise PromiseBroken(2, "one_at_a_time", f"{now} beside {other}", name)
        self._last[name] = now
        self._running[run] = now
        self._tails.handles(name, aware=self.world.has_heard(node), now=self.world.now)

    def handling_ends(self, handle: object) -> None:
        if isinstance(handle, int):
            self._running.pop(handle, None)
            instance = self._live.pop(handle, None)
            if instance is not None:
                self.world.registry.ends(instance)

    @recorded
    def stops(self, entity: EventSourced, how: Ending) -> None:
        self.world.registry.stops(entity, how)

    def _still_counts(self, handling: Handling) -> bool:
        """Whether that handler belongs to an object that is still in use."""
        node = self.world.node_of(handling.node)
        if node is None or not self.world.is_valid(node) or self.world.overlaps.excuses(handling.node):
            return False
        type_name, _, entity_id = handling.entity.partition("/")
        host = node.hosts[type_name]
        number = shard_of(entity_id, host.type.settings.number_of_shards or 0)
        shard = host.shards.get(number)
        return shard is not None and shard.epoch == handling.epoch and entity_id in shard.slots

    # -- Clients ---------------------------------------------------------------------------------------------------

    @recorded
    def called(self, call: Call, process: Process | None, forbidden: str | None) -> None:
        self.calls.append(call)
        self.unanswered[id(call)] = call
        if process is not None:
            self._callers[id(call)] = process, process.awake
        for token in call.tokens:
            self.by_token.setdefault(token, call)
        if call.books:
            self._books.setdefault(call.books, call)
        if forbidden is not None:
            self.forbidden[forbidden] = call
        self._trace.note(
            call.client, call.entity, "calls #%d %s %s%s", call.number, call.entity, call.command, call.tokens
        )

    @recorded
    def answered(self, call: Call) -> None:
        """Promises 2, 3 and 8, in the moment of an answer."""
        self.unanswered.pop(id(call), None)
        self._in_time(call)
        what = repr(call.error) if call.error is not None else call.value
        self._trace.note(call.client, call.entity, "#%d is answered: %s", call.number, what)
        if call.error is not None:
            self._says_what_is_stored(call)
            self._failed(call, call.error)
            return
        if call.command in ("reject", "fail"):
            raise PromiseBroken(
                3, "failures_are_told", f"{call.command} answered {call.value!r}", call.entity
            )
        if call.books:
            if call.books in self.own_rows:
                self._booked[call.books] = call
            elif call.books not in self.lost_rows:  # else it went while its answer was on its way
                raise PromiseBroken(3, "acknowledged_is_stored", f"no row of {call.books!r}", call.entity)
            return
        if call.began <= self._erased_at.get(call.entity, -1.0):
            self.past[id(call)] = None  # it may be of the time before, and its answer too
            return
        if not call.tokens and self._tails.answered(call):
            self.past[id(call)] = None
            return
        entries = self.journal.get(call.entity, ())
        before = self._answered.setdefault(call.entity, [])
        if call.tokens:
            promises.acknowledged_is_stored(call, entries)
        else:
            self._is_linearizable(call, entries, before)
        before.append(call)

    def _says_what_is_stored(self, call: Call) -> None:
        """What comes later is looked at when it comes."""
        error = call.error
        if isinstance(error, ShardingError) and not isinstance(error, Rejected) and error.code not in STORED:
            raise PromiseBroken(
                8, "errors_are_typed", f"no word on what {error.code!r} has stored", call.entity
            )
        if call.says == "nothing" and call.books in self.own_rows:
            raise PromiseBroken(
                3, "failed_is_not_stored", f"{error!r}, and the row of {call.books!r} is there", call.entity
            )
        if call.began > self._erased_at.get(call.entity, -1.0):
            stored = {entry.token for entry in self.journal.get(call.entity, ())}
            promises.error_says_what_is_stored(call, stored)

    def _is_linearizable(self, call: Call, entries: Sequence[Entry], before: Sequence[Call]) -> None:
        try:
            promises.read_is_linearizable(call, entries, before)
        except PromiseBroken:
            if not any(self._knew_no_more(each, call, before) for each in self.world.overlaps.of(call)):
                raise
            self.world.transition("former home", "let go unheard", "answers of the past")
            self.past[id(call)] = None

    def _knew_no_more(self, overlap: Overlap, call: Call, before: Sequence[Call]) -> bool:
        """Whether that is the answer of a home that cannot know yet that it is one no more: all of its own is in it. What its
        successor had stored is in it too, if it has read the entity since."""
        type_name, _, entity_id = call.entity.partition("/")
        epoch = overlap.epochs.get((type_name, self.world.shard_of(type_name, entity_id)))
        if epoch is None:
            return False
        if self._erased_at.get(call.entity, -1.0) >= overlap.since:
            return True  # nothing is left to compare it with
        entries = self.journal.get(call.entity, ())
        its_own = sum(entry.epoch <= epoch for entry in entries)
        try:
            promises.read_is_linearizable(call, entries, before, most=its_own)
        except PromiseBroken:
            return False
        return True

    def _failed(self, call: Call, error: BaseException) -> None:
        """It is an error that may happen, and not for another reason than it says."""
        if isinstance(error, NotStorable):
            self._was_refused(call, error)
            return
        also = ALSO.get(call.command)
        too_old = isinstance(error, BadCall) and error.code == "too_old"
        statement_failed = (
            bool(call.books)
            and isinstance(error, EntityFailed)
            and error.params.get("error") == ServerError.__name__
        )
        if not (
            isinstance(error, MAY_HAPPEN) or too_old or statement_failed or (also and isinstance(error, also))
        ):
            raise PromiseBroken(8, "errors_are_typed", f"{call.command} failed with {error!r}", call.entity)

    def _was_refused(self, call: Call, error: NotStorable) -> None:
        """Only a constraint refuses what the workload stores, and it refuses nothing beside it."""
        if any(token in self.world.obstacles.refused for token in (*call.tokens, call.books)):
            self.world.transition("row", "refused", "told")
        elif "exists already" in str(error):
            raise PromiseBroken(1, "one_writer", f"two wrote one number: {error}", call.entity)
        else:
            raise PromiseBroken(
                8, "errors_are_true", f"no row of {call.command} was refused: {error}", call.entity
            )

    def abandoned(self, client: str) -> None:
        """The client has crashed: nobody will ever know what became of its calls."""
        for key, call in list(self.unanswered.items()):
            if call.client == client:
                del self.unanswered[key]

    @recorded
    def look_at_calls(self) -> None:
        """Promise 8: every call ends. Promise 9, of the clients: what waits there is bounded."""
        for client in self.world.clients:
            if client.started:
                self._memory_is_bounded(client.asking)
        for call in self.unanswered.values():
            self._in_time(call)

    def _in_time(self, call: Call) -> None:
        """A call ends when its timeout says, however its process was paused meanwhile."""
        process, awake = self._callers.get(id(call), (None, 0.0))
        if process is not None and process.awake - awake > call.patience:
            raise PromiseBroken(
                8, "every_call_ends_in_time",
                f"{call.client}#{call.number} {call.command} waits since {process.awake - awake:.2f} s", call.entity,
            )  # fmt: skip

    # -- The layer -------------------------------------------------------------------------------------------------

    @recorded
    def sent(self, client: str, channel: str, body: Sequence[AnyMessage]) -> None:
        """Promises 2 and 14, in the moment in which a frame goes out: nothing is answered without a lease, and nothing
        goes to and fro between a region and a home without a pause."""
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

    # -- After a turn ----------------------------------------------------------------------------------------------

    @recorded
    def look(self, node: Node) -> None:
        """Promises 7 and 9, of one node, after it did something; now and then, that nothing lives twice."""
        self._looks += 1
        if not self._looks % GLOBAL_LOOK_EVERY:
            self._memory_is_bounded(node)
            self.world.registry.look()
            self.world.judge.look()
        for host in node.hosts.values():
            for number, shard in host.shards.items():
                home = self.homes.get((host.type.name, number, shard.epoch))
                if home != node.incarnation:
                    raise PromiseBroken(
                        7, "hosts_what_the_row_says",
                        f"{node.incarnation} hosts it at epoch {shard.epoch}, whose home is {home}",
                        f"{host.type.name}/{number}",
                    )  # fmt: skip
                for slot in shard.slots.values():
                    if slot.mailbox is not None and len(slot.mailbox) > shard.mailbox_limit:
                        raise PromiseBroken(
                            9, "memory_is_bounded", f"{len(slot.mailbox)} in a mailbox", slot.id
                        )

    def _memory_is_bounded(self, asking: AskingProcess) -> None:
        """Promise 9, of what regions and links hold, counted anew."""
        if not hasattr(asking, "asker") or not hasattr(asking, "links"):
            return  # it begins
        parcels: dict[str, tuple[int, int]] = {}
        for parcel in asking.asker.pending.values():
            number, size = parcels.get(parcel.type, (0, 0))
            parcels[parcel.type] = number + 1, size + parcel.size
        most = REGION.max_bytes + max((each.size for each in asking.asker.pending.values()), default=0)
        for name, (number, size) in parcels.items():
            if number > REGION.max_parcels or size > most:
                raise PromiseBroken(
                    9, "memory_is_bounded", f"a region of {name} holds {number} commands, {size} bytes"
                )
        for peer, line in asking.links._lines.items():
            link = line.link.statistics()
            if link.queued_messages > LINKS.max_queue_messages or link.held_frames > LINKS.window_frames:
                raise PromiseBroken(
                    9,
                    "memory_is_bounded",
                    f"the link to {peer} holds {link.queued_messages} messages, {link.held_frames} frames",
                )

    def name_of(self, type_id: int) -> str:
        if type_id not in self._names:
            self._names = {number: name for name, number in self._server.cluster.type_ids.items()}
        return self._names[type_id]


def _entry(committed: Committed) -> Entry:
    row = committed.row
    return Entry(row.seq, row.epoch, token_of(row), committed.at)


def token_of(row: EventRow) -> str:
    """What an event notes. One that only ends a command has a name of its own."""
    return str(msgspec.json.decode(row.payload).get("token", f"{row.entity}#{row.seq} ends"))
