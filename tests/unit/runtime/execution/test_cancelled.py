"""Handlers whose awaits are cancelled: nothing hangs for it, and what is committed is never taken
back.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
import pytest_asyncio

from sharding_app import (
    EntityFailed,
    EventSourced,
    PartiallyApplied,
    ShardingError,
    applies,
    command,
    event,
    query,
)
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


@event
class Put:
    amount: int


class Till(EventSourced):
    """Takes money in, in its own time."""

    over: ClassVar[asyncio.Event]
    "The time of a handler that puts money in is over."
    total: int

    def __init__(self) -> None:
        self.total = 0

    @command
    async def put_and_say(self, amount: int, seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds):
                asyncio.get_running_loop().call_later(seconds, self.over.set)
                await self.persist(Put(amount))
        except TimeoutError:
            return "late"
        return "in time"

    @command
    async def put_or_fail(self, amount: int, seconds: float) -> int:
        async with asyncio.timeout(seconds):
            asyncio.get_running_loop().call_later(seconds, self.over.set)
            await self.persist(Put(amount))
        return self.total

    @command
    def put(self, amount: int) -> int:
        self.persist(Put(amount))
        return self.total

    @command
    async def wait_for_what_is_cancelled(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        loop.call_soon(future.cancel)
        await future

    @command
    async def cancel_itself(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @command
    async def put_with_more(self, amount: int) -> int:
        await self.persist(Put(amount), in_transaction=lambda: None)
        return self.total

    @command
    async def put_with_more_and_be_cancelled(self, amount: int) -> int:
        """A timer that the handler has forgotten cancels its task, which commits by then."""
        task = asyncio.current_task()
        assert task is not None
        self.persist(Put(amount), in_transaction=lambda: None)
        asyncio.get_running_loop().call_later(0.05, task.cancel)
        return self.total

    @command
    def raise_it(self) -> None:
        raise asyncio.CancelledError

    @command(thread=True)
    def raise_it_in_a_thread(self) -> None:
        raise asyncio.CancelledError

    @query
    def read(self) -> int:
        return self.total

    @query
    async def read_slowly(self, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return self.total

    @applies(Put)
    def on_put(self, happened: Put) -> None:
        if happened.amount < 0:
            raise asyncio.CancelledError
        self.total += happened.amount


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Till]) as made:
        with made.in_use():
            yield made


async def test_a_timeout_takes_effect_when_it_is_known_what_was_stored(cluster: MemoryCluster) -> None:
    till, Till.over = Till.ref("a"), asyncio.Event()
    assert await till.put_and_say(1, 5.0 * SLACK) == "in time"
    with cluster.writes_wait():
        asked = asyncio.ensure_future(till.put_and_say(2, 0.01))
        await asyncio.wait_for(Till.over.wait(), 10 * SLACK)
        _, still_open = await asyncio.wait([asked], timeout=0.1)
        assert still_open, "its event is on its way, and its fate is not known yet"
    assert await asked == "late"
    assert cluster.events(Till, "a") == [Put(1), Put(2)]
    assert await till.read() == 3
    assert await till.put(4) == 7
    assert cluster.events(Till, "a") == [Put(1), Put(2), Put(4)]


async def test_a_handler_that_fails_by_its_timeout_keeps_what_was_stored(cluster: MemoryCluster) -> None:
    till, Till.over = Till.ref("a"), asyncio.Event()
    with cluster.writes_wait():
        asked = asyncio.ensure_future(till.put_or_fail(2, 0.01))
        await asyncio.wait_for(Till.over.wait(), 10 * SLACK)
    with pytest.raises(PartiallyApplied, match="raised TimeoutError; what it had awaited stays"):
        await asked
    assert await till.read() == 2, "the state is what the journal says"
    assert await till.put(4) == 6
    assert cluster.events(Till, "a") == [Put(2), Put(4)]


@pytest.mark.parametrize(
    "name", ["wait_for_what_is_cancelled", "cancel_itself", "raise_it", "raise_it_in_a_thread"]
)
async def test_a_cancellation_from_the_users_code_fails_its_command_alone(
    cluster: MemoryCluster, name: str
) -> None:
    till = Till.ref("a")
    await till.put(1)
    with pytest.raises(EntityFailed, match=f"{name} raised CancelledError"):
        await getattr(till, name)()
    assert await till.put(2) == 3
    assert await Till.ref("b").put(5) == 5, "the node hears and handles"
    host = next(iter(cluster.nodes.values())).hosts["tests.Till"]
    assert host.execution.counters["handler_failed"] == 1


async def test_what_is_stored_beside_an_event_may_raise_it(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not be taken for a cancellation of the handler, which would be waited out for
    ever.
    """

    async def raises(*_: object) -> None:
        raise asyncio.CancelledError

    till = Till.ref("a")
    await till.put(1)
    host = next(iter(cluster.nodes.values())).hosts["tests.Till"]
    monkeypatch.setattr(host.execution, "together", raises)
    with pytest.raises(ShardingError):
        await till.put_with_more(5)
    assert await till.put(2) == 3


async def test_a_transaction_is_waited_for_though_the_task_of_the_handler_is_cancelled(
    cluster: MemoryCluster,
) -> None:
    till = Till.ref("a")
    await till.put(1)
    with cluster.writes_wait():
        asked = asyncio.ensure_future(till.put_with_more_and_be_cancelled(2))
        _, still_open = await asyncio.wait([asked], timeout=0.2)
        assert still_open, "its event is on its way, and its fate is not known yet"
    assert await asked == 3
    assert await till.read() == 3
    assert await till.put(4) == 7
    assert cluster.events(Till, "a") == [Put(1), Put(2), Put(4)]


async def test_an_applier_that_raises_it_fails_its_entity_alone(cluster: MemoryCluster) -> None:
    till = Till.ref("a")
    await till.put(1)
    with pytest.raises(EntityFailed, match="put raised CancelledError"):
        await till.put(-1)
    assert await till.put(2) == 3


async def test_what_still_runs_when_a_node_is_out_of_time_ends_before_its_row_goes(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the row the others wait for no lease: an answer of the old home would be of the
    past.
    """
    till = Till.ref("a")
    await till.put(1)
    node = next(iter(cluster.nodes.values()))
    store, hosted = node.ports.store, []
    leave = store.leave

    async def seen(incarnation: str) -> None:
        hosted.append(node.hosting.empty)
        await leave(incarnation)

    monkeypatch.setattr(store, "leave", seen)
    late = asyncio.ensure_future(till.read_slowly(1.0))
    await asyncio.sleep(0.05)
    await node.stop(0.1)
    assert hosted == [True]
    late.cancel()
