"""Direct where that is possible, over the channel layer where it is not.

Each frame is decided alone. Frames over the layer are counted, and logged.

    send ──directly──────────────────────────> taken
      └──the peer is unreachable──> the layer ──> taken
                                      └──it refuses too──> PeerUnreachable

Contract: a layer that is down or slow holds up no frame that has a direct way, nor the start of a
process: it is opened beside the direct transport, and again until it opens. Frames of both ways
come out of one `receive`.

A peer counts as reached over the layer once the layer has carried frames for it for some seconds,
and only while it brings frames too. To a process that has ended, links send until they hear of its
end, and a layer takes such frames: it answers for no peer. A peer that lives acknowledges them.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Mapping

from sharding_app.adapters.direct.transport import DirectTransport
from sharding_app.ports.transport import PeerUnreachable, Transport, TransportError

logger = logging.getLogger("sharding.transport")

AGAIN_SECONDS = 0.1
AGAIN_AT_MOST_SECONDS = 2.0
LATELY_SECONDS = 10.0
"""A peer for which the layer carried no frame for this time is not counted any more, and no peer is
when the layer brought none.
"""
LASTING_SECONDS = 5.0
"""The end of a node is known to all before this time is over."""
FULL_SECONDS = 0.01
CLOSE_SECONDS = 3.0


class EitherTransport:
    """`ports.transport.Transport` over two others."""

    def __init__(self, direct: DirectTransport, layer: Transport) -> None:
        self._direct = direct
        self._layer = layer
        self.receive = direct.receive
        self._layer_job: asyncio.Task[None] | None = None
        self._layer_opens = False
        self._by_layer: dict[str, tuple[float, float]] = {}
        "When the layer carried the first and the last frame, by channel, by the last one."
        self._brought_at = float("-inf")
        "When the layer brought the last frame."
        self._opened_at = 0.0
        self._counters: Counter[str] = Counter()

    async def open(self, channel: str) -> None:
        await self._direct.open(channel)
        self._opened_at = time.monotonic()
        self._layer_job = asyncio.get_running_loop().create_task(
            self._over_layer(channel), name="sharding channel layer"
        )

    async def send(self, channel: str, data: bytes) -> None:
        try:
            await self._direct.send(channel, data)
        except PeerUnreachable as error:
            await self._send_over_layer(channel, data, error)
        else:
            if self._by_layer:
                self._by_layer.pop(channel, None)

    async def close(self) -> None:
        if self._layer_job is not None:
            self._layer_job.cancel()
            await asyncio.wait([self._layer_job], timeout=CLOSE_SECONDS)
            self._layer_job = None
        await self._direct.close()
        if self._layer_opens:
            self._layer_opens = False
            await self._layer.close()
        self._by_layer.clear()

    def addresses(self) -> tuple[str, ...]:
        return self._direct.addresses()

    def statistics(self) -> Mapping[str, int]:
        """Return the sums of both, and `frames_by_layer`, `peers_by_layer` and
        `layer_away_seconds`.
        """
        now = time.monotonic()
        self._forget()
        both = Counter(self._direct.statistics())
        both.update(self._layer.statistics())
        if not self._layer_opens:
            both["layer_away_seconds"] = int(now - self._opened_at)
        peers = 0
        if now - self._brought_at < LATELY_SECONDS:
            peers = sum(last - first >= LASTING_SECONDS for first, last in self._by_layer.values())
        return {**both, **self._counters, "peers_by_layer": peers}

    async def _send_over_layer(self, channel: str, data: bytes, why: PeerUnreachable) -> None:
        if not self._layer_opens:
            raise why
        try:
            await self._layer.send(channel, data)
        except TransportError as error:
            raise PeerUnreachable(f"{why}; nor over the channel layer: {error}") from error
        self._counters["frames_by_layer"] += 1
        self._forget()
        now = time.monotonic()
        before = self._by_layer.pop(channel, None)
        self._by_layer[channel] = (now if before is None else before[0], now)
        if before is None:
            logger.info(
                "the channel layer carries the frames for %s: %s",
                channel,
                why,
                extra={"action": "transport.by_layer"},
            )

    def _forget(self) -> None:
        """Forget peers for which the layer carried nothing lately."""
        since = time.monotonic() - LATELY_SECONDS
        while self._by_layer and next(iter(self._by_layer.values()))[1] < since:
            del self._by_layer[next(iter(self._by_layer))]

    async def _over_layer(self, channel: str) -> None:
        """Open the layer, and take its frames. Its errors are no reason to stop trying."""
        pause = AGAIN_SECONDS
        while True:
            try:
                if not self._layer_opens:
                    await self._layer.open(channel)
                    self._layer_opens = True
                self._direct.hand_in(await self._layer.receive())
                self._brought_at = time.monotonic()
                pause = AGAIN_SECONDS
            except Exception as error:  # noqa: BLE001  (whatever it is, the layer is only the second way)
                # Frames may have been lost. Links notice it, and most of their frames go another
                # way.
                self._counters["layer_errors"] += 1
                if self._counters["layer_errors"] == 1:
                    logger.warning(
                        "the channel layer gives no frames, and is tried again: %r", error,
                        extra={"action": "transport.no_layer"},
                    )  # fmt: skip
                await asyncio.sleep(pause)
                pause = min(2 * pause, AGAIN_AT_MOST_SECONDS)
            while not self._direct.has_room:  # noqa: ASYNC110  (rare)
                await asyncio.sleep(FULL_SECONDS)
