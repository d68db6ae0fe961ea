"""One link: the ordered, bounded exchange of messages between this incarnation and a peer's, over a
lossy layer.

    us    put ─► queue ─►  (stream 4, seq 1) ────────────────► taken in: deliver, in order, once
                           ◄──────────────── (ack_stream 4, ack 1, credit)
                           (4, 2) ──────────────────────── x       lost
                           (4, 3) ────────────────────────►        held: its turn has not come
                           ◄──────────────── (4, ack 1, credit)
          patience is over:(4, 2) ────────────────────────►        deliver 2 and 3
                           ◄──────────────── (4, ack 3, credit)    alone, or on a frame back to us

Numbers. Each direction is a *stream* of frames, numbered from 1. A later stream replaces an earlier
one; frames of an earlier one are dropped. A stream opens with its first frame alone: the others
follow when it is acknowledged. So a receiver that sees a later frame of an unknown stream has
forgotten that stream; it delivers nothing and answers (that stream, ack 0). No other frame says
that. Hence a sender that reads it starts a new stream with all unacknowledged messages, and no
receiver that remembers the old stream can be made to deliver them twice. A receiver that has
forgotten a stream may begin it again with a late repetition of its first frame, which may bear no
time. Then it acknowledges less than before, at a later time of its own clock, and the sender starts
a new stream as well: the frames that are not acknowledged were all behind one that never comes.

Acknowledged. A frame is acknowledged when it is taken in: handed to the caller of `receive`, in
order, with none missing before it. Whether it was handled is the regions' business (Answer, Failed,
Done, HandBack). An acknowledgement rides on the next frame; if none goes, it is sent alone after
`ack_delay_seconds`. It is sent at once for the first frame of a stream, an empty frame, a
repetition, a gap, and a quarter of the window.

Repeated. After the patience (measured round trips, at least `resend_after_seconds`, doubled with
each silence up to 2 s) the oldest frame is repeated alone. When it is acknowledged and others of
its time are not, these follow at once. Any frame from a peer that was silent makes the next
repetition due; so does `retry` (the layer works again).

Time. A frame carries its writer's clock, and a lower bound of the reader's clock: the writer has
read the latter in an earlier frame, and counted on by its own clock. So the reader knows how long a
frame may have been under way, without comparing two clocks. It turns the times in the frame's
commands (`born_ms`, `deadline_ms`) into times of its own clock: waits in a queue, in flight, in
Redis or in a frozen process all count. It may count too much, never too little: up to the time that
the earlier frame needed to come the other way. A frame that may have been under way for longer than
`max_flight_seconds` is not taken in. The acknowledgement that it causes brings the writer a newer
time, and the repetition is written with that. The times of a recorded frame stay those of its
record, so it is refused by the same rule. A peer that was never heard is sent no command, but an
empty frame that asks for an answer.

Bounds. `put` refuses beyond the queue's count and bytes. At most a window (frames, bytes) is under
way and unacknowledged, and the receiver holds at most a window out of order. *Credit* is the
receiver's: its window less the bytes that its consumer has taken in and not handled yet
(`waiting`). Only commands (`Deliver`, `OperatorRequest`) wait for credit. Answers and protocol
messages do not: they are as many as the commands that caused them, and holding them back could stop
two nodes forever whose handlers ask each other. So there are two lanes; each keeps its order, and
the second one overtakes the first only where the first has no credit. A sender without credit asks
with an empty numbered frame, at growing intervals. A receiver that has announced little credit
announces more when half of the window is free again.

The end. A link has none of its own. `runtime.links.links` drops it when the peer is gone (the
regions know which calls are outstanding there), when it is idle, or when a peer without a row,
which is never declared gone, has been silent for very long. In the last two cases it keeps the
`position` of the peer's stream, so that a later repetition is still known.

No clock in here: `now` is the caller's, and never steps back.
"""

from typing import NamedTuple

from sharding_app.protocol.codec import FrameWriter, encode_message
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.limits import LinkLimits, LinkStatistics, MessageTooLarge
from sharding_app.protocol.link.receiver import LinkReceiver
from sharding_app.protocol.link.sender import LinkSender
from sharding_app.protocol.messages import AnyMessage, Deliver, Frame, Left, NodeGone
from sharding_app.protocol.versions import WIRE, Wire

__all__ = ["Link", "LinkLimits", "LinkStatistics", "MessageTooLarge", "Position"]

DRIFT = 0.001
"""Seconds by which the clocks of two machines drift apart at most, per second without a frame."""

Position = tuple[int, int]
"""The peer's stream, and the number of its last frame that was taken in."""


class Heard(NamedTuple):
    """When the peer was heard last, and what that showed of its clock."""

    at: float
    ahead: float
    "Lower bound of the peer's clock less ours, at that time."


class Link:
    """Both directions between `source`, which is us, and `target`, the peer.

    Frames have to be sent in order.
    """

    def __init__(
        self,
        source: Incarnation,
        target: Incarnation,
        limits: LinkLimits,
        stream: int,
        position: Position = (0, 0),
        wire: Wire = WIRE,
    ) -> None:
        self.source = source
        self.target = target
        self.limits = limits
        self._sender = LinkSender(limits, stream)
        self.put = self._sender.put
        self._receiver = LinkReceiver(limits, *position)
        self._wire = wire
        self._writer = FrameWriter(source, target, wire.written)
        self._heard: Heard | None = None
        self._active_at: float | None = None
        self._acks_sent = 0
        self._bytes_sent = 0

    @property
    def stream(self) -> int:
        return self._sender.stream

    @property
    def position(self) -> Position:
        """The position of the peer's stream, for a later link to the same incarnation."""
        return self._receiver.stream, self._receiver.taken_in

    def flush(self, now: float) -> list[bytes]:
        """Return the frames to send now, in order."""
        receiver = self._receiver
        receiver.look(now)
        frames = self._sender.due(now)
        due = receiver.ack_at is not None and now >= receiver.ack_at
        if not frames and not due:
            return []
        credit = receiver.credit()
        write, stream = self._writer.write, self._sender.stream
        clocks = self._clocks(now)
        data: list[bytes] = []
        if receiver.unknown_stream:
            data.append(write(0, 0, receiver.unknown_stream, 0, credit, 0, (), *clocks))
            receiver.unknown_stream = 0
            self._acks_sent += 1
        ack = (receiver.stream, receiver.taken_in, credit)
        data += [write(stream, sent.seq, *ack, sent.count, (sent.body,), *clocks) for sent in frames]
        if not data:
            data.append(write(0, 0, *ack, 0, (), *clocks))
            self._acks_sent += 1
        receiver.told(credit, now)
        self._bytes_sent += sum(map(len, data))
        self._active_at = now
        return data

    def receive(self, frame: Frame, now: float, size: int = 0) -> list[AnyMessage]:
        """Take in a frame of `size` bytes; return the messages whose turn has come, each once."""
        if not self._wire.reads(frame.wire) or (frame.source, frame.target) != (self.target, self.source):
            self._receiver.refused += 1
            return []
        sender, heard = self._sender, self._heard
        silence = 0.0 if heard is None else now - heard.at
        sender.heard(now, silence)
        ahead = frame.clock / 1000 - now
        if heard is not None:
            before = heard.ahead - silence * DRIFT
            if ahead - before > self.limits.max_flight_seconds:
                sender.repeat(now)  # our old bound of its clock made our frames look late
            ahead = max(ahead, before)
        self._heard = Heard(now, ahead)
        self._active_at = now
        if frame.ack_stream:
            sender.answered(frame.ack_stream, frame.ack, frame.credit, now, frame.clock)
        if frame.seq == 0:
            return []
        if not self._times_are_ours(frame, int(now * 1000)):
            self._receiver.late += 1
            self._receiver.ack_at = now
            return []
        return self._receiver.take(frame, size, now)

    def _times_are_ours(self, frame: Frame, now_ms: int) -> bool:
        """Turn the times of the frame's commands into times of our clock.

        False: it may be too old.
        """
        sent_at = min(frame.yours or now_ms, now_ms)
        if now_ms - sent_at > self.limits.max_flight_seconds * 1000:
            return False
        shift = sent_at - frame.clock
        for message in frame.body:
            if type(message) is Deliver:
                message.born_ms += shift
                if message.deadline_ms:
                    message.deadline_ms = message.deadline_ms + shift or 1
        return True

    def _clocks(self, now: float) -> tuple[int, int]:
        """Return our clock, and a lower bound of the peer's."""
        heard = self._heard
        if heard is None:
            return int(now * 1000), 0
        theirs = now + heard.ahead - (now - heard.at) * DRIFT
        return int(now * 1000), max(0, int(theirs * 1000))

    def farewell(self, now: float, word: Left | NodeGone) -> bytes:
        """Return our last frame, an acknowledgement and one message. It is never repeated."""
        receiver = self._receiver
        credit = receiver.credit()
        receiver.told(credit, now)
        self._acks_sent += 1
        return self._writer.write(
            0, 0, receiver.stream, receiver.taken_in, credit, 1, (encode_message(word),), *self._clocks(now)
        )

    def waiting(self, size: int) -> None:
        """Set how many bytes of this peer's commands wait for the consumer: less credit is left."""
        self._receiver.backlog = size

    def retry(self, now: float, *, peer_is_silent: bool = False) -> None:
        """Send all that waits, and a sign of life: the layer works again, or this node may send
        again.

        `peer_is_silent`: only this peer's frames were refused, so its silence goes on.
        """
        self._sender.retry(now, peer_is_silent=peer_is_silent)
        if self._receiver.stream:
            self._receiver.ack_at = now

    def deadline(self) -> float | None:
        """Return when `flush` has to be called even if nothing happens; None: never."""
        sender, receiver = self._sender.deadline(), self._receiver.deadline()
        if sender is None or receiver is None:
            return sender if receiver is None else receiver
        return min(sender, receiver)

    def presses(self, now: float) -> bool:
        """Tell, after `receive`, whether `flush` may have something to send now."""
        deadline = self.deadline()
        return self._sender.wants() or (deadline is not None and deadline <= now)

    def silent_since(self) -> float | None:
        """Return since when unacknowledged frames wait and nothing is heard from the peer; None:
        none wait.
        """
        waits = self._sender.silent_since()
        if waits is None or self._heard is None:
            return waits
        return max(waits, self._heard.at)

    def outstanding(self) -> int:
        """Return how many messages are put and not acknowledged."""
        return self._sender.outstanding()

    def idle(self, now: float) -> bool:
        """Tell whether nothing waits and nothing has moved for `idle_after_seconds`."""
        if self._active_at is None:
            self._active_at = now
        sender, receiver = self._sender, self._receiver
        # Held frames do not count: they are not acknowledged, and their sender has to repeat the
        # missing ones before them.
        if sender.wants() or sender.in_flight or receiver.ack_at is not None:
            return False
        return now - self._active_at >= self.limits.idle_after_seconds

    def statistics(self) -> LinkStatistics:
        sender, receiver = self._sender, self._receiver
        return LinkStatistics(
            messages_sent=sender.messages,
            frames_sent=sender.frames,
            frames_resent=sender.resent,
            acks_sent=self._acks_sent,
            bytes_sent=self._bytes_sent,
            put_refused=sender.refused,
            streams_restarted=sender.restarts,
            messages_received=receiver.messages,
            frames_received=receiver.frames,
            duplicates_dropped=receiver.duplicates,
            out_of_order=receiver.out_of_order,
            frames_refused=receiver.refused,
            frames_late=receiver.late,
            queued_messages=sender.queued,
            queued_bytes=sender.others.size + sender.deliveries.size,
            in_flight_frames=len(sender.in_flight),
            in_flight_bytes=sender.in_flight_bytes,
            held_frames=len(receiver.held),
            held_bytes=receiver.held_bytes,
            credit_bytes=sender.credit,
            round_trip_seconds=sender.round_trip,
        )
