"""Remembered entities and their store: what fails, what comes in bursts, what comes late, and what
is started meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from sharding_app import (
    BufferFull,
    ClusterSharding,
    HashCodeMessageExtractor,
    ShardingSettings,
    StartEntity,
    StartEntityAck,
)
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.regions import Region
from sharding_app.ports.journal import Erasure, Mark
from sharding_app.protocol.ids import shard_of
from sharding_app.runtime.hosting.node_host import NodeHost
from tests.unit.runtime.counter_cluster import CONFIG, until
from tests.unit.runtime.counters import Counter, Get, Increment, Quit, Rest, Stop, to
from tests.unit.runtime.hosting.faulty_store import MODES, Fault, FaultyCluster

pytestmark = pytest.mark.asyncio


class Diver(Counter):
    born: ClassVar[list[str]] = []
    stopped: ClassVar[list[str]] = []


divers: Region = ClusterSharding.start(
    "protocol.Diver",
    entity=Diver,
    settings=ShardingSettings(remember_entities=True),
    extractor=HashCodeMessageExtractor(2),
    stop_message=Stop(),
)
IDS = [str(number) for number in range(20)]


def in_shard(number: int, start: int = 0) -> str:
    return next(str(each) for each in range(start, 1000) if shard_of(str(each), 2) == number)


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> AsyncIterator[FaultyCluster]:
    monkeypatch.setattr(Diver, "born", [])
    monkeypatch.setattr(Diver, "stopped", [])
    made = FaultyCluster([registry.get("protocol.Diver")], nodes=1, config=CONFIG)
    made.fault = fault
    async with made:
        with made.in_use():
            yield made


def stored(cluster: FaultyCluster) -> set[str]:
    return {entity for found in cluster.server.journal.remembered.values() for entity in found}


def running(cluster: FaultyCluster) -> set[str]:
    hosts = [node.hosts["protocol.Diver"] for node in cluster.nodes.values()]
    return {each for host in hosts for shard in host.shards.values() for each in shard.slots}


async def has_stored(cluster: FaultyCluster, wanted: set[str]) -> None:
    await until(lambda: stored(cluster) == wanted)


async def again(cluster: FaultyCluster, place: str, mode: str) -> None:
    """Everything ends and begins anew, with that fault."""
    for name in list(cluster.nodes):
        await cluster.stop_node(name)
    Diver.born.clear()
    cluster.fault.at(place, mode)
    await cluster.add_node()


@pytest.mark.parametrize("mode", MODES)
class TestC4:
    """The store fails, five ways in five places. Nothing is lost, and everything answers soon
    after.
    """

    async def test_c4_when_a_shard_reads_what_ran(
        self, cluster: FaultyCluster, fault: Fault, mode: str
    ) -> None:
        asked, other = in_shard(0), in_shard(0, start=500)
        for each in (asked, other):
            assert await divers.ask(to(each, Increment())) is None
        await again(cluster, "load", mode)
        assert await divers.ask(Get(asked), timeout=10) == 0
        await until(lambda: fault.times == 0 or "delay" in mode)
        await until(lambda: sorted(Diver.born) == sorted([asked, other]))
        assert fault.met[mode] > 0

    async def test_c4_when_a_start_is_stored(self, cluster: FaultyCluster, fault: Fault, mode: str) -> None:
        other = in_shard(1)
        await divers.ask(to(other, Increment()))
        fault.at("start", mode)
        waiting = asyncio.ensure_future(divers.ask(Get(in_shard(0)), timeout=10))
        await until(lambda: fault.met[mode] > 0)
        assert await divers.ask(Get(other)) == 1, "one that runs is not affected"
        assert await waiting == 0
        assert in_shard(0) in stored(cluster)

    async def test_c4_when_one_stops_abruptly(self, cluster: FaultyCluster, fault: Fault, mode: str) -> None:
        await divers.ask(to("1", Increment()))
        fault.at("start", mode)
        await divers.ask(to("1", Quit()))
        assert await divers.ask(Get("1"), timeout=10) == 0
        assert fault.met[mode] > 0
        assert stored(cluster) == {"1"}

    async def test_c4_when_one_stops_gracefully(
        self, cluster: FaultyCluster, fault: Fault, mode: str
    ) -> None:
        back, away = in_shard(0), in_shard(0, start=500)
        for each in (back, away):
            await divers.ask(to(each, Increment()))
        fault.at("stop", mode)
        await divers.ask(to(away, Rest()))
        await until(lambda: fault.met[mode] > 0)
        await divers.ask(to(back, Rest()))
        assert await divers.ask(Get(back), timeout=5) == 0
        await until(lambda: stored(cluster) == {back} and running(cluster) == {back})

    async def test_c4_when_the_coordinator_places_a_shard(
        self, cluster: FaultyCluster, fault: Fault, mode: str
    ) -> None:
        fault.at("add shard", mode)
        assert await divers.ask(Get("1"), timeout=5) == 0
        assert fault.met[mode] > 0


async def test_c5_the_next_incarnation_reads_what_was_stored_last(cluster: FaultyCluster) -> None:
    wanted: set[str] = set()
    for starts, stops in ((["1", "2", "3"], []), (["4", "5", "6"], ["2", "3"]), ([], ["6"]), (["2"], [])):
        for each in starts:
            await divers.ask(StartEntity(each))
        for each in stops:
            await divers.ask(to(each, Rest()))
        wanted |= set(starts)
        wanted -= set(stops)
        await has_stored(cluster, wanted)
    assert stored(cluster) == {"1", "2", "4", "5"}
    await again(cluster, "", "")
    await until(lambda: sorted(Diver.born) == ["1", "2", "4", "5"])
    assert running(cluster) == {"1", "2", "4", "5"}


async def test_c5_a_thousand_start_and_a_thousand_stop_together(cluster: FaultyCluster, fault: Fault) -> None:
    first, second = [f"a{number}" for number in range(1000)], [f"b{number}" for number in range(1000)]
    await asyncio.gather(*(divers.ask(StartEntity(each), timeout=10) for each in first))
    assert stored(cluster) == set(first)
    fault.writes.clear()
    stops = [divers.ask(to(each, Rest()), timeout=10) for each in first]
    starts = [divers.ask(StartEntity(each), timeout=10) for each in second]
    await asyncio.gather(*stops, *starts)
    await until(lambda: stored(cluster) == set(second))
    assert len(fault.writes) < 50, "in batches"
    marks = [mark for batch in fault.writes for mark in batch]
    assert sum(mark.runs for mark in marks) == 1000
    assert sum(not mark.runs for mark in marks) == 1000
    await again(cluster, "", "")
    await until(lambda: running(cluster) == set(second))


async def test_c5_c7_what_comes_while_the_store_is_busy_is_stored_after_it(
    cluster: FaultyCluster, fault: Fault
) -> None:
    """One start; twenty while that is written; twenty stops with twenty starts; twenty stops."""
    later = [f"x{number}" for number in range(20)]

    async def busy(*wishes: object, then: set[str]) -> list[list[Mark]]:
        """All of it while one write is under way."""
        fault.writes.clear()
        fault.held = asyncio.Event()
        asks = [asyncio.ensure_future(divers.ask(each, timeout=10)) for each in wishes]
        ids = [each.entity_id for each in wishes if isinstance(each, StartEntity)]
        await until(lambda: fault.waiting > 0 and set(ids) <= running(cluster))
        fault.held.set()
        fault.held = None
        await asyncio.gather(*asks)
        await until(lambda: stored(cluster) == then and running(cluster) == then)
        return fault.writes

    await busy(StartEntity("first"), then={"first"})
    await busy(*(StartEntity(each) for each in IDS), then={"first", *IDS})
    await busy(
        *(to(each, Rest()) for each in IDS), *(StartEntity(each) for each in later), then={"first", *later}
    )
    writes = await busy(*(to(each, Rest()) for each in later), then={"first"})
    assert sum(len(batch) for batch in writes) == 20
    assert sorted(Diver.born) == sorted(["first", *IDS, *later]), "every one really started, once"
    assert sorted(Diver.stopped) == sorted([*IDS, *later]), "and stopped"


async def test_c9_started_while_it_passivates(cluster: FaultyCluster) -> None:
    await divers.ask(to("1", Increment()))
    _, started = await asyncio.gather(divers.ask(to("1", Rest())), divers.ask(StartEntity("1")))
    assert started == StartEntityAck("1")
    assert Diver.born == ["1", "1"]
    assert Diver.stopped == ["1"]
    assert await divers.ask(Get("1")) == 0
    assert stored(cluster) == {"1"}


async def test_c9_started_while_it_waits_for_its_back_off(cluster: FaultyCluster) -> None:
    host = cluster.nodes["node1"].hosts["protocol.Diver"]
    host.entity_life._restart_backoff = 60.0
    await divers.ask(to("1", Increment()))
    await divers.ask(to("1", Quit()))
    await until(lambda: running(cluster) == set())
    assert await divers.ask(StartEntity("1")) == StartEntityAck("1"), "at once"
    assert Diver.born == ["1", "1"]


async def test_c9_started_while_its_stop_is_being_stored(cluster: FaultyCluster, fault: Fault) -> None:
    await divers.ask(to("1", Increment()))
    fault.held = asyncio.Event()
    await divers.ask(to("1", Rest()))
    await until(lambda: running(cluster) == set())
    started = asyncio.ensure_future(divers.ask(StartEntity("1")))
    await until(lambda: running(cluster) == {"1"})
    assert not started.done()
    fault.held.set()
    assert await started == StartEntityAck("1")
    assert stored(cluster) == {"1"}
    assert [mark.runs for batch in fault.writes for mark in batch][-1], "its start was stored last"


async def test_c10_the_states_of_a_remembered_entity(cluster: FaultyCluster, fault: Fault) -> None:
    """Its start is being stored; it runs; it stops and that is being stored; it waits for its
    restart.
    """
    held = fault.held = asyncio.Event()
    first = asyncio.ensure_future(divers.ask(to("1", Increment())))
    await until(lambda: fault.waiting == 1)
    assert running(cluster) == {"1"}
    assert Diver.born == [], "it handles nothing before its start is stored"
    assert not first.done()
    held.set()
    await first
    assert stored(cluster) == {"1"}
    assert Diver.born == ["1"]

    held = fault.held = asyncio.Event()
    await divers.ask(to("1", Rest()))
    await until(lambda: fault.waiting == 1)
    assert running(cluster) == set()
    assert stored(cluster) == {"1"}, "a crash now would start it again"
    held.set()
    await has_stored(cluster, set())

    fault.held = None
    assert await divers.ask(Get("1")) == 0
    await divers.ask(to("1", Quit()))
    await until(lambda: running(cluster) == set())
    assert stored(cluster) == {"1"}, "it has not passivated"
    await until(lambda: Diver.born == ["1"] * 3)
    assert running(cluster) == {"1"}


async def test_m6_an_answer_of_the_store_that_comes_after_the_shards_restart_is_ignored(
    cluster: FaultyCluster, fault: Fault
) -> None:
    host = cluster.nodes["node1"].hosts["protocol.Diver"]
    host.shard_life._hand_off_timeout = 0.05
    early, late = in_shard(0), in_shard(0, start=500)
    await divers.ask(to(early, Increment()))
    held = fault.held = asyncio.Event()
    waiting = asyncio.ensure_future(divers.ask(Get(late), timeout=10))
    await until(lambda: late in running(cluster))
    second = await cluster.add_node()
    fault.held = None
    cluster.nodes["node1"].leave_region("protocol.Diver")
    await until(lambda: not host.shards)
    assert await waiting == 0, "its new home does not wait for the former one's store"
    held.set()
    remembering = host.remembering
    assert remembering is not None
    await until(lambda: not remembering._wishes)
    assert host.entities == 0
    assert Diver.born.count(late) == 1, "it never came to life at its former home"
    assert cluster.nodes["node1"].state == "up"
    assert await divers.ask(Get(early)) == 0
    assert stored(cluster) == {early, late}
    assert 0 in second.hosts["protocol.Diver"].shards


async def in_the_wrong_shard(cluster: FaultyCluster, entity: str) -> dict[str, None]:
    """Everything stops, and only a row of a shard is left that this id does not lead to. Returns
    those of that shard.
    """
    await divers.ask(StartEntity(entity))
    type_id = cluster.nodes["node1"].hosts["protocol.Diver"].execution.type_id
    await cluster.stop_node("node1")
    rows = cluster.server.journal.remembered
    rows.clear()
    wrong = rows[type_id, 1 - shard_of(entity, 2)] = {entity: None}
    Diver.born.clear()
    return wrong


async def test_c6_one_that_belongs_elsewhere_is_not_forgotten_before_it_is_stored_there(
    cluster: FaultyCluster, fault: Fault
) -> None:
    """And so it outlives a crash on the way."""
    wrong = await in_the_wrong_shard(cluster, "1")
    fault.at("start", "crash", times=10**6)
    await cluster.add_node("second")
    await until(lambda: fault.met["crash"] > 1)
    assert wrong == {"1": None}
    await cluster.kill_node("second")
    fault.times = 0
    await cluster.add_node("third")
    await until(lambda: running(cluster) == {"1"})
    await until(lambda: not wrong)
    assert stored(cluster) == {"1"}


async def test_c6_one_that_cannot_start_elsewhere_now_is_started_later(
    cluster: FaultyCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = await in_the_wrong_shard(cluster, "1")
    real = NodeHost._start_entity
    refused: list[str] = []

    def start_entity(self: NodeHost, type_name: str, entity: str) -> Awaitable[object]:
        if len(refused) == 2:
            return real(self, type_name, entity)
        assert wrong == {"1": None}
        refused.append(entity)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        answer.set_exception(BufferFull("too much waits"))
        return answer

    monkeypatch.setattr(NodeHost, "_start_entity", start_entity)
    await cluster.add_node("second")
    await until(lambda: running(cluster) == {"1"} and not wrong)
    assert refused == ["1", "1"]
    assert Diver.born == ["1"]


async def goes_back(cluster: FaultyCluster) -> NodeHost:
    """Let the node learn that the server may have lost something, and hold writes of marks."""
    (node,) = cluster.nodes.values()
    cluster.fault.held = asyncio.Event()
    node.hosting.give_up_stored()
    await until(lambda: cluster.fault.waiting == 1)
    return node.hosting


async def test_an_erasure_waits_for_a_row_that_is_stored_once_more(
    cluster: FaultyCluster, fault: Fault
) -> None:
    """A failover may have lost the row. Stored behind the erasure, it would start the entity."""
    await divers.ask(to("0", Increment()))
    hosting = await goes_back(cluster)
    erasing = hosting.hosts["protocol.Diver"].erasing
    erased = asyncio.create_task(erasing.erase(shard_of("0", 2), "0", "an operator"))
    shard = hosting.hosts["protocol.Diver"].shards[shard_of("0", 2)]
    await until(lambda: bool(erasing.begun_in(shard)) or erased.done())
    assert not erased.done()
    assert stored(cluster) == {"0"}
    assert fault.held is not None
    fault.held.set()
    assert await erased == Erasure(remembered=1)
    assert stored(cluster) == set()


async def test_one_that_is_being_erased_is_not_stored_once_more(
    cluster: FaultyCluster, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("0", "1"):
        await divers.ask(to(each, Increment()))
    (node,) = cluster.nodes.values()
    journal, gate, begun = node.node_ports.journal, asyncio.Event(), asyncio.Event()
    erase = journal.erase

    async def slow(*given: Any, **named: Any) -> Erasure:
        begun.set()
        found = await erase(*given, **named)
        await gate.wait()
        return found

    monkeypatch.setattr(journal, "erase", slow)
    erasing = node.hosting.hosts["protocol.Diver"].erasing
    erased = asyncio.create_task(erasing.erase(shard_of("0", 2), "0", "an operator"))
    await begun.wait()
    fault.writes.clear()
    node.hosting.give_up_stored()
    await until(lambda: bool(fault.writes))
    gate.set()
    assert await erased == Erasure(remembered=1)
    assert {mark.entity for marks in fault.writes for mark in marks} == {"1"}
    assert stored(cluster) == {"1"}


async def test_one_that_waits_for_its_back_off_is_stored_once_more(
    cluster: FaultyCluster, fault: Fault
) -> None:
    await divers.ask(to("0", Increment()))
    await divers.ask(to("0", Quit()))
    await until(lambda: running(cluster) == set())
    cluster.server.journal.remembered.clear()
    hosting = await goes_back(cluster)
    assert fault.held is not None
    fault.held.set()
    await has_stored(cluster, {"0"})
    await until(lambda: running(cluster) == {"0"})
    assert hosting.hosts["protocol.Diver"].shards
