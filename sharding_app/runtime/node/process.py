"""A process of the cluster that only calls: a web process, a Celery worker, a shell.

Base of `Node`. It is made, with all its parts, for one cluster (`cluster_of`); `start` lets it
listen.

It has a channel of its own, links to the processes it talks to, and a proxy-only region for each
type it uses. It holds no lifeline and no row: the cluster does not wait for it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import InvalidCall
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.builtin_commands import DUE, EVENTS, EXISTS, START
from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Incarnation, Term, has_no_row
from sharding_app.protocol.messages import (
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
    NodeTrend,
    OperatorReply,
    RegisterAck,
    ShardRegionState,
)
from sharding_app.protocol.pending_call import Reply
from sharding_app.protocol.records import TypeConfig
from sharding_app.protocol.versions import strangers
from sharding_app.runtime.asking.outbox import Outbox
from sharding_app.runtime.asking.queries import Queries
from sharding_app.runtime.asking.regions import RegionClient
from sharding_app.runtime.asking.shard_locator import ShardLocator
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.base.config import NodeConfig, ProcessPorts
from sharding_app.runtime.base.memory import out_of_memory
from sharding_app.runtime.links.links import Links
from sharding_app.runtime.node.operator_keys import OperatorKeys
from sharding_app.runtime.node.type_compatibility import agree, by_hash, differences, type_config
from sharding_app.runtime.telemetry import tracing

logger = logging.getLogger("sharding.node")

TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 0.25


def _repeatable(entity_type: EntityType) -> frozenset[str]:
    queries = (name for name, handler in entity_type.commands.items() if handler.is_query)
    return frozenset((DUE, EVENTS, EXISTS, START, *queries))


class WireRefused(StoreUnavailable):
    """The cluster's nodes are of a release too far from ours.

    They may be replaced, so try again.
    """


async def cluster_of(ports: ProcessPorts) -> str:
    """Return the id of the cluster that the store holds.

    Raises StoreUnavailable, and closes the ports then.
    """
    try:
        return await ports.store.cluster_id()
    except BaseException:
        await ports.close()
        raise


class Process:
    is_proxy = True

    def __init__(
        self,
        incarnation: Incarnation,
        config: NodeConfig,
        ports: ProcessPorts,
        types: list[EntityType],
        cluster_id: str,
    ) -> None:
        self.incarnation = incarnation
        self.config = config
        self.ports = ports
        self.types = {each.name: each for each in types}
        self.configs = {each.name: type_config(each, config) for each in types}
        self._repeatable = {each.name: _repeatable(each) for each in types if each.kind == "memory"}
        "By in-memory type: the commands that may be handled again after their node died."
        self.refused: dict[str, TypeConfig] = {}
        "Types whose configuration differs from the cluster's, with that of the cluster."
        self.cluster_id = cluster_id
        self.drops: Counter[str] = Counter()
        "Replies and the like that a peer would not take, by kind."
        self.links = Links(
            incarnation, ports.transport, ports.clock, config.links, self._deliver, self.channel_of, self._suspected,
            self.may_send, self._owed_bytes, config.wire,
        )  # fmt: skip
        self.outbox = Outbox(
            incarnation, self.links, self.drops, lambda *call: self.region_client.not_sent(*call)
        )
        self.send, self.try_send = self.outbox.send, self.outbox.try_send
        self.try_send_all = self.outbox.try_send_all
        self.operator_keys = OperatorKeys(incarnation, config.steering_keys, unguarded=config.unguarded)
        self.queries = Queries(self.try_send, self.operator_keys.sign)
        self.failed = asyncio.Event()
        "Set when a vital job has failed."
        self._tasks: dict[asyncio.Task[None], bool] = {}
        self.locator = ShardLocator(
            incarnation, ports.store, ports.clock, self.try_send,
            is_proxy=self.is_proxy, on_gone=self._gone, on_era=self.links.enter_era, is_silent=self.links.is_silent,
        )  # fmt: skip
        tracing.look()
        self.region_client = tracing.part(RegionClient)(
            incarnation,
            ports.clock,
            self.outbox,
            self.locator,
            config.region,
            config.ask_timeout_seconds,
        )
        if self.is_proxy:  # a node hears of it from its lifeline
            self.locator.on_elsewhere = self.fail
        self.locator.told = self.region_client
        for name, ours in self.configs.items():
            extractor = self.types[name].extractor
            own = extractor is not None and not by_hash(ours)
            self.region_client.add_type(
                name,
                ours.number_of_shards,
                ours.role,
                shard_id=extractor.checked_shard_id if extractor and own else None,
                max_waiting=self.types[name].waiting_limit,
            )

    # -- Life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the channel and begin to listen. Raises StoreUnavailable or TransportError."""
        await self._compare_types()
        if self.is_proxy:
            _, members = await self.ports.store.members()
            if why := strangers(self.config.wire, members):
                raise WireRefused(f"this process is refused: {why}")
        await self.ports.transport.open(self.channel_of(self.incarnation))
        self.run(self.links.receive_loop(), "receive")
        self.run(self.locator.run(), "homes")
        self.run(self._tick_loop(), "tick")

    async def close(self) -> None:
        """End everything. Callers that still wait get an error."""
        self.region_client.close()
        tasks = [each for each in self._tasks if each is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.links.close()
        await self.ports.close()

    def run(self, job: Coroutine[Any, Any, None], name: str, *, vital: bool = True) -> "asyncio.Task[None]":
        """Run a job of this process for as long as the process lives.

        A job that fails is a bug, or has got no memory, and nothing can be relied on without it. If
        it is vital, this incarnation ends, and another one may begin.
        """
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
        """Return the bytes of that peer's commands that wait here."""
        return 0

    def _owed_bytes(self, peer: Incarnation) -> int:
        """Return the bytes of that peer's commands, and of replies that wait for room to it.

        Its credit shrinks by them.
        """
        return self.waiting_bytes(peer) + self.outbox.bytes_for(peer)

    # -- Calls -------------------------------------------------------------------------------------

    def ask(self, call: Call, waited: float = 0.0) -> "asyncio.Future[bytes]":
        """Send a command from this process's loop.

        `waited`: seconds that the call has been on its way to this loop.
        """
        return self.region_client.ask(call, self._may_repeat(call), waited)

    def ask_for(self, call: Call, reply: Reply) -> None:
        """Send a command whose outcome goes to `reply`, a value in the turn in which it comes."""
        self.region_client.ask_for(call, reply, self._may_repeat(call))

    def _may_repeat(self, call: Call) -> bool:
        """Tell whether a call may be handled again after its node died. Raises InvalidCall for one
        that is not to be sent.
        """
        if call.type not in self.configs:
            raise InvalidCall(f"no entity type {call.type!r} is known here: is its app in INSTALLED_APPS?")
        if self.refused and call.type in self.refused:
            raise InvalidCall(self.why_refused(call.type))
        if call.chain:
            if call.tell:
                call.chain = call_chain.told(call.chain)
            else:
                call_chain.refuse_cycle(call)
        repeatable = self._repeatable.get(call.type)
        return repeatable is None or call.command in repeatable or bool(call.command_id)

    def why_refused(self, type_name: str) -> str:
        return differences(self.configs[type_name], self.refused[type_name])

    # -- Receiving ---------------------------------------------------------------------------------

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        """Sort a link's messages: envelopes for entities, answers for callers, the protocol's."""
        envelopes: list[Deliver] = []
        client, now = self.region_client, self.ports.clock.now()
        for message in messages:
            if type(message) is Answer:
                try:
                    client.answered(source, message, now)
                except Exception as error:  # noqa: BLE001  (the other messages of the frame are for others)
                    self._undelivered(message, error)
            elif type(message) is Deliver:
                envelopes.append(message)
            else:
                for word in message.words if type(message) is Announcement else (message,):
                    try:
                        if not client.receive(source, word):
                            self.control(source, word)
                    except Exception as error:  # noqa: BLE001  (the other messages of the frame are for others)
                        self._undelivered(word, error)
        if envelopes:
            try:
                self.envelopes(source, envelopes)
            except Exception as error:
                if out_of_memory(error):
                    self.fail()
                raise

    def _undelivered(self, message: AnyMessage, error: Exception) -> None:
        self.links.undeliverable(message, error)
        if out_of_memory(error):
            self.fail()

    def envelopes(self, source: Incarnation, envelopes: list[Deliver]) -> None:
        """Hand all envelopes back: nothing lives in a proxy."""
        for each in envelopes:
            self.send(source, HandBack(each.type, each.shard, each.epoch, [each.request]))

    def control(self, source: Incarnation, message: AnyMessage) -> None:
        if isinstance(message, BeginHandOff):
            if message.term >= self.locator.term:
                self.region_client.hold(message.type, message.shards)
        elif isinstance(message, RegisterAck):
            self.locator.coordinator_told(message.coordinator, message.term)
        elif isinstance(message, Left):
            if source != message.incarnation:
                return
            if has_no_row(source):
                self._gone(source)
            else:
                self.region_client.left(source)
        elif isinstance(message, NodeGone):
            if message.term >= self.locator.term:
                self._gone(message.incarnation, message.term)
        elif isinstance(message, NodeStats | NodeTrend | ShardRegionState | Entities | OperatorReply):
            self.queries.told(source, message)

    # -- Inside ------------------------------------------------------------------------------------

    def _suspected(self, incarnation: Incarnation) -> None:
        self.locator.suspect(incarnation)

    def _gone(self, incarnation: Incarnation, term: Term | None = None) -> None:
        """End the links and calls to a process.

        `term`: of the coordinator that says so; None: the rows do, or the process itself.
        """
        if incarnation == self.incarnation:
            return
        self.links.end(incarnation, self.locator.term if term is None else term)
        self.locator.gone(incarnation)
        self.region_client.gone(incarnation)

    async def _compare_types(self) -> None:
        for theirs in await self.ports.store.types_in_force():
            ours = self.configs.get(theirs.name)
            if ours is not None and self.types[ours.name].proxy_only and theirs.kind != "memory":
                self._repeatable.pop(ours.name, None)
            if ours is not None and not agree(self.types[ours.name], ours, theirs):
                self.refused[theirs.name] = theirs
                logger.error("%s", self.why_refused(theirs.name), extra={"action": "type_refused"})
            elif ours is not None:
                self.region_client.renumbered(ours.name, theirs.numbering, self.locator.term)

    async def _tick_loop(self) -> None:
        while True:
            busy = self.region_client.pending or self.outbox.waiting
            await asyncio.sleep(TICK_SECONDS if busy else IDLE_TICK_SECONDS)
            self.tick()

    def fail(self) -> None:
        """Note that a vital job has failed."""
        self.failed.set()

    def tick(self) -> None:
        self.region_client.tick()

    def _job_ended(self, task: "asyncio.Task[None]") -> None:
        vital = self._tasks.pop(task, False)
        if not task.cancelled() and (error := task.exception()) is not None:
            short = out_of_memory(error)
            logger.critical(
                "%s: %s ended: %r", "no memory is left" if short else "a bug", task.get_name(), error, exc_info=error,
                extra={"action": "out_of_memory" if short else "job_failed"},
            )  # fmt: skip
            if vital or short:  # what it has left half-done would stay so
                self.fail()
