"""All links of a process: one sender task for each live link, one receive loop, and a local link.

The shell around `protocol.link.link`. Messages that have gathered since a link's last send go out
as one frame, without an artificial delay. Links are made at first use and dropped when idle. The
machine takes care of order, repetition, bounds and restarts.

*Silence.* `may_send` (the lease) is checked before each frame. While it says no, nothing leaves,
acknowledgements neither, and messages to ourselves wait too; `resume()` lets all go on. Frames that
come in are still delivered: their receiver decides whether to handle them.

*Trouble.* A layer that refuses frames, or gives none, is tried again every few moments (20 ms,
growing to 250 ms). Each time the links concerned forget their back-off, send their oldest frame
again and say that they are there. A layer that refuses frames for one process alone may do so
because that process has ended. The silence of that process goes on then, and is reported.

*The end of a peer.* `end(incarnation)` drops its link; late frames from it are refused from then
on. A process that is declared dead and lives is told so before that (`say_now`), outside a stream
that may not have opened yet. The position of an idle link in its peer's stream is kept, so that a
late repetition is still recognised. The end of a process without a row is announced by no node: its
link is dropped after minutes of silence, as an idle one.

*Nothing is dropped in silence* (promise 8). For a full queue `put` returns False. A frame that
cannot be read, that is not for us, or that comes from a peer that is gone is counted, and logged
now and then.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from sharding_app.ports.clock import Clock
from sharding_app.ports.transport import PeerNotYetReached, PeerUnreachable, Transport, TransportError
from sharding_app.protocol.codec import DecodeError, decode_frame, encode_frame, salvage_frame
from sharding_app.protocol.ids import Incarnation, Term, has_no_row
from sharding_app.protocol.link.link import LinkLimits, LinkStatistics
from sharding_app.protocol.messages import AnyMessage, Echo, Frame, Left, NodeGone
from sharding_app.protocol.versions import WIRE, Wire
from sharding_app.runtime.base.waiting import set_within
from sharding_app.runtime.links.table import LinkTable
from sharding_app.runtime.links.task import LinkTask, LocalLink

logger = logging.getLogger("sharding.transport")

SEND_AGAIN_SECONDS = 0.02
SEND_AGAIN_AT_MOST_SECONDS = 0.25
LAST_WORDS_SECONDS = 0.25
LOG_AGAIN_SECONDS = 10.0
LATE_FRAMES_SECONDS = 5.0
"""A peer's last frames may arrive after the word of its end. Those are no reason for a warning."""
BREATHE_AFTER_MESSAGES = 256
"""Messages that are taken in before the loop's other tasks have their turn, even if more are
there.
"""


class LinksStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """The work of this process's links: counters by name, and each live link."""

    counters: Mapping[str, int]
    """By name: frames_unreadable, frames_misdirected, frames_from_gone, links_refused, send_errors,
    …
    """
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
        """`backlog` returns the bytes of a peer's commands that wait here.

        Its credit shrinks by them.
        """
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
        self._table = LinkTable(incarnation, limits, wire, channel_of)
        self._tasks = self._table.tasks
        self._local = LocalLink(limits, may_send, lambda messages: self._hand_over(incarnation, messages))
        self._counters: Counter[str] = Counter()
        self._logged: dict[str, float] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    # -- Sending -----------------------------------------------------------------------------------

    def put(self, target: Incarnation, message: AnyMessage, data: bytes | None = None) -> bool:
        """Queue a message; `data` is its encoding, if known.

        False: the queue is full, or the target is gone.

        Raises MessageTooLarge, EncodeError.
        """
        task = self._tasks.get(target)
        if task is None:
            if target == self.incarnation:
                return self._local.put(message)
            task = self._open(target)
            if task is None:
                return False
        if not task.put(message, data):
            self._counters["puts_refused"] += 1
            return False
        task.wake.set()
        return True

    async def echo(self, number: int) -> None:
        """Send an echo to ourselves through the layer.

        `deliver` gets it back. Raises TransportError.
        """
        me = self.incarnation
        frame = Frame(self._wire.written, me, me, 0, 0, 0, 0, 0, [Echo(number)])
        await self._transport.send(self._channel_of(me), encode_frame(frame))

    def say_now(self, target: Incarnation, word: NodeGone) -> None:
        """Send a message once, outside the stream, ahead of everything that waits there."""
        task = self._tasks.get(target) or self._open(target)
        if task is not None and self._may_send():
            data = task.link.farewell(self._clock.now(), word)
            running = asyncio.get_running_loop().create_task(self._say([(task.channel, data)]))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    def resume(self) -> None:
        """Go on: `may_send` says yes again."""
        self._nudge()
        self._local.wake()

    def outstanding(self) -> int:
        """Return the number of messages that are put and not yet acknowledged."""
        return len(self._local) + sum(task.link.outstanding() for task in self._tasks.values())

    def is_gone(self, peer: Incarnation) -> bool:
        """Whether that peer has ended. Nothing is sent to it any more."""
        return self._table.is_gone(peer)

    def peers(self) -> list[Incarnation]:
        return list(self._tasks)

    def is_silent(self, peer: Incarnation) -> bool:
        """Whether that peer has owed us an acknowledgement for longer than is usual."""
        task = self._tasks.get(peer)
        since = None if task is None else task.link.silent_since()
        return since is not None and self._clock.now() - since >= self._limits.suspect_after_seconds

    async def drain(self, timeout_seconds: float) -> bool:
        """Wait until all messages are acknowledged. False: they are not, after that time."""
        until = self._clock.now() + timeout_seconds
        while self.outstanding():
            if self._clock.now() >= until:
                return False
            await asyncio.sleep(self._limits.ack_delay_seconds / 2)
        return True

    async def _send_loop(self, target: Incarnation, task: LinkTask) -> None:
        pause = SEND_AGAIN_SECONDS
        while True:
            await task.wake.wait()
            task.wake.clear()
            if task.ended:
                return
            if not self._may_send():
                continue
            peer_is_silent = False
            try:
                await self._flush(target, task)
                pause = SEND_AGAIN_SECONDS
                continue
            except PeerUnreachable as error:
                self._counters["peer_unreachable"] += 1
                if not isinstance(error, PeerNotYetReached):
                    self._log("link.peer_unreachable", "%s takes no frames: %s", target, error)
                self._watch(target, task)
                peer_is_silent = True
            except TransportError as error:
                self._counters["send_errors"] += 1
                self._log("link.send_error", "the transport refuses frames: %s", error)
            except Exception:
                # Trouble of one link must not end its sender: peers would wait for ever.
                self._counters["sender_errors"] += 1
                logger.exception("sending failed", extra={"action": "link.sender_error"})
            await asyncio.sleep(SEND_AGAIN_SECONDS)
            if not peer_is_silent:
                await asyncio.sleep(pause - SEND_AGAIN_SECONDS)
            elif pause > SEND_AGAIN_SECONDS:  # a message that is put meanwhile ends the pause
                await set_within(task.wake, pause - SEND_AGAIN_SECONDS)
            pause = min(2 * pause, SEND_AGAIN_AT_MOST_SECONDS)
            task.link.retry(self._clock.now(), peer_is_silent=peer_is_silent)
            task.wake.set()

    async def _flush(self, target: Incarnation, task: LinkTask) -> None:
        """Send the frames that are due. Raises TransportError when one is refused."""
        link, now = task.link, self._clock.now()
        if self._backlog is not None:
            link.waiting(self._backlog(target))
        for data in link.flush(now):
            if task.ended or not self._may_send():
                return
            await self._transport.send(task.channel, data)
        self._watch(target, task)

    def _watch(self, target: Incarnation, task: LinkTask) -> None:
        """Report a peer that has been silent for too long, and look again in time."""
        now = self._clock.now()
        if task.suspicious(now):
            self._counters["suspected"] += 1
            self._on_suspect(target)
        task.arm(now)

    # -- Receiving ---------------------------------------------------------------------------------

    async def receive_loop(self) -> None:
        """Take in frames until cancelled. The transport has to be open."""
        pause, taken = SEND_AGAIN_SECONDS, 0
        while True:
            try:
                data = await self._transport.receive()
            except Exception as error:  # noqa: BLE001  (whatever it is, a node must not go deaf by it)
                self._counters["receive_errors"] += 1
                self._log("link.receive_error", "the transport gives no frames: %r", error)
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
        """Take in one frame; return the number of its messages for us."""
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
        task = self._tasks.get(source)
        if task is None:
            if source == self.incarnation:
                self._hand_over(source, [message for message in frame.body if isinstance(message, Echo)])
                return len(frame.body)
            if self._table.is_gone(source):
                self._refuse_gone(source)
                return 0
            task = self._open(source)
            if task is None:
                return 0
        now = self._clock.now()
        messages = task.link.receive(frame, now, len(data))
        if frame.seq == 0 and frame.body:
            self._hand_over(source, [each for each in frame.body if isinstance(each, Left | NodeGone)])
            return len(frame.body)
        if len(messages) < self._limits.halve_messages:
            if messages:
                self._hand_over(source, messages)
        else:
            await self._hand_over_in_halves(source, task, messages)
        if task.link.presses(now):
            task.wake.set()
        else:
            task.arm(now)
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

    async def _hand_over_in_halves(
        self, source: Incarnation, task: LinkTask, messages: list[AnyMessage]
    ) -> None:
        """Hand over one half, and let its consequences be sent before the other.

        Two processes that do nothing but answer each other would otherwise take turns, each idle
        while the other works.
        """
        half = len(messages) // 2
        self._hand_over(source, messages[:half])
        await asyncio.sleep(0)
        if not task.ended:  # else the peer is gone, and so are its messages
            self._hand_over(source, messages[half:])

    def _hand_over(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        try:
            self._deliver(source, messages)
        except Exception:
            # The next frame may be fine, and the link has to be served whatever one message did.
            self._counters["deliver_errors"] += 1
            logger.exception("messages could not be delivered", extra={"action": "link.deliver_error"})

    def undeliverable(self, message: AnyMessage, error: Exception) -> None:
        """Count and log a message that could not be handled.

        The others of its frame are handled.
        """
        self._counters["deliver_errors"] += 1
        name = type(message).__name__
        logger.error(
            "a %s could not be delivered", name, exc_info=error, extra={"action": "link.deliver_error"}
        )

    # -- Tasks -------------------------------------------------------------------------------------

    def _open(self, peer: Incarnation) -> LinkTask | None:
        if self._closed or self._table.is_gone(peer):
            return None
        if self._table.full:
            self._refuse("links_refused")
            return None
        task = self._table.open(peer)
        running = asyncio.get_running_loop().create_task(
            self._send_loop(peer, task), name=f"sharding link to {peer}"
        )
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        if self._sweep_timer is None:
            self._arm_sweep()
        return task

    def end(self, incarnation: Incarnation, term: Term) -> None:
        """Drop the link to a peer that is gone, with its queue, and refuse later frames from it."""
        self._table.end(incarnation, term, self._clock.now())

    def enter_era(self, era: int) -> None:
        """Forget deaths of former eras: the server went back in time."""
        self._table.enter_era(era)

    def forget_idle(self) -> None:
        """Drop links on which nothing has moved for long."""
        # While we may not send, the silence is ours.
        self._table.forget(self._clock.now(), lost=self._may_send())

    def _arm_sweep(self) -> None:
        delay = self._limits.idle_after_seconds / 2
        self._sweep_timer = asyncio.get_running_loop().call_later(delay, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        self.forget_idle()
        if self._tasks and not self._closed:
            self._arm_sweep()

    def _nudge(self) -> None:
        now = self._clock.now()
        for task in self._tasks.values():
            task.link.retry(now)
            task.wake.set()

    async def close(self) -> None:
        """End all links.

        Messages without an acknowledgement stay so: `drain` before, where that matters.
        """
        self._closed = True
        owed: list[tuple[str, bytes]] = []
        if has_no_row(self.incarnation):
            # No other process finds out that this one is gone: peers would keep its links, and
            # repeat frames that it has taken in.
            now = self._clock.now()
            word = Left(self.incarnation)
            owed = [(each.channel, each.link.farewell(now, word)) for each in self._tasks.values()]
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._local.end()
        self._table.close()
        if self._running:
            _, late = await asyncio.wait(list(self._running), timeout=1.0)
            for running in late:
                running.cancel()
            if late:
                await asyncio.wait(late)
        await self._say(owed)

    async def _say(self, owed: list[tuple[str, bytes]]) -> None:
        """Send last messages, once. A peer that takes none keeps the others from nothing."""
        with contextlib.suppress(TransportError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                for channel, data in owed:
                    with contextlib.suppress(PeerUnreachable):
                        await self._transport.send(channel, data)

    # -- Numbers -----------------------------------------------------------------------------------

    def statistics(self) -> LinksStatistics:
        links = {peer: task.link.statistics() for peer, task in self._tasks.items()}
        return LinksStatistics(counters=dict(self._counters), links=links)

    def _refuse(self, counter: str, reason: str = "", count: int = 1) -> None:
        self._counters[counter] += count
        self._log(f"link.{counter}", "refused: %s %s", counter.replace("_", " "), reason)

    def _refuse_gone(self, source: Incarnation) -> None:
        seconds = self._table.seconds_gone(source, self._clock.now())
        if seconds < LATE_FRAMES_SECONDS:
            self._counters["frames_from_gone"] += 1
        else:
            self._refuse(
                "frames_from_gone", f"({source}, whose end was told {seconds:.0f} s ago, still sends)"
            )

    def _log(self, action: str, text: str, *values: object) -> None:
        now = self._clock.now()
        if now - self._logged.get(action, -LOG_AGAIN_SECONDS) >= LOG_AGAIN_SECONDS:
            self._logged[action] = now
            logger.warning(text, *values, extra={"action": action})
