"""Mistakes on purpose: each takes one guard out of the real machines, shells or tables, and must be caught.

A simulation that finds nothing proves nothing until it is shown what it would find. `planted(name)` puts a mistake in
while the block runs; the run that breaks a promise then has done its work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.journal_rows import JournalRows
from sharding_app.core.allocation import ClusterView
from sharding_app.core.effects import Decide
from sharding_app.core.handoff import HandOffs
from sharding_app.core.ids import Incarnation
from sharding_app.core.least_shards import LeastShardAllocation
from sharding_app.core.link_receiver import LinkReceiver
from sharding_app.core.link_sender import LinkSender
from sharding_app.core.membership import Membership
from sharding_app.core.messages import AnyMessage, Frame
from sharding_app.core.oldest import OldestAllocation
from sharding_app.core.placement import Placement
from sharding_app.core.region import Region, Route
from sharding_app.core.shard import Shard, Slot
from sharding_app.core.shard_lease import ShardLeases
from sharding_app.ports.journal import EventRow, History, Mark
from sharding_app.runtime.asker import Asker
from sharding_app.runtime.entity_life import EntityLife
from sharding_app.runtime.execution import Execution
from sharding_app.runtime.hearing import Hearing
from sharding_app.runtime.leasing import ShardGate
from sharding_app.runtime.node import Node
from sharding_app.runtime.own_row import OwnRow
from sharding_app.runtime.process import Process
from sharding_app.runtime.remembering import Remembering
from sharding_app.runtime.shard_life import ShardLife


class Mistake(NamedTuple):
    """Something that is left out or turned around. `promises`: those of which one should be found broken."""

    promises: tuple[int, ...]
    where: Any
    name: str
    make: Callable[[Any], Any]
    "Given what stands there, returns what takes its place."


def _nothing(*args: object, **kwargs: object) -> None:
    return None


def _yes(*args: object, **kwargs: object) -> bool:
    return True


def _no_resends(real: Any) -> Any:
    def due(self: LinkSender, now: float) -> Any:
        frames = []
        while (sent := self._next(now)) is not None:
            frames.append(sent)
        return frames

    return due


def _delivers_again(real: Any) -> Any:
    def take(self: LinkReceiver, frame: Frame, size: int, now: float) -> list[AnyMessage]:
        if frame.stream == self.stream and 0 < frame.seq <= self.taken_in:
            return frame.body
        return real(self, frame, size, now)  # type: ignore[no-any-return]

    return take


def _takes_what_comes(real: Any) -> Any:
    def take(self: LinkReceiver, frame: Frame, size: int, now: float) -> list[AnyMessage]:
        if frame.stream == self.stream and frame.seq > self.taken_in + 1:
            self.taken_in = frame.seq - 1
        return real(self, frame, size, now)  # type: ignore[no-any-return]

    return take


def _believes_it_for_ever(real: Any) -> Any:
    def extend(self: ShardLeases, lease: Any, sent_at: float) -> None:
        real(self, lease, sent_at)
        lease.valid_until = float("inf")

    return extend


def _answers_first(real: Any) -> Any:
    def commit(self: Execution, slot: Any, source: Incarnation, message: Any, *rest: Any) -> Any:
        self.answer(source, message, rest[-1])
        return real(self, slot, source, message, *rest)

    return commit


def _in_the_old_order_no_more(real: Any) -> Any:
    def forward_all(self: Region, route: Route) -> None:
        route.waiting.reverse()
        real(self, route)

    return forward_all


def _behind_the_others(real: Any) -> Any:
    def put_back(self: Region, route: Route, parcels: list[Any]) -> None:
        for parcel in parcels:
            parcel.home = None
            if parcel.told:
                self._forget(parcel)
            else:
                route.waiting.append(parcel)

    return put_back


def _waits_for_nobody(real: Any) -> Any:
    def home_told(self: Region, shard: int, home: Incarnation, epoch: int, now: float) -> None:
        route = self.routes.get(shard)
        if route is None or epoch < max(route.epoch, route.next_epoch):
            return
        route.home, route.epoch, route.held = home, epoch, False
        route.next_home, route.next_epoch = None, 0
        self._forward_all(route)

    return home_told


def _looks_at_no_row(real: Any) -> Any:
    async def compare(self: OwnRow, generation: int) -> None:
        node = self._node
        if await node.lifeline.resume(generation):
            node.links.resume()
            node.writer.resume()
            node.hosting.resume()

    return compare


def _does_not_wait_to_stop(real: Any) -> Any:
    def stop(self: HandOffs, key: Any, handoff: Any, now: float) -> None:
        self.coordinator.out.append(Decide([self._move(key, handoff)]))

    return stop


def _believes_the_error(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow]) -> bool:
        await real(self, rows)
        return False

    return settle


def _ends_no_backend(real: Any) -> Any:
    async def settle(self: MemoryJournal, rows: Sequence[EventRow]) -> bool:
        self._writer.doubtful.clear()
        return await real(self, rows)  # type: ignore[no-any-return]

    return settle


def _misses_the_last(real: Any) -> Any:
    def read(self: JournalRows, type_id: int, entities: Sequence[str]) -> dict[str, History]:
        histories: dict[str, History] = real(self, type_id, entities)
        for history in histories.values():
            if len(history.events) > 1:
                history.events.pop()
        return histories

    return read


def _freed_locks_mean_death(real: Any) -> Any:
    def judge(self: Membership, now: float, server: Any, members: Sequence[Any]) -> Any:
        self._ttl = 0.0
        return real(self, now, server, members)

    return judge


def _no_limit(real: Any) -> Any:
    def deliver(self: Shard, source: Incarnation, message: Any, now: float) -> Any:
        limit, self.mailbox_limit = self.mailbox_limit, 1_000_000
        try:
            return real(self, source, message, now)
        finally:
            self.mailbox_limit = limit

    return deliver


def _needs_a_coordinator(real: Any) -> Any:
    def may_handle(self: Node) -> bool:
        pulse = getattr(self.lifeline, "pulse", None)
        return bool(real(self)) and (pulse is None or pulse.coordinator_locked)

    return may_handle


def _stores_no_mark(real: Any) -> Any:
    async def remember(self: MemoryJournal, marks: Sequence[Mark]) -> None:
        return None

    return remember


def _forgets_what_moves(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        shard, remembering = self._host.shards.get(number), self._host.remembering
        if shard is not None and remembering is not None:
            for entity in shard.slots:
                remembering.stopped(shard, entity)
        real(self, number, epoch)

    return stop


def _recalls_first_homes_only(real: Any) -> Any:
    def recall(self: Remembering, shard: Shard) -> None:
        if shard.epoch == 1:
            real(self, shard)

    return recall


def _old_marks_live_on(real: Any) -> Any:
    async def remember(self: MemoryJournal, marks: Sequence[Mark]) -> None:
        self._reader.doubtful.clear()
        await real(self, marks)

    return remember


def _runs_again_whatever_it_said(real: Any) -> Any:
    def stopped_by_itself(self: EntityLife, slot: Slot) -> None:
        slot.passivating = False
        real(self, slot)

    return stopped_by_itself


def _moves_at_any_time(real: Any) -> Any:
    def rebalance(self: Any, allocations: Any, in_progress: Any, view: ClusterView) -> Any:
        return real(self, allocations, in_progress, ClusterView({}))

    return rebalance


def _the_youngest(real: Any) -> Any:
    def allocate(self: Any, requester: Any, shard: int, allocations: Any, view: Any) -> Any:
        return list(allocations)[-1]

    return allocate


def _says_nothing_at_the_end(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        entities = self._host.entity_life
        message, entities.stop_message = entities.stop_message, None
        try:
            real(self, number, epoch)
        finally:
            entities.stop_message = message

    return stop


def _has_stopped_at_once(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        real(self, number, epoch)
        if number in self._host.shards:
            self._on_stopped(self._host.type.name, number, epoch)

    return stop


def _hides_what_runs(real: Any) -> Any:
    def stop(self: ShardLife, number: int, epoch: int) -> None:
        real(self, number, epoch)
        shard = self._host.shards.get(number)
        if shard is not None and shard.epoch == epoch:
            self.ended(shard)

    return stop


def _counts_everybody(real: Any) -> Any:
    def enough_members(self: Placement) -> bool:
        if not self.assembled:
            self.assembled = len(self.members) >= self._min_members
        return self.assembled

    return enough_members


def _reloads_singletons_nowhere(real: Any) -> Any:
    def start_in(self: EntityLife, shard: Shard, entity: str) -> None:
        if self._host.type.singleton_id is None:
            real(self, shard, entity)

    return start_in


MISTAKES: dict[str, Mistake] = {
    "epoch_check_off": Mistake((1, 2, 3, 4), JournalRows, "fence", lambda _: _nothing),
    "term_check_off": Mistake((7,), ClusterRows, "check_term", lambda _: _nothing),
    "resend_off": Mistake((5, 8, 10), LinkSender, "due", _no_resends),
    "deduplication_off": Mistake((5, 8, 10), LinkReceiver, "take", _delivers_again),
    "frames_out_of_order": Mistake((5, 8, 10), LinkReceiver, "take", _takes_what_comes),
    "answer_before_commit": Mistake((2, 3), Execution, "commit", _answers_first),
    "lease_look_off": Mistake((2,), Node, "may_handle", lambda _: _yes),
    "second_look_off": Mistake((2,), Node, "may_send", lambda _: _yes),
    "buffer_order_broken": Mistake((5,), Region, "_forward_all", _in_the_old_order_no_more),
    "handed_back_goes_last": Mistake((5,), Region, "_put_back", _behind_the_others),
    "outstanding_not_waited_for": Mistake((5,), Region, "home_told", _waits_for_nobody),
    "resume_on_greater_epoch": Mistake((1, 2, 7), OwnRow, "compare", _looks_at_no_row),
    "double_allocation": Mistake((2,), HandOffs, "_stop_when_acknowledged", _does_not_wait_to_stop),
    "hand_back_dropped": Mistake((8, 10), ShardLife, "_hand_back", lambda _: _nothing),
    "settle_believes_not_committed": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _believes_the_error),
    "settle_ends_no_backend": Mistake((3, 4, 5, 8), MemoryJournal, "settle", _ends_no_backend),
    "recovery_misses_last_event": Mistake((2, 3, 4, 8), JournalRows, "read", _misses_the_last),
    "retries_are_not_looked_up": Mistake((5,), JournalRows, "outcome", lambda _: _nothing),
    "dead_at_once_after_restart": Mistake((2,), Membership, "judge", _freed_locks_mean_death),
    "mailbox_without_limit": Mistake((9,), Shard, "deliver", _no_limit),
    "asks_never_time_out": Mistake((8,), Asker, "_time_out", lambda _: _nothing),
    "needs_a_coordinator": Mistake((6, 8, 10), Node, "may_handle", _needs_a_coordinator),
    "deaf_stays": Mistake((13,), Hearing, "tell", lambda _: _async_nothing),
    "gone_is_not_told": Mistake((8, 10), Process, "_gone", lambda _: _nothing),
    "remembered_not_stored": Mistake((0, 10), MemoryJournal, "remember", _stores_no_mark),
    "remembered_forgotten_on_move": Mistake((0, 10), ShardLife, "stop", _forgets_what_moves),
    "remembered_not_recalled": Mistake((0, 10), Remembering, "recall", _recalls_first_homes_only),
    "old_marks_live_on": Mistake((0, 10), MemoryJournal, "remember", _old_marks_live_on),
    "rest_is_forgotten": Mistake((0, 10), EntityLife, "stopped_by_itself", _runs_again_whatever_it_said),
    "allocates_before_the_minimum": Mistake((0,), Placement, "_enough_members", lambda _: _yes),
    "dead_count_for_the_minimum": Mistake((0,), Placement, "_enough_members", _counts_everybody),
    "rebalances_while_mixed": Mistake((0,), LeastShardAllocation, "rebalance", _moves_at_any_time),
    "singleton_on_the_youngest": Mistake((0,), OldestAllocation, "allocate", _the_youngest),
    "singleton_not_terminated": Mistake((0,), ShardLife, "stop", _says_nothing_at_the_end),
    "singleton_waits_for_a_message": Mistake((10,), EntityLife, "start_in", _reloads_singletons_nowhere),
    "hand_over_without_waiting": Mistake((2,), ShardLife, "stop", _has_stopped_at_once),
    "lease_not_waited_for": Mistake((0,), ShardGate, "admits", lambda _: _yes),
    "lease_loss_is_not_told": Mistake((0,), ShardGate, "lost", lambda _: _nothing),
    "lease_never_over": Mistake((0,), ShardLeases, "_extend", _believes_it_for_ever),
    "stopped_while_it_runs": Mistake((2,), ShardLife, "stop", _hides_what_runs),
}


async def _async_nothing(*args: object) -> None:
    return None


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Let a mistake be in the code while the block runs."""
    mistake = MISTAKES[name]
    real = mistake.where.__dict__[mistake.name]
    setattr(mistake.where, mistake.name, mistake.make(real))
    try:
        yield
    finally:
        setattr(mistake.where, mistake.name, real)
