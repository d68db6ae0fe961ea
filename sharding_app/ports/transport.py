"""The transport of frames as the links see it: it may lose, repeat, reorder and delay frames
without a word.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Deliver


class TransportError(Exception):
    """The transport could not take or give a frame now; trying again later may work."""


class PeerUnreachable(TransportError):
    """This one process takes no frame now. It may have ended."""


class PeerNotYetReached(PeerUnreachable):
    """The way to this process is being made, which takes longer on a busy machine."""


class Transport(Protocol):
    async def open(self, channel: str) -> None:
        """Begin to receive on this process's one channel. Raises TransportError."""
        ...

    async def send(self, channel: str, data: bytes) -> None:
        """Hand one frame to the transport. Raises TransportError when the transport refuses it, and
        PeerUnreachable when it refuses frames for this channel alone.
        """
        ...

    async def receive(self) -> bytes:
        """Wait for the next frame on the opened channel. Raises TransportError; may then be called
        again.
        """
        ...

    async def close(self) -> None: ...

    def addresses(self) -> tuple[str, ...]:
        """Return where other processes connect to this one directly, once it is open."""
        ...

    def statistics(self) -> Mapping[str, int]:
        """Return its counters by name."""
        ...


class EnvelopeSink(Protocol):
    """The receiver of one type's envelopes: its host in this node."""

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None:
        """Take in messages of this type from one process, in order. Never waits."""
        ...


Endpoint = Callable[[Incarnation, Sequence[Deliver]], None]
"""The way to an `EnvelopeSink`."""
