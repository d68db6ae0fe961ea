"""State that a handler changes outside of appliers is found, and nothing else."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sharding_app import (
    DurableState,
    Entity,
    EntityFailed,
    EventSourced,
    PartiallyApplied,
    Rejected,
    ShardingSettings,
    applies,
    command,
    event,
    message,
    on_start,
    query,
)
from sharding_app.protocol.builtin_commands import MESSAGE
from sharding_app.protocol.supervision import Supervision
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.settings.load import get_settings
from sharding_app.testing.cluster import MemoryCluster
from tests.support.slack import SLACK

pytestmark = pytest.mark.asyncio


@event
class Counted:
    by: int
    tags: list[str]


@message
class Count: ...


class Counter(EventSourced, name="guard.Counter"):
    """Changes its state in every way in which a handler should not, and in those it may."""

    settings = ShardingSettings(supervision=Supervision({Exception: "resume"}))
    total: int = 0
    tags: list[str]
    kinds: set[str]
    late: bool = False

    def __init__(self) -> None:
        self.tags = []
        self.kinds = set()
        self.cache: dict[str, int] = {}

    @on_start
    def begins(self) -> None:
        self.late = False

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.total += happened.by
        self.tags = happened.tags
        self.kinds |= set(happened.tags)
        self.cache["applied"] = self.total

    @command
    def count(self, by: int = 1) -> int:
        self.cache["commands"] = self.cache.get("commands", 0) + 1
        self.persist(Counted(by, ["a", "b"]), Counted(by, ["c"]))
        return self.total

    @command
    def assigns(self) -> int:
        self.total += 5
        return self.total

    @command
    def assigns_before_it_persists(self) -> None:
        self.total += 5
        self.persist(Counted(1, []))

    @command
    def mutates_between_events(self) -> None:
        self.persist(Counted(1, ["a"]))
        self.tags.append("b")
        self.persist(Counted(1, ["c"]))

    @command
    def assigns_and_refuses(self) -> None:
        self.total = 100
        raise Rejected("no")

    @command
    async def assigns_after_a_step(self) -> None:
        await self.persist(Counted(1, []))
        self.total += 5

    @command(thread=True)
    def assigns_in_a_thread(self) -> None:
        self.total += 5

    @command
    def puts_back(self) -> None:
        """Change the state for a moment, and a set to an equal one."""
        self.total += 5
        self.total -= 5
        self.kinds = {"z", *sorted(self.kinds, reverse=True)} - {"z"}

    @command
    def assigns_after_its_commit(self) -> None:
        def late() -> None:
            self.late = True

        self.after_commit(late)

    @query
    def value(self) -> int:
        return self.total

    @query
    def assigns_in_a_query(self) -> int:
        self.total += 5
        return self.total

    async def receive(self, message: object) -> object:
        self.total += 1
        return self.total


class Own(EventSourced, name="guard.Own"):
    """Its class has a `snapshot` of its own, which also stores the moment of the snapshot."""

    def __init__(self) -> None:
        self.total = 0
        self.moment = 0

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.total += happened.by

    @command
    def count(self) -> int:
        self.persist(Counted(1, []))
        return self.total

    @command
    def assigns(self) -> None:
        self.total = 9

    def snapshot(self) -> dict[str, int]:
        self.moment += 1
        return {"total": self.total, "moment": self.moment}

    def restore(self, state: dict[str, int]) -> None:
        self.total = state["total"]


class Document(DurableState, name="guard.Document"):
    text: str = ""

    @command
    def write(self, text: str) -> None:
        self.text = text


class Room(Entity, name="guard.Room"):
    count: int = 0

    @command
    def enter(self) -> int:
        self.count += 1
        return self.count


class Bad(EventSourced, name="guard.Bad"):
    """A value of its state cannot be stored."""

    values: object = None
    total: int = 0

    @command
    def assigns(self, value: float) -> None:
        self.values = object()

    @command
    def counts(self) -> None:
        self.total += 1

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None: ...


FOUND = r"'{0}' was changed outside of an applier\. Such a change is lost .* Persist an event"


async def refused(call: Callable[[], Awaitable[object]], name: str) -> EntityFailed:
    with pytest.raises(EntityFailed, match=FOUND.format(name)) as raised:
        await call()
    return raised.value


async def test_an_assignment_is_named_and_taken_back(cluster: MemoryCluster) -> None:
    counter = Counter.ref("a")
    await counter.count(1)
    error = await refused(counter.assigns, "total")
    assert str(error).startswith("guard.Counter 'a': assigns raised WrongContext: 'total' was changed")
    assert await counter.value() == 2  # whatever the supervision says


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("assigns_before_it_persists", "total"),
        ("mutates_between_events", "tags"),
        ("assigns_and_refuses", "total"),
        ("assigns_in_a_thread", "total"),
        ("assigns_in_a_query", "total"),
    ],
)
async def test_nothing_is_stored_of_such_a_handler(cluster: MemoryCluster, name: str, attribute: str) -> None:
    counter: Any = Counter.ref("a")
    await counter.count(1)
    await refused(getattr(counter, name), attribute)
    assert await counter.value() == 2
    assert len(cluster.events(Counter, "a")) == 2


async def test_a_step_that_was_awaited_stays(cluster: MemoryCluster) -> None:
    with pytest.raises(PartiallyApplied, match="'total' was changed outside of an applier"):
        await Counter.ref("a").assigns_after_a_step()
    assert await Counter.ref("a").value() == 1


async def test_a_plain_message_is_guarded_too(cluster: MemoryCluster) -> None:
    host = next(iter(cluster.nodes.values())).hosts["guard.Counter"]
    handler = host.execution.commands[MESSAGE]
    entity = Counter()
    with pytest.raises(Exception, match="'total' was changed outside of an applier"):
        await handler.function(entity, Count())


async def test_a_change_between_two_commands_is_no_fault_of_the_second(cluster: MemoryCluster) -> None:
    counter = Counter.ref("a")
    await counter.assigns_after_its_commit()
    async with asyncio.timeout(20 * SLACK):
        while True:
            answer = (await asyncio.gather(counter.value(), return_exceptions=True))[0]
            if isinstance(answer, EntityFailed):
                break
            await asyncio.sleep(0.005)
    assert "'late' was changed after assigns_after_its_commit had ended" in str(answer)
    assert await counter.count() == 2


async def test_caches_and_values_that_are_equal_again_are_no_change(cluster: MemoryCluster) -> None:
    counter = Counter.ref("a")
    assert await counter.count() == 2
    await counter.puts_back()
    assert await counter.count() == 4
    cluster.forget()
    assert await counter.value() == 4


async def test_a_snapshot_of_the_class_is_compared_without_what_is_of_the_moment(
    cluster: MemoryCluster,
) -> None:
    assert await Own.ref("a").count() == 1
    assert await Own.ref("a").count() == 2
    await refused(Own.ref("a").assigns, "total")
    assert await Own.ref("a").count() == 3


async def test_other_kinds_of_entities_change_as_they_like(cluster: MemoryCluster) -> None:
    await Document.ref("a").write("x")
    await Document.ref("a").write("y")
    assert await Room.ref("a").enter() == 1
    assert await Room.ref("a").enter() == 2


async def test_a_value_that_cannot_be_stored_hides_no_other(cluster: MemoryCluster) -> None:
    await Bad.ref("a").assigns(1.0)
    await refused(Bad.ref("a").counts, "total")


async def test_production_has_no_guard() -> None:
    assert not NodeConfig().check_state
    assert not get_settings().node(development=False).check_state
    assert get_settings().node(development=True).check_state
    async with MemoryCluster([Counter], config=dataclasses.replace(NodeConfig())) as cluster:
        with cluster.in_use():
            assert await Counter.ref("a").assigns() == 5
        execution = next(iter(cluster.nodes.values())).hosts["guard.Counter"].execution
        assert execution.commands["assigns"] is execution.type.commands["assigns"]
