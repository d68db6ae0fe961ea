"""Retried commands: the effect happens once, and the first reply is given again."""

import asyncio
from collections.abc import Sequence

import pytest

from sharding_app import (
    AskTimeout,
    EventSourced,
    InvalidCall,
    PartiallyApplied,
    ShardingError,
    ShardingSettings,
    applies,
    command,
    query,
)
from sharding_app.adapters.lookups import SPARE_SECONDS, Lookup
from sharding_app.adapters.memory import MemoryJournal
from sharding_app.ports.journal import Outcome
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.execution.earlier_attempts import EarlierAttempts
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from sharding_app.testing.faults import DeadProcesses
from tests.unit.runtime.one_of_each import Added, Cart, HotCart, Room
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio

WINDOW = 60.0


class Trimmed(Cart, name="entities.RetriedCart"):
    settings = ShardingSettings(snapshot_every=2, keep_snapshots=1, delete_events=True)


class Steps(EventSourced, name="entities.Steps"):
    """Handlers that await in between, and say how often they ran."""

    runs = 0
    count: int = 0
    pause: float = 0.0

    @command
    async def two(self, seconds: float = 0.0) -> int:
        await self.persist(Added("first", 1))
        await asyncio.sleep(seconds)
        self.persist(Added("second", 1))
        return self.count

    @command
    async def one_awaited(self) -> str:
        await self.persist(Added("first", 1))
        return f"reply {self.count}"

    @command
    def nothing(self) -> int:
        self.runs += 1
        return self.runs

    @query
    def show(self) -> int:
        return self.count

    @applies(Added)
    def on_added(self, happened: Added) -> None:
        self.count += 1


@pytest.mark.parametrize("kind", [Cart, HotCart])
async def test_a_given_id_makes_a_retry_safe(cluster: MemoryCluster, kind: type[Cart]) -> None:
    once = kind.ref("a", command_id="buy-1")
    assert await once.add("book") == 1
    await kind.ref("a").add("book", 5)
    assert await once.add("book") == 1, "the first reply, not the present state"
    assert await kind.ref("a").total() == 6
    assert len(cluster.events(kind, "a")) == 2


async def test_a_bug_in_the_question_costs_one_call(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entity goes on with the next one."""
    once = Cart.ref("a", command_id="buy-1")
    assert await once.add("book") == 1

    async def breaks(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(EarlierAttempts, "outcome", breaks)
        with pytest.raises(ShardingError):
            await once.add("book")
    assert await Cart.ref("a").add("book", 5) == 6
    assert await once.add("book") == 1


async def test_ids_belong_to_their_entity(cluster: MemoryCluster) -> None:
    assert await Cart.ref("a", command_id="x").add("book") == 1
    assert await Cart.ref("b", command_id="x").add("book") == 1


async def test_after_a_move_a_recovery_a_snapshot_and_a_trim() -> None:
    async with MemoryCluster([Trimmed], nodes=2, config=NodeConfig(command_window_seconds=WINDOW)) as cluster:
        with cluster.in_use():
            first = Trimmed.ref("a", command_id="buy-1")
            assert await first.add("book") == 1
            cluster.forget()
            assert await first.add("book") == 1
            await cluster.stop_node(cluster.home_of(Trimmed, "a"))
            assert await first.add("book") == 1
            for _ in range(9):
                await Trimmed.ref("a").add("pen")
            await until(lambda: [each.seq for each in cluster.snapshots(Trimmed, "a")] == [10])
            cluster.forget()
            assert await first.add("book") == 1, "trimmed while a retry may still come"
            assert await Trimmed.ref("a").content() == {"book": 1, "pen": 9}


async def test_after_the_window_it_is_a_new_command() -> None:
    async with MemoryCluster([Trimmed], config=NodeConfig(command_window_seconds=WINDOW)) as cluster:
        with cluster.in_use():
            first = Trimmed.ref("a", command_id="buy-1")
            assert await first.add("book") == 1
            await travel(WINDOW + SPARE_SECONDS + 1.0)
            assert await first.add("book") == 2


async def test_an_attempt_that_is_under_way_is_joined(cluster: MemoryCluster) -> None:
    once = Cart.ref("a", command_id="slow")
    attempts = [asyncio.ensure_future(once.slow_add("book", 1.0)) for _ in range(3)]
    await travel(1.5)
    assert await asyncio.gather(*attempts) == [1, 1, 1]
    assert len(cluster.events(Cart, "a")) == 1


async def test_an_attempt_whose_commit_is_under_way_is_joined(cluster: MemoryCluster) -> None:
    await HotCart.ref("a").nothing()
    once = HotCart.ref("a", command_id="hot")
    with cluster.writes_wait():
        attempts = [asyncio.ensure_future(once.add("book")) for _ in range(3)]
        await travel(0.2)
    assert await asyncio.gather(*attempts) == [1, 1, 1]
    assert len(cluster.events(HotCart, "a")) == 1


async def test_an_id_used_for_another_command_is_an_error(cluster: MemoryCluster) -> None:
    await Cart.ref("a", command_id="x").add("book")
    with pytest.raises(InvalidCall, match="command id 'x' was used for 'add' before") as caught:
        await Cart.ref("a", command_id="x").add_all(["pen"])
    assert caught.value.code == "command_id_reused"
    assert await Cart.ref("a").content() == {"book": 1}


async def test_an_id_used_with_other_arguments_is_an_error(cluster: MemoryCluster) -> None:
    once = Cart.ref("a", command_id="x")
    assert await once.add("book") == 1
    with pytest.raises(
        InvalidCall, match="command id 'x' was used for 'add' with other arguments before"
    ) as caught:
        await once.add("book", 2)
    assert caught.value.code == "command_id_reused"
    assert await once.add(quantity=1, sku="book") == 1, "the same call, written in another way"
    assert await Cart.ref("a").content() == {"book": 1}


async def test_the_same_holds_between_commits(cluster: MemoryCluster) -> None:
    once = Cart.ref("a", command_id="x")
    assert await once.add_in_two("book") == 11
    with pytest.raises(InvalidCall, match="with other arguments"):
        await once.add_in_two("pen")
    assert await once.add_in_two("book") == 11


async def test_a_query_may_carry_an_id(cluster: MemoryCluster) -> None:
    ref = Cart.ref("a", command_id="q")
    assert await ref.total() == 0
    await Cart.ref("a").add("book")
    assert await ref.total() == 1


async def test_what_persists_nothing_may_run_again(cluster: MemoryCluster) -> None:
    ref = Steps.ref("a", command_id="n")
    assert [await ref.nothing(), await ref.nothing()] == [1, 2]


async def test_a_memory_entity_remembers_no_command(cluster: MemoryCluster) -> None:
    ref = Room.ref("a", command_id="n")
    assert [await ref.enter(), await ref.enter()] == [1, 2]


async def test_a_reply_after_the_last_persist_is_remembered_too(cluster: MemoryCluster) -> None:
    ref = Steps.ref("a", command_id="one")
    assert await ref.one_awaited() == "reply 1"
    cluster.forget()
    assert await ref.one_awaited() == "reply 1"
    assert await Steps.ref("a").show() == 1
    assert await Steps.ref("a").one_awaited() == "reply 2"


async def test_one_that_died_in_between_says_so() -> None:
    async with MemoryCluster([Steps], nodes=2) as cluster:
        with cluster.in_use():
            ref = Steps.ref("a", command_id="two", timeout=20)
            attempt = asyncio.ensure_future(ref.two(5.0))
            await until(lambda: len(cluster.events(Steps, "a")) == 1)
            await cluster.kill_node(cluster.home_of(Steps, "a"))
            await until(attempt.done)
            with pytest.raises(PartiallyApplied, match="had committed a part when its node died"):
                await attempt
            with pytest.raises(PartiallyApplied):
                await ref.two(5.0)
            assert await Steps.ref("a").show() == 1


async def test_an_ask_gets_an_id_of_its_own_at_failover() -> None:
    """The node dies when the effect is committed and the answer is not out yet: it happens once all
    the same.
    """
    async with MemoryCluster([Cart], nodes=2) as cluster:
        with cluster.in_use():
            cart = Cart.ref("a", timeout=20)
            await cart.nothing()
            home = cluster.home_of(Cart, "a")
            killing: list[asyncio.Task[None]] = []

            def on_commit(rows: object) -> None:
                if not killing:
                    cluster.cut_off(home)
                    killing.append(asyncio.ensure_future(cluster.kill_node(home)))

            cluster.server.journal.on_commit = on_commit
            assert await cart.add("book") == 1
            assert cluster.events(Cart, "a") == [Added("book", 1)]
            assert await cart.total() == 1
            counters = [node.hosts["entities.Cart"].execution.counters for node in cluster.nodes.values()]
            assert sum(each["retried"] for each in counters) == 1
            await asyncio.gather(*killing)


@pytest.mark.parametrize("seconds", [0.5, 3.0, 30.0])
async def test_the_time_that_the_journal_takes_to_look_counts(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The next home's loop is blocked, or its server frozen, while it asks what became of a
    command.
    """
    async with MemoryCluster([Cart], nodes=2) as cluster:
        with cluster.in_use():
            cart = Cart.ref("a", timeout=200)
            await cart.nothing()
            home = cluster.home_of(Cart, "a")
            (other,) = (node for name, node in cluster.nodes.items() if name != home)
            journal = other.node_ports.journal
            assert isinstance(journal, MemoryJournal)
            lookups = journal._lookups
            look = lookups._query

            async def late(ours: bool, wanted: Sequence[Lookup]) -> Sequence[Outcome | None]:
                await travel(seconds)
                return await look(ours, wanted)

            monkeypatch.setattr(lookups, "_query", late)
            killing: list[asyncio.Task[None]] = []

            def on_commit(rows: object) -> None:
                if not killing:
                    cluster.cut_off(home)
                    killing.append(asyncio.ensure_future(cluster.kill_node(home)))

            cluster.server.journal.on_commit = on_commit
            loop = cluster.loop
            assert isinstance(loop, TravelLoop)
            assert await loop.hurry(cart.add("book")) == 1
            assert cluster.events(Cart, "a") == [Added("book", 1)], "once"
            await asyncio.gather(*killing)


async def test_an_ask_survives_an_orderly_move() -> None:
    async with MemoryCluster([Cart], nodes=2) as cluster:
        with cluster.in_use():
            cart = Cart.ref("a")

            async def load() -> list[int]:
                return [await cart.add("book") for _ in range(200)]

            loading = asyncio.ensure_future(load())
            for _ in range(3):
                await asyncio.sleep(0.01)
                await cluster.stop_node(cluster.home_of(Cart, "a") or "node1")
                await cluster.add_node()
            assert await loading == list(range(1, 201))


async def test_an_envelope_older_than_the_window_is_refused() -> None:
    """Its age counts the time that it waited in the mailbox."""
    async with MemoryCluster([Cart], config=NodeConfig(command_window_seconds=2.0)) as cluster:
        with cluster.in_use():
            slow = asyncio.ensure_future(Cart.ref("a", timeout=30).slow_add("pen", 3.0))
            late = asyncio.ensure_future(Cart.ref("a", timeout=30, command_id="late").add("book"))
            await travel(4.0)
            assert await slow == 1
            with pytest.raises(InvalidCall, match="older than the window") as caught:
                await late
            assert caught.value.code == "too_old"
            assert await Cart.ref("a").content() == {"pen": 1}


class Silence:
    """A layer that is silently away: frames are taken, and lost, or refused."""

    def __init__(self, inner: DeadProcesses, *, loud: bool) -> None:
        self.inner, self.loud, self.away = inner, loud, False

    def refuses(self, client: str) -> bool:
        return (self.away and self.loud) or self.inner.refuses(client)

    def route(self, client: str, channel: str) -> Sequence[float] | None:
        return () if self.away else self.inner.route(client, channel)


@pytest.mark.parametrize("loud", [True, False], ids=["it refuses frames", "it loses frames"])
@pytest.mark.parametrize("minutes", [5, 11])
@pytest.mark.parametrize("patience", [5.0, 2000.0])
async def test_the_time_that_a_retry_waits_in_a_link_counts(
    cluster: MemoryCluster, patience: float, minutes: int, loud: bool
) -> None:
    """The layer goes away between the commit and the answer, and comes back when the id is
    forgotten, or before.
    """
    layer = cluster.network.faults = Silence(cluster._faults, loud=loud)

    def committed(rows: object) -> None:
        layer.away = True

    await Cart.ref("a").add("pen")
    cluster.server.journal.on_commit = committed
    loop = cluster.loop
    assert isinstance(loop, TravelLoop)
    with pytest.raises(AskTimeout):
        await loop.hurry(Cart.ref("a", command_id="once").add("book", 5))
    cluster.server.journal.on_commit = None
    retry = asyncio.ensure_future(Cart.ref("a", command_id="once", timeout=patience).add("book", 5))
    Cart.ref("a", command_id="once").add.tell("book", 5)
    await travel(minutes * 60)
    layer.away = False
    await travel(10.0)
    if patience < 60:
        with pytest.raises(AskTimeout):
            await retry
    elif minutes < 10:
        assert await retry == 5
    else:
        with pytest.raises(InvalidCall, match="older than the window"):
            await retry
    assert await Cart.ref("a").content() == {"pen": 1, "book": 5}, "once"


async def test_what_its_caller_has_given_up_is_not_worked_on(cluster: MemoryCluster) -> None:
    """It waited in the entity's mailbox, behind a command that took its time."""
    slow = asyncio.ensure_future(Cart.ref("a", timeout=30).slow_add("pen", 3.0))
    await asyncio.sleep(0)
    late = asyncio.ensure_future(Cart.ref("a", timeout=2).add("book"))
    Cart.ref("a").add.tell("ink")
    patient = asyncio.ensure_future(Cart.ref("a", timeout=30).add("cap"))
    await travel(4.0)
    assert await slow == 1
    with pytest.raises(AskTimeout):
        await late
    assert await patient == 1
    assert await Cart.ref("a").content() == {"pen": 1, "ink": 1, "cap": 1}
    counters = cluster.nodes["node1"].hosts["entities.Cart"].execution.counters
    assert counters["expired"] == 1
    assert not cluster.client.region_client.pending, "its route does not wait for it either"


async def test_what_its_caller_has_given_up_on_the_way_loads_no_entity(cluster: MemoryCluster) -> None:
    layer = cluster.network.faults = Silence(cluster._faults, loud=True)
    await Cart.ref("a").add("pen")
    shards = cluster.config.number_of_shards
    neighbour = next(
        name for name in map(str, range(100_000)) if shard_of(name, shards) == shard_of("a", shards)
    )
    layer.away = True
    late = asyncio.ensure_future(Cart.ref(neighbour, timeout=2).add("book"))
    await travel(4.0)
    with pytest.raises(AskTimeout):
        await late
    layer.away = False
    await travel(4.0)
    assert not cluster.is_in_memory(Cart, neighbour)
    assert cluster.nodes["node1"].hosts["entities.Cart"].execution.counters["expired"] == 1
    assert not cluster.client.region_client.pending


async def test_no_window_is_kept_in_memory(cluster: MemoryCluster) -> None:
    for number in range(20):
        await Cart.ref("a", command_id=str(number)).add("book")
    execution = cluster.nodes["node1"].hosts["entities.Cart"].execution
    assert not execution.waiting
    shard = next(iter(cluster.nodes["node1"].hosts["entities.Cart"].shards.values()))
    slot = shard.slots["a"]
    assert slot.mailbox is None
    assert slot.tail is None


async def test_exists_sees_what_is_stored_and_only_that(cluster: MemoryCluster) -> None:
    assert not await Cart.ref("a").exists()
    await Cart.ref("a").nothing()
    assert not await Cart.ref("a").exists()
    await Cart.ref("a").add("book")
    assert await Cart.ref("a").exists()
    cluster.forget()
    assert await Cart.ref("a").exists()
    assert not await Steps.ref("a").exists()
