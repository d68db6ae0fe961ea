"""The virtual channel layer of a world: counts what is sent, and can repeat or garble it later."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence

from sharding_app.adapters.memory.faults import Later, NetworkFaults
from sharding_app.adapters.memory.transport import MemoryNetwork
from sharding_app.core.codec import decode_frame
from sharding_app.core.messages import AnyMessage

REMEMBERED = 64


class CountingNetwork(MemoryNetwork):
    def __init__(self, messages: Counter[str], *, later: Later, faults: NetworkFaults) -> None:
        super().__init__(later=later, faults=faults)
        self.messages = messages
        "By type."
        self.frames = 0
        self.on_send: Callable[[str, str, Sequence[AnyMessage]], None] | None = None
        self.seen: deque[tuple[str, bytes]] = deque(maxlen=REMEMBERED)
        "Some frames of the past, for replays."

    def send(self, client: str, channel: str, data: bytes) -> None:
        self.frames += 1
        body = decode_frame(data).body
        for message in body:
            self.messages[type(message).__name__] += 1
        if self.on_send is not None:
            self.on_send(client, channel, body)
        if self.frames % 16 == 0:
            self.seen.append((channel, data))
        super().send(client, channel, data)

    def inject(self, channel: str, data: bytes) -> None:
        """Deliver something that nobody sent."""
        self._deliver(channel, data)
