"""`ports.transport.Transport` over a virtual channel layer. A message to a channel that is not open
is lost.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from sharding_app.adapters.memory.faults import Later, NetworkFaults
from sharding_app.ports.transport import TransportError


def _on_running_loop(delay: float, callback: Callable[[], object]) -> object:
    return asyncio.get_running_loop().call_later(delay, callback)


class MemoryNetwork:
    """The layer: one receiver for each channel; a later one replaces an earlier one."""

    def __init__(self, *, later: Later = _on_running_loop, faults: NetworkFaults | None = None) -> None:
        self.later = later
        self.faults = faults
        self.receivers: dict[str, MemoryTransport] = {}

    def send(self, client: str, channel: str, data: bytes) -> None:
        self.carry(client, channel, data)

    def carry(self, client: str, channel: str, data: bytes) -> None:
        """Bring a frame to its receiver, as the faults of this moment let it."""
        copies = self.faults.route(client, channel) if self.faults is not None else None
        if copies is None:
            self._deliver(channel, data)
            return
        for delay in copies:
            self.later(delay, lambda: self._deliver(channel, data))

    def _deliver(self, channel: str, data: bytes) -> None:
        receiver = self.receivers.get(channel)
        if receiver is not None:
            receiver.take(data)


class MemoryTransport:
    def __init__(self, network: MemoryNetwork, client: str = "client") -> None:
        self._network = network
        self._client = client
        self._channel: str | None = None
        self._messages: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def open(self, channel: str) -> None:
        self._reach()
        self._channel = channel
        self._network.receivers[channel] = self

    async def send(self, channel: str, data: bytes) -> None:
        self._reach()
        self._network.send(self._client, channel, data)

    async def receive(self) -> bytes:
        while not self._messages:
            if self._channel is None:
                raise TransportError("no channel is open")
            self._reach()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._messages.popleft()

    def take(self, data: bytes) -> None:
        """Take in a message that has arrived, on any thread."""
        self._messages.append(data)
        self._wake()

    async def close(self) -> None:
        if self._channel is not None and self._network.receivers.get(self._channel) is self:
            del self._network.receivers[self._channel]
        self._channel = None
        self._wake()

    def addresses(self) -> tuple[str, ...]:
        return ()

    def statistics(self) -> Mapping[str, int]:
        return {}

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            waiter.get_loop().call_soon_threadsafe(lambda: None if waiter.done() else waiter.set_result(None))

    def _reach(self) -> None:
        if self._network.faults is not None and self._network.faults.refuses(self._client):
            raise TransportError("the channel layer cannot be reached")
