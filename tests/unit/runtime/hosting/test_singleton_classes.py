"""Entities of which there is one, their `@every`, and `@on_start`."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from sharding_app import (
    DeclarationError,
    Entity,
    EntityFailed,
    EventSourced,
    InvalidCall,
    Singleton,
    applies,
    command,
    event,
    every,
    on_start,
    query,
)
from sharding_app.adapters.memory.journal import MemoryJournal
from sharding_app.ports.deliveries import Claim, MessageRow, TimerKey
from sharding_app.ports.journal import JournalUnavailable
from sharding_app.protocol.call import Call
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.waiting import travel, until

pytestmark = pytest.mark.asyncio


@event
class Sent: ...


class Digest(Singleton, EventSourced, name="entities.Digest"):
    sent: int = 0

    @every(minutes=5)
    @command
    def send_out(self) -> int:
        self.persist(Sent())
        return self.sent

    @every(day_at="07:00", tz="Europe/Berlin")
    @command
    def clean_up(self) -> None: ...

    @command
    def stumble(self) -> None:
        self.persist(Sent())
        raise ZeroDivisionError

    @query
    def count(self) -> int:
        return self.sent

    @applies(Sent)
    def on_sent(self, happened: Sent) -> None:
        self.sent += 1


class Starter(Entity, name="entities.Starter"):
    trace: list[str]
    fails = False

    def __init__(self) -> None:
        self.trace = ["made"]

    @on_start
    def first(self) -> None:
        self.trace.append("first")
        with pytest.raises(Exception, match="send\\(\\) can only be called"):
            self.send(self.ref.look)

    @on_start
    async def second(self) -> None:
        await asyncio.sleep(1.0)
        if Starter.fails:
            raise ValueError("not today")
        self.trace.append("second")

    @command
    def look(self) -> list[str]:
        return self.trace


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with MemoryCluster([Digest, Starter]) as made:
        with made.in_use():
            yield made


@pytest.fixture(autouse=True)
def _starts() -> Iterator[None]:
    yield
    Starter.fails = False


def timers(cluster: MemoryCluster) -> dict[str, str]:
    return {each.row.key: each.row.id for each in cluster.server.messages.rows.values() if each.row.key}


async def test_there_is_one_and_refs_of_others_are_refused(cluster: MemoryCluster) -> None:
    assert await Digest.the(timeout=5).count() == 0
    assert Digest.the() == Digest.ref("the")
    with pytest.raises(InvalidCall, match=r"reach it as Digest\.the\(\)"):
        Digest.ref("other")
    call = Call("singleton:entities.Digest", "other", "count", b"\x90")
    with pytest.raises(InvalidCall, match="the one entity of shard 0 is 'the'"):
        await cluster.client.ask(call)
    assert await Digest.the().count() == 0


async def test_its_timers_are_set_at_its_start_and_fire(cluster: MemoryCluster) -> None:
    await until(lambda: len(timers(cluster)) == 2)
    assert set(timers(cluster)) == {"?every:send_out", "?every:clean_up"}
    await travel(3 * 300 + 60)
    await until(lambda: len(cluster.events(Digest, "the")) >= 3)
    events = [each for each in cluster.events(Digest, "the") if isinstance(each, Sent)]
    assert len(events) == 3


class Clock(Singleton, Entity, name="entities.Clock"):
    ticks = 0

    @every(seconds=1)
    @command
    def tick(self) -> None:
        Clock.ticks += 1


async def test_timers_whose_storage_is_in_doubt_fire_at_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is lost, and the next look finds them stored."""
    monkeypatch.setattr(Clock, "ticks", 0)
    real, lost = MemoryJournal.stage, 0

    async def stage(self: MemoryJournal, sends: Sequence[MessageRow], *args: Any, **given: Any) -> datetime:
        nonlocal lost
        at = await real(self, sends, *args, **given)
        if lost == 0:
            lost += 1
            raise JournalUnavailable("the answer is lost")
        return at

    monkeypatch.setattr(MemoryJournal, "stage", stage)
    async with MemoryCluster([Clock]) as cluster:
        await until(lambda: lost == 1)
        await travel(3.5)
        assert Clock.ticks == 3, timers(cluster)


async def test_a_start_leaves_timers_alone_that_are_right(cluster: MemoryCluster) -> None:
    await until(lambda: len(timers(cluster)) == 2)
    before = timers(cluster)
    await cluster.add_node()
    await cluster.kill_node("node1")
    await until(lambda: cluster.is_in_memory(Digest, "the"))
    await travel(5)
    assert timers(cluster) == before


async def test_a_start_while_another_one_stores_the_timers_does_not_set_them_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: list[str | None] = []
    store = MemoryJournal.stage

    async def slow(
        self: MemoryJournal, sends: Sequence[MessageRow], cancels: Sequence[TimerKey], claim: Claim
    ) -> datetime:
        stored.extend(each.key for each in sends)
        await asyncio.sleep(2.0)
        return await store(self, sends, cancels, claim=claim)

    monkeypatch.setattr(MemoryJournal, "stage", slow)
    async with MemoryCluster([Digest]) as cluster:
        with cluster.in_use():
            await until(lambda: bool(stored))
            with pytest.raises(EntityFailed, match="ZeroDivisionError"):
                await Digest.the().stumble()
            assert await Digest.the().count() == 0
            assert not timers(cluster), "the first start still stores them"
            await travel(10)
    assert sorted(map(str, stored)) == ["?every:clean_up", "?every:send_out"]


@pytest.mark.parametrize("left", [(), ("send_out",)])
async def test_timers_that_a_release_has_taken_out_of_the_class_are_ended(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, left: tuple[str, ...]
) -> None:
    await until(lambda: len(timers(cluster)) == 2)
    (made,) = (each for each in cluster.types.values() if each.cls is Digest)
    monkeypatch.setattr(made, "recurring", {each: made.recurring[each] for each in left})
    await cluster.add_node()
    await cluster.kill_node("node1")
    await until(lambda: set(timers(cluster)) == {f"?every:{each}" for each in left})


async def test_on_start_runs_before_the_first_message(cluster: MemoryCluster) -> None:
    assert await Starter.ref("1").look() == ["made", "first", "second"]
    assert await Starter.ref("1").look() == ["made", "first", "second"]
    cluster.forget(Starter)
    assert await Starter.ref("1").look() == ["made", "first", "second"]


async def test_a_start_that_fails_refuses_the_messages(cluster: MemoryCluster) -> None:
    Starter.fails = True
    with pytest.raises(EntityFailed, match="@on_start raised ValueError"):
        await Starter.ref("1").look()
    Starter.fails = False
    assert await Starter.ref("1").look() == ["made", "first", "second"]


async def test_wrong_declarations_are_refused() -> None:
    with pytest.raises(DeclarationError, match="@every is for a Singleton"):

        class Ordinary(Entity):
            @every(hours=1)
            @command
            def work(self) -> None: ...

    with pytest.raises(DeclarationError, match="without arguments"):

        class Needy(Singleton):
            @every(hours=1)  # type: ignore[arg-type]
            @command
            def work(self, what: str) -> None: ...

    with pytest.raises(DeclarationError, match="above @command"):

        class Upside(Singleton):
            @command  # type: ignore[call-overload]
            @every(hours=1)  # type: ignore[arg-type]
            def work(self) -> None: ...

    with pytest.raises(DeclarationError, match="too short"):
        every(hours=0)
    with pytest.raises(DeclarationError, match="no time zone 'Mars'"):
        every(day_at="07:00", tz="Mars")
    with pytest.raises(DeclarationError, match="must take self only"):

        class Greedy(Entity):
            @on_start  # type: ignore[type-var]
            def begin(self, what: str) -> None: ...

    assert timedelta(minutes=5).total_seconds() == Digest._sharding_type.recurring["send_out"].seconds  # type: ignore[union-attr]
