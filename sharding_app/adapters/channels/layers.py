"""The layer object behind an alias, and the knowledge about each kind of layer.

The Redis layers get an instance of their own, made from the alias's configuration. So its
connections may be dropped when they are deaf without disturbing the project's own consumers, and it
belongs to the one event loop that uses it. Any other layer (in-memory, a user's own) is the
project's shared instance.

By default redis-py 8 gives up reading after 5 s, just when an idle receiver of the core layer would
ask again, and any such limit makes each of its sends a task of its own. So our instance has no
limit, unless the configuration sets one: the transport bounds its waiting itself. With a configured
limit the receiver asks again sooner than that.
"""

import asyncio
import time
from typing import Any, Protocol

from channels.exceptions import ChannelFull, InvalidChannelLayerError
from channels.layers import channel_layers
from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer
from django.utils.module_loading import import_string
from redis.asyncio.sentinel import SentinelConnectionPool

from sharding_app.adapters.channels.round_trips import CANCEL_AGAIN_SECONDS, RoundTrips

CONNECT_SECONDS = 1.0

MOST_AT_A_TIME = 100
_SEND = """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
    return 0
end
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[5])
return 1
"""


class LeanCoreLayer(RedisChannelLayer):  # type: ignore[misc]
    """The core layer with one round trip to Redis for all sends that wait, and one for all waiting
    messages, instead of four for each.

    Each round trip waits for a time slice of two processes, so on a starved machine their number is
    the price of a frame. The plain layer keeps a message that it gives until it is asked again;
    links resend lost frames, so that is left out. The stored form is the same: this layer and the
    plain one understand each other. With several hosts it is the plain layer.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sends = RoundTrips(lambda: self.connection(0))

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        if self.ring_size != 1 or "!" in channel:
            await super().send(channel, message)
            return
        now = time.time()
        expired, expiry = int(now) - int(self.expiry), int(self.expiry)
        taken = await self._sends.run(
            "EVAL", _SEND, 1, self.prefix + channel,
            expired, self.get_capacity(channel), now, self.serialize(message), expiry,
        )  # fmt: skip
        if not taken:
            raise ChannelFull

    async def receive_many(self, channel: str) -> list[bytes]:
        """Wait for messages; return them undecoded, oldest first."""
        connection, key = self.connection(0), self.prefix + channel
        found = await connection.zpopmin(key, MOST_AT_A_TIME)
        if found:
            return [member for member, _ in found]
        first = await connection.bzpopmin(key, timeout=self.brpop_timeout)
        return [] if first is None else [first[1]]

    async def end_sends(self) -> None:
        await self._sends.end()


class LeanPubSubLayer(RedisPubSubChannelLayer):  # type: ignore[misc]
    """The pub/sub layer whose sends to one host share round trips. The plain layer makes one send
    at a time.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sends: dict[Any, RoundTrips] = {}
        "By channels_redis's object for a host."

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        host = self._get_layer()._get_shard(channel)
        await self._sends_to(host).run("PUBLISH", channel, self.serialize(message))

    def _sends_to(self, host: Any) -> RoundTrips:
        sends = self._sends.get(host)
        if sends is None:
            sends = self._sends[host] = RoundTrips(lambda: _client_of(host))
        return sends

    async def demoted(self) -> bool:
        """Tell whether a server has become a replica. Servers that do not say so count as none."""
        roles = [_role(await self._sends_to(host).run("HELLO")) for host in self._get_layer()._shards]
        return b"replica" in roles

    async def end_sends(self) -> None:
        for sends in self._sends.values():
            await sends.end()


def _role(hello: Any) -> Any:
    """Return the role in a server's answer to HELLO, in either protocol."""
    pairs = hello.items() if isinstance(hello, dict) else zip(hello[::2], hello[1::2], strict=False)
    return next((value for name, value in pairs if name == b"role"), None)


def _client_of(host: Any) -> Any:
    host._ensure_redis()
    return host._redis


class Layer(Protocol):
    async def send(self, channel: str, message: dict[str, Any]) -> None: ...

    async def receive(self, channel: str) -> dict[str, Any]: ...


LEAN: dict[type, type] = {
    RedisChannelLayer: LeanCoreLayer,
    RedisPubSubChannelLayer: LeanPubSubLayer,
}


def make_layer(alias: str) -> Layer:
    """Return the layer to use for an alias. Raises InvalidChannelLayerError."""
    config = (channel_layers.configs or {}).get(alias)
    if config is None:
        if alias in channel_layers.backends:
            return channel_layers[alias]
        raise InvalidChannelLayerError(f"CHANNEL_LAYERS has no {alias!r}")
    try:
        backend = import_string(config.get("BACKEND", ""))
    except ImportError as error:
        raise InvalidChannelLayerError(
            f"the BACKEND of CHANNEL_LAYERS[{alias!r}] cannot be imported"
        ) from error
    if not issubclass(backend, (RedisChannelLayer, RedisPubSubChannelLayer)):
        return channel_layers[alias]
    options = dict(config.get("CONFIG", {}))
    options["hosts"] = [_host(entry) for entry in options.get("hosts") or ["redis://localhost:6379"]]
    layer = LEAN.get(backend, backend)(**options)
    if isinstance(layer, RedisChannelLayer):
        limits = [host["socket_timeout"] for host in layer.hosts if host["socket_timeout"] is not None]
        layer.brpop_timeout = min([layer.brpop_timeout, *(limit / 2 for limit in limits)])
    own: Layer = layer
    return own


def _host(entry: Any) -> dict[str, Any]:
    if isinstance(entry, dict):
        host = dict(entry)
    elif isinstance(entry, (tuple, list)):
        host = {"host": entry[0], "port": entry[1]}
    else:
        host = {"address": entry}
    host.setdefault("socket_timeout", None)
    host.setdefault("socket_connect_timeout", CONNECT_SECONDS)
    return host


def takes_text_only(layer: Layer) -> bool:
    """Tell whether the layer writes messages in a form without bytes, such as JSON."""
    if not isinstance(layer, (RedisChannelLayer, RedisPubSubChannelLayer)):
        return False
    try:
        layer.serialize({"bytes": b"\0"})
    except TypeError:
        return True
    return False


async def end_receiver(layer: Layer, receiver: asyncio.Task[None]) -> None:
    """Stop a receiver and drop the connections of a layer of our own: the next use makes new
    ones.
    """
    sentinels = _sentinels(layer)
    if isinstance(layer, (LeanCoreLayer, LeanPubSubLayer)):
        await layer.end_sends()
    if isinstance(layer, RedisPubSubChannelLayer):
        # Before the receiver is stopped, because it would try to unsubscribe on a connection that
        # may be dead.
        await layer.flush()
    while not receiver.done():
        # Repeated, because with a configured socket_timeout redis-py sends by `wait_for`, which can
        # swallow a cancellation before Python 3.12.
        receiver.cancel()
        await asyncio.wait([receiver], timeout=CANCEL_AGAIN_SECONDS)
    if isinstance(layer, RedisChannelLayer):
        for cleaner in list(layer.receive_cleaners):
            # It holds the channel's lock, and may wait for an answer that never comes.
            cleaner.cancel()
        await layer.close_pools()
    for sentinel in sentinels:
        await sentinel.aclose()


def _sentinels(layer: Layer) -> list[Any]:
    """Return the clients with which a layer asks Sentinels for the master: it does not close them
    itself.
    """
    clients: list[Any] = []
    if isinstance(layer, RedisPubSubChannelLayer):
        clients = [shard._redis for loop_layer in layer._layers.values() for shard in loop_layer._shards]
    elif isinstance(layer, RedisChannelLayer):
        clients = [each for loop_layer in layer._layers.values() for each in loop_layer._connections.values()]
    pools = [client.connection_pool for client in clients if client is not None]
    managers = [pool.sentinel_manager for pool in pools if isinstance(pool, SentinelConnectionPool)]
    return [sentinel for manager in managers for sentinel in manager.sentinels]
