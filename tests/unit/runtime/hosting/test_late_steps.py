"""Steps that come after the end of their node, their shard or their worker's run."""

import asyncio
import contextlib
from typing import Any, ClassVar

import pytest

from sharding_app import (
    Entity,
    EntityFailed,
    ShardedDaemonProcess,
    ShardingSettings,
    Supervision,
    Worker,
    command,
)
from sharding_app.entities.registry import registry
from sharding_app.ports.store import StoreUnavailable
from sharding_app.protocol.messages import HostShard
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.hosting import arbiter

pytestmark = pytest.mark.asyncio

LEAVE_SECONDS = 20.0 * SLACK
SOON = 5.0 * SLACK


class Slow(Entity, name="late.Slow"):
    settings = ShardingSettings(number_of_shards=1)
    goes_on: ClassVar[asyncio.Event]

    @command
    async def work(self) -> None:
        await Slow.goes_on.wait()

    @command
    def hello(self) -> int:
        return 1


# -- A node that leaves ----------------------------------------------------------------------------


async def test_a_node_whose_shards_are_dropped_while_it_leaves_waits_no_longer() -> None:
    Slow.goes_on = asyncio.Event()
    async with MemoryCluster([Slow], nodes=1) as cluster:
        with cluster.in_use():
            working = asyncio.ensure_future(Slow.ref("a", timeout=60).work())
            node = cluster.nodes.pop("node1")
            host = node.hosts["late.Slow"]
            await until(lambda: bool(host.execution.waiting))
            leaving = asyncio.ensure_future(node.stop(LEAVE_SECONDS))
            await until(lambda: host.shards[0].stopping)
            node.end("cut off")
            async with asyncio.timeout(SOON):
                await leaving
            Slow.goes_on.set()
            working.cancel()
            await asyncio.wait([working])


async def test_a_node_that_leaves_starts_no_shard_behind_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row was read before all were stopped. Others take the shard once the node's row is gone."""
    async with MemoryCluster([Slow], nodes=1) as cluster:
        node = cluster.nodes.pop("node1")
        hosting: Any = node.hosting
        goes_on, stop_all, homes = asyncio.Event(), hosting.stop_all, hosting._ports.store.homes

        async def late(*args: Any) -> Any:
            found = await homes(*args)
            await goes_on.wait()
            return found

        def stopped() -> None:
            stop_all()
            goes_on.set()

        here: list[int] = []
        leave = hosting._ports.store.leave

        async def leaves(incarnation: str) -> None:
            here.extend(node.hosts["late.Slow"].shards)
            await leave(incarnation)

        monkeypatch.setattr(hosting._ports.store, "leave", leaves)
        monkeypatch.setattr(hosting._ports.store, "homes", late)
        monkeypatch.setattr(hosting, "stop_all", stopped)
        with cluster.in_use():
            calling = asyncio.ensure_future(Slow.ref("a", timeout=60).hello())
            await until(lambda: ("late.Slow", 0) in cluster.server.cluster.shards)
            await node.stop(LEAVE_SECONDS)
            calling.cancel()
            await asyncio.wait([calling])
        assert not here, "its row has gone, and a shard runs here"


# -- Rows that were read before the lease was lost -------------------------------------------------


async def test_rows_of_before_a_lapse_start_nothing_before_the_node_has_gone_on() -> None:
    """The lifeline's thread makes the lease valid. The node's loop goes on some steps later."""
    async with MemoryCluster([Slow], nodes=1) as cluster:
        with cluster.in_use():
            assert await Slow.ref("a").hello() == 1
            (node,) = cluster.nodes.values()
            hosting: Any = node.hosting
            (shard,) = node.hosts["late.Slow"].shards.values()
            node.hosts["late.Slow"].shard_life.drop(0)
            node.hosts["late.Slow"].stopped_at.clear()
            goes_on, is_read = asyncio.Event(), asyncio.Event()

            async def secured() -> None:
                is_read.set()
                await goes_on.wait()

            hosting._cluster_journal.secured.next = secured
            message = HostShard(node.locator.term, "late.Slow", [0], [shard.epoch])
            starting = asyncio.ensure_future(hosting.start(node.incarnation, message))
            await is_read.wait()
            node.on_suspended()  # and the lease is valid again, and `hosting.resume` is still to come
            goes_on.set()
            await starting
            assert not node.hosts["late.Slow"].shards


# -- Workers ---------------------------------------------------------------------------------------


class Deaf(Worker):
    steps: ClassVar[int] = 0
    is_deaf: ClassVar[bool] = True

    async def run(self) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
                Deaf.steps += 1
            if not Deaf.is_deaf:
                return


async def test_a_run_that_swallows_its_cancellation_ends_when_its_shard_was_dropped() -> None:
    """Its number lives elsewhere, so it takes no more steps than without a lease."""
    Deaf.is_deaf = True
    with registry.isolated():
        deaf = ShardedDaemonProcess.start("late.deaf", worker=Deaf, workers=1)
        made = registry.get(deaf.type_name)
        async with MemoryCluster([made], nodes=1, config=CONFIG) as cluster:
            (node,) = cluster.nodes.values()
            host: Any = node.hosts[deaf.type_name]
            await until(lambda: Deaf.steps > 2)
            (run,) = host.workers._runs.values()
            host.shard_life.drop(0)
            await asyncio.sleep(1.5 * CONFIG.stop_timeout_seconds)
            before = Deaf.steps
            await asyncio.sleep(0.3)
            after = Deaf.steps
            Deaf.is_deaf = False
            await until(lambda: run.task.done())
            assert after - before <= 1, "it goes on beside the next home of its number"


@pytest.mark.parametrize("how", ["dropped", "by force"])
async def test_a_run_of_a_shard_that_left_gives_up_no_later_one_that_waits_for_its_lease(how: str) -> None:
    Deaf.is_deaf, Deaf.steps = True, 0
    with registry.isolated():
        settings = ShardingSettings(use_lease="postgres")
        deaf = ShardedDaemonProcess.start("late.leased", worker=Deaf, workers=1, settings=settings)
        cluster = arbiter.LeasedCluster([registry.get(deaf.type_name)], nodes=1, config=arbiter.CONFIG)
        cluster.arbiter = arbiter.Arbiter()
        cluster.arbiter.grants = lambda *_: True
        async with cluster:
            (node,) = cluster.nodes.values()
            host: Any = node.hosts[deaf.type_name]
            await until(lambda: Deaf.steps > 2)
            shard = host.shards[0]
            epoch = shard.epoch
            cluster.arbiter.grants = lambda *_: False
            if how == "dropped":
                host.shard_life.drop(0)
            else:
                host.shard_life.stop(0, epoch)
                host.shard_life._force(shard)
            assert not host.gate.admits(0, epoch + 1)
            await asyncio.sleep(0.1)
            try:
                assert host.gate.wanted == {0: epoch + 1}
            finally:
                Deaf.is_deaf = False


async def test_a_worker_whose_first_command_fails_before_its_run_is_dropped_once() -> None:
    class Fragile(Worker):
        settings = ShardingSettings(supervision=Supervision(default="restart"))

        async def run(self) -> None:
            await asyncio.sleep(3600)

        @command
        def break_down(self) -> None:
            raise KeyError("it is broken")

    with registry.isolated():
        fragile = ShardedDaemonProcess.start("late.fragile", worker=Fragile, workers=1)
        made = registry.get(fragile.type_name)
        async with MemoryCluster([made], nodes=1, config=CONFIG) as cluster:
            with cluster.in_use():
                (node,) = cluster.nodes.values()
                host: Any = node.hosts[fragile.type_name]
                await until(lambda: bool(host.workers._runs))
                load = host.loader.want
                wanted: list[Any] = []
                host.loader.want = wanted.append
                (slot,) = host.workers._runs
                host.workers.end(slot)
                await until(lambda: bool(wanted))
                calling = asyncio.ensure_future(fragile.ref(0).break_down())
                await until(lambda: bool(wanted[0].mailbox))
                host.loader.want = load
                load(wanted[0])
                with pytest.raises(EntityFailed):
                    await calling
                assert host.execution.counters["handler_failed"] == 1
                await until(lambda: bool(host.workers._runs))


# -- The coordinator -------------------------------------------------------------------------------


async def test_the_dead_are_found_while_another_table_is_locked() -> None:
    async with MemoryCluster([Slow], nodes=2) as cluster:
        with cluster.in_use():
            assert await Slow.ref("a").hello() == 1
            leader = next(each for each in cluster.nodes.values() if each.coordinator is not None)
            (dead,) = [name for name, each in cluster.nodes.items() if each is not leader]
            incarnation = cluster.nodes[dead].incarnation
            store: Any = leader.ports.store

            async def locked(*_: Any) -> Any:
                raise StoreUnavailable("canceling statement due to lock timeout", answered=True)

            store.types = locked
            coordinator: Any = leader.coordinator
            coordinator._types_of = None
            await cluster.kill_node(dead)
            await until(lambda: incarnation not in cluster.server.cluster.members, 10)
            del store.types
