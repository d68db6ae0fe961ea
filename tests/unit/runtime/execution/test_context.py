"""What `self.context` does off the handler's own turn: in its thread, and once it is over."""

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
import pytest_asyncio

from sharding_app import Entity, EntityFailed, command, query
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

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

    @command
    def leave_soon(self) -> None:
        asyncio.get_running_loop().call_later(1, self.context.passivate)

    @command(thread=True)
    def leave(self) -> None:
        self.context.passivate()

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


async def test_an_entity_may_ask_to_be_stopped_when_its_handler_is_over(cluster: MemoryCluster) -> None:
    ref = Clerk.ref("a")
    await ref.leave_soon()
    assert cluster.is_in_memory(Clerk, "a")
    await until(lambda: not cluster.is_in_memory(Clerk, "a"))
    assert await ref.fine()
    await ref.leave_soon()
    await travel(5)
    assert await ref.fine()


async def test_an_entity_may_ask_to_be_stopped_in_a_thread(cluster: MemoryCluster) -> None:
    await Clerk.ref("a").leave()
    assert not cluster.is_in_memory(Clerk, "a")
    assert await Clerk.ref("a").fine()
