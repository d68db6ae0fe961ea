"""Nodes of several releases in one cluster: each with its wire, and with messages as its release
writes them.
"""

import dataclasses
from collections.abc import Callable

import msgspec

from sharding_app.adapters.memory import MemoryTransport
from sharding_app.protocol.versions import Wire
from sharding_app.runtime.base.config import NodeConfig, NodePorts
from sharding_app.runtime.node.node import Node
from sharding_app.testing.cluster import MemoryCluster

FORMER = Wire(1, 1, 1)
PRESENT = Wire(1, 2, 1)
"It has learnt to read version 2, and goes on writing 1."
NEXT = Wire(1, 2, 2)
FAR = Wire(2, 3, 3)

SHARD_STOPPED = 21
BODY = 8
Body = list[list[object]]


def with_fields_from_the_future(body: Body) -> Body:
    """As a later release may write them: with fields at the end that no release here knows."""
    return [[*message, "from the future", {"also": [1, 2, 3]}] for message in body]


def without_the_newest_fields(body: Body) -> Body:
    """As the release before `given_up` was added."""
    return [message[:4] if message[0] == SHARD_STOPPED else message for message in body]


class TranslatingTransport(MemoryTransport):
    """Sends what another release would."""

    translate: Callable[[Body], Body]
    written: int = 0

    async def send(self, channel: str, data: bytes) -> None:
        frame = msgspec.msgpack.decode(data)
        frame[BODY] = self.translate(frame[BODY])
        self.written += len(frame[BODY])
        await super().send(channel, msgspec.msgpack.encode(frame))


class MixedCluster(MemoryCluster):
    """`add_release` starts a node of another release."""

    translate: Callable[[Body], Body] | None = None
    transports: list[TranslatingTransport]

    async def add_release(
        self, name: str, wire: Wire, translate: Callable[[Body], Body] | None = None
    ) -> Node:
        mine: NodeConfig = self.config
        self.config = dataclasses.replace(mine, wire=wire)
        self.translate = translate
        try:
            return await self.add_node(name)
        finally:
            self.config, self.translate = mine, None

    def _node_ports(self, incarnation: str) -> NodePorts:
        ports = super()._node_ports(incarnation)
        if self.translate is not None:
            transport = TranslatingTransport(self.network, incarnation)
            transport.translate = self.translate
            self.transports.append(transport)
            ports.transport = transport
        return ports
