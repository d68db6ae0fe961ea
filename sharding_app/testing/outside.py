"""`ref.close.durably()` and `.later()` in the cluster in memory: stored when the test's transaction
commits, as a row of the cluster's database is.
"""

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable

from sharding_app.entities import transactions
from sharding_app.entities.staging import StagedMessage
from sharding_app.ports.deliveries import MessageRow


class MemoryOutside:
    """`client.gateway.Outside`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        place: Callable[[str, str], tuple[int, int]],
        stage: Callable[[list[MessageRow]], Awaitable[object]],
        alias: str,
    ) -> None:
        """`place` gives the number of a type and the shard of an entity; `stage` stores rows, on
        the loop.
        """
        self._loop = loop
        self._place = place
        self._stage = stage
        self._alias = alias
        self._seq = itertools.count(1)

    def store(self, message: StagedMessage, wake: Callable[[], None]) -> None:
        transactions.refuse_other(
            self._alias, f"{message.command} of {message.target_type} {message.target!r}"
        )

        def store() -> None:
            asyncio.run_coroutine_threadsafe(self.store_async(message, wake), self._loop).result()

        if not transactions.at_commit(store):
            store()

    async def store_async(self, message: StagedMessage, wake: Callable[[], None]) -> None:
        if asyncio.get_running_loop() is not self._loop:
            await asyncio.wrap_future(
                asyncio.run_coroutine_threadsafe(self.store_async(message, wake), self._loop)
            )
            return
        type_id, shard = self._place(message.target_type, message.target)
        await self._stage(
            [
                MessageRow(
                    uuid.uuid4().hex, type_id, shard, message.target, None, next(self._seq), 0,
                    message.target_type, message.target, message.command, message.args, message.at, message.delay,
                    message.key,
                )
            ]
        )  # fmt: skip
        wake()
