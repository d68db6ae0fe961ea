"""Handlers of messages and timers that commit in their middle."""

import asyncio
from datetime import timedelta
from typing import ClassVar

import pytest

from sharding_app import EventSourced, applies, command, event, query
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.test_messages import CONFIG
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio


@event(name="steps.Noted")
class Noted:
    text: str


class Worker(EventSourced, name="steps.Worker"):
    runs: ClassVar[int] = 0
    noted: list[str]

    def __init__(self) -> None:
        self.noted = []

    @applies(Noted)
    def on_noted(self, noted: Noted) -> None:
        self.noted.append(noted.text)

    @command
    def begin(self, how: str) -> None:
        if how.startswith("every"):
            self.schedule(self.ref.work.bind(how), key="k", every=timedelta(seconds=20))
        else:
            self.schedule(self.ref.work.bind(how), key="k", after=1)

    @command
    async def work(self, how: str) -> None:
        if how.endswith("anew"):
            self.schedule(self.ref.work.bind("next"), key="k", after=60)
        if how.endswith("cancel"):
            self.cancel("k")
        await self.persist(Noted(f"{how} 1"))
        self.persist(Noted(f"{how} 2"))

    @command
    async def work_at_once(self) -> None:
        first = asyncio.ensure_future(self._step("1"))
        await asyncio.sleep(0)
        await self._step("2")
        await first
        self.persist(Noted("3"))

    @query
    def seen(self) -> list[str]:
        return self.noted

    async def _step(self, text: str) -> None:
        await self.persist(Noted(text))


class Sender(EventSourced, name="steps.Sender"):
    @command
    def go(self) -> None:
        self.send(Worker.ref("w").work_at_once)


@pytest.mark.parametrize(
    ("how", "later"),
    [
        ("once", []),
        ("once anew", ["next 1", "next 2"]),
        ("once cancel", []),
        ("every anew", ["next 1", "next 2"]),
        ("every cancel", []),
    ],
)
async def test_a_timers_handler_ends_its_own_timer_first(how: str, later: list[str]) -> None:
    async with MemoryCluster([Worker], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await Worker.ref("w").begin(how)
            await travel(30)
            assert await Worker.ref("w").seen() == [f"{how} 1", f"{how} 2"]
            await travel(100)
            assert await Worker.ref("w").seen() == [f"{how} 1", f"{how} 2", *later]
            assert cluster.server.messages.rows == {}


async def test_a_timer_that_repeats_runs_to_its_end_each_time() -> None:
    async with MemoryCluster([Worker], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await Worker.ref("w").begin("every")
            await travel(70)
            assert await Worker.ref("w").seen() == ["every 1", "every 2"] * 3


async def test_two_commits_in_the_middle_are_under_way_at_once() -> None:
    async with MemoryCluster([Worker, Sender], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await Sender.ref("s").go()
            await travel(30)
            assert await Worker.ref("w").seen() == ["1", "2", "3"]
            assert cluster.server.messages.rows == {}
