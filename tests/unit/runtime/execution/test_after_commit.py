"""`self.after_commit`: functions that run once the events are in, and that change nothing."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from sharding_app import (
    Entity,
    EntityFailed,
    EventSourced,
    NotSerializable,
    ShardingSettings,
    WrongContext,
    applies,
    command,
    event,
    query,
)
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import until

pytestmark = pytest.mark.asyncio

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@event
class Sold:
    what: str


def note(what: str) -> Callable[[], None]:
    return lambda: ran.append(f"{what} on {threading.current_thread().name.rpartition('-')[0]}")


class Till(EventSourced, name="entities.Till"):
    sold: list[str]

    def __init__(self) -> None:
        self.sold = []

    @command
    def sell(self, what: str) -> int:
        self.after_commit(lambda: ran.append(what))
        self.persist(Sold(what))
        return len(self.sold)

    @command
    def sell_none(self) -> None:
        self.after_commit(note("none"))

    @command
    def fail(self) -> None:
        self.after_commit(lambda: ran.append("fail"))
        self.persist(Sold("x"))
        raise ValueError("no")

    @command
    async def sell_in_steps(self) -> None:
        async def later() -> None:
            await asyncio.sleep(0)
            ran.append("step")

        self.after_commit(later)
        await self.persist(Sold("a"))
        self.after_commit(lambda: ran.append("end"))
        await asyncio.sleep(5.0)

    @command
    async def fail_after_a_step(self) -> None:
        self.after_commit(lambda: ran.append("step"))
        await self.persist(Sold("a"))
        self.after_commit(lambda: ran.append("end"))
        raise ValueError("no")

    @command
    def sell_with_trouble(self) -> str:
        async def call() -> None:
            ran.append(f"{await Till.ref('2').sell('other')}")

        def trouble() -> None:
            raise SystemExit(3)

        self.after_commit(trouble)
        self.after_commit(lambda: call())
        self.persist(Sold("x"))
        return "sold"

    @query
    def ask(self) -> None:
        self.after_commit(lambda: None)

    @applies(Sold)
    def on_sold(self, happened: Sold) -> None:
        self.sold.append(happened.what)


class FastTill(Till, name="entities.FastTill"):
    settings = ShardingSettings(pipelined=True)


class Gong(Entity, name="entities.Gong"):
    @command
    def ring(self) -> None:
        self.after_commit(lambda: ran.append("rung"))


@pytest.mark.parametrize("kind", [Till, FastTill])
async def test_it_runs_when_the_events_are_in(cluster: MemoryCluster, kind: type[Till]) -> None:
    with cluster.writes_wait():
        asked = asyncio.ensure_future(kind.ref("1").sell("x"))
        await asyncio.sleep(0.05)
        assert ran == []
    assert await asked == 1
    await until(lambda: ran == ["x"])


async def test_it_runs_in_a_thread_also_when_nothing_is_stored(cluster: MemoryCluster) -> None:
    await Till.ref("1").sell_none()
    await Gong.ref("1").ring()
    await until(lambda: len(ran) == 2)
    assert "rung" in ran
    assert any(each.startswith("none on sharding-handler") for each in ran)


async def test_nothing_runs_of_a_command_that_fails(cluster: MemoryCluster) -> None:
    with pytest.raises(EntityFailed):
        await Till.ref("1").fail()
    cluster.fail_next_write(Till)
    with pytest.raises(NotSerializable):
        await Till.ref("1").sell("x")
    assert await Till.ref("1").sell("y") == 1
    await until(lambda: ran == ["y"])


async def test_a_commit_in_the_middle_has_its_own(cluster: MemoryCluster) -> None:
    asked = asyncio.ensure_future(Till.ref("1", timeout=60).sell_in_steps())
    await until(lambda: ran == ["step"])
    await asked
    await until(lambda: ran == ["step", "end"])
    ran.clear()
    with pytest.raises(EntityFailed):
        await Till.ref("2").fail_after_a_step()
    await until(lambda: ran == ["step"])
    await Till.ref("2").sell("z")
    await until(lambda: len(ran) >= 2)
    assert ran == ["step", "z"]


async def test_a_failure_changes_nothing_but_is_counted(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    assert await Till.ref("1").sell_with_trouble() == "sold"
    await until(lambda: "1" in ran)
    assert len(cluster.events(Till, "1")) == 1
    assert "does after its commit raised Escaped" in caplog.text
    (host,) = (node.hosts["entities.Till"] for node in cluster.nodes.values())
    assert host.execution.counters["after_commit_failed"] == 1
    assert host.execution.counters["handler_failed"] == 0


async def test_a_query_has_no_commit(cluster: MemoryCluster) -> None:
    with pytest.raises(EntityFailed, match="after_commit\\(\\) can only be called while a command"):
        await Till.ref("1").ask()
    with pytest.raises(WrongContext):
        Till._sharding_type.new("1").after_commit(lambda: None)  # type: ignore[union-attr]
