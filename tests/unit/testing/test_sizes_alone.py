"""An entity alone refuses what a node would refuse for its size, with the same error."""

from typing import Any

import pytest
from django.conf import settings
from django.test import override_settings

from sharding_app import (
    DurableState,
    EventSourced,
    NotSerializable,
    ShardingError,
    applies,
    command,
    event,
    query,
)
from sharding_app.testing import MemoryCluster, given

KILO = 1024


@event
class Grown:
    by: int


class Big(EventSourced, name="sizes.Big"):
    size: int = 0

    @command
    def grow(self, reply: int, text: str = "") -> str:
        self.persist(Grown(1))
        return "x" * reply

    @command
    def say(self, reply: int) -> str:
        return "x" * reply

    @query
    def told(self, reply: int) -> str:
        return "x" * reply

    @command
    def send_on(self, size: int) -> None:
        self.persist(Grown(1))
        self.send(Big.ref("2").grow, 0, "x" * size)

    @command
    async def send_on_all_the_same(self, size: int) -> None:
        self.send(Big.ref("2").grow, 0, "x" * size)
        try:
            await self.persist(Grown(1))
        except ShardingError:
            return

    @command
    def send_and_say(self, reply: int) -> str:
        self.send(Big.ref("2").grow, 0)
        return "x" * reply

    @applies(Grown)
    def on_grown(self, happened: Grown) -> None:
        self.size += happened.by


class Note(DurableState, name="sizes.Note"):
    text: str = ""

    @command
    def write(self, size: int, reply: int = 0) -> str:
        self.text = "x" * size
        return "x" * reply


CALLS: list[tuple[Any, tuple[Any, ...], str]] = [
    (Big.grow, (300 * KILO,), "reply_too_large"),
    (Big.grow, (0, "x" * 1000 * KILO), "arguments_too_large"),
    (Big.say, (1000 * KILO,), "reply_too_large"),
    (Big.told, (1000 * KILO,), "reply_too_large"),
    (Big.send_and_say, (300 * KILO,), "reply_too_large"),
    (Big.send_on, (900 * KILO,), "arguments_too_large"),
    (Big.send_on_all_the_same, (900 * KILO,), "arguments_too_large"),
    (Note.write, (17 * KILO * KILO,), "state_too_large"),
    (Note.write, (1, 300 * KILO), "reply_too_large"),
    (Big.grow, (200 * KILO, "x" * 800 * KILO), ""),
    (Big.say, (800 * KILO,), ""),
    (Big.send_on, (800 * KILO,), ""),
    (Note.write, (15 * KILO * KILO,), ""),
]


@pytest.mark.parametrize(("call", "args", "code"), CALLS)
def test_a_size_is_refused_as_in_a_cluster(call: Any, args: tuple[Any, ...], code: str) -> None:
    found = given().when(call, *args)
    assert (found.error.code if found.error is not None else "") == code
    if code:
        found.then_raises(NotSerializable, events=[])


@pytest.mark.asyncio
@pytest.mark.parametrize(("call", "args", "code"), CALLS)
async def test_a_cluster_refuses_the_same(call: Any, args: tuple[Any, ...], code: str) -> None:
    async with MemoryCluster([Big, Note]) as cluster:
        with cluster.in_use():
            found = ""
            try:
                await getattr(call.owner.ref("1"), call.name)(*args)
            except NotSerializable as error:
                found = error.code
            assert found == code


def test_the_limits_are_those_of_the_settings() -> None:
    with override_settings(SHARDING=settings.SHARDING | {"MAX_REPLY_BYTES": 2 * KILO}):
        refused = given().when(Big.grow, 3 * KILO)
        refused.then_raises(NotSerializable, "MAX_REPLY_BYTES", events=[], state={"size": 0})
        given().when(Big.say, 3 * KILO).then(events=[])
