"""What is stored, when, and what a caller may conclude from the answer."""

import asyncio

import pytest

from sharding_app import EntityFailed, PartiallyApplied, Rejected
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Added, Cart, Emptied, Room

pytestmark = pytest.mark.asyncio


async def test_one_event_and_several_are_stored_in_order(cluster: MemoryCluster) -> None:
    cart = Cart.ref("a")
    assert await cart.add("book", 2) == 2
    assert await cart.add_all(["pen", "ink"]) == 3
    assert await cart.add_then_empty("cup") == 0
    assert cluster.events(Cart, "a") == [
        Added("book", 2), Added("pen", 1), Added("ink", 1), Added("cup", 1), Emptied(),
    ]  # fmt: skip


async def test_what_a_command_stages_is_one_append(cluster: MemoryCluster) -> None:
    batches: list[int] = []
    cluster.server.journal.on_commit = lambda rows: batches.append(len(rows))
    await Cart.ref("a").add_all(["x", "y", "z"])
    assert batches == [3]
    await Cart.ref("a").add_in_two("x")
    assert batches == [3, 1, 1]


async def test_a_command_that_persists_nothing_appends_nothing(cluster: MemoryCluster) -> None:
    assert await Cart.ref("a").nothing() == "nothing"
    assert cluster.events(Cart, "a") == []
    assert not await Cart.ref("a").exists()


async def test_the_answer_comes_after_the_commit(cluster: MemoryCluster) -> None:
    cart = Cart.ref("a")
    await cart.nothing()
    with cluster.writes_wait():
        add = asyncio.ensure_future(cart.add("book"))
        total = asyncio.ensure_future(cart.total())
        _, open_still = await asyncio.wait([add, total], timeout=0.1)
        assert open_still == {add, total}, "an answer went out before the commit"
        assert cluster.events(Cart, "a") == []
    assert await add == 1
    assert await total == 1


async def test_an_intermediate_persist_is_durable_before_the_handler_goes_on(cluster: MemoryCluster) -> None:
    assert await Cart.ref("a").add_in_two("book") == 11
    assert cluster.events(Cart, "a") == [Added("book", 1), Added("book", 10)]


async def test_a_handler_that_raises_stores_nothing_and_leaves_no_trace(cluster: MemoryCluster) -> None:
    cart = Cart.ref("a")
    await cart.add("book")
    with pytest.raises(EntityFailed, match=r"entities.Cart 'a': add_then_raise raised RuntimeError: after"):
        await cart.add_then_raise("ghost")
    assert await cart.content() == {"book": 1}
    assert cluster.events(Cart, "a") == [Added("book", 1)]


async def test_a_rejection_is_no_failure(cluster: MemoryCluster) -> None:
    cart = Cart.ref("a")
    await cart.add("book")
    with pytest.raises(Rejected, match="at least 1") as caught:
        await cart.add("book", 0)
    assert caught.value.code == "quantity"
    assert cluster.nodes["node1"].hosts["entities.Cart"].execution.counters["handler_failed"] == 0
    assert await cart.total() == 1


async def test_what_was_awaited_stays_and_the_error_says_so(cluster: MemoryCluster) -> None:
    cart = Cart.ref("a")
    with pytest.raises(PartiallyApplied, match="what it had awaited stays"):
        await cart.add_then_raise_later("book")
    assert await cart.content() == {"book": 1}
    assert cluster.events(Cart, "a") == [Added("book", 1)]


async def test_a_write_that_the_server_refuses_fails_its_command_alone(cluster: MemoryCluster) -> None:
    await asyncio.gather(Cart.ref("a").nothing(), Cart.ref("b").nothing())
    cluster.fail_next_write(Cart, "a", reason="disk on fire")
    failed, fine = await asyncio.gather(
        Cart.ref("a").add("book"), Cart.ref("b").add("book"), return_exceptions=True
    )
    assert isinstance(failed, ValueError)
    assert "disk on fire" in str(failed)
    assert fine == 1
    assert await Cart.ref("a").content() == {}
    assert await Cart.ref("a").add("book") == 1


async def test_a_lost_connection_is_settled_and_the_command_succeeds_once(cluster: MemoryCluster) -> None:
    cart = Cart.ref("a")
    await cart.nothing()
    server = cluster.server
    with cluster.writes_wait():
        add = asyncio.ensure_future(cart.add("book"))
        await asyncio.sleep(0)
        server.stop()
        server.start()
    assert await add == 1
    assert cluster.events(Cart, "a") == [Added("book", 1)]


async def test_commands_wait_for_the_commit_in_a_bounded_mailbox() -> None:
    from sharding_app import BufferFull
    from sharding_app.runtime.base.config import NodeConfig

    async with MemoryCluster([Cart], config=NodeConfig(mailbox_size=3)) as cluster:
        with cluster.in_use():
            cart = Cart.ref("a")
            await cart.nothing()
            with cluster.writes_wait():
                adds = [asyncio.ensure_future(cart.add("book")) for _ in range(6)]
                await asyncio.wait(adds, return_when=asyncio.FIRST_EXCEPTION)
            outcomes = await asyncio.gather(*adds, return_exceptions=True)
    full = [each for each in outcomes if isinstance(each, BufferFull)]
    assert len(full) == 2
    assert "3 commands wait for 'entities.Cart' 'a': slow down" in str(full[0])
    assert outcomes[:4] == [1, 2, 3, 4]


async def test_a_memory_entity_keeps_nothing_but_while_it_runs(cluster: MemoryCluster) -> None:
    room = Room.ref("lobby")
    assert not await room.exists()
    assert await room.enter() == 1
    assert await room.exists()
    for way in ("enter_slowly", "enter_in_a_thread"):
        other = Room.ref(way)
        assert not await other.exists()
        await getattr(other, way)()
        assert await other.exists()
    cluster.forget()
    assert await room.people() == 0
    await room.enter()
    with pytest.raises(EntityFailed, match="somebody fell"):
        await room.trip()
    assert await room.people() == 0, "an object that failed is not used again"
