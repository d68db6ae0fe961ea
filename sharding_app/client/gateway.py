"""The target of refs in a process: calls go to its portal, questions to its process."""

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from sharding_app.client.following import Following
from sharding_app.client.portal import Portal
from sharding_app.client.region_queries import ANSWER_SECONDS, inspect
from sharding_app.entities import transactions
from sharding_app.entities.staging import StagedMessage, args_limit, refuse_too_large
from sharding_app.errors import AskTimeout, ShardingError, WrongContext
from sharding_app.protocol.builtin_commands import DUE
from sharding_app.protocol.call import Call
from sharding_app.protocol.link.limits import LinkLimits
from sharding_app.redaction import told
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.telemetry import tracing

logger = logging.getLogger("sharding.client")


class Outside(Protocol):
    """Stores messages and timers from outside of entities.

    `wake` is called once they are committed. It raises nothing.
    """

    def store(self, message: StagedMessage, wake: Callable[[], None]) -> None:
        """Store it in the open transaction of this thread, or in one of its own."""

    def store_async(self, message: StagedMessage, wake: Callable[[], None]) -> Awaitable[None]:
        """Store it from code on an event loop."""


class ClusterGateway:
    """The target of refs (`entities.gateway.Gateway`)."""

    def __init__(
        self,
        portal: Portal,
        outside: Outside | None = None,
        *,
        max_message_bytes: int = LinkLimits().max_message_bytes,
    ) -> None:
        self._portal = portal
        self._outside = outside
        self._max_args = args_limit(max_message_bytes)
        tracing.look()

    def follow(self, type_name: str, entity: str) -> Following:
        return self._portal.following.follow(type_name, entity)

    def is_silent(self, type_name: str, entity: str) -> bool:
        """Tell whether nothing is heard of an entity that is followed."""
        return self._portal.following.hub.is_silent(type_name, entity)

    def ask(self, call: Call) -> Awaitable[bytes]:
        portal = self._portal
        process, call.chain = portal.process, call_chain.chain()
        if process is not None and asyncio._get_running_loop() is portal.loop:
            # The usual path of an entity, and of a benchmark: no other thread or loop is involved.
            return process.ask(call)
        call.trace = tracing.carry()
        return portal.ask(call)

    def ask_all(self, calls: Sequence[Call]) -> Sequence[Awaitable[bytes]]:
        self._come_from_here(calls)
        return self._portal.ask_all(calls)

    def ask_all_sync(self, calls: Sequence[Call]) -> Sequence[bytes | BaseException]:
        self._come_from_here(calls)
        return self._portal.ask_all_sync(calls)

    @staticmethod
    def _come_from_here(calls: Sequence[Call]) -> None:
        chain, trace = call_chain.chain(), tracing.carry()
        for call in calls:
            call.chain, call.trace = chain, trace

    def ask_sync(self, call: Call) -> bytes:
        call.chain, call.trace = call_chain.chain(), tracing.carry()
        return self._portal.ask_sync(call)

    def tell(self, call: Call) -> None:
        call.chain, call.trace = call_chain.chain(), tracing.carry()
        self._portal.tell(call)

    def store(self, message: StagedMessage) -> Awaitable[None]:
        _refuse_in_an_entity(message)
        return self._storage(message).store_async(message, self._wake(message))

    def store_sync(self, message: StagedMessage) -> None:
        if transactions.find_open() is None:  # of `persist(..., in_transaction=...)`
            _refuse_in_an_entity(message)
        self._storage(message).store(message, self._wake(message))

    def _storage(self, message: StagedMessage) -> Outside:
        refuse_too_large(message.target_type, message.command, message.args, self._max_args)
        if self._outside is None:
            raise WrongContext("no database is known here in which a message could be stored")
        return self._outside

    def _wake(self, message: StagedMessage) -> Callable[[], None]:
        """Tell the target's home about a stored message. The home looks by itself too, later."""

        def wake() -> None:
            with contextlib.suppress(ShardingError):
                self.tell(Call(message.target_type, message.target, DUE, b"", tell=True))

        return wake

    async def inspect(self, type_name: str, question: object, timeout: float | None) -> object:
        return await asyncio.wrap_future(self._inspected(type_name, question, timeout))

    def inspect_sync(self, type_name: str, question: object, timeout: float | None) -> object:
        future = self._inspected(type_name, question, timeout)
        seconds = (timeout or self._portal.default_timeout) + ANSWER_SECONDS
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError as error:
            if isinstance(error, ShardingError):
                raise
            future.cancel()
            text = f"no answer to a question about {type_name!r} within {seconds:g} s"
            raise AskTimeout(text) from None

    def instruct(self, type_name: str, question: object) -> None:
        def ended(done: "concurrent.futures.Future[object]") -> None:
            if (error := done.exception()) is not None:
                logger.warning(
                    "%s: %s was not carried out: %s", type_name, type(question).__qualname__, told(error),
                    extra={"action": "dropped", "entity_type": type_name},
                )  # fmt: skip

        self._inspected(type_name, question, None).add_done_callback(ended)

    def _inspected(
        self, type_name: str, question: object, timeout: float | None
    ) -> "concurrent.futures.Future[object]":
        async def answer() -> object:
            process = await self._portal.connected(timeout)
            return await inspect(process, type_name, question, timeout)

        return self._portal.submit(answer())


def _refuse_in_an_entity(message: StagedMessage) -> None:
    """Refuse what would be stored although its command fails, or never be awaited in a `def`."""
    if call_chain.chain():
        raise WrongContext(
            f"{message.target_type}.{message.command}: durably() and later() inside an entity are not stored with"
            " its events: use self.send(...) or self.schedule(...)"
        )
