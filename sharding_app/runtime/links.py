"""All links of a process: one sender task for each live link, one receive loop, a short way to ourselves.

The shell around `core.link`. What has gathered since a link's last send goes out as one frame, with no artificial
delay; links are made at first use and dropped when idle. Order, repetition, bounds and restarts are the machine's.

*Silence.* `may_send` (the lease) is looked at before each frame. While it says no, nothing leaves, acknowledgements
neither, and what we say to ourselves waits too; `resume()` lets all go on. Frames that come in are still delivered:
whether they are handled is for their receiver to decide.

*Trouble.* A layer that refuses frames, or gives none, is tried again every few moments (20 ms, growing to 250 ms). Each
time the links concerned forget their back-off, send their oldest frame again and say that they are there.

*The end of a peer.* `end(incarnation)` drops its link; late frames from it are refused from then on. Who is taken for dead
and lives is told so before that (`say_now`), beside a stream that may not have opened yet. What an idle link
knew about its peer's stream is kept, so that a late repetition is still recognised. Nobody tells the end of a process that
has no row: its link is dropped after minutes of silence, as an idle one.

*Nothing is dropped in silence.* A full queue is the False of `put`; a frame that cannot be read, that is not for us, or
that comes from a peer that is gone moves a counter and is logged, once in a while.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from sharding_app.core.codec import DecodeError, decode_frame, encode_frame, salvage_frame
from sharding_app.core.ids import Incarnation, Term, has_no_row
from sharding_app.core.link import LinkLimits, LinkStatistics
from sharding_app.core.messages import AnyMessage, Echo, Frame, Left, NodeGone
from sharding_app.core.wire import WIRE, Wire
from sharding_app.ports.clock import Clock
from sharding_app.ports.transport import Transport, TransportError
from sharding_app.runtime.link_book import LinkBook
from sharding_app.runtime.link_line import Line, LocalLine

logger = logging.getLogger("sharding.transport")

SEND_AGAIN_SECONDS = 0.02
SEND_AGAIN_AT_MOST_SECONDS = 0.25
LAST_WORDS_SECONDS = 0.25
LOG_AGAIN_SECONDS = 10.0
BREATHE_AFTER_MESSAGES = 256
"""So many messages are taken in before the loop's other tasks have their turn, even if more are there."""


class LinksStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What the links of this process have done: counters by name, and each live link."""

    counters: Mapping[str, int]
    "frames_unreadable, messages_unreadable, frames_misdirected, frames_from_gone, links_refused, send_errors, …"
    links: Mapping[Incarnation, LinkStatistics]


class Links:
    """Sends to and receives from all other processes. Belongs to one event loop."""

    def __init__(
        self,
        incarnation: Incarnation,
        transport: Transport,
        clock: Clock,
        limits: LinkLimits,
        deliver: Callable[[Incarnation, list[AnyMessage]], None],
        channel_of: Callable[[Incarnation], str],
        on_suspect: Callable[[Incarnation], None],
        may_send: Callable[[], bool],
        backlog: Callable[[Incarnation], int] | None = None,
        wire: Wire = WIRE,
    ) -> None:
        """`backlog` tells how many bytes of a peer's commands wait to be handled here: its credit is less by them."""
        self.incarnation = incarnation
        self._transport = transport
        self._clock = clock
        self._limits = limits
        self._deliver = deliver
        self._channel_of = channel_of
        self._on_suspect = on_suspect
        self._may_send = may_send
        self._backlog = backlog
        self._wire = wire
        self._book = LinkBook(incarnation, limits, wire, channel_of)
        self._lines = self._book.lines
        self._local = LocalLine(limits, may_send, lambda messages: self._hand_over(incarnation, messages))
        self._counters: Counter[str] = Counter()
        self._logged: dict[str, float] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    # -- Sending -------------------------------------------------------------------------------------------------

    def put(self, target: Incarnation, message: AnyMessage, data: bytes | None = None) -> bool:
        """Queue a message, which `data` holds encoded if it was; False: the queue is full, or the target is gone.

        Raises MessageTooLarge, EncodeError.
        """
        line = self._lines.get(target)
        if line is None:
            if target == self.incarnation:
                return self._local.put(message)
            line = self._open(target)
            if line is None:
                return False
        if not line.put(message, data):
            self._counters["puts_refused"] += 1
            return False
        line.wake.set()
        return True

    async def echo(self, number: int) -> None:
        """Say a word to ourselves through the layer; `deliver` gets the Echo when we hear it. Raises TransportError."""
        me = self.incarnation
        frame = Frame(self._wire.written, me, me, 0, 0, 0, 0, 0, [Echo(number)])
        await self._transport.send(self._channel_of(me), encode_frame(frame))

    def say_now(self, target: Incarnation, word: NodeGone) -> None:
        """Say a word beside the stream, once, whatever waits there."""
        line = self._lines.get(target) or self._open(target)
        if line is not None and self._may_send():
            data = line.link.farewell(self._clock.now(), word)
            task = asyncio.get_running_loop().create_task(self._say([(line.channel, data)]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def resume(self) -> None:
        """`may_send` says yes again: go on."""
        self._nudge()
        self._local.wake()

    def outstanding(self) -> int:
        """Return how many messages are put and not yet acknowledged."""
        return len(self._local) + sum(line.link.outstanding() for line in self._lines.values())

    def is_gone(self, peer: Incarnation) -> bool:
        """Tell whether that peer has ended: it is sent nothing any more."""
        return self._book.is_gone(peer)

    def peers(self) -> list[Incarnation]:
        return list(self._lines)

    def is_silent(self, peer: Incarnation) -> bool:
        """Tell whether that peer has owed us an acknowledgement for longer than is usual."""
        line = self._lines.get(peer)
        since = None if line is None else line.link.silent_since()
        return since is not None and self._clock.now() - since >= self._limits.suspect_after_seconds

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until all that was put is acknowledged; False: it is not, after that time."""
        until = self._clock.now() + timeout_seconds
        while self.outstanding():
            if self._clock.now() >= until:
                return False
            await asyncio.sleep(self._limits.ack_delay_seconds / 2)
        return True

    async def _send_loop(self, target: Incarnation, line: Line) -> None:
        pause = SEND_AGAIN_SECONDS
        while True:
            await line.wake.wait()
            line.wake.clear()
            if line.ended:
                return
            if not self._may_send():
                continue
            try:
                failed = await self._flush(target, line)
            except Exception:
                # One link's trouble must not end its sender: peers would wait for ever.
                self._counters["sender_errors"] += 1
                logger.exception("sending failed", extra={"action": "link.sender_error"})
                failed = True
            if not failed:
                pause = SEND_AGAIN_SECONDS
                continue
            await asyncio.sleep(pause)
            pause = min(2 * pause, SEND_AGAIN_AT_MOST_SECONDS)
            line.link.retry(self._clock.now())
            line.wake.set()

    async def _flush(self, target: Incarnation, line: Line) -> bool:
        """Send what is due; True: the layer refused it."""
        link, now = line.link, self._clock.now()
        if self._backlog is not None:
            link.waiting(self._backlog(target))
        for data in link.flush(now):
            if line.ended or not self._may_send():
                return False
            try:
                await self._transport.send(line.channel, data)
            except TransportError as error:
                self._counters["send_errors"] += 1
                self._log("link.send_error", "the channel layer refuses frames: %s", error)
                return True
        now = self._clock.now()
        if line.suspicious(now):
            self._counters["suspected"] += 1
            self._on_suspect(target)
        line.arm(now)
        return False

    # -- Receiving -----------------------------------------------------------------------------------------------

    async def receive_loop(self) -> None:
        """Take in frames until cancelled. The transport has to be open."""
        pause, taken = SEND_AGAIN_SECONDS, 0
        while True:
            try:
                data = await self._transport.receive()
            except Exception as error:  # noqa: BLE001  (whatever it is, a node must not go deaf by it)
                self._counters["receive_errors"] += 1
                self._log("link.receive_error", "the channel layer gives no frames: %r", error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, SEND_AGAIN_AT_MOST_SECONDS)
                self._nudge()
                continue
            pause = SEND_AGAIN_SECONDS
            taken += 1 + await self.take(data)
            if taken >= BREATHE_AFTER_MESSAGES:
                taken = 0
                await asyncio.sleep(0)

    async def take(self, data: bytes) -> int:
        """Take in one frame; return how many messages it had for us."""
        frame = self._read(data)
        if frame is None:
            return 0
        source = frame.source
        if frame.target != self.incarnation:
            self._refuse("frames_misdirected")
            return 0
        if not self._wire.reads(frame.wire):
            self._refuse(
                "frames_of_another_wire",
                f"{source} writes wire version {frame.wire}, this process {self._wire}",
            )
            return 0
        line = self._lines.get(source)
        if line is None:
            if source == self.incarnation:
                self._hand_over(source, [message for message in frame.body if isinstance(message, Echo)])
                return len(frame.body)
            if self._book.is_gone(source):
                self._refuse("frames_from_gone")
                return 0
            line = self._open(source)
            if line is None:
                return 0
        now = self._clock.now()
        messages = line.link.receive(frame, now, len(data))
        if frame.seq == 0 and frame.body:
            self._hand_over(source, [each for each in frame.body if isinstance(each, Left | NodeGone)])
            return len(frame.body)
        if len(messages) < self._limits.halve_messages:
            if messages:
                self._hand_over(source, messages)
        else:
            await self._hand_over_in_halves(source, line, messages)
        if line.link.presses(now):
            line.wake.set()
        else:
            line.arm(now)
        return len(messages)

    def _read(self, data: bytes) -> Frame | None:
        try:
            return decode_frame(data)
        except DecodeError as error:
            reason = error.reason
        try:
            frame, lost = salvage_frame(data)
        except DecodeError:
            self._refuse("frames_unreadable", reason)
            return None
        self._refuse("messages_unreadable", reason, lost)
        return frame

    async def _hand_over_in_halves(self, source: Incarnation, line: Line, messages: list[AnyMessage]) -> None:
        """What the first half leads to is sent before the second is looked at. Two processes that do nothing but answer each
        other would otherwise take turns, each idle while the other works."""
        half = len(messages) // 2
        self._hand_over(source, messages[:half])
        await asyncio.sleep(0)
        if not line.ended:  # else the peer is gone, and so are its messages
            self._hand_over(source, messages[half:])

    def _hand_over(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        try:
            self._deliver(source, messages)
        except Exception:
            # The next frame may be fine, and the link has to be served whatever one message did.
            self._counters["deliver_errors"] += 1
            logger.exception("messages could not be delivered", extra={"action": "link.deliver_error"})

    def undeliverable(self, message: AnyMessage, error: Exception) -> None:
        """One message could not be handled, whatever it did: the others of its frame are."""
        self._counters["deliver_errors"] += 1
        name = type(message).__name__
        logger.error(
            "a %s could not be delivered", name, exc_info=error, extra={"action": "link.deliver_error"}
        )

    # -- Lines ---------------------------------------------------------------------------------------------------

    def _open(self, peer: Incarnation) -> Line | None:
        if self._closed or self._book.is_gone(peer):
            return None
        if self._book.full:
            self._refuse("links_refused")
            return None
        line = self._book.open(peer)
        task = asyncio.get_running_loop().create_task(
            self._send_loop(peer, line), name=f"sharding link to {peer}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._sweep_timer is None:
            self._arm_sweep()
        return line

    def end(self, incarnation: Incarnation, term: Term) -> None:
        """The peer is gone: drop its link and all that it holds, and refuse what may still come from it."""
        self._book.end(incarnation, term)

    def enter_era(self, era: int) -> None:
        """The server went back in time, and a coordinator was elected there: who died before that may live again."""
        self._book.enter_era(era)

    def forget_idle(self) -> None:
        """Drop the links on which nothing has moved for long."""
        # While we may not speak, the silence is ours.
        self._book.forget(self._clock.now(), lost=self._may_send())

    def _arm_sweep(self) -> None:
        delay = self._limits.idle_after_seconds / 2
        self._sweep_timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        self.forget_idle()
        if self._lines and not self._closed:
            self._arm_sweep()

    def _nudge(self) -> None:
        now = self._clock.now()
        for line in self._lines.values():
            line.link.retry(now)
            line.wake.set()

    async def close(self) -> None:
        """End all links. What is not acknowledged stays so: `drain` before, where that matters."""
        self._closed = True
        owed: list[tuple[str, bytes]] = []
        if has_no_row(self.incarnation):
            # No other process finds out that it is gone: peers would keep its links, and repeat what it has taken in.
            now = self._clock.now()
            word = Left(self.incarnation)
            owed = [(each.channel, each.link.farewell(now, word)) for each in self._lines.values()]
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._local.end()
        self._book.close()
        if self._tasks:
            _, late = await asyncio.wait(list(self._tasks), timeout=1.0)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        await self._say(owed)

    async def _say(self, owed: list[tuple[str, bytes]]) -> None:
        """Send last words, once."""
        with contextlib.suppress(TransportError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                for channel, data in owed:
                    await self._transport.send(channel, data)

    # -- Numbers -------------------------------------------------------------------------------------------------

    def statistics(self) -> LinksStatistics:
        links = {peer: line.link.statistics() for peer, line in self._lines.items()}
        return LinksStatistics(counters=dict(self._counters), links=links)

    def _refuse(self, counter: str, reason: str = "", count: int = 1) -> None:
        self._counters[counter] += count
        self._log(f"link.{counter}", "refused: %s %s", counter.replace("_", " "), reason)

    def _log(self, action: str, text: str, *values: object) -> None:
        now = self._clock.now()
        if now - self._logged.get(action, -LOG_AGAIN_SECONDS) >= LOG_AGAIN_SECONDS:
            self._logged[action] = now
            logger.warning(text, *values, extra={"action": action})
