"""Numbered workers: each number lives once, whatever happens to nodes, leases and workers, and a
rescale stops all before it starts any.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from sharding_app import (
    DeclarationError,
    EntityFailed,
    EventSourced,
    InvalidCall,
    Rejected,
    ShardedDaemonProcess,
    ShardingSettings,
    Supervision,
    Worker,
    command,
    query,
)
from sharding_app.entities.registry import registry
from sharding_app.entities.sharding.workers import WorkerExtractor
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import FailedStart
from sharding_app.runtime.hosting.failed_starts import FailedStarts
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime import counter_cluster
from tests.unit.runtime.counter_cluster import until
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio

TYPE = "workers:unit.imports"
CONFIG = dataclasses.replace(
    counter_cluster.CONFIG, coordinator=CoordinatorSettings(rebalance_interval_seconds=0.5)
)


class Importer(Worker):
    """Keeps books about itself: who lives, and what was seen of it."""

    alive: ClassVar[dict[int, list["Importer"]]] = {}
    most: ClassVar[dict[int, int]] = {}
    "The most that ever lived of each number."
    totals: ClassVar[set[int]] = set()
    "The totals that living workers were told, at the same time."
    mixed: ClassVar[bool] = False
    starts: ClassVar[list[tuple[int, int]]] = []
    slow_to_end: ClassVar[float] = 0.0
    deaf: ClassVar[asyncio.Event | None] = None
    broken: ClassVar[set[int]] = set()
    "Numbers whose `run` fails at once."

    def __init__(self) -> None:
        self.wakes = 0
        self.going = asyncio.Event()
        self.failure: BaseException | None = None

    async def run(self) -> None:
        cls = Importer
        lives = cls.alive.setdefault(self.number, [])
        lives.append(self)
        cls.starts.append((self.number, self.workers))
        cls.most[self.number] = max(cls.most.get(self.number, 0), len(lives))
        cls.mixed |= len({each.workers for some in cls.alive.values() for each in some}) > 1
        try:
            if self.number in cls.broken:
                raise ValueError("no more")
            await self.going.wait()
            if self.failure is not None:
                raise self.failure
        finally:
            try:
                await asyncio.sleep(cls.slow_to_end)
                while cls.deaf is not None and not cls.deaf.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await cls.deaf.wait()
            finally:
                lives.remove(self)

    @command
    def wake(self) -> int:
        self.wakes += 1
        return self.wakes

    @command
    def refuse(self) -> None:
        raise Rejected("not now")

    @command
    def break_down(self) -> None:
        raise KeyError("it is broken")

    @command
    def end(self, *, how: str) -> None:
        if how == "stop":
            self.context.stop()
            return
        self.failure = ValueError("no more") if how == "raise" else None
        self.going.set()

    @query
    def who(self) -> tuple[int, int, str]:
        return self.number, self.workers, self.entity_id


imports = ShardedDaemonProcess.start("unit.imports", worker=Importer, workers=4)


@pytest_asyncio.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MemoryCluster]:
    for name, value in {"alive": {}, "most": {}, "starts": [], "mixed": False, "broken": set()}.items():
        monkeypatch.setattr(Importer, name, value)
    async with MemoryCluster([registry.get(TYPE)], nodes=3, config=CONFIG) as made:
        with made.in_use():
            yield made


def living() -> list[int]:
    return sorted(number for number, lives in Importer.alive.items() for _ in lives)


def homes(cluster: MemoryCluster) -> dict[str, list[int]]:
    return {name: sorted(node.hosts[TYPE].shards) for name, node in cluster.nodes.items()}


async def all_of(number: int) -> None:
    await until(lambda: living() == list(range(number)))


def never_two() -> None:
    assert set(Importer.most.values()) <= {1}, Importer.most


async def test_i1_i5_each_number_is_started_once_and_they_are_spread(cluster: MemoryCluster) -> None:
    await all_of(4)
    await until(lambda: sorted(len(each) for each in homes(cluster).values()) == [1, 1, 2])
    await all_of(4)
    assert {total for _, total in Importer.starts} == {4}
    never_two()


async def test_i1_a_node_of_another_role_has_none() -> None:
    class Elsewhere(Importer):
        pass

    with registry.isolated():
        ShardedDaemonProcess.start("unit.elsewhere", worker=Elsewhere, workers=2, role="backend")
        made = registry.get("workers:unit.elsewhere")
        async with MemoryCluster([made], nodes=0, config=CONFIG) as cluster:
            await cluster.add_node("plain", roles=())
            backend = await cluster.add_node("backend", roles=("backend",))
            await until(lambda: len(backend.hosts[made.name].shards) == 2)
            assert made.name not in cluster.nodes["plain"].hosts


@pytest.mark.parametrize("how", ["raise", "return", "stop"])
async def test_i1_one_that_ends_is_started_again(cluster: MemoryCluster, how: str) -> None:
    await all_of(4)
    before = Importer.alive[2][0]
    await imports.ref(2).end(how=how)
    await until(lambda: living() == [0, 1, 2, 3] and Importer.alive[2][0] is not before)
    assert await imports.ref(2).who() == (2, 4, "2")
    never_two()


async def test_one_that_fails_again_and_again_waits_longer_each_time_and_is_reported(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[tuple[int, list[FailedStart]]] = []
    failed = FailedStarts.failed

    def noted(self: FailedStarts, *args: Any) -> None:
        failed(self, *args)
        reports.append(self.report())

    monkeypatch.setattr(FailedStarts, "failed", noted)
    await all_of(4)
    # Until then its shard may move, and its next home counts anew.
    await until(lambda: sorted(map(len, homes(cluster).values())) == [1, 1, 2])
    Importer.broken.add(1)
    await imports.ref(1).end(how="raise")
    await until(lambda: len(reports) >= 4)
    refusal = ""
    while not refusal:  # at the moment in which the worker is tried, a query may be answered
        try:
            await imports.ref(1).who()
        except EntityFailed as error:
            refusal = str(error)
    assert "worker 1 of workers:unit.imports is started again: it has raised" in refusal
    Importer.broken.clear()
    assert [(count, each.entity, each.error, each.attempts) for count, (each,) in reports] == [
        (1, "1", "ValueError", attempts) for attempts in range(1, len(reports) + 1)
    ]
    first, _, _, fourth = (each.retry_seconds for _, (each,) in reports[:4])
    assert first <= 0.1 < fourth <= 0.4
    await all_of(4)
    assert not any(node.hosts[TYPE].entity_life.failed_starts.report()[0] for node in cluster.nodes.values())
    never_two()


async def test_i4_the_id_is_the_number_and_the_shard() -> None:
    extractor = WorkerExtractor()
    assert [extractor.checked_shard_id(str(number)) for number in (0, 7, 1023)] == [0, 7, 1023]
    for wrong in ("1024", "-1", "01", "+1", "1|3|0", "\u0663", "one"):
        with pytest.raises(InvalidCall):
            extractor.checked_shard_id(wrong)


async def test_they_move_when_nodes_leave_die_and_join(cluster: MemoryCluster) -> None:
    await all_of(4)
    await cluster.stop_node("node1")
    await all_of(4)
    await cluster.kill_node("node2")
    # What its death leaves behind in this process: the books of those that died with it.
    await until(lambda: sum(map(len, homes(cluster).values())) == 4)
    await cluster.add_node("node4")
    await until(lambda: sorted(len(each) for each in homes(cluster).values()) == [2, 2])
    await all_of(4)
    never_two()


async def test_a_move_waits_until_run_has_ended(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_of(4)
    monkeypatch.setattr(Importer, "slow_to_end", 0.3)
    await cluster.stop_node("node1")
    await all_of(4)
    never_two()


async def test_one_that_ignores_its_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(CONFIG, coordinator=CoordinatorSettings(hand_off_timeout_seconds=0.2))
    monkeypatch.setattr(Importer, "alive", {})
    async with MemoryCluster([registry.get(TYPE)], nodes=1, config=config) as cluster:
        with cluster.in_use():
            await all_of(4)
            monkeypatch.setattr(Importer, "deaf", asyncio.Event())
            host = cluster.nodes["node1"].hosts[TYPE]
            await cluster.stop_node("node1")
            assert host.counters["stopped_by_force"] == 4
            assert Importer.deaf is not None
            Importer.deaf.set()
            await until(lambda: living() == [])


async def test_m7_a_rescale_stops_all_before_it_starts_any(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_of(4)
    monkeypatch.setattr(Importer, "slow_to_end", 0.02)
    assert numbers_of(await imports.workers()) == (4, 4, 0)
    for number, revision in ((16, 1), (2, 2)):
        found = await imports.rescale(number)
        assert numbers_of(found) == (number, number, revision)
        await all_of(number)
        assert {each.workers for lives in Importer.alive.values() for each in lives} == {number}
        assert sum(map(len, homes(cluster).values())) == number, "no empty shard is left at home"
    assert not Importer.mixed
    never_two()
    with pytest.raises(InvalidCall):
        await imports.ref(5).who()


def numbers_of(found: object) -> tuple[int, int, int]:
    return found.workers, found.wanted, found.revision  # type: ignore[attr-defined]


async def test_m7_a_rescale_goes_on_when_the_coordinator_dies_in_the_middle(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await all_of(4)
    monkeypatch.setattr(Importer, "slow_to_end", 0.2)
    leader = next(name for name, node in cluster.nodes.items() if node.coordinator is not None)
    rescaled = asyncio.ensure_future(imports.rescale(6))
    await until(
        lambda: len(living()) < 4 or any(not node.hosts[TYPE].shards for node in cluster.nodes.values())
    )
    await cluster.kill_node(leader)
    assert numbers_of(await rescaled) == (6, 6, 1)
    await all_of(6)


async def test_the_number_outlives_a_restart_of_everything(cluster: MemoryCluster) -> None:
    await all_of(4)
    await imports.rescale(3)
    await all_of(3)
    for name in list(cluster.nodes):
        await cluster.stop_node(name)
    assert living() == []
    await cluster.add_node("again")
    await all_of(3)
    assert numbers_of(await imports.workers()) == (3, 3, 1)
    assert numbers_of(await imports.rescale(3)) == (3, 3, 1), "nothing is to be done"


async def test_none_lives_on_a_node_without_its_lease(cluster: MemoryCluster) -> None:
    await until(lambda: all(len(each) >= 1 for each in homes(cluster).values()))
    await all_of(4)
    lost = cluster.nodes["node3"]
    there = homes(cluster)["node3"]
    cluster.cut_off("node3")
    await until(lambda: not lost.may_handle())
    await until(lambda: not set(there) & set(living()) or lost.ended.done())
    await until(lambda: sum(len(each) for name, each in homes(cluster).items() if name != "node3") == 4)
    await all_of(4)
    never_two()


async def test_one_that_swallows_its_cancellation_takes_no_steps_without_a_lease() -> None:
    """As `asyncio.wait_for` may do: a cancellation that comes with the result is lost."""

    class Stubborn(Worker):
        alive: ClassVar[list["Stubborn"]] = []
        swallows: ClassVar[bool] = False

        async def run(self) -> None:
            swallowed = False
            self.alive.append(self)
            try:
                while True:
                    try:
                        await asyncio.sleep(0.01)
                    except asyncio.CancelledError:
                        if swallowed or not self.swallows:
                            raise
                        swallowed = True
            finally:
                self.alive.remove(self)

    stubborn = ShardedDaemonProcess.start("unit.stubborn", worker=Stubborn, workers=6)
    config = dataclasses.replace(CONFIG, stop_timeout_seconds=0.2)
    async with MemoryCluster([registry.get(stubborn.type_name)], nodes=3, config=config) as cluster:
        nodes = cluster.nodes.values()
        await until(lambda: all(len(each.hosts[stubborn.type_name].shards) == 2 for each in nodes))
        await until(lambda: len(Stubborn.alive) == 6)
        lost = cluster.nodes["node3"]
        there = [each for each in Stubborn.alive if each.number in lost.hosts[stubborn.type_name].shards]
        Stubborn.swallows = True
        cluster.cut_off("node3")
        await until(lambda: not set(there) & set(Stubborn.alive))
        await until(lambda: sorted(each.number for each in Stubborn.alive) == list(range(6)))
        Stubborn.swallows = False


async def test_a_run_that_is_cancelled_while_it_waits_lets_no_other_begin_beside_the_former() -> None:
    """One that was given up goes on. The next of its number waits for it, and loses its lease."""

    class Deaf(Worker):
        alive: ClassVar[list["Deaf"]] = []
        most: ClassVar[int] = 0
        ends: ClassVar[asyncio.Event]

        async def run(self) -> None:
            self.alive.append(self)
            Deaf.most = max(Deaf.most, len(self.alive))
            while not self.ends.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await self.ends.wait()
            self.alive.remove(self)

    Deaf.ends = asyncio.Event()
    deaf = ShardedDaemonProcess.start("unit.deaf", worker=Deaf, workers=1)
    async with MemoryCluster([registry.get(deaf.type_name)], nodes=1, config=CONFIG) as cluster:
        await until(lambda: len(Deaf.alive) == 1)
        former = Deaf.alive[0]
        runs = cluster.nodes["node1"].hosts[deaf.type_name].workers
        assert runs is not None
        (slot,) = runs._runs
        runs.give_up(slot)
        runs.loaded(slot)
        try:
            for _ in range(3):
                (waiting,) = runs._runs.values()
                await until(lambda each=waiting: each.task is not None)  # type: ignore[misc]
                runs.suspend()
                await until(lambda each=waiting: [*runs._runs.values()] not in ([], [each]))  # type: ignore[misc]
                await travel(1)
                assert Deaf.most == 1
            assert Deaf.alive == [former]
        finally:
            Deaf.ends.set()
        await until(lambda: former not in Deaf.alive)


async def test_commands_reach_a_worker_and_their_failure_does_not_stop_it(cluster: MemoryCluster) -> None:
    await all_of(4)
    first = Importer.alive[3][0]
    assert [await imports.ref(3).wake(), await imports.ref(3).wake()] == [1, 2]
    with pytest.raises(Rejected):
        await imports.ref(3).refuse()
    with pytest.raises(EntityFailed):
        await imports.ref(3).break_down()
    assert await imports.ref(3).wake() == 3
    assert Importer.alive[3] == [first]
    assert [await imports.ref(number).who() for number in range(4)] == [
        (number, 4, str(number)) for number in range(4)
    ]


async def test_supervision_may_start_a_worker_anew_after_a_failed_command() -> None:
    class Fragile(Importer):
        settings = ShardingSettings(supervision=Supervision(default="restart"))

    with registry.isolated():
        fragile = ShardedDaemonProcess.start("unit.fragile", worker=Fragile, workers=1)
        async with MemoryCluster([registry.get(fragile.type_name)], nodes=1, config=CONFIG) as cluster:
            with cluster.in_use():
                await until(lambda: bool(Importer.alive.get(0)))
                first = Importer.alive[0][0]
                with pytest.raises(EntityFailed):
                    await fragile.ref(0).break_down()
                await until(lambda: bool(Importer.alive[0]) and Importer.alive[0][0] is not first)
                never_two()


async def test_wrong_declarations_say_what_is_wrong() -> None:
    with pytest.raises(DeclarationError, match=r"run must be `async def`: a thread cannot be stopped"):

        class Blocking(Worker):
            def run(self) -> None:  # type: ignore[override]
                """Block."""

    with pytest.raises(DeclarationError, match="a Worker is in memory only"):

        class Stored(Worker, EventSourced):
            async def run(self) -> None:
                """Return."""

    for wrong in (0, 1025, True, "4"):
        with pytest.raises(DeclarationError, match="from 1 to 1024"):
            ShardedDaemonProcess.start("unit.wrong", worker=Importer, workers=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidCall, match="from 1 to 1024"):
            await imports.rescale(wrong)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="workers do not take number_of_shards"):
        ShardedDaemonProcess.start(
            "unit.wrong", worker=Importer, workers=1, settings=ShardingSettings(number_of_shards=3)
        )
    with pytest.raises(DeclarationError, match="must be a subclass of Worker"):
        ShardedDaemonProcess.start("unit.wrong", worker=Worker, workers=1)
    with pytest.raises(InvalidCall, match="its refs come from its set"):
        Importer.ref("1")
