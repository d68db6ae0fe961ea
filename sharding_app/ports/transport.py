"""The channel layer as the links see it: it may lose, repeat, reorder and delay; it never tells."""

from collections.abc import Mapping
from typing import Protocol


class TransportError(Exception):
    """The layer could not take or give a message now; trying again later may work."""


class Transport(Protocol):
    async def open(self, channel: str) -> None:
        """Begin to receive on this process's one channel. Raises TransportError."""
        ...

    async def send(self, channel: str, data: bytes) -> None:
        """Hand one frame to the layer. Raises TransportError when the layer refuses it."""
        ...

    async def receive(self) -> bytes:
        """Wait for the next frame on the opened channel. Raises TransportError; may then be called again."""
        ...

    async def close(self) -> None: ...

    def statistics(self) -> Mapping[str, int]:
        """Return what it has counted, by name."""
        ...
