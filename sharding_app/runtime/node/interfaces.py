"""The node, as its parts see it. They do not import `Node`, which is made of them."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Any, Literal, Protocol

from sharding_app.entities.entity_type import EntityType
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import AnyMessage
from sharding_app.protocol.records import MemberState
from sharding_app.runtime.asking.outbox import Outbox
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.asking.shard_locator import ShardLocator
from sharding_app.runtime.base.config import NodeConfig, NodePorts, ProcessPorts
from sharding_app.runtime.base.interfaces import LifelineControl
from sharding_app.runtime.coordinator_shell import CoordinatorShell
from sharding_app.runtime.hosting.node_host import NodeHost
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.writer import JournalWriter
from sharding_app.runtime.links.links import Links
from sharding_app.runtime.liveness.self_echo import Hearing

NodeState = MemberState | Literal["new", "ended"]


class NodeParts(Protocol):
    incarnation: Incarnation
    config: NodeConfig
    ports: ProcessPorts
    node_ports: NodePorts
    types: dict[str, EntityType]
    state: NodeState
    ended: "asyncio.Future[str]"
    "Set with the reason when this incarnation is over, wanted or not."
    valid: asyncio.Event
    "Set once the lease was valid."
    valid_since: float
    "Time at which it was valid first."
    asked_to_leave: asyncio.Event
    "Set when an operator wants this process to end, or it has begun to."
    all_stops: bool
    "The whole cluster is to stop: nothing is handed over any more."
    coordinator: CoordinatorShell | None
    "Set while this node coordinates."
    drops: Counter[str]
    hearing: Hearing
    hosting: NodeHost
    hosts: dict[str, TypeHost]
    lifeline: LifelineControl
    links: Links
    locator: ShardLocator
    outbox: Outbox
    region_client: RegionClient
    writer: JournalWriter

    def try_send(self, target: Incarnation, message: AnyMessage) -> bool: ...

    def try_send_all(self, targets: Iterable[Incarnation], message: AnyMessage) -> None: ...

    def run(self, job: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run a job without which the node cannot go on."""
        ...

    def end(self, reason: str) -> None: ...

    def log(self, action: str, text: str, *values: object) -> None: ...

    def lifeline_answers(self) -> bool:
        """Whether a ping was answered lately, whatever the lease says."""
        ...

    async def read_news(self) -> None: ...

    async def drain(self, *, drained: bool) -> None:
        """Hand all shards over and take no new ones, or take shards again."""

    async def step_aside(self, why: str) -> None:
        """End this incarnation: other nodes can work, this one cannot."""
