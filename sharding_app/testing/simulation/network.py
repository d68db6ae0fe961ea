"""The virtual ways between processes of a world: a channel layer, or direct connections. Both count
messages, and can repeat or garble them later.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial

from sharding_app.adapters.memory.faults import Later, NetworkFaults
from sharding_app.adapters.memory.transport import MemoryNetwork
from sharding_app.ports.transport import PeerUnreachable
from sharding_app.protocol.codec import decode_frame
from sharding_app.protocol.direct.company import Company, Others
from sharding_app.protocol.direct.handshake import (
    NONCE_BYTES,
    Accepting,
    Dialing,
    HandshakeFailed,
    HandshakeKeys,
)
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import AnyMessage

REMEMBERED = 64
SILENT_SECONDS = 3.0
"""A connection on which nothing comes back for this long is known to be of no use."""
ELSEWHERE = "sharding.another-cluster"
NO_KEYS = HandshakeKeys()
"""The strongest stranger: where both have keys, it knows them."""
PATIENCE_SECONDS = 5.0
"""Without an answer of another node: two seconds longer than a lease."""
NEXT = 1e-6
"""Seconds from one frame of a connection to the next."""


class CountingNetwork(MemoryNetwork):
    def __init__(self, messages: Counter[str], *, later: Later, faults: NetworkFaults) -> None:
        super().__init__(later=later, faults=faults)
        self.messages = messages
        "Number of messages by type."
        self.frames = 0
        self.on_send: Callable[[str, str, Sequence[AnyMessage]], None] | None = None
        self.seen: deque[tuple[str, bytes]] = deque(maxlen=REMEMBERED)
        "Some frames of the past, for replays."

    def send(self, client: str, channel: str, data: bytes) -> None:
        self.carry(client, channel, data)
        self.frames += 1
        body = decode_frame(data).body
        for message in body:
            self.messages[type(message).__name__] += 1
        if self.on_send is not None:
            self.on_send(client, channel, body)
        if self.frames % 16 == 0:
            self.seen.append((channel, data))

    def inject(self, channel: str, data: bytes) -> None:
        """Deliver a frame that no process sent."""
        self._deliver(channel, data)

    def knock(self, channel: str) -> bool:
        """Let a process of another cluster try to connect. Return whether it is taken.

        A channel layer has no connections.
        """
        return False


class _Way:
    """One direction between two processes."""

    __slots__ = ("arrives_at", "connection", "lost_since")

    def __init__(self) -> None:
        self.connection = 0
        "Frames of an earlier connection do not arrive any more."
        self.arrives_at = 0.0
        "The newest frame."
        self.lost_since: float | None = None


class DirectNetwork(CountingNetwork):
    """Direct connections: in order and once, until they break with all that is under way.

    An echo of a node needs no way. It comes back while another node answers, or none is there.

    a lost frame            the connection breaks; its writer does not know it for 3 s
    a process that is gone  refuses at once
    a full channel          a process that does not read: refused too
    """

    def __init__(
        self,
        messages: Counter[str],
        happened: Counter[str],
        *,
        now: Callable[[], float],
        later: Later,
        faults: NetworkFaults,
    ) -> None:
        """`happened` counts the ends of connections, by kind."""
        super().__init__(messages, later=later, faults=faults)
        self._happened = happened
        self._now = now
        self._route = faults.route
        self._ways: dict[tuple[str, str], _Way] = {}
        self._companies: dict[str, Company] = {}
        self.others: Callable[[Incarnation], Others] = lambda _: Others()
        "Of a node, as it reads the rows."
        self.answers: Callable[[Incarnation, Incarnation], bool] = lambda *_: True
        "Whether the second node would answer the first one now."

    def carry(self, client: str, channel: str, data: bytes) -> None:
        if channel.rpartition(".")[2] == client:
            self._come_back(client, channel, data)
            return
        way = self._ways.setdefault((client, channel), _Way())
        if channel not in self.receivers:
            self._happened["connection_refused"] += 1
            raise PeerUnreachable("no process listens there")
        now = self._now()
        copies = self._route(client, channel)
        if not copies:
            if way.lost_since is None:
                self._happened["connection_broken"] += 1
                way.lost_since = now
                way.connection += 1
            elif now - way.lost_since >= SILENT_SECONDS:
                self._happened["connection_silent"] += 1
                raise PeerUnreachable("it answers nothing")
            return
        way.lost_since = None
        way.arrives_at = max(way.arrives_at + NEXT, now + copies[0])
        self.later(way.arrives_at - now, partial(self._arrive, way, way.connection, channel, data))

    def _come_back(self, client: Incarnation, channel: str, data: bytes) -> None:
        company = self._companies.setdefault(client, Company(PATIENCE_SECONDS))
        others = self.others(client)
        if any(self.answers(client, each) for each in others.names):
            company.heard()
        elif company.is_alone(self._now(), others):
            self._happened["alone"] += 1
            raise PeerUnreachable("no other node answers")
        self.later(NEXT, partial(self._deliver, channel, data))

    def knock(self, channel: str) -> bool:
        """It knows where this process listens, and has the same keys."""
        dialer = Dialing(NO_KEYS, f"{ELSEWHERE}.n-1", channel, bytes(NONCE_BYTES))
        acceptor = Accepting(NO_KEYS, channel, bytes(NONCE_BYTES))
        try:
            acceptor.receive(dialer.receive(acceptor.receive(dialer.hello)))
        except HandshakeFailed:
            self._happened["stranger_refused"] += 1
        return acceptor.proven

    def _arrive(self, way: _Way, connection: int, channel: str, data: bytes) -> None:
        if way.connection == connection:
            self._deliver(channel, data)
