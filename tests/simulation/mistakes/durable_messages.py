"""Durable messages and timers: the commit that they belong to, their order, their end, their
times.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.adapters.memory.message_rows import MessageRows
from sharding_app.adapters.memory.message_writes import MessageWrites
from sharding_app.adapters.memory.steps import Steps
from sharding_app.ports.deliveries import MessageChanges, MessageRow, Taking
from sharding_app.ports.journal import EventRow
from sharding_app.protocol.delivery import deliveries, outcome
from sharding_app.protocol.delivery.clock import ServerClock
from sharding_app.protocol.delivery.deliveries import Deliveries, Message
from sharding_app.protocol.delivery.recurrence import Firing, Recurrence, first
from sharding_app.runtime.delivery.deliverer import Deliverer
from sharding_app.runtime.execution import command, message_changes
from sharding_app.runtime.execution.command import Command
from sharding_app.runtime.hosting.entities import EntityLife
from sharding_app.runtime.hosting.starting import EVERY, Starting
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Commit, Resident
from sharding_app.testing.simulation.own_rows import VirtualTogether
from tests.simulation.mistakes.mistake import Mistake, async_nothing, nothing, yes


def _before_the_commit(real: Any) -> Any:
    def put(self: Command, commit: Commit) -> None:
        owner = self.services.owner
        if commit.message_changes and owner.knows_server_time:
            owner.staged(self.slot, commit.message_changes, owner.server_time())
        real(self, commit)

    return put


def _confirms_first(real: Any) -> Any:
    def put(self: Command, commit: Commit) -> None:
        if self.message.delivery is not None:
            self.services.replies.answer(self.source, self.message, outcome.encode(outcome.DONE))
        real(self, commit)

    return put


def _takes_what_is_gone(real: Any) -> Any:
    def take(self: MessageWrites, changes: MessageChanges, *, repeated: bool = False) -> Steps[set[str]]:
        there = [each for each in changes.takes if each.id in self._rows.rows]
        ended: set[str] = yield from real(self, changes._replace(takes=there), repeated=repeated)
        if isinstance(changes.takes, list):
            changes.takes[:] = there
        return ended

    return take


def _never_early(real: Any) -> Any:
    def missing(self: MessageRows, takes: Any, now: datetime) -> dict[str, float | None]:
        return {each: left for each, left in real(self, takes, now).items() if left is None}

    return missing


def _cancels_nothing(real: Any) -> Any:
    def message_changes(*args: Any, **kwargs: Any) -> MessageChanges:
        return real(*args, **kwargs)._replace(cancels=[])  # type: ignore[no-any-return]

    return message_changes


def _parks_nothing(real: Any) -> Any:
    def message_changes(*args: Any, **kwargs: Any) -> MessageChanges:
        return real(*args, **kwargs | {"park": False})  # type: ignore[no-any-return]

    return message_changes


def _whichever_is_due(real: Any) -> Any:
    def go(self: Deliveries, message: Message, now: float) -> None:
        for queue in self._pairs.values():
            if message in queue:
                queue.remove(message)
                queue.insert(0, message)
        real(self, message, now)

    return go


def _has_its_lease(real: Any) -> Any:
    def send_ready(self: Deliverer) -> None:
        self._may_handle = yes
        real(self)

    return send_ready


def _alone(real: Any) -> Any:
    async def together(
        self: VirtualTogether, rows: Sequence[EventRow], functions: Any, changes: MessageChanges | None = None
    ) -> datetime | None:
        return await real(self, rows, functions, None)  # type: ignore[no-any-return]

    return together


def _turns_into_nothing(real: Any) -> Any:
    def turn(self: MessageWrites, message: str, new: str, *rest: Any) -> Steps[bool]:
        found: bool = yield from real(self, message, new, *rest)
        self._rows.pop(new)
        return found

    return turn


def _in_doubt_is_not_read(real: Any) -> Any:
    def staged(self: Deliverer, *args: Any) -> None:
        if args[-1] is not None:
            real(self, *args)

    return staged


def _replies_nothing(real: Any) -> Any:
    def reply_args(wanted: Any, result: object) -> None:
        return None

    return reply_args


def _keeps(real: Any) -> Any:
    def end(self: MessageWrites, taking: Taking, *, without_key: bool = False) -> None:
        if taking.park or taking.again:
            real(self, taking, without_key=without_key)

    return end


def _goes_on_at_once(real: Any) -> Any:
    def end(self: MessageWrites, taking: Taking, *, without_key: bool = False) -> None:
        stored = self._rows.rows[taking.id]
        if taking.park and stored.row.every is not None:
            self._rows.replace(taking.id, stored._replace(due=stored.due + timedelta(seconds=1)))
        else:
            real(self, taking, without_key=without_key)

    return end


def _with_what_it_ends(real: Any) -> Any:
    def store(
        self: MessageWrites, changes: MessageChanges, ended: set[str], *args: Any, **kwargs: Any
    ) -> None:
        real(self, changes, ended, *args, **kwargs)
        for each in changes.takes:
            if each.park and each.id in ended:
                self._rows.pop(each.id)

    return store


def _does_not_hear_operators(real: Any) -> Any:
    def look(self: Deliverer, *args: Any) -> None:
        if not args[-1]:
            real(self, *args)

    return look


def _of_messages_alone(real: Any) -> Any:
    def of(self: MessageRows, *args: Any) -> list[str]:
        return [each for each in real(self, *args) if self.rows[each].row.key is None]

    return of


def _in_utc(real: Any) -> Any:
    def first(spec: Recurrence, now: datetime) -> datetime:
        return real(replace(spec, tz="UTC") if spec.tz else spec, now)  # type: ignore[no-any-return]

    return first


def _a_day_late(real: Any) -> Any:
    def fire(spec: Recurrence, due: datetime, now: datetime) -> Firing:
        firing: Firing = real(spec, due, now)
        return firing._replace(again=firing.again + timedelta(days=1)) if spec.tz else firing

    return fire


def _knows_no_timers(real: Any) -> Any:
    async def timers(
        self: MemoryJournal, type_id: int, entity: str, prefix: str
    ) -> tuple[datetime, dict[str, str | None]]:
        now, _ = await real(self, type_id, entity, prefix)
        return now, {}

    return timers


def _due_at_the_start(real: Any) -> Any:
    async def keep(self: Starting, slot: Resident) -> None:
        host = self._host
        type_id = host.execution.type_id
        now, stored = await host.journal.timers(type_id, slot.id, EVERY)
        rows = [
            MessageRow(
                host.new_message_id(), type_id, slot.shard.number, slot.id, slot.shard.epoch, slot.seq, place, host.type.name,
                slot.id, name, b"\x90", now if stored else first(spec, now), key=EVERY + name, every=spec.encode(),
            )
            for place, (name, spec) in enumerate(host.type.recurring.items())
        ]  # fmt: skip
        host.staged(slot, MessageChanges(rows), await host.journal.stage(rows))

    return keep


def _skips_what_it_missed(real: Any) -> Any:
    def fire(spec: Recurrence, due: datetime, now: datetime) -> Firing:
        return real(replace(spec, missed="skip"), due, now)  # type: ignore[no-any-return]

    return fire


def _makes_up_for_each(real: Any) -> Any:
    def fire(spec: Recurrence, due: datetime, now: datetime) -> Firing:
        return real(replace(spec, missed="all"), due, now)  # type: ignore[no-any-return]

    return fire


def _sends_what_is_being_stored(real: Any) -> Any:
    def storing(self: Deliverer, changes: MessageChanges) -> AbstractContextManager[None]:
        return nullcontext()

    return storing


def _of_all_bits(_: Any) -> Any:
    def new_place(self: Deliverer, epoch: int, many: int) -> tuple[int, int]:
        return (epoch << 40) + next(self._numbers), 0

    return new_place


def _ahead(real: Any) -> Any:
    def low(self: ServerClock, now: float) -> float:
        return real(self, now) + 1.5  # type: ignore[no-any-return]

    return low


DURABLE_MESSAGES: dict[str, Mistake] = {
    # The commit.
    "delivers_before_the_commit": Mistake((15,), Command, "put", _before_the_commit),
    "messages_leave_their_transaction": Mistake((15,), VirtualTogether, "__call__", _alone),
    "confirms_before_the_effect": Mistake((15,), Command, "put", _confirms_first),
    "takes_what_is_gone": Mistake((5, 16), MessageWrites, "take", _takes_what_is_gone),
    "takes_without_deleting": Mistake((5, 16), MessageWrites, "_end", _keeps),
    "a_timer_goes_on_at_its_first_commit": Mistake((16,), MessageWrites, "_end", _goes_on_at_once),
    "a_timer_that_ends_itself_loses_its_rest": Mistake((16,), MessageWrites, "store", _with_what_it_ends),
    "partly_applied_is_not_parked": Mistake((15,), command, "message_changes", _parks_nothing),
    "sends_what_is_being_stored": Mistake((5, 15), Deliverer, "storing", _sends_what_is_being_stored),
    "what_is_in_doubt_is_not_read": Mistake((15,), Deliverer, "staged", _in_doubt_is_not_read),
    # Homes.
    "forgets_on_a_move": Mistake((15, 16), TypeHost, "begin_deliveries", lambda _: nothing),
    "former_home_delivers": Mistake((15,), Deliverer, "forget", lambda _: nothing),
    "delivers_without_a_lease": Mistake((15,), Deliverer, "_send_ready", _has_its_lease),
    "rows_that_came_back_are_not_read": Mistake(
        (15,), Deliverer, "look_again", lambda _: nothing, direct=True
    ),
    "places_do_not_fit_after_a_failover": Mistake((8,), Deliverer, "new_place", _of_all_bits),
    "overdue_is_not_looked_for": Mistake((15,), Deliverer, "_look_for_overdue", lambda _: async_nothing),
    # Order and outcomes.
    "delivers_out_of_order": Mistake((15,), Deliveries, "_go", _whichever_is_due),
    "failures_turn_into_nothing": Mistake((15,), MessageWrites, "turn", _turns_into_nothing),
    "replies_to_nothing": Mistake((15,), command, "reply_args", _replies_nothing),
    # Timers.
    "fires_early": Mistake((16,), MessageRows, "missing", _never_early),
    "fires_early_in_memory": Mistake((16,), ServerClock, "low", _ahead),
    "loses_a_cancel": Mistake((16,), command, "message_changes", _cancels_nothing),
    "daily_timers_fire_in_utc": Mistake((16,), message_changes, "first", _in_utc),
    "daily_timers_skip_a_day": Mistake((16,), deliveries, "fire", _a_day_late),
    # Schedules of singletons.
    "lost_schedules_stay_lost": Mistake((16,), EntityLife, "keep_timers_again", lambda _: nothing),
    "schedules_begin_anew": Mistake((16,), MemoryJournal, "timers", _knows_no_timers),
    "schedules_fire_at_each_start": Mistake((16,), Starting, "_keep", _due_at_the_start),
    "missed_times_are_lost": Mistake((16,), deliveries, "fire", _skips_what_it_missed),
    "missed_times_are_all_made_up_for": Mistake((16,), deliveries, "fire", _makes_up_for_each),
    # Operators.
    "operators_are_not_heard": Mistake((15, 16), Deliverer, "look", _does_not_hear_operators),
    "erasure_leaves_messages": Mistake((15,), MessageRows, "of", lambda _: lambda *_: []),
    "erasure_leaves_timers": Mistake((15,), MessageRows, "of", _of_messages_alone),
}
