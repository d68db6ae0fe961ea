"""The sending half of a link: queue, window, credit, resends. The rules are in
`protocol.link.link`.
"""

from collections import deque

from sharding_app.protocol.back_off import doubled
from sharding_app.protocol.codec import encode_message
from sharding_app.protocol.link.limits import MAX_RESEND_SECONDS, LinkLimits, MessageTooLarge
from sharding_app.protocol.messages import AnyMessage, Deliver, OperatorRequest


class Lane:
    """Encoded messages that wait for their first frame, in order."""

    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: deque[bytes] = deque()
        self.size = 0

    def take(self, count: int, size: int, first: int) -> list[bytes]:
        """Take up to `count` messages and `size` bytes from the front; the first one alone may have
        `first` bytes.
        """
        items = self.items
        if self.size <= size and len(items) <= count:
            taken = list(items)
            items.clear()
            self.size = 0
            return taken
        taken, total = [], 0
        while items and len(taken) < count:
            total += len(items[0])
            if total > (size if taken else max(size, first)):
                break
            taken.append(items.popleft())
        self.size -= sum(map(len, taken))
        return taken


class Sent:
    """A numbered frame that is not acknowledged."""

    __slots__ = ("body", "count", "first_at", "last_at", "seq", "size", "times")

    def __init__(self, seq: int, count: int, body: bytes, now: float) -> None:
        self.seq = seq
        self.count = count
        self.body = body
        self.size = len(body)
        self.first_at = now
        self.last_at = now
        self.times = 1


class LinkSender:
    """The queue of messages, the frames under way, and the schedule of their repetitions."""

    def __init__(self, limits: LinkLimits, stream: int) -> None:
        self.limits = limits
        self.stream = stream
        self.others = Lane()
        self.deliveries = Lane()
        self.queued = 0
        self.in_flight: deque[Sent] = deque()
        self.in_flight_bytes = 0
        self.credit = 0
        self.acked = 0
        self._acked_clock = 0  # of the peer, when it acknowledged that
        self.known = False  # the peer was heard, so a frame can carry a bound of its clock
        self.messages = self.frames = self.resent = self.refused = self.restarts = 0
        self.round_trip = 0.0
        self._variation = 0.0
        self._again: deque[Sent] = deque()  # of a stream that the peer has forgotten
        self._backoff = 0
        self._resend_at = 0.0
        self._recover_seq = 0  # frames up to here were sent before the peer was silent
        self._recover_before = 0.0
        self._recover_due = False
        self._probe_at: float | None = None
        self._probes = 0
        self._quiet_from = 0.0  # silence before this is not the peer's fault

    # -- Putting -----------------------------------------------------------------------------------

    def put(self, message: AnyMessage, data: bytes | None = None) -> bool:
        """Queue a message; `data` is its encoding, if there is one. False: the queue is full.

        Raises MessageTooLarge, EncodeError.
        """
        limits = self.limits
        if self.queued < limits.max_queue_messages:
            if data is None:
                data = encode_message(message)
            size = len(data)
            if size > limits.max_message_bytes:
                raise MessageTooLarge(size, limits.max_message_bytes)
            kind = type(message)
            lane = self.deliveries if kind is Deliver or kind is OperatorRequest else self.others
            if self.others.size + self.deliveries.size + size <= limits.max_queue_bytes:
                lane.items.append(data)
                lane.size += size
                self.queued += 1
                return True
        self.refused += 1
        return False

    def outstanding(self) -> int:
        return self.queued + sum(sent.count for sent in self.in_flight) + sum(s.count for s in self._again)

    # -- Sending -----------------------------------------------------------------------------------

    def due(self, now: float) -> list[Sent]:
        """Return the frames to send now, repeated ones first."""
        frames = self._resends(now) if self.in_flight else []
        while (sent := self._next(now)) is not None:
            self.frames += 1
            frames.append(sent)
        return frames

    def _resends(self, now: float) -> list[Sent]:
        if self._recover_due:
            # The peer answers again: all frames that were sent into the silence go out at once.
            self._recover_due = False
            late = [
                sent
                for sent in self.in_flight
                if sent.seq <= self._recover_seq and sent.last_at < self._recover_before
            ]
        elif now >= self._resend_at:
            # The oldest frame alone asks whether the peer is there.
            late = [self.in_flight[0]]
            self._recover_seq, self._recover_before = self.in_flight[-1].seq, now
            self._backoff += 1
        else:
            return []
        for sent in late:
            sent.last_at = now
            sent.times += 1
        self.resent += len(late)
        self._resend_at = now + self._patience()
        return late

    def _next(self, now: float) -> Sent | None:
        in_flight, limits = self.in_flight, self.limits
        if in_flight and (self.acked == 0 or len(in_flight) >= limits.window_frames):
            return None  # a stream opens with its first frame alone
        if self._again:
            again = self._again.popleft()
            return self._launch(again.count, again.body, now)
        if not self.queued:
            return None
        room = limits.window_bytes - self.in_flight_bytes
        frame_room = min(limits.max_frame_bytes, room)
        body: list[bytes] = []
        if self.others.size and self._worth(self.others, frame_room):
            body = self.others.take(limits.max_frame_messages, frame_room, room)
        if self.deliveries.size and self.known and len(body) < limits.max_frame_messages:
            self._add_deliveries(body, room, frame_room, now)
        # A stream to a peer that was never heard opens without commands: how late they arrive would
        # be unknown.
        if body or not self.known or self._probe_due(now):
            self.queued -= len(body)
            self.messages += len(body)
            return self._launch(len(body), b"".join(body), now)
        return None

    def _add_deliveries(self, body: list[bytes], room: int, frame_room: int, now: float) -> None:
        taken = sum(map(len, body))
        credit = self.credit - self.in_flight_bytes - taken
        if not self.in_flight and not body and (self.credit > 0 or self.acked == 0):
            credit = room  # the rest of the credit may be smaller than one message
        allowed = min(frame_room - taken, credit)
        if allowed > 0 and (body or self._worth(self.deliveries, allowed)):
            first = 0 if body else min(room, credit)
            body += self.deliveries.take(self.limits.max_frame_messages - len(body), allowed, first)
            self._probe_at, self._probes = None, 0
        elif not self.in_flight and not body and self._probe_at is None:
            self._probe_at = now + self._wait(self._probes)

    def _worth(self, lane: Lane, room: int) -> bool:
        """Tell whether a frame of `room` bytes is worth it: with others under way, a larger one can
        wait for them.
        """
        return not self.in_flight or room >= min(lane.size, self.limits.max_frame_bytes // 4)

    def _probe_due(self, now: float) -> bool:
        if self._probe_at is None or now < self._probe_at or self.in_flight:
            return False
        self._probe_at = None
        self._probes += 1
        return True

    def _launch(self, count: int, body: bytes, now: float) -> Sent:
        seq = self.in_flight[-1].seq + 1 if self.in_flight else self.acked + 1
        sent = Sent(seq, count, body, now)
        if not self.in_flight:
            self._resend_at = now + self._patience()
        self.in_flight.append(sent)
        self.in_flight_bytes += sent.size
        return sent

    # -- Being answered ----------------------------------------------------------------------------

    def answered(self, stream: int, ack: int, credit: int, now: float, clock: int) -> None:
        """Take in an acknowledgement, written at that time of the peer's clock."""
        if stream != self.stream:
            return
        if ack == self.acked:
            if ack:
                self.credit = max(self.credit, credit)
        elif ack == 0:
            self._restart()
        elif self.acked < ack < self.acked + len(self.in_flight) + 1:
            self._advance(ack, now)
            self._acked_clock = clock
            self.credit = credit
        elif ack < self.acked and clock > self._acked_clock:
            # The peer has forgotten this stream, and has begun it again with a late repetition of
            # its first frame. It would wait for the second one for ever.
            self._restart()

    def _advance(self, ack: int, now: float) -> None:
        measured = None
        in_flight = self.in_flight
        while in_flight and in_flight[0].seq <= ack:
            sent = in_flight.popleft()
            self.in_flight_bytes -= sent.size
            if sent.times == 1:
                measured = now - sent.first_at
        self.acked = ack
        self._backoff = 0
        if measured is not None:
            self._measure(measured)
        if self._recover_seq:
            if in_flight and in_flight[0].seq <= self._recover_seq:
                self._recover_due = True
            else:
                self._recover_seq = 0
                # An earlier acknowledgement of the same turn may have set it, and nothing else
                # would clear it.
                self._recover_due = False
        self._resend_at = now + self._patience()

    def _restart(self) -> None:
        """Number all unacknowledged frames from 1 again: the peer has forgotten this stream."""
        self.stream += 1
        self.restarts += 1
        self._again.extendleft(reversed([sent for sent in self.in_flight if sent.count]))
        self.in_flight.clear()
        self.in_flight_bytes = self.acked = self.credit = self._backoff = self._recover_seq = 0
        self._recover_due = False

    def _measure(self, seconds: float) -> None:
        if self.round_trip == 0.0:
            self.round_trip, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self.round_trip - seconds) - self._variation) / 4
            self.round_trip += (seconds - self.round_trip) / 8

    def _patience(self) -> float:
        return self._wait(self._backoff)

    def _wait(self, doublings: int) -> float:
        measured = self.round_trip + 4 * self._variation + self.limits.ack_delay_seconds
        start = max(self.limits.resend_after_seconds, measured)
        return doubled(start, doublings, MAX_RESEND_SECONDS)

    # -- Silence -----------------------------------------------------------------------------------

    def heard(self, now: float, silence: float) -> None:
        """Take in a sign of life after `silence` seconds: backed-off repetitions are due."""
        self.known = True
        if self._backoff and silence > self.limits.resend_after_seconds:
            self._backoff = 0
            self._resend_at = min(self._resend_at, now)

    def repeat(self, now: float) -> None:
        """Repeat without waiting for the patience: the peer has not taken in the sent frames."""
        self._resend_at = min(self._resend_at, now)

    def retry(self, now: float, *, peer_is_silent: bool = False) -> None:
        """Send all that waits now. Count the peer's silence from now, unless it is its own."""
        if not peer_is_silent:
            self._quiet_from = now
        self._backoff = 0
        self._probes = 0
        self._resend_at = now
        if self._probe_at is not None:
            self._probe_at = now

    def silent_since(self) -> float | None:
        return max(self.in_flight[0].first_at, self._quiet_from) if self.in_flight else None

    def deadline(self) -> float | None:
        if self.in_flight:
            return self._recover_before if self._recover_due else self._resend_at
        return self._probe_at

    def wants(self) -> bool:
        """Tell whether something waits that the window or the credit may let through."""
        return bool(self.queued or self._again)
