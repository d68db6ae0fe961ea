"""A process of the cluster that only asks: a web process, a Celery worker, a shell. Nodes are built on it.

It has a channel of its own, links to the processes it talks to, and a proxy-only region for each type it uses. It holds
no lifeline and no row: the cluster does not wait for it.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine
from typing import Any

import msgspec

from sharding_app.core.codec import EncodeError
from sharding_app.core.ids import HASH_VERSION, Incarnation
from sharding_app.core.link import MessageTooLarge
from sharding_app.core.messages import (
    Answer,
    AnyMessage,
    BeginHandOff,
    Deliver,
    Entities,
    Failed,
    HandBack,
    NodeGone,
    NodeStats,
    RegisterAck,
    ShardRegionState,
    Steered,
)
from sharding_app.core.records import TypeConfig
from sharding_app.core.wire import strangers
from sharding_app.errors import BadCall, NotStorable, to_wire
from sharding_app.model.types import EntityType
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime import calls
from sharding_app.runtime.asker import Asker
from sharding_app.runtime.config import NodeConfig, ProcessPorts
from sharding_app.runtime.homes import HomeFinder
from sharding_app.runtime.links import Links
from sharding_app.runtime.questions import Questions
from sharding_app.runtime.region_states import RegionQuestions
from sharding_app.runtime.traced import asker_class

logger = logging.getLogger("sharding.node")

MAX_BACKLOG = 100_000
TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 0.25


def type_config(entity_type: EntityType, config: NodeConfig) -> TypeConfig:
    """What has to be equal wherever the type is used."""
    settings = entity_type.settings
    return TypeConfig(
        name=entity_type.name,
        kind=entity_type.kind,
        number_of_shards=settings.number_of_shards or config.number_of_shards,
        extractor=entity_type.extractor.name if entity_type.extractor else f"hash:{HASH_VERSION}",
        hash_version=HASH_VERSION,
        role=settings.role or "",
        store_mode="postgres",
    )


class WireRefused(StoreUnavailable):
    """The cluster's nodes are of a release too far from ours. They may be replaced: it is tried again."""


class Process:
    is_proxy = True

    def __init__(
        self, incarnation: Incarnation, config: NodeConfig, ports: ProcessPorts, types: list[EntityType]
    ) -> None:
        self.incarnation = incarnation
        self.config = config
        self.ports = ports
        self.types = {each.name: each for each in types}
        self.configs = {each.name: type_config(each, config) for each in types}
        self.refused: dict[str, TypeConfig] = {}
        "Types whose configuration differs from the cluster's, with what the cluster has."
        self.cluster_id = ""
        self.waits_for = "PostgreSQL"
        "While it starts."
        self.links: Links
        self.asker: Asker
        self.homes: HomeFinder
        self.region_states = RegionQuestions(self.try_send)
        self.questions = Questions(self.try_send)
        self.drops: Counter[str] = Counter()
        "Answers and the like that a peer would not take, by kind."
        self._backlog: dict[Incarnation, deque[AnyMessage]] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    # -- Life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the channel and begin to listen. Raises StoreUnavailable or TransportError."""
        self.cluster_id = await self.ports.store.cluster_id()
        await self._compare_types()
        if self.is_proxy:
            _, members = await self.ports.store.members()
            if why := strangers(self.config.wire, members):
                raise WireRefused(f"this process is refused: {why}")
        self.waits_for = "the channel layer"
        await self.ports.transport.open(self.channel_of(self.incarnation))
        clock, limits = self.ports.clock, self.config.links
        self.links = Links(
            self.incarnation, self.ports.transport, clock, limits, self._deliver, self.channel_of, self._suspected,
            self.may_send, self.waiting_bytes, self.config.wire,
        )  # fmt: skip
        self.homes = HomeFinder(
            self.incarnation, self.ports.store, clock, self.try_send,
            is_proxy=self.is_proxy, on_gone=self._gone, is_silent=self.links.is_silent,
        )  # fmt: skip
        self.asker = asker_class()(
            self.incarnation,
            clock,
            self._put_command,
            self.homes,
            self.config.region,
            self.config.ask_timeout_seconds,
        )
        self.homes.told = self.asker
        for name, config in self.configs.items():
            extractor = self.types[name].extractor
            self.asker.add_type(
                name,
                config.number_of_shards,
                config.role,
                shard_id=extractor.shard_id if extractor else None,
                max_waiting=self.types[name].waiting_limit,
            )
        self.run(self.links.receive_loop(), "receive")
        self.run(self.homes.run(), "homes")
        self.run(self._tick_loop(), "tick")

    async def close(self) -> None:
        """End everything; whoever still waits is told."""
        if hasattr(self, "asker"):
            self.asker.close()
        tasks = [each for each in self._tasks if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if hasattr(self, "links"):
            await self.links.close()
        await self.ports.transport.close()
        await self.ports.store.close()

    def run(self, job: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Run a job of this process for as long as it lives; a job that fails is a bug and ends the process's turn."""
        task = asyncio.get_running_loop().create_task(job, name=f"sharding {name}")
        self._tasks[task] = None
        task.add_done_callback(self._job_ended)
        return task

    def channel_of(self, incarnation: Incarnation) -> str:
        return f"sharding.{self.cluster_id}.{incarnation}"

    def now_ms(self) -> int:
        return int(self.ports.clock.now() * 1000)

    def may_send(self) -> bool:
        return True

    def waiting_bytes(self, peer: Incarnation) -> int:
        """How much of that peer's commands waits here."""
        return 0

    # -- Asking ----------------------------------------------------------------------------------------------------

    def ask(
        self,
        type_name: str,
        entity_id: str,
        command: str,
        args: bytes,
        timeout: float | None = None,
        command_id: str | None = None,
        *,
        tell: bool = False,
        chain: tuple[str, ...] | None = None,
        trace: str = "",
    ) -> "asyncio.Future[bytes]":
        """Send a command from this process's loop; `chain` and `trace` say who led to it, if not the present context."""
        if type_name not in self.configs:
            raise BadCall(f"no entity type {type_name!r} is known here: is its app in INSTALLED_APPS?")
        if type_name in self.refused:
            raise BadCall(self.why_refused(type_name))
        called_by = calls.chain() if chain is None else chain
        if called_by:
            if tell:
                called_by = calls.told(called_by)
            else:
                calls.refuse_cycle(called_by, type_name, entity_id, command)
        return self.asker.ask(
            type_name, entity_id, command, args, timeout, command_id or "", tell=tell, chain=called_by,
            trace=trace,
        )  # fmt: skip

    def why_refused(self, type_name: str) -> str:
        ours, theirs = self.configs[type_name], self.refused[type_name]
        differ = [
            f"{name} is {getattr(ours, name)!r} here and {getattr(theirs, name)!r} in the cluster"
            for name in TypeConfig.__struct_fields__
            if getattr(ours, name) != getattr(theirs, name)
        ]
        return f"{type_name!r} is refused: {'; '.join(differ)}. Make them equal, or remove the cluster's internal data"

    # -- Sending ---------------------------------------------------------------------------------------------------

    def send(self, target: Incarnation, message: AnyMessage) -> None:
        """Send what may not be dropped: it waits here while the link has no room."""
        backlog = self._backlog.get(target)
        if backlog is not None:
            if len(backlog) >= MAX_BACKLOG:
                # It has long stopped to take anything: whoever asked there has given up, or will be told that we are gone.
                self.drops[type(message).__name__] += 1
                return
            backlog.append(message)
        elif not self.try_send(target, message):
            self._backlog[target] = deque((message,))

    def try_send(self, target: Incarnation, message: AnyMessage) -> bool:
        """Send what will be repeated anyway."""
        try:
            return self.links.put(target, message)
        except MessageTooLarge as error:
            if isinstance(message, Answer):
                # Only of what persists nothing: else the reply was measured before the commit.
                text = f"the reply has {error.size} bytes, more than the {error.limit} of a message: return less of it at a time"
                return self.links.put(target, _not_storable(message.request, "reply_too_large", text))
            logger.error(
                "a %s is too large: %s", type(message).__name__, error, extra={"action": "message_too_large"}
            )
            return True

    def _put_command(self, target: Incarnation, message: AnyMessage) -> bool:
        try:
            return self.links.put(target, message)
        except MessageTooLarge as error:
            if isinstance(message, Deliver):
                text = (
                    f"{message.type}.{message.command}: the arguments have {error.size} bytes, more than the {error.limit}"
                    " of a message: send less at a time, or a reference to what is stored elsewhere"
                )
                self._fail_soon(_not_storable(message.request, "arguments_too_large", text))
            return True
        except EncodeError as error:
            if isinstance(message, Deliver):
                text = f"{message.type}.{message.command} cannot be sent: {error}"
                self._fail_soon(_not_storable(message.request, "not_encodable", text))
            return True

    def _fail_soon(self, failed: Failed) -> None:
        asyncio.get_running_loop().call_soon(self.asker.receive, self.incarnation, failed)

    def _flush_backlog(self) -> None:
        for target in list(self._backlog):
            waiting = self._backlog.pop(target)
            while waiting:
                if not self.try_send(target, waiting[0]):
                    self._backlog[target] = waiting
                    break
                waiting.popleft()

    # -- Receiving -------------------------------------------------------------------------------------------------

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        """Take what a link gives: envelopes for entities here, answers for those who asked here, words of the protocol."""
        envelopes: list[Deliver] = []
        asker, now = self.asker, self.ports.clock.now()
        for message in messages:
            if type(message) is Answer:
                asker.answered(message, now)
            elif type(message) is Deliver:
                if message.command_id:
                    # From here on its age is this clock's time less this: it counts every wait in this process.
                    message.age_ms -= self.now_ms()
                envelopes.append(message)
            elif not asker.receive(source, message):
                self.control(source, message)
        if envelopes:
            self.envelopes(source, envelopes)

    def envelopes(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        """Nothing lives in a proxy: hand all back."""
        for each in envelopes:
            self.send(source, HandBack(each.type, each.shard, each.epoch, [each.request]))

    def control(self, source: Incarnation, message: AnyMessage) -> None:
        if isinstance(message, BeginHandOff):
            if message.term >= self.homes.term:
                self.asker.hold(message.type, message.shards)
        elif isinstance(message, RegisterAck):
            self.homes.coordinator_told(message.coordinator, message.term)
        elif isinstance(message, NodeGone):
            if message.term >= self.homes.term:
                self._gone(message.incarnation)
        elif isinstance(message, ShardRegionState):
            self.region_states.told(source, message)
        elif isinstance(message, NodeStats | Entities | Steered):
            self.questions.told(source, message)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _suspected(self, incarnation: Incarnation) -> None:
        self.homes.suspect(incarnation)

    def _gone(self, incarnation: Incarnation) -> None:
        if incarnation == self.incarnation:
            return
        self.links.end(incarnation)
        self._backlog.pop(incarnation, None)
        self.homes.gone(incarnation)
        self.asker.gone(incarnation)

    def _agree(self, ours: TypeConfig, theirs: TypeConfig) -> bool:
        """A proxy only has to find the same shards."""
        if self.types[ours.name].proxy_only:
            ours = msgspec.structs.replace(
                ours, kind=theirs.kind, role=theirs.role, store_mode=theirs.store_mode
            )
        return ours == theirs

    async def _compare_types(self) -> None:
        for theirs in await self.ports.store.types():
            ours = self.configs.get(theirs.name)
            if ours is not None and not self._agree(ours, theirs):
                self.refused[theirs.name] = theirs
                logger.error("%s", self.why_refused(theirs.name), extra={"action": "type_refused"})

    async def _tick_loop(self) -> None:
        while True:
            busy = self.asker.pending or self._backlog
            await asyncio.sleep(TICK_SECONDS if busy else IDLE_TICK_SECONDS)
            self.tick()

    def tick(self) -> None:
        self.asker.tick()
        if self._backlog:
            self._flush_backlog()

    def _job_ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical(
                "a bug: %s ended: %r", task.get_name(), error, exc_info=error, extra={"action": "job_failed"}
            )


def _not_storable(request: int, code: str, text: str) -> Failed:
    kind, said, params = to_wire(NotStorable(text, code=code))
    return Failed(request, kind, said, msgspec.msgpack.encode(params))
