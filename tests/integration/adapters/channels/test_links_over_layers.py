"""Links over the real layers: a full channel, a slow start and a restarted server are delay, not
loss or disorder.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings

from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.channels.transport import ChannelsTransport
from sharding_app.embedded import OwnRedis, Servers
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import LinkLimits
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver
from sharding_app.runtime.base.clock import BootClock
from sharding_app.runtime.links.links import Links
from tests.integration.adapters.channels.layers import memory_layer, redis_layer
from tests.integration.adapters.channels.timing import heals_within
from tests.unit.protocol.link.harness import answer, command

ALIAS = "linked"
pytestmark = pytest.mark.asyncio


class Peer:
    """A process that answers each command, and remembers in which order all came."""

    def __init__(self, **limits: Any) -> None:
        self.name = uuid4().hex
        self.transport = ChannelsTransport(ALIAS, Sealer([b"k" * 32], encrypt=True))
        self.commands: list[int] = []
        self.answers: list[int] = []
        self.suspected: list[Incarnation] = []
        self.links = Links(
            self.name,
            self.transport,
            BootClock(),
            LinkLimits(**limits),
            self._deliver,
            lambda incarnation: f"sharding.{incarnation}",
            self.suspected.append,
            lambda: True,
        )

    def _deliver(self, source: Incarnation, messages: list[AnyMessage]) -> None:
        for message in messages:
            if isinstance(message, Deliver):
                self.commands.append(message.request)
                assert self.links.put(source, answer(message.request))
            elif isinstance(message, Answer):
                self.answers.append(message.request)


@asynccontextmanager
async def two(**limits: Any) -> AsyncIterator[tuple[Peer, Peer]]:
    peers = Peer(**limits), Peer(**limits)
    loops = []
    for peer in peers:
        await peer.transport.open(f"sharding.{peer.name}")
        loops.append(asyncio.ensure_future(peer.links.receive_loop()))
    try:
        yield peers
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.wait(loops)
        for peer in peers:
            await peer.links.close()
            await peer.transport.close()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to be in time")


def has_answers(peer: Peer, number: int) -> bool:
    return len(peer.answers) >= number


@pytest.mark.parametrize("kind", ["core", "pubsub", "memory"])
async def test_all_arrive_in_order_and_once(kind: str, servers: Servers) -> None:
    config = memory_layer() if kind == "memory" else redis_layer(kind, servers.redis_url)
    with override_settings(CHANNEL_LAYERS={ALIAS: config}):
        async with two() as (here, there):
            for number in range(5000):
                assert here.links.put(there.name, command(number, number % 500))
                if number % 100 == 0:
                    await asyncio.sleep(0)
            await until(lambda: len(here.answers) == 5000)
            assert there.commands == here.answers == list(range(5000))


@pytest.mark.parametrize("kind", ["core", "memory"])
async def test_a_channel_of_small_capacity_only_delays(kind: str, servers: Servers) -> None:
    if kind == "memory":
        config = memory_layer(capacity=2)
    else:
        config = redis_layer(kind, servers.redis_url, capacity=2, prefix=uuid4().hex)
    with override_settings(CHANNEL_LAYERS={ALIAS: config}):
        async with two(max_frame_messages=5) as (here, there):
            for number in range(300):
                assert here.links.put(there.name, command(number))
            await until(lambda: len(here.answers) == 300)
            assert there.commands == here.answers == list(range(300))


async def test_a_full_channel_does_not_hide_the_death_of_its_process() -> None:
    with override_settings(CHANNEL_LAYERS={ALIAS: memory_layer(capacity=2)}):
        async with two(max_frame_messages=1) as (here, there):
            assert here.links.put(there.name, command(0))
            await until(lambda: has_answers(here, 1))
            await there.transport.close()
            for number in range(1, 10):
                assert here.links.put(there.name, command(number))
            await until(lambda: here.suspected == [there.name])
            assert here.transport.statistics()["channel_full"] > 0


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_a_restart_of_redis_under_load_loses_and_repeats_nothing(
    kind: str, own_redis: OwnRedis
) -> None:
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, own_redis.url)}):
        async with two() as (here, there):
            put = 0

            async def load() -> None:
                nonlocal put
                while True:
                    for _ in range(5):
                        put += here.links.put(there.name, command(put))
                    await asyncio.sleep(0.01)

            loading = asyncio.ensure_future(load())
            await until(lambda: len(here.answers) > 50)
            enough = 0

            async def restart(end: Callable[[], object]) -> None:
                nonlocal enough
                await asyncio.to_thread(end)
                await asyncio.sleep(0.3)
                enough = len(here.answers) + 1
                await asyncio.to_thread(own_redis.start)

            async def answer() -> None:
                await until(lambda: has_answers(here, enough))

            for end in (own_redis.kill, own_redis.stop):
                assert await heals_within(1.0, partial(restart, end), answer)
            loading.cancel()
            await until(lambda: len(here.answers) == put)
            assert there.commands == here.answers == list(range(put))
