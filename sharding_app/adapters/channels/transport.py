"""The transport over a channel layer: one channel, one receiver, and an ear for its own deafness.

A layer message is {"type": "sharding.frame", "frame": bytes}; a layer that serialises as JSON gets
the frame as base64 text. Any error of a layer or Redis becomes a TransportError, and so does a full
channel: links send again.

Hearing. A layer does not report that it has stopped hearing: the pub/sub layer of channels_redis
subscribes again by itself a second or more after Redis is back, a cut connection is noticed in
minutes. So the transport listens to itself. When `open` returns, it has heard its own probe through
the layer, hence no message sent from then on is lost for want of a subscription. Later it sends a
probe when it has heard nothing for half a second, and at once when a send failed. If it does not
hear two probes, it drops the layer's connections and starts again, until it hears. After that
`receive` raises once: frames may have been lost, and the links send again without waiting for their
patience. If its probes arrive late, as on a machine without a free processor, it listens for
longer, up to twice as long as the last one took.

A Redis server that becomes a replica without cutting its clients still takes messages, and
gives it to its own clients alone. So a process hears itself there, and reaches no other one. With
the pub/sub layer the transport asks for the server's role now and then, and a replica counts as
deafness. The core layer's sends are writes, which a replica refuses.

A message that the layer cannot decode is counted and dropped, like one with a broken seal: only an
error of the connection is a reason to start again. Otherwise a process that may only publish could
make every node deaf, with a byte now and then.

Frames that have arrived and are not yet asked for are bounded in count and bytes; beyond that they
are dropped and counted.
"""

import asyncio
import base64
import binascii
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from channels.exceptions import ChannelFull
from redis.exceptions import RedisError

from sharding_app.adapters.channels.layers import (
    Layer,
    LeanCoreLayer,
    LeanPubSubLayer,
    end_receiver,
    make_layer,
    takes_text_only,
)
from sharding_app.adapters.channels.seal import Sealer
from sharding_app.ports.sealing import SealBroken
from sharding_app.ports.transport import PeerUnreachable, TransportError

logger = logging.getLogger("sharding.transport")

FRAME = "sharding.frame"
PROBE = "sharding.probe"
SILENCE_SECONDS = 0.5
ROLE_SECONDS = 2.0
"""Between two questions for the role of the layer's server."""
PROBES_SECONDS = (0.2, 0.2)
FIRST_PROBES_SECONDS = (0.05, 0.1, 0.2, 0.4, 0.4)
"""Seconds to listen after each probe: a new subscription may begin just after the first."""
LAST_PROBE_AT_MOST_SECONDS = 1.0
"""Longest time to listen after the last probe, however late the one before came."""
LATE_SECONDS = 0.05
LATE_TIMES = 5
OPEN_SECONDS = 5.0
SEND_SECONDS = 1.0
END_SECONDS = 3.0
AGAIN_SECONDS = 0.02
AGAIN_AT_MOST_SECONDS = 0.2
MAX_WAITING_FRAMES = 10_000
MAX_WAITING_BYTES = 64 * 1024 * 1024


MANY_IN_A_ROW = 100
BROKEN = (RedisError, OSError, EOFError, RuntimeError, MemoryError)
"""Errors of a layer whose connection is at fault, and not a message."""


class _Full(PeerUnreachable):
    """The layer holds as many messages for that channel as it may: its reader is slow, or gone."""


class ChannelsTransport:
    """`ports.transport.Transport` over the channel layer of an alias. Belongs to the event loop
    that opens it.
    """

    def __init__(self, alias: str, sealer: Sealer | None = None) -> None:
        self._alias = alias
        self._sealer = sealer
        self._layer: Layer | None = None
        self._channel = ""
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._heard = asyncio.Event()
        self._poke = asyncio.Event()
        self._hearing = asyncio.Event()
        self._spoke_at: float | None = None
        "When the first probe was sent that is not heard yet."
        self._took = 0.0
        "Seconds from the first probe to the first that was heard, last time."
        self._interrupted = ""
        self._deaf_since: float | None = None
        self._closing = False
        self._ending = False
        "The receiver is being ended."
        self._as_text = False  # the layer takes no bytes
        self._keeper: asyncio.Task[None] | None = None
        self._counters: Counter[str] = Counter()
        self._bad_in_a_row = 0

    def addresses(self) -> tuple[str, ...]:
        return ()

    def statistics(self) -> Mapping[str, int]:
        """Return counters (frames_sent, send_errors, frames_received, probes, deaf,
        seals_broken, …) and `layer_away_seconds`.
        """
        away = 0.0 if self._deaf_since is None else time.monotonic() - self._deaf_since
        return {**self._counters, "layer_away_seconds": int(away)}

    # -- The port ----------------------------------------------------------------------------------

    async def open(self, channel: str) -> None:
        """Begin to receive; returns when we have heard our own probe. Raises TransportError."""
        if self._keeper is not None:
            raise TransportError(f"already open on {self._channel!r}")
        if self._layer is None:
            # The next opening uses it too. channels_redis wraps the loop's `close` for each layer:
            # those of attempts that fail would pile up while Redis is away.
            self._layer = make_layer(self._alias)
        self._as_text = takes_text_only(self._layer)
        self._channel = channel
        self._interrupted = ""
        self._closing = False
        self._hearing.clear()
        self._keeper = asyncio.get_running_loop().create_task(
            self._keep(self._layer), name="sharding transport"
        )
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await self._hearing.wait()
        except TimeoutError:
            reason = self._interrupted or "it does not hear itself"
            await self.close()
            raise TransportError(f"channel layer {self._alias!r}: {reason}") from None
        except asyncio.CancelledError:
            await self.close()
            raise
        self._interrupted = ""

    async def send(self, channel: str, data: bytes) -> None:
        """Hand one frame to the layer. Raises TransportError."""
        if self._sealer is not None:
            data = self._sealer.seal(data)
        await self._send(channel, {"type": FRAME, "frame": data})
        self._counters["frames_sent"] += 1

    async def receive(self) -> bytes:
        """Wait for the next frame. Raises TransportError once after each time in which frames may
        have been lost.
        """
        while True:
            while self._waiting:
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
                opened = self._open_seal(data)
                if opened is not None:
                    return opened
            if self._keeper is None:
                raise TransportError("not open")
            if self._interrupted and self._hearing.is_set():
                reason, self._interrupted = self._interrupted, ""
                raise TransportError(f"frames may have been lost: {reason}")
            self._arrived.clear()
            await self._arrived.wait()

    async def close(self) -> None:
        if self._keeper is not None:
            self._closing = True
            while not self._keeper.done():
                # A layer that drops its connections just now may swallow a cancellation
                # (channels_redis' flush does): then the keeper sees `_closing`. Cancelled again too
                # soon, it would leave connections behind.
                self._keeper.cancel()
                await asyncio.wait([self._keeper], timeout=2 * END_SECONDS)
            self._keeper = None
        self._hearing.clear()
        self._waiting.clear()
        self._waiting_bytes = 0
        self._arrived.set()

    # -- Sending -----------------------------------------------------------------------------------

    async def _send(self, channel: str, message: dict[str, Any]) -> None:
        if self._layer is None:
            raise TransportError("not open")
        try:
            async with asyncio.timeout(SEND_SECONDS):
                if self._as_text:
                    message = _as_text(message)
                await self._layer.send(channel, message)
        except ChannelFull:
            self._counters["channel_full"] += 1
            raise _Full("the receiver's channel is full") from None
        except Exception as error:
            self._counters["send_errors"] += 1
            self._poke.set()
            raise TransportError(f"{type(error).__name__}: {error}") from error

    # -- Receiving ---------------------------------------------------------------------------------

    async def _pump(self, layer: Layer) -> None:
        """Receive all that the layer gives, so that frames wait in our bounds and not in the
        layer's.
        """
        while True:
            for message in await self._arrivals(layer):
                self._take(message)

    async def _arrivals(self, layer: Layer) -> list[Any]:
        """Wait for messages, and leave out those that cannot be decoded. Raises errors of the
        connection.
        """
        if isinstance(layer, LeanCoreLayer) and layer.ring_size == 1:
            found = []
            for data in await layer.receive_many(self._channel):
                try:
                    found.append(layer.deserialize(data))
                except Exception as error:  # noqa: BLE001  (any error of a serializer on strangers' bytes)
                    await self._undecodable(error)
            return found
        try:
            return [await layer.receive(self._channel)]
        except RecursionError as error:
            await self._undecodable(error)
        except BROKEN:
            raise
        except Exception as error:  # as above; if the connection is at fault, the probe finds it
            if self._ending:
                raise  # the layer has forgotten the channel
            await self._undecodable(error)
        return []

    async def _undecodable(self, error: Exception) -> None:
        self._counters["messages_undecodable"] += 1
        self._bad_in_a_row += 1
        if self._counters["messages_undecodable"] == 1:
            logger.warning(
                "a message that the channel layer cannot decode (%s) is dropped: a process with another configuration, or a"
                " stranger, writes to this channel", type(error).__name__, extra={"action": "transport.undecodable"},
            )  # fmt: skip
        # Let other tasks run; and a layer that fails each call at once must not take a whole core.
        await asyncio.sleep(0.001 if self._bad_in_a_row > MANY_IN_A_ROW else 0)

    def _take(self, message: Any) -> None:
        self._bad_in_a_row = 0
        self._heard.set()
        if not isinstance(message, Mapping):
            self._counters["messages_unknown"] += 1
            return
        if message.get("type") == PROBE:
            self._counters["probes_heard"] += 1
            if self._spoke_at is not None:
                self._took, self._spoke_at = asyncio.get_running_loop().time() - self._spoke_at, None
            return
        if message.get("type") != FRAME:
            self._counters["messages_unknown"] += 1
            return
        data = _frame_of(message)
        if data is None:
            self._counters["messages_unknown"] += 1
        elif len(self._waiting) >= MAX_WAITING_FRAMES or self._waiting_bytes + len(data) > MAX_WAITING_BYTES:
            self._counters["frames_dropped"] += 1
        else:
            self._counters["frames_received"] += 1
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            self._arrived.set()

    def _open_seal(self, data: bytes) -> bytes | None:
        if self._sealer is None:
            return data
        try:
            return self._sealer.open(data)
        except SealBroken as error:
            self._counters["seals_broken"] += 1
            if self._counters["seals_broken"] == 1:
                logger.warning("a frame is dropped: %s", error, extra={"action": "transport.seal_broken"})
            return None

    # -- Keeping the ear open ----------------------------------------------------------------------

    async def _keep(self, layer: Layer) -> None:
        """Receive, notice deafness and start again, while the transport is open."""
        pause = AGAIN_SECONDS
        while True:
            pump = asyncio.get_running_loop().create_task(self._pump(layer), name="sharding receiver")
            pump.add_done_callback(self._pump_ended)
            try:
                reason = await self._watch(pump)
            finally:
                await self._end(layer, pump)
            if self._closing:
                return
            if self._hearing.is_set():
                pause = AGAIN_SECONDS
                self._counters["deaf"] += 1
                self._deaf_since = time.monotonic()
                logger.warning("deaf on the channel layer: %s", reason, extra={"action": "transport.deaf"})
            self._hearing.clear()
            self._interrupted = reason
            await asyncio.sleep(pause)
            pause = min(2 * pause, AGAIN_AT_MOST_SECONDS)

    async def _watch(self, pump: asyncio.Task[None]) -> str:
        """Return, once this receiver no longer hears, the reason."""
        loop = asyncio.get_running_loop()
        reason = await self._probe(pump, FIRST_PROBES_SECONDS) or await self._demoted()
        asked_at = loop.time()
        if not reason:
            if self._interrupted:
                logger.info("hearing again on the channel layer", extra={"action": "transport.hears"})
            self._hearing.set()
            self._deaf_since = None
            self._arrived.set()
        while not reason:
            self._heard.clear()
            poked = await _set_within(self._poke, SILENCE_SECONDS)
            self._poke.clear()
            if poked or not self._heard.is_set():
                reason = await self._probe(pump, PROBES_SECONDS)
            if not reason and loop.time() - asked_at >= ROLE_SECONDS:
                reason, asked_at = await self._demoted(), loop.time()
        return reason

    async def _demoted(self) -> str:
        """Return the reason not to go on with a server that has become a replica. One that gives no
        answer is left to the probes.
        """
        if not isinstance(self._layer, LeanPubSubLayer):
            return ""
        try:
            async with asyncio.timeout(SEND_SECONDS):
                if not await self._layer.demoted():
                    return ""
        except Exception as error:  # noqa: BLE001  (it may know no HELLO, or not permit it)
            logger.debug("no role is told: %r", error, extra={"action": "transport.no_role"})
            return ""
        return "its Redis is a replica: messages that are published there reach no process at the master"

    async def _probe(self, pump: asyncio.Task[None], waits: Sequence[float]) -> str:
        """Send probes to ourselves until we hear anything; else return the reason."""
        loop, late = asyncio.get_running_loop(), 0
        left = [*waits[:-1], max(waits[-1], min(2 * self._took, LAST_PROBE_AT_MOST_SECONDS))]
        self._spoke_at = loop.time()
        while left:
            self._heard.clear()
            self._counters["probes"] += 1
            until = loop.time() + left[0]
            speaking = asyncio.ensure_future(self._send(self._channel, {"type": PROBE}))
            try:
                # Not limited by its own timeout: a send may hang, or wait behind others that do.
                heard = await _set_within(self._heard, left[0], unless=pump)
                reason = await _ended(speaking)
            finally:
                speaking.cancel()
            if heard:
                return ""
            if pump.done():
                return _reason(pump)
            if reason:
                return reason
            if loop.time() - until > LATE_SECONDS and late < LATE_TIMES:
                late += 1  # this process ran late: the wait proves nothing
            else:
                del left[0]
        return "it does not hear itself"

    async def _end(self, layer: Layer, pump: asyncio.Task[None]) -> None:
        self._ending = True
        try:
            async with asyncio.timeout(END_SECONDS):
                await end_receiver(layer, pump)
        except Exception as error:  # noqa: BLE001  (broken connections may raise when dropped)
            self._counters["end_errors"] += 1
            logger.debug("while dropping connections: %r", error, extra={"action": "transport.end_error"})
        pump.cancel()
        self._ending = False
        self._poke.clear()

    def _pump_ended(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled():
            pump.exception()  # retrieved, so that asyncio does not log it
        self._poke.set()


def _reason(pump: asyncio.Task[None]) -> str:
    if pump.cancelled():
        return "the receiver was cancelled"
    error = pump.exception()
    return f"{type(error).__name__}: {error}"


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    frame = message.get("frame")
    return {**message, "frame": base64.b64encode(frame).decode()} if frame is not None else message


def _frame_of(message: Mapping[str, Any]) -> bytes | None:
    frame = message.get("frame")
    if isinstance(frame, bytes):
        return frame
    if isinstance(frame, str):
        try:
            return base64.b64decode(frame, validate=True)
        except (binascii.Error, ValueError):
            return None
    return None


async def _set_within(event: asyncio.Event, seconds: float, unless: asyncio.Task[None] | None = None) -> bool:
    """Wait until the event is set, at most `seconds`, and no longer than the task `unless`
    lives.
    """
    waiting = asyncio.ensure_future(event.wait())
    either = [waiting] if unless is None else [waiting, unless]
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return event.is_set()


async def _ended(speaking: asyncio.Future[None]) -> str:
    """End a probe that is still being sent, and return its error."""
    speaking.cancel()
    await asyncio.wait([speaking])
    if speaking.cancelled():
        return ""
    error = speaking.exception()
    # A full channel has messages to hear without the probe.
    return "" if error is None or isinstance(error, _Full) else str(error)
