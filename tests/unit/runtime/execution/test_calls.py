"""Entities that call others, their timers, and what ends with the object."""

import asyncio

import pytest

from sharding_app import (
    Entity,
    EntityFailed,
    EventSourced,
    Rejected,
    WrongContext,
    applies,
    command,
    message,
    query,
)
from sharding_app.protocol.call import Call
from sharding_app.runtime.base import call_chain
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.one_of_each import Added, Cart
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


class Player(Entity, name="entities.Player"):
    """Calls the players that it is told to call."""

    seen: tuple[str, ...] = ()

    @command
    async def ask(self, others: list[str]) -> list[str]:
        if not others:
            return list(call_chain.chain())
        return await Player.ref(others[0], timeout=2).ask(others[1:])

    @command
    async def ask_of_cart(self, cart_id: str, command_id: str | None = None) -> int:
        return await Cart.ref(cart_id, command_id=command_id).add("book")

    @command
    def tell(self, other: str, others: list[str]) -> None:
        Player.ref(other).ask_later.tell(others)

    @command
    async def ask_later(self, others: list[str]) -> None:
        self.seen = tuple(await Player.ref(others[0], timeout=2).ask(others[1:]))

    @command
    def who_calls(self) -> str:
        sender = self.context.sender
        return "nobody" if sender is None else f"{sender.type_name}/{sender.entity_id}"

    @command
    async def who_calls_later(self) -> str:
        await asyncio.sleep(0)
        return self.context.sender.entity_id if self.context.sender else "nobody"

    @command(thread=True)
    def who_calls_in_a_thread(self) -> list[str]:
        return [*call_chain.chain(), *(Player.ref("other").sync.ask([]))]

    @command
    async def let_ask(self, other: str, name: str) -> object:
        return await getattr(Player.ref(other), name)()

    @query
    def show(self) -> tuple[str, ...]:
        return self.seen


async def test_a_cycle_is_found_and_named(cluster: MemoryCluster) -> None:
    way = "entities.Player/a -> entities.Player/b -> entities.Player/c -> entities.Player/a.ask"
    with pytest.raises(EntityFailed, match=f"a cycle of calls would wait for ever: {way}"):
        await Player.ref("a").ask(["b", "c", "a"])
    with pytest.raises(EntityFailed, match=r"entities.Player/a -> entities.Player/a\.ask"):
        await Player.ref("a").ask(["a"])


async def test_a_cycle_is_found_across_processes() -> None:
    async with MemoryCluster([Player], nodes=3) as cluster:
        with cluster.in_use():
            ids = [str(number) for number in range(40)]
            homes = [cluster.home_of(Player, each) for each in ids if await Player.ref(each).show() == ()]
            a, b = "0", next(each for each, home in zip(ids, homes, strict=True) if home != homes[0])
            assert cluster.home_of(Player, a) != cluster.home_of(Player, b)
            with pytest.raises(EntityFailed, match="a cycle of calls would wait for ever"):
                await Player.ref(a).ask([b, a])


async def test_the_chain_travels_along(cluster: MemoryCluster) -> None:
    assert await Player.ref("a").ask(["b", "c"]) == [
        "entities.Player/a", "entities.Player/b", "entities.Player/c",
    ]  # fmt: skip


async def test_who_only_told_does_not_wait(cluster: MemoryCluster) -> None:
    """a tells b, b asks c, c asks a: no player waits for itself."""
    await Player.ref("a").tell("b", ["c", "a"])
    await until(lambda: getattr(_object(cluster, "b"), "seen", ()))
    assert await Player.ref("b").show() == (
        "~entities.Player/a", "entities.Player/b", "entities.Player/c", "entities.Player/a",
    )  # fmt: skip


async def test_the_sender_is_known_in_every_kind_of_handler(cluster: MemoryCluster) -> None:
    assert await Player.ref("b").who_calls() == "nobody"
    assert await Player.ref("a").let_ask("b", "who_calls") == "entities.Player/a"
    assert await Player.ref("a").let_ask("b", "who_calls_later") == "a"
    assert await Player.ref("a").let_ask("b", "who_calls_in_a_thread") == [
        "entities.Player/a", "entities.Player/b", "entities.Player/a", "entities.Player/b", "entities.Player/other",
    ]  # fmt: skip
    assert await Player.ref("b").who_calls() == "nobody", "a finished call leaves nothing behind"


async def test_an_error_of_one_asked_is_the_askers_failure_and_a_rejection_passes(
    cluster: MemoryCluster,
) -> None:
    assert await Player.ref("a").ask_of_cart("c") == 1
    cluster.fail_next_write(Cart, "c", reason="disk on fire")
    with pytest.raises(ValueError, match="disk on fire"):
        await Player.ref("a").ask_of_cart("c")


async def test_an_entitys_call_under_the_same_id_takes_effect_once(cluster: MemoryCluster) -> None:
    for _ in range(2):
        assert await Player.ref("a").ask_of_cart("c", "order-7") == 1
    assert len(cluster.events(Cart, "c")) == 1


def _object(cluster: MemoryCluster, entity_id: str, kind: str = "entities.Player") -> object:
    for node in cluster.nodes.values():
        for shard in node.hosts[kind].shards.values():
            if entity_id in shard.slots:
                return shard.slots[entity_id].entity
    return None


# -- Timers ----------------------------------------------------------------------------------------


@message
class Ring:
    times: int


class Bell(EventSourced, name="entities.Bell"):
    rung: int = 0

    @command
    def ring_in(self, seconds: float, times: int = 1, key: str = "ring") -> None:
        self.context.start_timer(key, seconds, Bell.ring, times=times)

    @command(thread=True)
    def ring_in_from_a_thread(self, seconds: float) -> bool:
        self.context.start_timer("ring", seconds, Bell.ring, 1)
        self.context.start_timer("other", seconds, Bell.ring, 10)
        return self.context.cancel_timer("other")

    @command
    def message_in(self, seconds: float) -> None:
        self.context.start_timer("message", seconds, Ring(100))

    @command
    def silence(self, key: str = "ring") -> bool:
        return self.context.cancel_timer(key)

    @command
    def ring(self, times: int) -> None:
        if times < 1:
            raise Rejected("how often?")
        for _ in range(times):
            self.persist(Added("ring", 1))

    @command
    def fail(self) -> None:
        raise RuntimeError("cracked")

    @command
    def stop(self) -> None:
        self.context.start_timer("ring", 1, Bell.ring, 1)
        self.context.stop()

    @command
    def wrong(self, which: str) -> None:
        if which == "call":
            self.context.start_timer("x", 1, "ring")
        elif which == "foreign":
            self.context.start_timer("x", 1, Cart.add, "book")
        elif which == "seconds":
            self.context.start_timer("x", -1, Bell.ring, 1)
        else:
            self.context.start_timer("x", 1, Bell.ring, "often")  # type: ignore[call-overload]

    @query
    def count(self) -> int:
        return self.rung

    @applies(Added)
    def on_added(self, happened: Added) -> None:
        self.rung += 1

    def receive(self, message: object) -> object:
        assert isinstance(message, Ring)
        for _ in range(message.times):
            self.persist(Added("ring", 1))
        return None


async def test_a_timer_calls_a_command_that_may_persist(cluster: MemoryCluster) -> None:
    await Bell.ref("b").ring_in(10, times=2)
    await travel(9)
    assert await Bell.ref("b").count() == 0
    await travel(2)
    assert await Bell.ref("b").count() == 2
    assert len(cluster.events(Bell, "b")) == 2
    await travel(20)
    assert await Bell.ref("b").count() == 2


async def test_the_same_key_replaces_and_cancel_cancels(cluster: MemoryCluster) -> None:
    bell = Bell.ref("b")
    await bell.ring_in(1, times=5)
    await bell.ring_in(2, times=1)
    await bell.ring_in(2, times=7, key="other")
    assert await bell.silence("other")
    assert not await bell.silence("other")
    await travel(3)
    assert await bell.count() == 1


async def test_a_timer_delivers_a_message_to_receive(cluster: MemoryCluster) -> None:
    await Bell.ref("b").message_in(1)
    await travel(2)
    assert await Bell.ref("b").count() == 100


async def test_a_timer_may_be_started_in_a_thread(cluster: MemoryCluster) -> None:
    assert await Bell.ref("b").ring_in_from_a_thread(1)
    await travel(2)
    assert await Bell.ref("b").count() == 1


async def test_timers_end_with_the_object(cluster: MemoryCluster) -> None:
    bell = Bell.ref("b")
    await bell.ring_in(5)
    cluster.forget()
    await bell.count()
    await bell.ring_in(5)
    with pytest.raises(EntityFailed):
        await bell.fail()
    await bell.ring_in(5)
    await bell.stop()
    await travel(20)
    assert not cluster.is_in_memory(Bell, "b"), "a timer of an object that has stopped wakes no entity"
    assert await bell.count() == 0


async def test_timers_end_with_the_node() -> None:
    async with MemoryCluster([Bell], nodes=2) as cluster:
        with cluster.in_use():
            await Bell.ref("b").ring_in(5)
            await cluster.stop_node(cluster.home_of(Bell, "b"))
            await travel(10)
            assert await Bell.ref("b").count() == 0


async def test_a_timer_is_no_activity(cluster: MemoryCluster) -> None:
    class Ticker(Entity, name="entities.Ticker"):
        @command
        def tick(self) -> None:
            self.context.start_timer("tick", 10, Ticker.tick)

    async with MemoryCluster([Ticker]) as own:
        with own.in_use():
            await Ticker.ref("t").tick()
            await travel(100)
            assert own.is_in_memory(Ticker, "t")
            await travel(60)
            assert not own.is_in_memory(Ticker, "t"), "120 s without a message"


async def test_what_a_timer_calls_may_fail_and_is_logged(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await Bell.ref("b").ring_in(1, times=0)
    await travel(2)
    assert "entities.Bell.ring, which a timer called, failed: Rejected: how often?" in caplog.text
    assert await Bell.ref("b").count() == 0


async def test_a_timer_waits_for_the_lease(cluster: MemoryCluster) -> None:
    await Bell.ref("b").ring_in(1)
    node = cluster.nodes["node1"]
    handled: list[float] = []
    cluster.server.journal.on_commit = lambda rows: handled.append(cluster.clock.now())
    cluster.server.stop()
    await travel(4)
    assert not node.may_handle()
    assert handled == []
    cluster.server.start()
    await until(lambda: handled)
    assert await Bell.ref("b").count() == 1


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("call", "start_timer takes a command of entities.Bell, such as Bell.ring"),
        ("foreign", "start_timer takes a command of entities.Bell"),
        ("seconds", "seconds must be a number from 0 on, not -1"),
        ("argument", "Expected `int`, got `str`"),
    ],
)
async def test_a_wrong_timer_is_refused_at_its_start(cluster: MemoryCluster, which: str, said: str) -> None:
    with pytest.raises(EntityFailed, match=said):
        await Bell.ref("b").wrong(which)


async def test_outside_of_any_entity_there_is_no_chain() -> None:
    assert call_chain.chain() == ()
    assert call_chain.sender() is None
    assert call_chain.told(()) == ()
    assert call_chain.told(("a/1", "b/2")) == ("~b/2",)
    with pytest.raises(WrongContext, match=r"a/1 -> b/2 -> a/1\.add"):
        call_chain.refuse_cycle(Call("a", "1", "add", b"", chain=("x/0", "a/1", "b/2")))
