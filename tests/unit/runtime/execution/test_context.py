"""What `self.context` does off the handler's own turn: in its thread."""

from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
import pytest_asyncio

from sharding_app import Entity, EntityFailed, command, query
from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio


class Clerk(Entity, name="context.Clerk"):
    @command(thread=True)
    def remind(self, unhashable: bool) -> None:
        key: object = [] if unhashable else "key"
        seconds: object = 1 if unhashable else Decimal(1)
        self.context.start_timer(key, seconds, Clerk.fine)  # type: ignore[call-overload]

    @command(thread=True)
    def forget(self) -> None:
        self.context.start_timer("key", 1, Clerk.fine)
        self.context.cancel_timer([])  # type: ignore[arg-type]

    @query
    def fine(self) -> bool:
        return True


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Clerk]) as made:
        with made.in_use():
            yield made


async def test_a_wrong_timer_fails_its_handler_in_a_thread_as_on_the_loop(cluster: MemoryCluster) -> None:
    ref = Clerk.ref("a")
    for call in (ref.remind(unhashable=True), ref.remind(unhashable=False), ref.forget()):
        with pytest.raises(EntityFailed, match="TypeError"):
            await call
    assert await ref.fine()
