"""One live link with its task and timer, and the local link of a process to itself."""

import asyncio
from collections import deque
from collections.abc import Callable

from sharding_app.protocol.link.link import Link, LinkLimits, MessageTooLarge
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver, Failed

SUSPECT_AGAIN_SECONDS = 1.0
LATE_SECONDS = 0.02
LATE_TIMES = 3


class LinkTask:
    """A link, its channel, the event that wakes its sender, and the one timer that sets the
    event.
    """

    __slots__ = ("_late", "_timer", "_timer_at", "channel", "ended", "link", "put", "suspect_at", "wake")

    def __init__(self, link: Link, channel: str) -> None:
        self.link = link
        self.put = link.put
        self.channel = channel
        self.wake = asyncio.Event()
        self.ended = False
        self.suspect_at = 0.0
        self._late = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def arm(self, now: float) -> None:
        """Wake the sender when the link next needs it, or when the peer's silence becomes suspect.

        An earlier timer stays: deadlines move on with every frame, and waking once for nothing
        costs less than a new timer each time.
        """
        at = self.link.deadline()
        since = self.link.silent_since()
        if since is not None:
            suspect_at = max(since + self.link.limits.suspect_after_seconds, self.suspect_at)
            at = suspect_at if at is None else min(at, suspect_at)
        if at is None or self.ended or (self._timer is not None and self._timer_at <= at):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self.wake.set()

    def suspicious(self, now: float) -> bool:
        """Whether the peer has been silent for too long; True once a second at most.

        If this process runs late, the acknowledgement may already have arrived, unread. It looks
        again a few times, a moment later, before it blames the peer.
        """
        since = self.link.silent_since()
        if since is None:
            self._late = 0
            return False
        due = max(since + self.link.limits.suspect_after_seconds, self.suspect_at)
        if now < due:
            return False
        if now - due > LATE_SECONDS and self._late < LATE_TIMES:
            self._late += 1
            self.suspect_at = now + LATE_SECONDS / 2
            return False
        self._late = 0
        self.suspect_at = now + SUSPECT_AGAIN_SECONDS
        return True

    def end(self) -> None:
        """End the sender after the frame that it is sending."""
        self.ended = True
        self.wake.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LocalLink:
    """Messages to ourselves: not encoded, in order, in batches, within a link's bounds."""

    def __init__(
        self,
        limits: LinkLimits,
        may_send: Callable[[], bool],
        deliver: Callable[[list[AnyMessage]], None],
    ) -> None:
        self._limits = limits
        self._may_send = may_send
        self._deliver = deliver
        self._waiting: deque[tuple[AnyMessage, int]] = deque()
        self._size = 0
        self._scheduled = False
        self._ended = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, message: AnyMessage) -> bool:
        size = weight(message)
        limits = self._limits
        if size > limits.max_message_bytes:
            raise MessageTooLarge(size, limits.max_message_bytes)
        if len(self._waiting) >= limits.max_queue_messages or self._size + size > limits.max_queue_bytes:
            return False
        self._waiting.append((message, size))
        self._size += size
        self.wake()
        return True

    def wake(self) -> None:
        if self._waiting and not self._scheduled and not self._ended:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        self._scheduled = False
        if self._ended or not self._may_send():
            return
        waiting = self._waiting
        count = min(len(waiting), self._limits.max_frame_messages)
        taken = [waiting.popleft() for _ in range(count)]
        self._size -= sum(size for _, size in taken)
        self.wake()
        self._deliver([message for message, _ in taken])

    def end(self) -> None:
        self._ended = True


def weight(message: AnyMessage) -> int:
    """Estimate the bytes that a message holds, without encoding it."""
    if isinstance(message, Deliver):
        return 128 + len(message.args) + len(message.entity)
    if isinstance(message, Answer):
        return 32 + len(message.value)
    if isinstance(message, Failed):
        return 64 + len(message.message) + len(message.params)
    return 256
