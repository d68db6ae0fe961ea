"""A process of the cluster that only asks: a web process, a Celery worker, a shell. Nodes are built on it.

It has a channel of its own, links to the processes it talks to, and a proxy-only region for each type it uses. It holds
no lifeline and no row: the cluster does not wait for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from sharding_app.core.ids import Incarnation, Term, has_no_row
from sharding_app.core.messages import (
    Announcement,
    Answer,
    AnyMessage,
    BeginHandOff,
    Deliver,
    Entities,
    HandBack,
    Left,
    NodeGone,
    NodeStats,
    RegisterAck,
    ShardRegionState,
    Steered,
)
from sharding_app.core.records import TypeConfig
from sharding_app.core.wire import strangers
from sharding_app.core.words import EXISTS, START
from sharding_app.errors import BadCall
from sharding_app.model.types import EntityType
from sharding_app.ports.store import StoreUnavailable
from sharding_app.runtime import calls
from sharding_app.runtime.agreement import agree, differences, type_config
from sharding_app.runtime.asker import Asker
from sharding_app.runtime.config import NodeConfig, ProcessPorts
from sharding_app.runtime.homes import HomeFinder
from sharding_app.runtime.links import Links
from sharding_app.runtime.outbox import Outbox
from sharding_app.runtime.questions import Questions
from sharding_app.runtime.region_states import RegionQuestions
from sharding_app.runtime.traced import asker_class
from sharding_app.runtime.wishes import Wishes

logger = logging.getLogger("sharding.node")

TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 0.25


def _repeatable(entity_type: EntityType) -> frozenset[str]:
    queries = (name for name, handler in entity_type.commands.items() if handler.is_query)
    return frozenset((EXISTS, START, *queries))


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
        self._repeatable = {each.name: _repeatable(each) for each in types if each.kind == "memory"}
        "Of types whose entities store nothing: the commands that may be handled again after their node died."
        self.refused: dict[str, TypeConfig] = {}
        "Types whose configuration differs from the cluster's, with what the cluster has."
        self.cluster_id = ""
        self.waits_for = "PostgreSQL"
        "While it starts."
        self.links: Links
        self.asker: Asker
        self.homes: HomeFinder
        self.drops: Counter[str] = Counter()
        "Answers and the like that a peer would not take, by kind."
        self.outbox = Outbox(incarnation, self.drops)
        self.send, self.try_send = self.outbox.send, self.outbox.try_send
        self.try_send_all = self.outbox.try_send_all
        self.region_states = RegionQuestions(self.try_send)
        self.wishes = Wishes(incarnation, config.steering_keys, unguarded=config.unguarded)
        self.questions = Questions(self.try_send, self.wishes.sign)
        self.failed = asyncio.Event()
        "A vital job has failed."
        self._tasks: dict[asyncio.Task[None], bool] = {}

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
            self.may_send, self._owed_bytes, self.config.wire,
        )  # fmt: skip
        self.outbox.links = self.links
        self.homes = HomeFinder(
            self.incarnation, self.ports.store, clock, self.try_send,
            is_proxy=self.is_proxy, on_gone=self._gone, on_era=self.links.enter_era, is_silent=self.links.is_silent,
        )  # fmt: skip
        self.asker = asker_class()(
            self.incarnation,
            clock,
            self.outbox.put_command,
            self.homes,
            self.config.region,
            self.config.ask_timeout_seconds,
        )
        if self.is_proxy:  # a node hears of it from its lifeline
            self.homes.on_elsewhere = self.fail
        self.homes.told = self.outbox.asker = self.asker
        for name, config in self.configs.items():
            extractor = self.types[name].extractor
            self.asker.add_type(
                name,
                config.number_of_shards,
                config.role,
                shard_id=extractor.checked_shard_id if extractor else None,
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

    def run(self, job: Coroutine[Any, Any, None], name: str, *, vital: bool = True) -> "asyncio.Task[None]":
        """Run a job of this process for as long as it lives. One that fails is a bug, or has got no memory: nothing here can
        be relied on any more without it, so if it is vital, this incarnation ends, and another one may begin."""
        task = asyncio.get_running_loop().create_task(job, name=f"sharding {name}")
        self._tasks[task] = vital
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

    def _owed_bytes(self, peer: Incarnation) -> int:
        """What that peer has caused here and has not taken back yet: its commands, and the answers that wait for room."""
        return self.waiting_bytes(peer) + self.outbox.bytes_for(peer)

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
        waited: float = 0.0,
    ) -> "asyncio.Future[bytes]":
        """Send a command from this process's loop; `chain` and `trace` say who led to it, if not the present context.
        `waited`: for so long it has been on its way to this loop."""
        if type_name not in self.configs:
            raise BadCall(f"no entity type {type_name!r} is known here: is its app in INSTALLED_APPS?")
        if self.refused and type_name in self.refused:
            raise BadCall(self.why_refused(type_name))
        called_by = calls.chain() if chain is None else chain
        if called_by:
            if tell:
                called_by = calls.told(called_by)
            else:
                calls.refuse_cycle(called_by, type_name, entity_id, command)
        repeatable = self._repeatable.get(type_name)
        safe = repeatable is None or command in repeatable or bool(command_id)
        return self.asker.ask(
            type_name, entity_id, command, args, timeout, command_id or "", tell=tell, safe=safe, chain=called_by,
            trace=trace, waited=waited,
        )  # fmt: skip

    def why_refused(self, type_name: str) -> str:
        return differences(self.configs[type_name], self.refused[type_name])

    # -- Receiving -------------------------------------------------------------------------------------------------

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        """Take what a link gives: envelopes for entities here, answers for those who asked here, words of the protocol."""
        envelopes: list[Deliver] = []
        asker, now = self.asker, self.ports.clock.now()
        for message in messages:
            if type(message) is Answer:
                asker.answered(message, now)
            elif type(message) is Deliver:
                envelopes.append(message)
            else:
                for word in message.words if type(message) is Announcement else (message,):
                    try:
                        if not asker.receive(source, word):
                            self.control(source, word)
                    except Exception as error:  # noqa: BLE001  (the other messages of the frame are for others)
                        self.links.undeliverable(word, error)
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
        elif isinstance(message, Left):
            if source != message.incarnation:
                return
            if has_no_row(source):
                self._gone(source)
            else:
                self.asker.left(source)
        elif isinstance(message, NodeGone):
            if message.term >= self.homes.term:
                self._gone(message.incarnation, message.term)
        elif isinstance(message, ShardRegionState):
            self.region_states.told(source, message)
        elif isinstance(message, NodeStats | Entities | Steered):
            self.questions.told(source, message)

    # -- Inside ----------------------------------------------------------------------------------------------------

    def _suspected(self, incarnation: Incarnation) -> None:
        self.homes.suspect(incarnation)

    def _gone(self, incarnation: Incarnation, term: Term | None = None) -> None:
        """`term`: of the coordinator that says so; None: the rows do, or its own last word."""
        if incarnation == self.incarnation:
            return
        self.links.end(incarnation, self.homes.term if term is None else term)
        self.outbox.gone(incarnation)
        self.homes.gone(incarnation)
        self.asker.gone(incarnation)

    async def _compare_types(self) -> None:
        for theirs in await self.ports.store.types():
            ours = self.configs.get(theirs.name)
            if ours is not None and self.types[ours.name].proxy_only and theirs.kind != "memory":
                self._repeatable.pop(ours.name, None)
            if ours is not None and not agree(self.types[ours.name], ours, theirs):
                self.refused[theirs.name] = theirs
                logger.error("%s", self.why_refused(theirs.name), extra={"action": "type_refused"})

    async def _tick_loop(self) -> None:
        while True:
            busy = self.asker.pending or self.outbox.waiting
            await asyncio.sleep(TICK_SECONDS if busy else IDLE_TICK_SECONDS)
            self.tick()

    def fail(self) -> None:
        """A vital job has failed."""
        self.failed.set()

    def tick(self) -> None:
        self.asker.tick()
        if self.outbox.waiting:
            self.outbox.tick()

    def _job_ended(self, task: "asyncio.Task[None]") -> None:
        vital = self._tasks.pop(task, False)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical(
                "a bug: %s ended: %r", task.get_name(), error, exc_info=error, extra={"action": "job_failed"}
            )
            if vital:
                self.fail()
