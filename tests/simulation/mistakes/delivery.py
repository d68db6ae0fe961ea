"""Messages: links that lose, repeat or mix them up, wrong orders in buffers, ignored limits."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from sharding_app.entities.codecs.values import pack
from sharding_app.errors import Rejected, ShardingError
from sharding_app.ports.transport import TransportError
from sharding_app.protocol import deadlock
from sharding_app.protocol.call import Call
from sharding_app.protocol.deadlock import Circle, Standing
from sharding_app.protocol.direct import handshake
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.link.link import Link
from sharding_app.protocol.link.receiver import LinkReceiver
from sharding_app.protocol.link.sender import LinkSender
from sharding_app.protocol.messages import AnyMessage, Deliver, Frame, WaitProbe
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import RegionRoutes, Route
from sharding_app.protocol.shard import Shard, SlotState, Verdict
from sharding_app.runtime.asking.outbox import Outbox
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.asking.undelivered import Refusals
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.execution.command import Command
from sharding_app.runtime.execution.earlier_attempts import EarlierAttempts
from sharding_app.runtime.execution.replies import Replies
from sharding_app.runtime.hosting.shards import ShardLife
from sharding_app.runtime.links.links import SEND_AGAIN_AT_MOST_SECONDS, Links
from sharding_app.runtime.links.task import LinkTask
from sharding_app.runtime.node.process import Process
from tests.simulation.mistakes.mistake import Mistake, nothing


def _no_resends(real: Any) -> Any:
    def due(self: LinkSender, now: float) -> Any:
        frames = []
        if self.in_flight:
            self._resends(now)  # as if they went out: frames that stay due would turn the loop for ever
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


def _in_the_old_order_no_more(real: Any) -> Any:
    def forward_all(self: RegionRoutes, route: Route) -> None:
        route.waiting = OrderedDict(reversed(route.waiting.items()))
        real(self, route)

    return forward_all


def _due_without_anything(real: Any) -> Any:
    def deadline(self: LinkSender) -> float | None:
        return self._resend_at or real(self)  # also when nothing is under way that could be sent again

    return deadline


def _behind_the_others(real: Any) -> Any:
    def put_back(self: RegionRoutes, route: Route, calls: list[Any]) -> None:
        for pending in calls:
            pending.home = None
            if pending.told:
                self._forget(pending)
            else:
                route.waiting[pending.request] = pending

    return put_back


def _queries_first(real: Any) -> Any:
    def deliver(self: Shard[Any], source: Incarnation, message: Any, now: float) -> Any:
        verdict, slot = real(self, source, message, now)
        if verdict is Verdict.QUEUED and slot.mailbox and message.command.startswith("total"):
            slot.mailbox.appendleft(slot.mailbox.pop())
        return verdict, slot

    return deliver


def _tells_go_nowhere(real: Any) -> Any:
    def put(self: Outbox, pending: PendingCall, home: Incarnation) -> bool:
        return pending.call.tell or bool(real(self, pending, home))

    return put


def _takes_any_number(real: Any) -> Any:
    def submit(self: RegionRoutes, pending: PendingCall, now: float) -> bool:
        calls, self.calls = self.calls, 0
        taken = real(self, pending, now)
        self.calls += calls
        return bool(taken)

    return submit


def _takes_any_bytes(real: Any) -> Any:
    def submit(self: RegionRoutes, pending: PendingCall, now: float) -> bool:
        size, self.bytes = self.bytes, -1_000_000
        taken = real(self, pending, now)
        self.bytes += 1_000_000 + size
        return bool(taken)

    return submit


def _queues_any_number(real: Any) -> Any:
    def put(self: LinkSender, message: AnyMessage, *more: Any) -> bool:
        queued, self.queued = self.queued, 0
        taken = real(self, message, *more)
        self.queued += queued
        return bool(taken)

    return put


def _queues_any_bytes(real: Any) -> Any:
    def put(self: LinkSender, message: AnyMessage, *more: Any) -> bool:
        limits, self.limits = self.limits, msgspec.structs.replace(self.limits, max_queue_bytes=1_000_000)
        try:
            return bool(real(self, message, *more))
        finally:
            self.limits = limits

    return put


def _arrives_as_new(real: Any) -> Any:
    def times_are_ours(self: Link, frame: Frame, now_ms: int) -> bool:
        for message in frame.body:
            if type(message) is Deliver:
                message.born_ms = now_ms
                message.deadline_ms = message.deadline_ms and now_ms + 4000
        return True

    return times_are_ours


def _to_the_same_home(real: Any) -> Any:
    def handed_back(self: RegionRoutes, home: Incarnation, epoch: int, calls: Any, now: float) -> None:
        real(self, home, epoch, calls, now)
        for shard in {each.shard for each in calls}:
            self.home_told(shard, home, epoch, now)

    return handed_back


def _waits_for_no_envelope(real: Any) -> Any:
    def home_told(
        self: RegionRoutes, shard: int, home: Incarnation, epoch: int, now: float, era: int = 0
    ) -> None:
        route = self.routes.get(shard)
        outstanding = 0
        if route is not None:
            outstanding, route.outstanding = route.outstanding, 0
        real(self, shard, home, epoch, now, era)
        if route is not None:
            route.outstanding += outstanding

    return home_told


def _waits_for_its_own_calls(real: Any) -> Any:
    def home_told(
        self: RegionRoutes, shard: int, home: Incarnation, epoch: int, now: float, era: int = 0
    ) -> None:
        route = self.routes.get(shard)
        former = None
        if route is not None and route.outstanding and era > route.era:
            former, route.home = route.home, None
        real(self, shard, home, epoch, now, era)
        if route is not None and former is not None:
            route.home = former

    return home_told


def _never_taken(real: Any) -> Any:
    def refuse(self: Replies, source: Incarnation, message: Deliver, error: Any) -> None:
        self.fail(source, message, error)

    return refuse


def _late_is_full(real: Any) -> Any:
    def timed_out(self: Refusals, pending: PendingCall, waited: float) -> None:
        self.refuse(pending, "buffer_full")

    return timed_out


def _no_limit(real: Any) -> Any:
    def deliver(self: Shard[Any], source: Incarnation, message: Any, now: float) -> Any:
        limit, self.mailbox_limit = self.mailbox_limit, 1_000_000
        try:
            return real(self, source, message, now)
        finally:
            self.mailbox_limit = limit

    return deliver


def _mailboxes_of_any_size(real: Any) -> Any:
    def start(self: ShardLife, number: ShardId, epoch: Epoch, *, uses_messages: bool = False) -> bool:
        self._mailbox_limit = 1_000_000
        return bool(real(self, number, epoch, uses_messages=uses_messages))

    return start


def _ids_of_one_process(real: Any) -> Any:
    def ask(self: RegionClient, call: Call, *more: Any) -> Any:
        call.command_id = call.command_id and f"{self.incarnation}/{call.command_id}"
        return real(self, call, *more)

    return ask


def _begins_again_backwards(real: Any) -> Any:
    def restart(self: LinkSender) -> None:
        again = self._again
        before = len(again)
        real(self)
        first = [again.popleft() for _ in range(len(again) - before)]
        again.extendleft(first)

    return restart


def _begins_again_without(real: Any) -> Any:
    def restart(self: LinkSender) -> None:
        for sent in self.in_flight:
            sent.count = 0
        real(self)

    return restart


def _trusts_each_begin(real: Any) -> Any:
    def answered(self: LinkSender, stream: int, ack: int, credit: int, now: float, clock: int) -> None:
        if ack == 0 or ack >= self.acked:
            real(self, stream, ack, credit, now, clock)

    return answered


def _refused_is_delivered(real: Any) -> Any:
    async def flush(self: Links, target: Incarnation, task: LinkTask) -> None:
        try:
            await real(self, target, task)
        except TransportError:
            sender = task.link._sender
            if sender.in_flight:
                sender._advance(sender.in_flight[-1].seq, self._clock.now())

    return flush


def _written_is_delivered(real: Any) -> Any:
    async def flush(self: Links, target: Incarnation, task: LinkTask) -> None:
        await real(self, target, task)
        sender = task.link._sender
        if sender.in_flight:
            sender._advance(sender.in_flight[-1].seq, self._clock.now())

    return flush


def _of_any_cluster(real: Any) -> Any:
    def cluster(channel: bytes) -> bytes:
        return b""

    return cluster


def _one_holds_up_all(real: Any) -> Any:
    async def flush(self: Links, target: Incarnation, task: LinkTask) -> None:
        refused, until = getattr(self, "refused", ("", 0.0))
        if self._clock.now() < until and refused != target:
            raise TransportError("another channel is full")
        try:
            await real(self, target, task)
        except TransportError:
            vars(self)["refused"] = target, self._clock.now() + SEND_AGAIN_AT_MOST_SECONDS
            raise

    return flush


def _goes_without_a_word(real: Any) -> Any:
    def farewell(self: Link, now: float, word: Any) -> bytes:
        receiver = self._receiver
        return self._writer.write(0, 0, receiver.stream, receiver.taken_in, 0, 0, (), *self._clocks(now))

    return farewell


def _without_its_id(real: Any) -> Any:
    def ask(self: RegionClient, call: Call, *more: Any) -> Any:
        if call.chain:
            call.command_id = ""
        return real(self, call, *more)

    return ask


def _says_nothing_of_its_parts(real: Any) -> Any:
    def give_up(self: Command) -> None:
        self.steps = 0
        real(self)

    return give_up


def _every_probe_refuses(original: Any) -> Any:
    """Each probe finds its circle, whatever the names in it: all calls of it are refused."""

    def follow(me: Standing, probe: WaitProbe) -> list[WaitProbe] | Circle:
        last = probe.way[-1]
        if (last.caller, last.request) in me.queued and (me.type, me.entity) > (probe.type, probe.entity):
            calls = probe.known[len(probe.way) : len(probe.way) + 1] or me.calls
            return [WaitProbe(probe.type, probe.entity, [*probe.way, each], probe.known) for each in calls]
        found: list[WaitProbe] | Circle = original(me, probe)
        return found

    return follow


def _may_always_repeat(real: Any) -> Any:
    def may_repeat(self: Process, call: Call) -> bool:
        real(self, call)
        return True

    return may_repeat


def _whatever_came_later(_: Any) -> Any:
    async def is_overtaken(self: EarlierAttempts, slot: Any, source: Any, message: Any) -> bool:
        return False

    return is_overtaken


def _rejected_is_done(real: Any) -> Any:
    def fail(self: Replies, source: Incarnation, message: Deliver, error: ShardingError) -> None:
        """Answer a caller whose command was rejected as if it had returned 0."""
        if isinstance(error, Rejected) and message.deadline_ms and message.delivery is None:
            self.answer(source, message, pack(0))
        else:
            real(self, source, message, error)

    return fail


def _while_another_runs(real: Any) -> Any:
    def deliver(self: Shard[Any], source: Incarnation, message: Deliver, now: float) -> Any:
        """Run the messages of a busy entity at once."""
        verdict, slot = real(self, source, message, now)
        if verdict is Verdict.QUEUED and slot.state is SlotState.BUSY:
            self.withdraw(slot)
            return Verdict.RUN, slot
        return verdict, slot

    return deliver


def _gives_it_again(real: Any) -> Any:
    def stops(self: Shard[Any], slot: Any) -> Any:
        """Give its stop message once more to an entity that it has ended."""
        return slot.last_word or real(self, slot)

    return stops


DELIVERY: dict[str, Mistake] = {
    "resend_off": Mistake((5, 8, 10), LinkSender, "due", _no_resends),
    "deduplication_off": Mistake((5, 8, 10), LinkReceiver, "take", _delivers_again),
    "frames_out_of_order": Mistake((5, 8, 10), LinkReceiver, "take", _takes_what_comes),
    "buffer_order_broken": Mistake((5,), RegionRoutes, "_forward_all", _in_the_old_order_no_more),
    "due_without_anything": Mistake((14,), LinkSender, "deadline", _due_without_anything),
    "goes_again_behind_a_later_call": Mistake((5,), EarlierAttempts, "is_overtaken", _whatever_came_later),
    "handed_back_goes_last": Mistake((5,), RegionRoutes, "_put_back", _behind_the_others),
    "queries_first": Mistake((2, 5), Shard, "deliver", _queries_first),
    "tells_go_nowhere": Mistake((8,), Outbox, "_put", _tells_go_nowhere),
    "region_without_limit": Mistake((9,), RegionRoutes, "submit", _takes_any_number),
    "link_without_limit": Mistake((9,), LinkSender, "put", _queues_any_number),
    "region_without_limit_of_bytes": Mistake((9,), RegionRoutes, "submit", _takes_any_bytes),
    "link_without_limit_of_bytes": Mistake((9,), LinkSender, "put", _queues_any_bytes),
    "mailboxes_of_any_size": Mistake((9,), ShardLife, "start", _mailboxes_of_any_size),
    "waiting_in_a_link_counts_for_nothing": Mistake((5,), Link, "_times_are_ours", _arrives_as_new),
    "unknown_told_as_not_begun": Mistake((3,), Replies, "refuse", _never_taken),
    "unknown_told_as_full": Mistake((3,), Refusals, "timed_out", _late_is_full),
    "handed_back_in_circles": Mistake((14,), RegionRoutes, "handed_back", _to_the_same_home),
    "a_new_era_waits_for_its_own_calls": Mistake((10,), RegionRoutes, "home_told", _waits_for_its_own_calls),
    "outstanding_not_waited_for": Mistake((5,), RegionRoutes, "home_told", _waits_for_no_envelope),
    "begins_again_backwards": Mistake((5,), LinkSender, "_restart", _begins_again_backwards),
    "begins_again_unnoticed": Mistake((8, 10), LinkSender, "answered", _trusts_each_begin),
    "begins_again_without": Mistake((5, 8, 10), LinkSender, "_restart", _begins_again_without),
    "ids_of_one_process": Mistake((5,), RegionClient, "ask", _ids_of_one_process),
    "refused_is_delivered": Mistake((5, 8, 10), Links, "_flush", _refused_is_delivered),
    "written_is_delivered": Mistake((5, 8, 10), Links, "_flush", _written_is_delivered, direct=True),
    "a_stranger_is_taken": Mistake((12,), handshake, "_cluster", _of_any_cluster, direct=True),
    "one_full_channel_holds_up_all": Mistake((8, 10), Links, "_flush", _one_holds_up_all),
    "leaves_without_a_word": Mistake((9,), Link, "farewell", _goes_without_a_word),
    "hand_back_dropped": Mistake((8, 10), ShardLife, "_hand_back", lambda _: nothing),
    "mailbox_without_limit": Mistake((9,), Shard, "deliver", _no_limit),
    "asks_never_time_out": Mistake((8,), RegionClient, "_time_out", lambda _: nothing),
    "circles_are_not_refused": Mistake((3, 8), call_chain, "refuse_cycle", lambda _: nothing),
    "crossing_calls_wait_for_each_other": Mistake((8,), deadlock, "begin", lambda _: lambda _me: []),
    "both_crossing_calls_are_refused": Mistake((8,), deadlock, "follow", _every_probe_refuses),
    "entities_call_without_ids": Mistake((5,), RegionClient, "ask", _without_its_id),
    "given_up_without_a_word_of_its_parts": Mistake((3,), Command, "give_up", _says_nothing_of_its_parts),
    "shards_wait_for_their_handlers": Mistake((10,), ShardLife, "_force", lambda _: nothing),
    "calls_in_memory_are_sent_again": Mistake((5,), Process, "_may_repeat", _may_always_repeat),
    "gone_is_not_told": Mistake((8, 10), Process, "_gone", lambda _: nothing),
    "rejected_is_told_as_done": Mistake((3,), Replies, "fail", _rejected_is_done),
    "busy_entities_begin_the_next": Mistake((2,), Shard, "deliver", _while_another_runs),
    "stop_messages_come_again": Mistake((2,), Shard, "_stops", _gives_it_again),
}
