"""What refs lead to in a process of the cluster: calls go through its portal, questions to the process behind it."""

import asyncio
import concurrent.futures
from collections.abc import Awaitable

from sharding_app.core.words import EXISTS
from sharding_app.inspection import ANSWER_SECONDS, inspect
from sharding_app.portal import Portal
from sharding_app.runtime import calls, tracing


class ClusterGateway:
    """What refs lead to (`model.gateway.Gateway`)."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        tracing.look()

    def ask(
        self,
        type_name: str,
        entity_id: str,
        command: str,
        args: bytes,
        timeout: float | None,
        command_id: str | None,
    ) -> Awaitable[bytes]:
        portal, chain = self._portal, calls.chain()
        process = portal.process
        if process is not None and asyncio._get_running_loop() is portal.loop:
            # The usual way of an entity, and of a benchmark: no other thread or loop is concerned.
            return process.ask(type_name, entity_id, command, args, timeout, command_id, chain=chain)
        return portal.ask(
            (type_name, entity_id, command, args, timeout, command_id, False, chain, tracing.carry())
        )

    def ask_sync(
        self,
        type_name: str,
        entity_id: str,
        command: str,
        args: bytes,
        timeout: float | None,
        command_id: str | None,
    ) -> bytes:
        return self._portal.ask_sync(
            (type_name, entity_id, command, args, timeout, command_id, False, calls.chain(), tracing.carry())
        )

    def tell(self, type_name: str, entity_id: str, command: str, args: bytes, command_id: str | None) -> None:
        self._portal.tell(
            (type_name, entity_id, command, args, None, command_id, True, calls.chain(), tracing.carry())
        )

    async def exists(self, type_name: str, entity_id: str, timeout: float | None) -> bool:
        return await self.ask(type_name, entity_id, EXISTS, b"", timeout, None) == b"1"

    def exists_sync(self, type_name: str, entity_id: str, timeout: float | None) -> bool:
        return self.ask_sync(type_name, entity_id, EXISTS, b"", timeout, None) == b"1"

    async def inspect(self, type_name: str, question: object, timeout: float | None) -> object:
        return await asyncio.wrap_future(self._inspected(type_name, question, timeout))

    def inspect_sync(self, type_name: str, question: object, timeout: float | None) -> object:
        return self._inspected(type_name, question, timeout).result(
            (timeout or ANSWER_SECONDS) + ANSWER_SECONDS
        )

    def instruct(self, type_name: str, question: object) -> None:
        self._inspected(type_name, question, None)

    def _inspected(
        self, type_name: str, question: object, timeout: float | None
    ) -> "concurrent.futures.Future[object]":
        async def answer() -> object:
            process = await self._portal.connected(timeout)
            return await inspect(process, type_name, question, timeout)

        return asyncio.run_coroutine_threadsafe(answer(), self._portal.loop)
