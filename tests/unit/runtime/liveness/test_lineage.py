"""A server that goes on elsewhere, or went back in time: what nodes and callers make of it (promise
18).
"""

import asyncio
import copy
from collections.abc import Coroutine
from typing import Any, ClassVar, TypeVar

import msgspec
import pytest

from sharding_app import (
    AskTimeout,
    EventSourced,
    Singleton,
    Unavailable,
    applies,
    command,
    event,
    every,
    query,
)
from sharding_app.adapters.memory.faults import Plan
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.registry import registry
from sharding_app.protocol.call import Call
from sharding_app.protocol.coordinator.terms import (
    begins_era,
    decided_in_era,
    era_of,
    lowest_epoch,
    next_term,
)
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.protocol.liveness.node_lease import Lease, LeaseChange, after_return
from sharding_app.protocol.messages import NodeGone
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.records import Lineage, Server, ShardRow
from sharding_app.protocol.region import Forward, RegionRoutes
from sharding_app.runtime.base.interfaces import NoListener
from sharding_app.runtime.node.node import Node
from sharding_app.testing.clock import TravelLoop
from sharding_app.testing.cluster import MemoryCluster
from tests.support.steady_loop import SteadyLoop
from tests.unit.runtime.counters import Get, Increment, Remembered, Rest, remembered, to
from tests.unit.runtime.one_of_each import Cart

T = TypeVar("T")
HERE, LATER, OTHER = Lineage("one", 1), Lineage("one", 2), Lineage("two", 1)


# -- the core --------------------------------------------------------------------------------------


def test_what_becomes_of_the_objects() -> None:
    assert after_return(None, HERE) == "go_on"
    assert after_return(HERE, HERE) == "go_on"
    assert after_return(HERE, LATER) == "read_again"
    assert after_return(LATER, HERE) == "read_again", "restored to a point before the promotion"
    assert after_return(HERE, OTHER) == "begin_anew"


def test_terms_of_another_lineage_are_higher_than_all_before() -> None:
    term = next_term(0, same_lineage=True, now_seconds=0)
    assert (term, era_of(term)) == (1, 0)
    before = next_term(41, same_lineage=True, now_seconds=0)
    restored = next_term(3, same_lineage=False, now_seconds=1_700_000_000)
    assert restored > before
    assert begins_era(restored)
    assert not begins_era(next_term(restored, same_lineage=True, now_seconds=0))
    again = next_term(3, same_lineage=False, now_seconds=1_700_000_060)
    assert era_of(again) > era_of(restored), "restored again, to the same point"
    assert next_term(again, same_lineage=False, now_seconds=5) > again, (
        "a clock that went back takes nothing back"
    )


def test_no_epoch_is_given_twice() -> None:
    restored = next_term(3, same_lineage=False, now_seconds=1_700_000_000)
    assert lowest_epoch(41) == 1
    assert lowest_epoch(restored) == lowest_epoch(restored + 7) > 10**9
    later = next_term(restored, same_lineage=False, now_seconds=1_700_000_001)
    assert lowest_epoch(later) > lowest_epoch(restored) + 10**6, "more than any shard moves in an era"
    assert restored < 2**53, "a number that browsers can show"


def test_a_coordinator_that_knows_no_former_lineage_looks_whether_another_has_decided() -> None:
    restored = next_term(3, same_lineage=False, now_seconds=1_700_000_000)
    rows = [ShardRow("shop.Cart", 0, 7, "a", "home"), ShardRow("shop.Cart", 1, 9, None, "stopped")]
    assert not decided_in_era(restored, rows)
    assert not decided_in_era(restored + 1, []), "the first one may have died before it decided anything"
    rows[0] = ShardRow("shop.Cart", 0, lowest_epoch(restored), "a", "home")
    assert decided_in_era(restored + 1, rows)
    again = next_term(restored, same_lineage=False, now_seconds=1_700_000_060)
    assert not decided_in_era(again, rows)
    assert decided_in_era(2, []), "nothing was before the first era"


def ping(lease: Lease, session: int, at: float, server: Server) -> list[LeaseChange]:
    lease.ping_sent(session, at)
    return lease.ping_answered(session, at, server, at)


def valid_lease(server: Server) -> Lease:
    lease = Lease(2.0, 3.0)
    for session in (0, 1):
        lease.locked(session)
        lease.ping_sent(session, 0.0)
        lease.ping_answered(session, 0.0, server, 0.0)
    assert lease.is_valid(0.1)
    return lease


def test_a_session_that_comes_back_on_another_timeline_ends_the_lease_until_the_rows_are_read() -> None:
    """The other one is still at the former primary, which has not been fenced off."""
    lease = valid_lease(Server("a", 1, "one"))
    lease.session_lost(0, 1.0)
    lease.ping_sent(1, 1.0)
    assert lease.ping_answered(1, 1.0, Server("a", 1, "one"), 1.0) == ["back"]
    assert lease.resume(lease.generation, 1.0)
    lease.locked(0)
    lease.ping_sent(0, 1.1)
    assert lease.ping_answered(0, 1.1, Server("b", 2, "one"), 1.1) == ["suspended"]
    assert not lease.is_valid(1.1)
    assert ping(lease, 1, 1.2, Server("a", 1, "one")) == [], "it counts no more"
    assert ping(lease, 0, 4.1, Server("b", 2, "one")) == ["back"]
    assert lease.lineage == LATER
    assert not lease.is_valid(4.1)
    assert lease.resume(lease.generation, 4.2)


def test_it_comes_back_in_another_lineage_when_no_lease_of_the_former_one_can_be_valid() -> None:
    """A node that has not noticed may be the home of a shard whose row is lost: what we read does
    not name it.
    """
    lease = valid_lease(Server("a", 1, "one"))
    promoted = Server("b", 2, "one")
    for session in (0, 1):
        lease.session_lost(session, 1.0)
        lease.locked(session)
    assert ping(lease, 0, 1.5, promoted) == []
    for at in (2.0, 3.0, 4.0, 4.49):
        assert "back" not in ping(lease, 0, at, promoted), "a TTL is not over"
        assert not lease.resume(lease.generation, at)
    assert ping(lease, 0, 4.5, promoted) == ["back"]
    assert lease.resume(lease.generation, 4.5)
    lease.session_lost(1, 5.0)
    assert ping(lease, 0, 5.1, promoted) == ["back"], "it has waited"


def test_a_session_that_was_elsewhere_in_between_waits_anew() -> None:
    lease = valid_lease(Server("a", 1, "one"))
    lease.session_lost(0, 1.0)
    lease.locked(0)
    assert ping(lease, 0, 1.5, Server("b", 2, "one")) == []
    lease.session_lost(0, 4.0)
    assert ping(lease, 1, 4.1, Server("a", 1, "one")) == ["back"], "the former one is still there"
    assert lease.resume(lease.generation, 4.1)
    lease.locked(0)
    assert ping(lease, 0, 4.6, Server("b", 2, "one")) == ["suspended"]
    assert ping(lease, 0, 7.5, Server("b", 2, "one")) == []
    assert ping(lease, 0, 7.6, Server("b", 2, "one")) == ["back"]


def test_of_two_systems_the_one_where_a_lock_was_taken_last_counts() -> None:
    lease = valid_lease(Server("a", 7, "one"))
    lease.session_lost(1, 1.0)
    lease.ping_sent(0, 1.0)
    lease.ping_answered(0, 1.0, Server("a", 7, "one"), 1.0)
    lease.resume(lease.generation, 1.0)
    lease.locked(1)
    lease.ping_sent(1, 1.1)
    assert lease.ping_answered(1, 1.1, Server("b", 1, "two"), 1.1) == ["suspended"]
    assert ping(lease, 1, 4.1, Server("b", 1, "two")) == ["back"]
    assert lease.lineage == OTHER


def test_rows_that_were_read_in_one_lineage_resume_nothing_in_the_next() -> None:
    lease = valid_lease(Server("a", 1, "one"))
    lease.session_lost(0, 1.0)
    lease.ping_sent(1, 1.0)
    lease.ping_answered(1, 1.0, Server("a", 1, "one"), 1.0)
    read_for = lease.generation
    lease.locked(0)
    lease.ping_sent(0, 1.1)
    lease.ping_answered(0, 1.1, Server("b", 2, "one"), 1.1)
    assert ping(lease, 0, 4.1, Server("b", 2, "one")) == ["back"]
    assert not lease.resume(read_for, 4.2)
    assert lease.resume(lease.generation, 4.2)


def _next(region: RegionRoutes) -> str | None:
    return region.routes[0].next_home


def test_a_region_takes_a_lower_epoch_of_a_later_era() -> None:
    region = RegionRoutes("shop.Cart", {})
    region.submit(PendingCall(1, Call("shop.Cart", "alice", "add", b""), 0, 0.0, 9.0), 0.0)
    region.home_told(0, "b", 9, 0.0)
    assert [each.pending.home for each in region.out if isinstance(each, Forward)] == ["b"]
    region.out.clear()
    region.home_told(0, "a", 5, 1.0)
    assert not _next(region), "an old word"
    region.home_told(0, "a", 5, 1.0, era=3)
    assert _next(region) == "a", "when b has answered, or is gone"
    region.gone("b", 2.0)
    assert [(each.pending.home, each.pending.epoch) for each in region.out if isinstance(each, Forward)] == [
        ("a", 5)
    ]
    region.home_told(0, "b", 10, 3.0)
    assert not _next(region), "a word of before the restore"


# -- a cluster -------------------------------------------------------------------------------------


def on_virtual_time(main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(main)


class Backup:
    """What a base backup holds; a restore begins another timeline."""

    CLUSTER = ("members", "lock_keys", "last_age", "coordinator", "lineage", "shards", "epochs")

    def __init__(self, cluster: MemoryCluster) -> None:
        self._server = cluster.server
        self._rows = {name: copy.deepcopy(getattr(cluster.server.cluster, name)) for name in self.CLUSTER}
        self._events = copy.deepcopy(cluster.server.journal.events)

    def restore(self) -> None:
        """While the server is down."""
        for name, value in self._rows.items():
            present = getattr(self._server.cluster, name)
            if isinstance(present, dict):
                present.clear()
                present.update(copy.deepcopy(value))
            else:
                setattr(self._server.cluster, name, value)
        self._server.journal.events.clear()
        self._server.journal.events.update(copy.deepcopy(self._events))
        self._server.timeline += 1


async def hurried(call: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    return await loop.hurry(call)


async def travel(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TravelLoop)
    await loop.travel(seconds)


def numbers(cluster: MemoryCluster) -> dict[str, list[int]]:
    return {key[1]: sorted(events) for key, events in cluster.server.journal.events.items()}


IDS = [f"cart-{number}" for number in range(12)]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_failover_that_lost_the_tail_leaves_no_gap(lost: int) -> None:
    async def main() -> None:
        async with MemoryCluster([Cart], nodes=2) as cluster:
            with cluster.in_use():
                for _ in range(3):
                    for each in IDS:
                        await hurried(Cart.ref(each).add("book", 1))
                before = {node.incarnation for node in cluster.nodes.values()}
                cluster.server.stop()
                for events in cluster.server.journal.events.values():
                    for number in range(4 - lost, 4):
                        del events[number]
                cluster.server.timeline += 1
                await travel(0.5)
                cluster.server.start()
                await travel(3)
                for each in IDS:
                    assert await hurried(Cart.ref(each).add("book", 1)) == 4 - lost
                assert {node.incarnation for node in cluster.nodes.values()} == before, "shards stay"
                assert set(map(tuple, numbers(cluster).values())) == {tuple(range(1, 5 - lost))}

    on_virtual_time(main())


def test_what_runs_in_memory_is_remembered_though_its_rows_were_lost() -> None:
    """Its objects stay. The rows of a crash that comes later have to name them, and no others."""

    async def main() -> None:
        async with MemoryCluster([registry.get("protocol.Remembered")], nodes=2) as cluster:
            with cluster.in_use():
                rows = cluster.server.journal.remembered
                await hurried(remembered.ask(to("rests", Increment())))
                kept = copy.deepcopy(rows)
                await hurried(remembered.ask(to("rests", Rest())))
                ids = {f"runs-{number}" for number in range(8)}
                for each in ids:
                    await hurried(remembered.ask(to(each, Increment())))
                cluster.server.stop()
                rows.clear()
                rows.update(kept)
                cluster.server.timeline += 1
                cluster.server.start()
                await travel(10)
                for each in ids:
                    assert await hurried(remembered.ask(Get(each))) == 1
                assert {entity for found in rows.values() for entity in found} == {"rests", *ids}
                assert cluster.is_in_memory(Remembered, "rests"), "its row says that it runs"
                await cluster.kill_node("node1")
                await travel(30)
                assert all(cluster.is_in_memory(Remembered, each) for each in ids)

    on_virtual_time(main())


class Ticker(Singleton, name="lineage.Ticker"):
    ticks: ClassVar[int] = 0

    @every(seconds=5)
    @command
    def tick(self) -> None:
        Ticker.ticks += 1


def test_a_singleton_in_memory_keeps_its_schedule_though_the_rows_of_it_were_lost() -> None:
    async def main() -> None:
        async with MemoryCluster([Ticker], nodes=2) as cluster:
            with cluster.in_use():
                await travel(12)
                assert Ticker.ticks
                cluster.server.stop()
                cluster.server.messages.rows.clear()
                cluster.server.messages.timers.clear()
                cluster.server.timeline += 1
                cluster.server.start()
                await travel(10)
                before = Ticker.ticks
                await travel(30)
                assert Ticker.ticks - before >= 5

    on_virtual_time(main())


class Unaware:
    """A node whose connections have fallen silent: it notices nothing before its own limit."""

    def __init__(self) -> None:
        self.silent: dict[str, None] = {}

    def plan(self, client: str, kind: str) -> Plan | None:
        return Plan(execute_after=None, answer_after=None) if client in self.silent else None


class Homes(NoListener):
    """Notes which shards start while another node may be their home."""

    def __init__(self) -> None:
        self.former: Node | None = None
        self.started: list[tuple[ShardId, Epoch]] = []
        self.beside: list[tuple[ShardId, Epoch]] = []

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        if self.former is not None:
            self.started.append((shard, epoch))
            if self.former.may_handle() and shard in self.former.hosts[entity_type.name].shards:
                self.beside.append((shard, epoch))


async def use_all() -> None:
    for each in IDS:
        await hurried(Cart.ref(each).add("book", 1))


def test_no_shard_starts_here_while_a_home_whose_row_is_lost_may_handle() -> None:
    """The rows name us, as they did before the shards moved, and the home since then has not
    noticed yet.
    """

    async def main() -> None:
        homes, unaware = Homes(), Unaware()
        async with MemoryCluster([Cart], nodes=1, listener=homes) as cluster:
            with cluster.in_use():
                await use_all()
                backup = Backup(cluster)
                former = await cluster.add_node("former")
                await hurried(cluster.nodes["node1"].drain(drained=True))
                await travel(5)
                await use_all()
                await hurried(cluster.nodes["node1"].drain(drained=False))
                assert len(former.hosts["entities.Cart"].shards) == len(IDS)
            cluster.server.faults = unaware
            unaware.silent[former.incarnation] = None
            cluster.server.stop()
            backup.restore()
            cluster.server.start()
            homes.former = former
            await travel(10)
            assert len(homes.started) == len(IDS)
            assert homes.beside == []

    on_virtual_time(main())


def test_who_joins_starts_nothing_while_a_home_whose_row_is_lost_may_handle() -> None:
    """It knows nothing of a former lineage, and is elected at once."""

    async def main() -> None:
        homes, unaware = Homes(), Unaware()
        async with MemoryCluster([Cart], nodes=1, listener=homes) as cluster:
            await travel(1)
            backup = Backup(cluster)
            former = await cluster.add_node("former")
            await cluster.stop_node("node1")
            with cluster.in_use():
                await use_all()
            shards = list(former.hosts["entities.Cart"].shards)
            assert len(shards) == len(IDS)
            cluster.server.faults = unaware
            unaware.silent[former.incarnation] = None
            cluster.server.stop()
            backup.restore()
            cluster.server.start()
            homes.former = former
            joined = await cluster.add_node("joined")
            assert former.may_handle()
            joined.region_client.find("entities.Cart", shards)
            await travel(10)
            assert len(homes.started) == len(IDS)
            assert homes.beside == []

    on_virtual_time(main())


def test_after_a_restore_lower_terms_and_epochs_are_heard() -> None:
    async def main() -> None:
        async with MemoryCluster([Cart], nodes=3) as cluster:
            with cluster.in_use():
                for each in IDS:
                    assert await hurried(Cart.ref(each).add("book", 1)) == 1
                backup = Backup(cluster)
                # Terms and epochs move on, and the callers learn of it.
                for name in list(cluster.nodes)[:2]:
                    await cluster.kill_node(name)
                    await travel(5)
                    await cluster.add_node()
                    await travel(30)
                for each in IDS:
                    assert await hurried(Cart.ref(each).add("book", 1)) == 2
                known = cluster.client.locator.term
                assert known > 1
                cluster.server.stop()
                backup.restore()
                await travel(1)
                cluster.server.start()
                await travel(30)
                for each in IDS:
                    assert await hurried(Cart.ref(each).add("book", 1)) == 2
                    assert await hurried(Cart.ref(each).add("book", 1)) == 3
                assert set(map(tuple, numbers(cluster).values())) == {(1, 2, 3)}
                assert cluster.server.cluster.coordinator.term > known
                assert "database_moved_on" in [each.action for each in cluster.server.cluster.timeline]

    on_virtual_time(main())


def test_a_node_whose_death_the_server_has_lost_is_heard_again() -> None:
    """Its burial was in the tail that a promotion lost: its row is there, and so it goes on under
    its name.
    """

    async def main() -> None:
        async with MemoryCluster([Cart], nodes=3) as cluster:
            with cluster.in_use():
                await use_all()
                backup = Backup(cluster)
                lost = cluster.nodes["node1"]
                assert any(host.shards for host in lost.hosts.values())
                term = cluster.client.locator.term
                for each in (cluster.client, cluster.nodes["node2"], cluster.nodes["node3"]):
                    each.control("node2", NodeGone(term, lost.incarnation))
                cluster.server.stop()
                backup.restore()
                cluster.server.start()
                await travel(10)
                assert not lost.ended.done()
                await use_all()
                for each in (cluster.client, cluster.nodes["node2"], cluster.nodes["node3"]):
                    assert not each.links.is_gone(lost.incarnation)

    on_virtual_time(main())


def test_a_row_that_went_back_in_time_says_again_what_its_node_is() -> None:
    """The tail that was lost held a node's word that it is up, that it is drained, and that it
    hears again.
    """

    async def main() -> None:
        async with MemoryCluster([Cart], nodes=3) as cluster:
            with cluster.in_use():
                rows = cluster.server.cluster.members
                before = [
                    {"state": "joining", "deaf": False},
                    {"state": "up", "deaf": False},
                    {"state": "up", "deaf": True},
                ]
                nodes = list(cluster.nodes.values())
                await hurried(nodes[1].drain(drained=True))
                now = [(rows[each.incarnation].state, rows[each.incarnation].deaf) for each in nodes]
                assert now == [("up", False), ("leaving", False), ("up", False)]
                cluster.server.stop()
                for each, fields in zip(nodes, before, strict=True):
                    rows[each.incarnation] = msgspec.structs.replace(rows[each.incarnation], **fields)
                cluster.server.timeline += 1
                await travel(0.5)
                cluster.server.start()
                await travel(3)
                assert [(rows[each.incarnation].state, rows[each.incarnation].deaf) for each in nodes] == now
                for cart in IDS:
                    assert await hurried(Cart.ref(cart).add("book", 1)) == 1
                homes = {row.home for row in cluster.server.cluster.shards.values()}
                assert homes == {nodes[0].incarnation, nodes[2].incarnation}

    on_virtual_time(main())


@event
class Noted:
    number: int


class Notes(EventSourced, name="lineage.Notes"):
    numbers: list[int]

    def __init__(self) -> None:
        self.numbers = []

    @command
    def note(self, number: int) -> None:
        self.persist(Noted(number))

    @query(fenced=True)
    def surely(self) -> list[int]:
        return self.numbers

    @applies(Noted)
    def on_noted(self, happened: Noted) -> None:
        self.numbers.append(happened.number)


def test_calls_keep_their_order_through_a_failover_that_may_have_lost_something() -> None:
    """Commits are in doubt, commands wait, and more are on their way when the objects are thrown
    away.
    """

    async def main() -> None:
        async with MemoryCluster([Notes], nodes=2) as cluster:
            with cluster.in_use():
                calls = []
                for number in range(120):
                    calls += [
                        asyncio.ensure_future(Notes.ref(each, timeout=60).note(number)) for each in IDS[:4]
                    ]
                    if number == 30:
                        cluster.server.stop()
                    if number == 40:
                        cluster.server.timeline += 1
                        cluster.server.start()
                    await travel(0.02)
                await travel(40)
                answers = await asyncio.gather(*calls, return_exceptions=True)
                assert not [each for each in answers if isinstance(each, BaseException)]
                for each in IDS[:4]:
                    stored = [happened.number for happened in cluster.events(Notes, each)]
                    assert stored == list(range(120))

    on_virtual_time(main())


@event
class Held:
    number: int


class Slow(EventSourced, name="lineage.Slow"):
    """Its handler waits in the middle."""

    number: int
    running = 0
    most = 0

    def __init__(self) -> None:
        self.number = 0

    @command
    async def hold(self, seconds: float) -> int:
        Slow.running += 1
        Slow.most = max(Slow.most, Slow.running)
        try:
            await asyncio.sleep(seconds)
        finally:
            Slow.running -= 1
        self.persist(Held(self.number + 1))
        return self.number

    @applies(Held)
    def on_held(self, happened: Held) -> None:
        self.number = happened.number


def test_a_handler_that_runs_meanwhile_stores_nothing_and_its_command_comes_again() -> None:
    """Nothing runs beside it, and the calls keep their order."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with MemoryCluster([Slow], nodes=1) as cluster:
            with cluster.in_use():
                for expected in (1, 2):
                    assert await hurried(Slow.ref("a").hold(0.0)) == expected
                under_way = loop.create_task(hurried(Slow.ref("a", timeout=60).hold(8.0)))
                await travel(0.5)
                assert Slow.running == 1
                cluster.server.stop()
                del next(iter(cluster.server.journal.events.values()))[2]
                cluster.server.timeline += 1
                await travel(0.5)
                cluster.server.start()
                await travel(2)
                later = loop.create_task(hurried(Slow.ref("a", timeout=60).hold(0.0)))
                assert await under_way == 2
                assert await later == 3
                assert Slow.most == 1
                assert numbers(cluster) == {"a": [1, 2, 3]}

    on_virtual_time(main())


def test_a_fenced_query_does_not_tell_what_a_promotion_has_lost() -> None:
    """The promoted server has the same row of the shard, and the home has not yet heard of it."""

    async def main() -> None:
        async with MemoryCluster([Notes], nodes=1) as cluster:
            with cluster.in_use():
                for number in (1, 2):
                    await hurried(Notes.ref("a").note(number))
                cluster.server.stop()
                del next(iter(cluster.server.journal.events.values()))[2]
                cluster.server.timeline += 1
                cluster.server.start()
                asked = asyncio.ensure_future(Notes.ref("a", timeout=60).surely())
                while not asked.done():
                    await travel(0.01)
                assert await asked == [1]

    on_virtual_time(main())


def test_on_another_system_nodes_and_callers_begin_anew() -> None:
    """A server that was filled from a dump: its cluster has another id, and so other channels and
    locks.
    """

    async def main() -> None:
        async with MemoryCluster([Cart], nodes=2) as cluster:
            with cluster.in_use():
                assert await hurried(Cart.ref("alice").add("book", 1)) == 1
                nodes = list(cluster.nodes.values())
                cluster.server.stop()
                cluster.server.system, cluster.server.timeline = "restored", 1
                await travel(1)
                cluster.server.start()
                await travel(5)
                assert [node.ended.result() for node in nodes] == ["elsewhere", "elsewhere"]
                for name in list(cluster.nodes):
                    await cluster.kill_node(name)
                assert not cluster.client.failed.is_set()
                with pytest.raises((Unavailable, AskTimeout)):
                    await hurried(Cart.ref("alice").add("book", 1))
                assert cluster.client.failed.is_set(), "the portal makes another one"

    on_virtual_time(main())
