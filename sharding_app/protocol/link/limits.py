"""The limits of a link, and its counters."""

import msgspec

from sharding_app.protocol.codec import MAX_BODY_MESSAGES, MAX_DATA_BYTES

HEADER_ROOM_BYTES = 1024
"""More than the numbers and names of a frame ever need."""
MAX_RESEND_SECONDS = 2.0


class LinkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one link, each direction.

    A process has one link for each process that it talks to.
    """

    max_frame_bytes: int = 256 * 1024
    "A frame is closed at this size; only a single message that is larger makes a larger frame."
    max_frame_messages: int = 1000
    max_message_bytes: int = 900 * 1024
    "The channel layer carries at most 1 MiB in one message."
    max_queue_messages: int = 20_000
    "Waiting to be sent for the first time; `put` refuses more."
    max_queue_bytes: int = 16 * 1024 * 1024
    window_bytes: int = 2 * 1024 * 1024
    """Sent and not acknowledged. Redis holds at most this for each link, and the receiver holds at
    most this back."""
    window_frames: int = 64
    resend_after_seconds: float = 0.1
    """The shortest wait for an acknowledgement; measured round trips make it longer, silence
    doubles it up to 2 s."""
    ack_delay_seconds: float = 0.02
    "How long an acknowledgement may wait for a frame to ride on."
    max_flight_seconds: float = 30.0
    """A frame that may have been under way for longer is not taken in, and its writer sends it
    again. A recorded one is refused likewise."""
    idle_after_seconds: float = 60.0
    suspect_after_seconds: float = 0.05
    halve_messages: int = 64
    """A frame of this many messages is handed over in halves, so that answers to the first half are
    sent before the second is handled."""

    def __post_init__(self) -> None:
        positive = (
            *(self.max_frame_bytes, self.max_frame_messages, self.max_message_bytes, self.max_queue_messages),
            *(self.max_queue_bytes, self.window_frames, self.resend_after_seconds, self.ack_delay_seconds),
            self.max_flight_seconds,
            self.halve_messages - 1,
        )
        if min(positive) <= 0:
            raise ValueError("every limit of a link must be greater than 0")
        if max(self.max_frame_bytes, self.max_message_bytes) + HEADER_ROOM_BYTES > MAX_DATA_BYTES:
            raise ValueError(f"a frame must fit into {MAX_DATA_BYTES - HEADER_ROOM_BYTES} bytes")
        if self.max_frame_messages > MAX_BODY_MESSAGES:
            raise ValueError(f"max_frame_messages must be at most {MAX_BODY_MESSAGES}")
        if self.window_bytes < max(self.max_frame_bytes, self.max_message_bytes):
            raise ValueError("window_bytes must hold the largest frame and the largest message")
        if self.resend_after_seconds < 2 * self.ack_delay_seconds:
            raise ValueError("resend_after_seconds must be at least twice ack_delay_seconds")


class LinkStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of one link, and its present load."""

    messages_sent: int
    "Each counted once, however often its frame was sent."
    frames_sent: int
    "Numbered frames, each counted once."
    frames_resent: int
    acks_sent: int
    "Frames that carried an acknowledgement only."
    bytes_sent: int
    "All frames, resends and acknowledgements too."
    put_refused: int
    streams_restarted: int
    messages_received: int
    frames_received: int
    duplicates_dropped: int
    out_of_order: int
    "Frames that came before their turn, held or not."
    frames_refused: int
    """Of another wire version, of an earlier stream, beyond the bounds, or later ones of an unknown
    stream."""
    frames_late: int
    "Frames that may have been under way for longer than `max_flight_seconds`."
    queued_messages: int
    queued_bytes: int
    in_flight_frames: int
    in_flight_bytes: int
    held_frames: int
    held_bytes: int
    credit_bytes: int
    "The credit that the peer announced last."
    round_trip_seconds: float
    "Smoothed; 0: nothing measured yet."


class MessageTooLarge(Exception):
    """The message is larger than a link carries."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"the message has {size} bytes, a link carries at most {limit}")
        self.size = size
        self.limit = limit
