"""The target of refs in a process: calls go to its portal, questions to its process."""

import asyncio
import concurrent.futures
from collections.abc import Awaitable

from sharding_app.client.portal import Portal
from sharding_app.client.region_queries import ANSWER_SECONDS, inspect
from sharding_app.protocol.call import Call
from sharding_app.runtime.base import call_chain
from sharding_app.runtime.telemetry import tracing


class ClusterGateway:
    """The target of refs (`entities.gateway.Gateway`)."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        tracing.look()

    def ask(self, call: Call) -> Awaitable[bytes]:
        portal = self._portal
        process, call.chain = portal.process, call_chain.chain()
        if process is not None and asyncio._get_running_loop() is portal.loop:
            # The usual path of an entity, and of a benchmark: no other thread or loop is involved.
            return process.ask(call)
        call.trace = tracing.carry()
        return portal.ask(call)

    def ask_sync(self, call: Call) -> bytes:
        call.chain, call.trace = call_chain.chain(), tracing.carry()
        return self._portal.ask_sync(call)

    def tell(self, call: Call) -> None:
        call.chain, call.trace = call_chain.chain(), tracing.carry()
        self._portal.tell(call)

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
