"""What every layer has to do for us as a transport: core, pub/sub and in-memory, on a real server
where there is one.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from channels.exceptions import InvalidChannelLayerError
from channels.layers import InMemoryChannelLayer, channel_layers, get_channel_layer
from channels_redis.core import RedisChannelLayer
from django.test import override_settings
from redis import asyncio as aioredis

from sharding_app.adapters.channels import transport as module
from sharding_app.adapters.channels.layers import LeanCoreLayer, LeanPubSubLayer
from sharding_app.adapters.channels.seal import Sealer
from sharding_app.adapters.channels.transport import ChannelsTransport
from sharding_app.embedded import OwnRedis, Servers
from sharding_app.ports.transport import TransportError
from sharding_app.processes.proxy import Proxy
from tests.integration.adapters.channels.layers import memory_layer, redis_layer
from tests.integration.adapters.channels.timing import heals_within
from tests.support.slack import SLACK

ALIAS = "tested"
OPTIONS: dict[str, dict[str, Any]] = {
    "json": {"serializer_format": "json"},
    "keys": {"symmetric_encryption_keys": ["secret"]},
}
pytestmark = pytest.mark.asyncio


@pytest.fixture(params=["core", "pubsub", "core-json", "pubsub-json", "pubsub-keys", "memory"])
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A layer whose transports wait for a Redis that is slow: none is deaf because of that."""
    monkeypatch.setattr(module, "PROBES_SECONDS", (0.2, 5.0 * SLACK))
    kind, _, way = str(request.param).partition("-")
    if kind == "memory":
        config = memory_layer()
    else:
        servers: Servers = request.getfixturevalue("servers")
        config = redis_layer(kind, servers.redis_url, prefix=uuid4().hex, **OPTIONS.get(way, {}))
    with override_settings(CHANNEL_LAYERS={ALIAS: config}):
        yield


def a_channel() -> str:
    return f"sharding.test.{uuid4().hex}"


@asynccontextmanager
async def opened(channel: str, sealer: Sealer | None = None) -> AsyncIterator[ChannelsTransport]:
    transport = ChannelsTransport(ALIAS, sealer)
    await transport.open(channel)
    try:
        yield transport
    finally:
        await transport.close()


async def received(transport: ChannelsTransport, seconds: float = 5.0) -> bytes:
    async with asyncio.timeout(seconds * SLACK):
        return await transport.receive()


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to be in time")


async def test_what_is_sent_right_after_open_arrives_whole_and_in_order(layer: None) -> None:
    name, other = a_channel(), a_channel()
    async with opened(name) as here, opened(other) as there:
        sent = [bytes([number]) * size for number, size in enumerate([0, 1, 255, 100_000, 900_000, 3])]
        for data in sent:
            await there.send(name, data)
        assert [await received(here) for _ in sent] == sent
        await here.send(other, b"back")
        assert await received(there) == b"back"


async def test_one_receiver_and_one_opening(layer: None) -> None:
    async with opened(a_channel()) as here:
        with pytest.raises(TransportError, match="already open"):
            await here.open(a_channel())


async def test_closed_is_closed_and_may_be_opened_again(layer: None) -> None:
    name = a_channel()
    transport = ChannelsTransport(ALIAS)
    with pytest.raises(TransportError, match="not open"):
        await transport.send(name, b"x")
    async with opened(name) as here:
        waiting = asyncio.ensure_future(here.receive())
        await asyncio.sleep(0)
        await here.close()
        with pytest.raises(TransportError, match="not open"):
            await waiting
        await here.open(name)
        await here.send(name, b"again")
        assert await received(here) == b"again"


async def test_closing_ends_even_when_the_layer_swallows_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As `flush` of the pub/sub layer does, when it is cancelled while it ends its own receiver."""
    dropping = asyncio.Event()

    async def swallow(layer: object, receiver: asyncio.Task[None]) -> None:
        receiver.cancel()
        dropping.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.5)

    with override_settings(CHANNEL_LAYERS={ALIAS: memory_layer()}):
        transport = ChannelsTransport(ALIAS)
        await transport.open(a_channel())
        monkeypatch.setattr(module, "end_receiver", swallow)
        monkeypatch.setattr(transport, "_probe", deaf)
        transport._poke.set()
        await dropping.wait()
        async with asyncio.timeout(1.0 * SLACK):
            await transport.close()
        with pytest.raises(TransportError, match="not open"):
            await transport.receive()


async def deaf(*_: object) -> str:
    return "it does not hear itself"


async def test_foreign_messages_are_counted_and_stop_nothing(layer: None) -> None:
    name = a_channel()
    async with opened(name) as here:
        assert here._layer is not None
        for foreign in (
            {"type": "chat.message", "text": "x"},
            {"type": "sharding.frame"},
            {"type": "sharding.frame", "frame": 7},
        ):
            await here._layer.send(name, foreign)
        await here._layer.send(name, {"type": "sharding.frame", "frame": "no base64!"})
        await here.send(name, b"ours")
        assert await received(here) == b"ours"
        assert here.statistics()["messages_unknown"] == 4


GARBAGE = (
    b"\xc1",
    b"\x90",
    b"",
    b"x" * 100,
    b"{",
    b"[" * 50_000,
    b"\x91" * 50_000,
    b"\xdb\xff\xff\xff\xff",
    b"7",
)


async def publish(here: ChannelsTransport, channel: str, number: int) -> None:
    """Publish bytes that no layer of ours has written, as a client of Redis without a key."""
    layer: Any = here._layer
    data = GARBAGE[number % len(GARBAGE)]
    if isinstance(layer, RedisChannelLayer):
        data += str(number).encode()  # a set holds each once
        await layer.connection(0).zadd(layer.prefix + channel, {data: time.time()})
    else:
        [loop_layer] = layer._layers.values()
        await loop_layer._shards[0]._redis.publish(channel, data)


@pytest.mark.parametrize(
    "layer", ["core", "pubsub", "core-json", "pubsub-json", "pubsub-keys"], indirect=True
)
async def test_a_rate_of_bytes_that_the_layer_cannot_decode_makes_no_process_deaf(layer: None) -> None:
    name = a_channel()
    async with opened(name, Sealer([b"k" * 32])) as here:
        for number in range(200):
            await publish(here, name, number)
            if number % 20 == 0:
                await here.send(name, b"%d" % number)
                assert await received(here) == b"%d" % number, "no error in between"
        statistics = here.statistics()
    unread = statistics["messages_undecodable"] + statistics.get("messages_unknown", 0)
    assert 150 <= unread <= 200
    assert "deaf" not in statistics


async def test_a_connection_that_breaks_is_still_a_reason_to_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with override_settings(CHANNEL_LAYERS={ALIAS: memory_layer()}):
        name = a_channel()
        async with opened(name) as here:
            layer: Any = here._layer
            receive, errors = layer.receive, [ConnectionResetError("gone")]

            async def breaks(channel: str) -> dict[str, Any]:
                if errors:
                    raise errors.pop()
                return dict(await receive(channel))

            monkeypatch.setattr(layer, "receive", breaks)
            await here.send(name, b"before")
            assert await received(here) == b"before"
            with pytest.raises(TransportError, match="may have been lost"):
                await received(here)
            await here.send(name, b"after")
            assert await received(here) == b"after"
            assert here.statistics()["deaf"] == 1


async def test_the_core_layer_takes_all_that_waits_at_a_time(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a starved machine each turn with Redis waits for a time slice of two processes.

    Commands are counted for a whole server, so it is the test's own. Nothing is sent in silence.
    """
    monkeypatch.setattr(module, "SILENCE_SECONDS", 600.0)
    config = redis_layer("core", own_redis.url, prefix=uuid4().hex, capacity=1000)
    with override_settings(CHANNEL_LAYERS={ALIAS: config}):
        name = a_channel()
        async with opened(name) as here:
            layer: Any = here._layer
            client = layer.connection(0)
            sent = [b"%d" % number for number in range(150)]
            receive_many, turns = layer.receive_many, []

            async def counted(channel: str) -> list[bytes]:
                found: list[bytes] = await receive_many(channel)
                turns.append(len(found))
                return found

            layer.receive_many = counted
            before = (await client.info("commandstats")).get("cmdstat_eval", {"calls": 0})["calls"]
            pipe = client.pipeline()
            for number, data in enumerate(sent):
                pipe.zadd(
                    layer.prefix + name, {layer.serialize({"type": "sharding.frame", "frame": data}): number}
                )
            await pipe.execute()
            assert [await received(here) for _ in sent] == sent
            assert max(turns) > 10
            await here.send(name, b"one turn")
            assert await received(here) == b"one turn"
            after = (await client.info("commandstats"))["cmdstat_eval"]["calls"]
            assert after - before <= 3, "one script for each send, none for what is received"


async def test_the_plain_core_layer_understands_what_we_write_and_is_understood(servers: Servers) -> None:
    config = redis_layer("core", servers.redis_url, prefix=uuid4().hex, capacity=2)
    with override_settings(CHANNEL_LAYERS={ALIAS: config}):
        plain: Any = get_channel_layer(ALIAS)
        assert type(plain) is RedisChannelLayer
        name = a_channel()
        async with opened(name) as here:
            await plain.send(name, {"type": "sharding.frame", "frame": b"theirs"})
            assert await received(here) == b"theirs"
            other = a_channel()
            await here.send(other, b"1")
            await here.send(other, b"2")
            with pytest.raises(TransportError, match="full"):
                await here.send(other, b"3")
            assert [(await plain.receive(other))["frame"] for _ in range(2)] == [b"1", b"2"]
        await plain.close_pools()


async def test_sealed_frames_pass_and_others_are_dropped(layer: None) -> None:
    name = a_channel()
    key, other = b"k" * 32, b"o" * 32
    async with (
        opened(name, Sealer([key], encrypt=True)) as here,
        opened(a_channel()) as bare,
        opened(a_channel(), Sealer([other])) as stranger,
        opened(a_channel(), Sealer([key])) as friend,
    ):
        await bare.send(name, b"forged")
        await stranger.send(name, b"forged")
        await friend.send(name, b"true")
        assert await received(here) == b"true"
        assert here.statistics()["seals_broken"] == 2


async def test_frames_that_no_task_takes_are_bounded(layer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING_FRAMES", 3)
    name = a_channel()
    async with opened(name) as here:
        for number in range(6):
            await here.send(name, bytes([number]))
        await until(lambda: here.statistics().get("frames_dropped", 0) == 3)
        assert [await received(here) for _ in range(3)] == [b"\0", b"\1", b"\2"]


async def test_a_full_channel_is_refused_and_the_layer_goes_on() -> None:
    with override_settings(CHANNEL_LAYERS={ALIAS: memory_layer(capacity=3)}):
        async with opened(a_channel()) as here:
            for _ in range(3):
                await here.send("sharding.test.nobody", b"x")
            with pytest.raises(TransportError, match="full"):
                await here.send("sharding.test.nobody", b"x")
            assert here.statistics()["channel_full"] == 1


async def test_an_alias_that_does_not_exist_is_named() -> None:
    with override_settings(CHANNEL_LAYERS={"default": memory_layer(), "odd": {"BACKEND": "no.such.Layer"}}):
        with pytest.raises(InvalidChannelLayerError, match="has no 'tested'"):
            await ChannelsTransport(ALIAS).open(a_channel())
        with pytest.raises(InvalidChannelLayerError, match="cannot be imported"):
            await ChannelsTransport("odd").open(a_channel())


async def test_a_layer_put_in_by_a_test_is_used() -> None:
    with override_settings(CHANNEL_LAYERS={"default": memory_layer()}):
        shared = get_channel_layer("default")
        assert shared is not None
        channel_layers.set("put-in", shared)
        transport = ChannelsTransport("put-in")
        await transport.open(a_channel())
        assert transport._layer is shared
        await transport.close()


class SlowLayer(InMemoryChannelLayer):
    """A layer on which each message is under way for longer than the transport listens at first."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: set[asyncio.Task[None]] = set()

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        task = asyncio.ensure_future(self._bring(channel, message))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _bring(self, channel: str, message: dict[str, Any]) -> None:
        await asyncio.sleep(1.2 * sum(module.PROBES_SECONDS))
        await super().send(channel, message)


async def test_words_that_come_late_make_no_transport_deaf() -> None:
    """It would drop its connections, and with them what is under way to it, again and again."""
    with override_settings(CHANNEL_LAYERS={}):
        channel_layers.set(ALIAS, SlowLayer())
        async with opened(a_channel()) as here:
            first = here.statistics()["probes"]
            await until(lambda: here.statistics()["probes"] >= first + 3, 30.0)
            await until(lambda: here.statistics()["probes_heard"] >= first + 3, 30.0)
            assert here.statistics().get("deaf", 0) == 0


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_the_project_keeps_its_own_layer_object(kind: str, servers: Servers) -> None:
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, servers.redis_url)}):
        async with opened(a_channel()) as here:
            assert here._layer is not get_channel_layer(ALIAS)


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_no_server_is_said_in_time(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.5)
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, "redis://127.0.0.1:1")}):
        transport = ChannelsTransport(ALIAS)
        with pytest.raises(TransportError, match="channel layer 'tested'"):
            await transport.open(a_channel())
        with pytest.raises(TransportError, match="not open"):
            await transport.receive()


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_attempts_to_open_leave_nothing_behind(
    kind: str, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one every few seconds while Redis is away, and channels_redis keeps each layer."""
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.1)
    name = a_channel()
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, own_redis.url)}):
        transport = ChannelsTransport(ALIAS)
        await asyncio.to_thread(own_redis.stop)
        gc.collect()
        before = layers_in_memory()
        for _ in range(5):
            with pytest.raises(TransportError, match="channel layer 'tested'"):
                await transport.open(name)
        gc.collect()
        assert layers_in_memory() == before + 1
        await asyncio.to_thread(own_redis.start)
        monkeypatch.undo()
        await transport.open(name)
        await transport.send(name, b"heard")
        assert await received(transport) == b"heard"
        await transport.close()


def layers_in_memory() -> int:
    return sum(isinstance(each, LeanCoreLayer | LeanPubSubLayer) for each in gc.get_objects())


@pytest.mark.parametrize("kind", ["core", "pubsub"])
@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_after_a_restart_of_redis_all_hear_within_a_second(
    kind: str, how: str, own_redis: OwnRedis
) -> None:
    names = [a_channel() for _ in range(3)]
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, own_redis.url)}):
        async with opened(names[0]) as one, opened(names[1]) as two, opened(names[2]) as idle:
            await one.send(names[1], b"before")
            assert await received(two) == b"before"

            async def restart() -> None:
                await asyncio.to_thread(getattr(own_redis, how))
                with pytest.raises(TransportError):
                    await one.send(names[1], b"lost")
                with pytest.raises(TransportError):
                    await two.send(names[0], b"lost")
                await asyncio.to_thread(own_redis.start)

            async def all_hear() -> None:
                for transport, name in ((one, names[0]), (two, names[1]), (idle, names[2])):
                    with pytest.raises(TransportError, match="may have been lost"):
                        await received(transport)
                    await one.send(name, b"after")
                    assert await received(transport) == b"after"

            assert await heals_within(1.0, restart, all_hear)


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_a_receiver_that_was_opened_twice_and_cut_off_hears_again(
    kind: str, own_redis: OwnRedis
) -> None:
    name = a_channel()
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, own_redis.url)}):
        async with opened(name) as here:
            await here.close()
            await here.open(name)
            await asyncio.to_thread(own_redis.kill)
            await asyncio.to_thread(own_redis.start)
            with pytest.raises(TransportError, match="may have been lost"):
                await received(here, 3.0)
            await here.send(name, b"after")
            assert await received(here) == b"after"
            assert here.statistics()["deaf"] == 1


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_a_server_that_becomes_a_replica_and_keeps_its_clients_is_left(
    kind: str, servers: Servers, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages reach its own clients alone: a process still hears itself."""
    monkeypatch.setattr(module, "ROLE_SECONDS", 0.1)
    other, name = urlsplit(servers.redis_url), a_channel()
    server: Any = aioredis.Redis.from_url(own_redis.url)
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, own_redis.url)}):
        async with opened(name) as here:
            await server.config_set("masterauth", other.password)
            await server.execute_command("REPLICAOF", "127.0.0.1", other.port)
            why = {"core": "read only replica", "pubsub": "its Redis is a replica"}[kind]
            await until(lambda: why in here._interrupted)
            assert not here._hearing.is_set()
            await server.execute_command("REPLICAOF", "NO", "ONE")
            with pytest.raises(TransportError, match="may have been lost"):
                await received(here)
            await here.send(name, b"after")
            assert await received(here) == b"after"
    await server.aclose()


@pytest.fixture
def redis_proxy(servers: Servers) -> Iterator[tuple[Proxy, str]]:
    url = urlsplit(servers.redis_url)
    assert url.port is not None
    with Proxy(url.port) as proxy:
        yield proxy, servers.redis_url.replace(f":{url.port}", f":{proxy.port}")


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_the_end_of_a_receiver_whose_server_is_slow_is_no_strangers_message(
    kind: str, redis_proxy: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer forgets the channel that its receiver still subscribes to."""
    monkeypatch.setattr(module, "OPEN_SECONDS", 0.1)
    proxy, url = redis_proxy
    proxy.slow(0.1)
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, url)}):
        transport = ChannelsTransport(ALIAS)
        with pytest.raises(TransportError, match="channel layer 'tested'"):
            await transport.open(a_channel())
        assert "messages_undecodable" not in transport.statistics()


@pytest.mark.parametrize("kind", ["core", "pubsub"])
async def test_frames_behind_a_slow_way_to_redis_share_its_round_trips(
    kind: str, redis_proxy: tuple[Proxy, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process sends to many others. One after the other, 100 frames take 10 s here."""
    monkeypatch.setattr(module, "SEND_SECONDS", 5.0)
    proxy, url = redis_proxy
    names = [a_channel() for _ in range(100)]
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, url, prefix=uuid4().hex)}):
        async with opened(a_channel()) as here:
            proxy.slow(0.05)
            accepted = proxy.accepted
            await asyncio.gather(*(here.send(name, b"word") for name in names))
            assert here.statistics()["frames_sent"] == 100
            assert "send_errors" not in here.statistics()
            assert proxy.accepted - accepted <= 2, "a connection for each frame"
            proxy.forward()


FAULTS: dict[str, Callable[[Proxy], None]] = {
    "silent": Proxy.hang,
    "we are not heard": partial(Proxy.one_way, silent="up"),
    "we do not hear": partial(Proxy.one_way, silent="down"),
    "refused": Proxy.refuse,
    "cut half-way": partial(Proxy.cut, after_bytes=100),
}


@pytest.mark.parametrize("kind", ["core", "pubsub"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_network_that_fails_in_any_way_is_noticed_and_overcome(
    kind: str, fault: str, redis_proxy: tuple[Proxy, str]
) -> None:
    proxy, url = redis_proxy
    name = a_channel()
    with override_settings(CHANNEL_LAYERS={ALIAS: redis_layer(kind, url, prefix=uuid4().hex)}):
        async with opened(name) as here:
            sending = asyncio.ensure_future(keep_sending(here, name))
            await received(here)

            async def fail() -> None:
                before = here.statistics().get("deaf", 0)
                await asyncio.to_thread(FAULTS[fault], proxy)
                await until(lambda: here.statistics().get("deaf", 0) > before)
                await asyncio.sleep(1.0)
                assert here.statistics()["send_errors"] > 0
                await asyncio.to_thread(proxy.forward)

            async def hear_again() -> None:
                with pytest.raises(TransportError):
                    await received_all(here)
                await received(here)

            assert await heals_within(1.0, fail, hear_again)
            sending.cancel()
            await asyncio.wait([sending])


async def received_all(transport: ChannelsTransport) -> None:
    while True:
        await received(transport)


async def keep_sending(transport: ChannelsTransport, name: str) -> None:
    while True:
        with suppress(TransportError):
            await transport.send(name, b"word")
        await asyncio.sleep(0.05)
