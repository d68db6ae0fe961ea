"""A home whose shard has lost entities to other shards: a message for one of them is handed back
after the new numbers, and nothing of that entity is run, read or removed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from sharding_app import EventSourced, ShardingSettings, applies, command, event
from sharding_app.entities.registry import registry
from sharding_app.protocol.builtin_commands import DUE, EVENTS
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver, HandBack, Renumbered
from sharding_app.protocol.numbering import Numbering
from sharding_app.runtime.base.interfaces import NO_CALLER
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio

NAME = "elsewhere.Tally"
SHARD = 3
CALLER = "p-caller"
NO_ARGUMENTS = msgspec.msgpack.encode([])
AFTER = Numbering(16, revision=1)


def entity_of(later: int) -> str:
    """Return an id whose shard is SHARD of 8, and this one of 16."""
    return next(each for each in map(str, range(999)) if shard_of(each, 16) == later)


STAYS, MOVED = entity_of(SHARD), entity_of(SHARD + 8)


@event
class Counted:
    pass


class Tally(EventSourced, name=NAME):
    settings = ShardingSettings(number_of_shards=8)
    count: int

    def __init__(self) -> None:
        self.count = 0

    @command
    def add(self) -> int:
        self.persist(Counted())
        return self.count

    @applies(Counted)
    def on_counted(self, happened: Counted) -> None:
        self.count += 1


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    """One node with both entities stored and none in memory, which learns that 16 shards are in
    force while it is the home of a shard of the 8.
    """
    async with MemoryCluster([registry.get(NAME)], nodes=1) as made:
        with made.in_use():
            for entity in (STAYS, MOVED):
                await Tally.ref(entity).add()
            made.forget(Tally)
            (node,) = made.nodes.values()
            node.region_client.renumbered(NAME, AFTER, node.locator.term)
            yield made


@pytest.fixture
def host(cluster: MemoryCluster) -> TypeHost:
    (node,) = cluster.nodes.values()
    return node.hosts[NAME]


@pytest.fixture
def sent(host: TypeHost, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, AnyMessage]]:
    found: list[tuple[str, AnyMessage]] = []
    monkeypatch.setattr(host, "send", lambda target, message: found.append((target, message)))
    return found


def message(host: TypeHost, entity: str, name: str = "add") -> Deliver:
    deadline = int((host.now() + 60) * 1000)
    return Deliver(NAME, SHARD, host.shards[SHARD].epoch, entity, 7, name, NO_ARGUMENTS, deadline_ms=deadline)


async def until(condition: Any) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("name", ["add", EVENTS, DUE], ids=["a command", "a follower", "news of a timer"])
async def test_a_message_for_an_entity_of_another_shard_is_handed_back(
    cluster: MemoryCluster, host: TypeHost, sent: list[tuple[str, AnyMessage]], name: str
) -> None:
    asked = message(host, MOVED, name)
    host.receive(CALLER, [asked])
    (told_to, told), *others = sent
    assert told_to == CALLER
    assert isinstance(told, Renumbered), "the numbers come before the message that they explain"
    assert (told.type, told.numbering) == (NAME, AFTER)
    assert others == [(CALLER, HandBack(NAME, SHARD, asked.epoch, [asked.request]))]
    assert host.counters["handed_back"] == 1
    assert not host.shards[SHARD].slots, "nothing is loaded for it"
    host.receive(CALLER, [message(host, STAYS)])
    await until(lambda: any(isinstance(each, Answer) for _, each in sent))
    assert len(cluster.events(Tally, STAYS)) == 2, "an entity of the shard goes on"
    assert len(cluster.events(Tally, MOVED)) == 1
    assert host.counters["handed_back"] == 1


async def test_a_timer_of_an_entity_of_another_shard_does_not_run(
    cluster: MemoryCluster, host: TypeHost, sent: list[tuple[str, AnyMessage]]
) -> None:
    host.receive(NO_CALLER, [message(host, MOVED)])
    assert sent == [], "there is no caller to tell"
    assert not host.shards[SHARD].slots
    assert len(cluster.events(Tally, MOVED)) == 1


async def test_an_entity_of_another_shard_is_not_erased(cluster: MemoryCluster, host: TypeHost) -> None:
    assert await host.erasing.erase(SHARD, MOVED, "an operator") == "away"
    assert len(cluster.events(Tally, MOVED)) == 1


async def test_an_archived_entity_of_another_shard_is_not_removed(
    cluster: MemoryCluster, host: TypeHost
) -> None:
    number = cluster.server.cluster.type_ids[NAME]
    mark = cluster.server.journal.mark(number, SHARD, MOVED)
    assert await host.erasing.archive(SHARD, MOVED, mark) == "away"
    assert len(cluster.events(Tally, MOVED)) == 1
