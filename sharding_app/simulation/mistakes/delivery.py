"""Messages: links that lose, repeat or mix them up, buffers in a wrong order, limits and ends that nobody keeps."""

from __future__ import annotations

from typing import Any

from sharding_app.core.ids import Incarnation
from sharding_app.core.link import Link
from sharding_app.core.link_receiver import LinkReceiver
from sharding_app.core.link_sender import LinkSender
from sharding_app.core.messages import AnyMessage, Deliver, Frame
from sharding_app.core.parcel import Parcel
from sharding_app.core.region import Region, Route
from sharding_app.core.shard import Shard, Verdict
from sharding_app.runtime.answers import Answers
from sharding_app.runtime.asker import Asker
from sharding_app.runtime.outgoing import Outgoing
from sharding_app.runtime.process import Process
from sharding_app.runtime.refusals import Refusals
from sharding_app.runtime.shard_life import ShardLife
from sharding_app.simulation.mistakes.mistake import Mistake, nothing


def _no_resends(real: Any) -> Any:
    def due(self: LinkSender, now: float) -> Any:
        frames = []
        if self.in_flight:
            self._resends(now)  # as if they went out: what is due for ever would turn the loop for ever
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
    def forward_all(self: Region, route: Route) -> None:
        route.waiting.reverse()
        real(self, route)

    return forward_all


def _due_without_anything(real: Any) -> Any:
    def deadline(self: LinkSender) -> float | None:
        return self._resend_at or real(self)  # also when nothing is under way that could be sent again

    return deadline


def _behind_the_others(real: Any) -> Any:
    def put_back(self: Region, route: Route, parcels: list[Any]) -> None:
        for parcel in parcels:
            parcel.home = None
            if parcel.told:
                self._forget(parcel)
            else:
                route.waiting.append(parcel)

    return put_back


def _queries_first(real: Any) -> Any:
    def deliver(self: Shard, source: Incarnation, message: Any, now: float) -> Any:
        verdict, slot = real(self, source, message, now)
        if verdict is Verdict.QUEUED and slot.mailbox and message.command.startswith("total"):
            slot.mailbox.appendleft(slot.mailbox.pop())
        return verdict, slot

    return deliver


def _tells_go_nowhere(real: Any) -> Any:
    def send(self: Outgoing, parcel: Parcel, home: Incarnation, now: float) -> bool:
        return parcel.reply is None or bool(real(self, parcel, home, now))

    return send


def _takes_any_number(real: Any) -> Any:
    def submit(self: Region, parcel: Parcel, now: float) -> bool:
        parcels, self.parcels = self.parcels, 0
        taken = real(self, parcel, now)
        self.parcels += parcels
        return bool(taken)

    return submit


def _queues_any_number(real: Any) -> Any:
    def put(self: LinkSender, message: AnyMessage, *more: Any) -> bool:
        queued, self.queued = self.queued, 0
        taken = real(self, message, *more)
        self.queued += queued
        return bool(taken)

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
    def handed_back(self: Region, home: Incarnation, epoch: int, parcels: Any, now: float) -> None:
        real(self, home, epoch, parcels, now)
        for shard in {each.shard for each in parcels}:
            self.home_told(shard, home, epoch, now)

    return handed_back


def _waits_for_nobody(real: Any) -> Any:
    def home_told(self: Region, shard: int, home: Incarnation, epoch: int, now: float, era: int = 0) -> None:
        route = self.routes.get(shard)
        if route is None or epoch < max(route.epoch, route.next_epoch):
            return
        route.home, route.epoch, route.held = home, epoch, False
        route.next_home, route.next_epoch = None, 0
        self._forward_all(route)

    return home_told


def _never_taken(real: Any) -> Any:
    def refuse(self: Answers, source: Incarnation, message: Deliver, error: Any) -> None:
        self.fail(source, message, error)

    return refuse


def _late_is_full(real: Any) -> Any:
    def timed_out(self: Refusals, parcel: Parcel, waited: float) -> None:
        self.refuse(parcel, "buffer_full")

    return timed_out


def _no_limit(real: Any) -> Any:
    def deliver(self: Shard, source: Incarnation, message: Any, now: float) -> Any:
        limit, self.mailbox_limit = self.mailbox_limit, 1_000_000
        try:
            return real(self, source, message, now)
        finally:
            self.mailbox_limit = limit

    return deliver


def _ids_of_one_process(real: Any) -> Any:
    def ask(
        self: Asker, type_name: str, entity: str, command: str, args: bytes, timeout: float | None = None,
        command_id: str = "", **more: Any,
    ) -> Any:  # fmt: skip
        command_id = command_id and f"{self._outgoing._me}/{command_id}"
        return real(self, type_name, entity, command, args, timeout, command_id, **more)

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


def _asks_for_nothing(real: Any) -> Any:
    def probe_due(self: LinkSender, now: float) -> bool:
        real(self, now)  # as if it went out
        return False

    return probe_due


def _goes_without_a_word(real: Any) -> Any:
    def farewell(self: Link, now: float, word: Any) -> bytes:
        receiver = self._receiver
        return self._writer.write(0, 0, receiver.stream, receiver.taken_in, 0, 0, (), *self._clocks(now))

    return farewell


DELIVERY: dict[str, Mistake] = {
    "resend_off": Mistake((5, 8, 10), LinkSender, "due", _no_resends),
    "deduplication_off": Mistake((5, 8, 10), LinkReceiver, "take", _delivers_again),
    "frames_out_of_order": Mistake((5, 8, 10), LinkReceiver, "take", _takes_what_comes),
    "buffer_order_broken": Mistake((5,), Region, "_forward_all", _in_the_old_order_no_more),
    "due_without_anything": Mistake((14,), LinkSender, "deadline", _due_without_anything),
    "handed_back_goes_last": Mistake((5,), Region, "_put_back", _behind_the_others),
    "queries_first": Mistake((2, 5), Shard, "deliver", _queries_first),
    "tells_go_nowhere": Mistake((8,), Outgoing, "send", _tells_go_nowhere),
    "region_without_limit": Mistake((9,), Region, "submit", _takes_any_number),
    "link_without_limit": Mistake((9,), LinkSender, "put", _queues_any_number),
    "waiting_in_a_link_counts_for_nothing": Mistake((5,), Link, "_times_are_ours", _arrives_as_new),
    "unknown_told_as_not_begun": Mistake((3,), Answers, "refuse", _never_taken),
    "unknown_told_as_full": Mistake((3,), Refusals, "timed_out", _late_is_full),
    "handed_back_in_circles": Mistake((14,), Region, "handed_back", _to_the_same_home),
    "outstanding_not_waited_for": Mistake((5,), Region, "home_told", _waits_for_nobody),
    "begins_again_backwards": Mistake((5,), LinkSender, "_restart", _begins_again_backwards),
    "begins_again_without": Mistake((5, 8, 10), LinkSender, "_restart", _begins_again_without),
    "asks_for_no_credit": Mistake((8, 10), LinkSender, "_probe_due", _asks_for_nothing),
    "ids_of_one_process": Mistake((5,), Asker, "ask", _ids_of_one_process),
    "leaves_without_a_word": Mistake((9,), Link, "farewell", _goes_without_a_word),
    "hand_back_dropped": Mistake((8, 10), ShardLife, "_hand_back", lambda _: nothing),
    "mailbox_without_limit": Mistake((9,), Shard, "deliver", _no_limit),
    "asks_never_time_out": Mistake((8,), Asker, "_time_out", lambda _: nothing),
    "gone_is_not_told": Mistake((8, 10), Process, "_gone", lambda _: nothing),
}
