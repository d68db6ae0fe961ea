"""The receiving half of a link: order, repetitions, acknowledgements, credit. The rules are in
`protocol.link.link`.
"""

from sharding_app.protocol.link.limits import LinkLimits
from sharding_app.protocol.messages import AnyMessage, Frame


class LinkReceiver:
    """The peer's stream, the frames that came before their turn, and when to acknowledge."""

    def __init__(self, limits: LinkLimits, stream: int = 0, taken_in: int = 0) -> None:
        self.limits = limits
        self.stream = stream
        self.taken_in = taken_in
        self.backlog = 0
        self.held: dict[int, tuple[list[AnyMessage], int]] = {}
        self.held_bytes = 0
        self.unknown_stream = 0
        self.ack_at: float | None = None
        self.messages = self.frames = self.duplicates = self.out_of_order = self.refused = self.late = 0
        self._told_credit = limits.window_bytes
        self._look_at = 0.0
        self._untold_frames = 0
        self._untold_bytes = 0

    def take(self, frame: Frame, size: int, now: float) -> list[AnyMessage]:
        """Return the messages whose turn has come, each once."""
        stream, seq = frame.stream, frame.seq
        if stream != self.stream:
            if stream < self.stream or stream == 0:
                self.refused += 1
                return []
            if seq != 1:
                # Later frames are only sent when the first is acknowledged: we have forgotten this
                # stream.
                self.refused += 1
                self.unknown_stream = stream
                self.ack_at = now
                return []
            self._begin(stream)
        if seq != self.taken_in + 1:
            self._out_of_turn(frame, size)
            self.ack_at = now
            return []
        body = frame.body
        count = 1
        if self.held:
            while (held := self.held.pop(seq + count, None)) is not None:
                body = body + held[0]
                self.held_bytes -= held[1]
                size += held[1]
                count += 1
        self.taken_in += count
        self.frames += count
        self.messages += len(body)
        self._owe(count, size, at_once=seq == 1 or not frame.body, now=now)
        return body

    def _begin(self, stream: int) -> None:
        self.stream = stream
        self.taken_in = 0
        self.unknown_stream = 0
        self.held.clear()
        self.held_bytes = 0

    def _out_of_turn(self, frame: Frame, size: int) -> None:
        seq = frame.seq
        if seq <= self.taken_in or seq in self.held:
            self.duplicates += 1
            return
        self.out_of_order += 1
        limits = self.limits
        fits = self.held_bytes + size <= limits.window_bytes and len(self.held) < limits.window_frames
        if fits and seq <= self.taken_in + limits.window_frames:
            self.held[seq] = (frame.body, size)
            self.held_bytes += size
        else:
            self.refused += 1

    def _owe(self, frames: int, size: int, *, at_once: bool, now: float) -> None:
        self._untold_frames += frames
        self._untold_bytes += size
        limits = self.limits
        many = (
            self._untold_frames * 4 >= limits.window_frames or self._untold_bytes * 4 >= limits.window_bytes
        )
        if at_once or many:
            self.ack_at = now
        elif self.ack_at is None:
            self.ack_at = now + limits.ack_delay_seconds

    def credit(self) -> int:
        return max(0, self.limits.window_bytes - self.backlog)

    def look(self, now: float) -> None:
        """Owe the peer an acknowledgement when the last one announced little credit and there is
        much again.
        """
        half = self.limits.window_bytes // 2
        if self._told_credit < half and self.stream:
            if self.credit() >= half:
                self.ack_at = now
            self._look_at = now + self.limits.ack_delay_seconds

    def told(self, credit: int, now: float) -> None:
        """Note that a frame with the acknowledgement and this credit goes out."""
        self.ack_at = None
        self._told_credit = credit
        self._look_at = now + self.limits.ack_delay_seconds
        self._untold_frames = self._untold_bytes = 0

    def deadline(self) -> float | None:
        if self.ack_at is None and self._told_credit < self.limits.window_bytes // 2 and self.stream:
            return self._look_at
        return self.ack_at
