"""Examines the Redis servers behind a channel layer, for `sharding_doctor`; reads only.

Facts that a server does not reveal (managed ones forbid CONFIG) are left out. Raises TransportError
when a server cannot be reached.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from channels.layers import channel_layers
from channels_redis.utils import create_pool, decode_hosts
from redis import asyncio as aioredis
from redis.exceptions import RedisError

from sharding_app.ports.transport import TransportError

CONNECT_SECONDS = 2.0


class RedisFacts(NamedTuple):
    host: str
    version: str
    max_memory: int
    used_memory: int
    policy: str


def configuration(alias: str) -> tuple[str, dict[str, Any]]:
    """Return the BACKEND and CONFIG of a layer."""
    config = channel_layers.configs.get(alias) or {}
    return str(config.get("BACKEND", "")), dict(config.get("CONFIG") or {})


def _speaks_redis(backend: str) -> bool:
    return backend.startswith("channels_redis.")


async def redis_facts(alias: str) -> list[RedisFacts]:
    """Return the facts that each Redis of the layer reveals about itself."""
    backend, config = configuration(alias)
    found = []
    for number in range(len(_hosts(config)) if _speaks_redis(backend) else 0):
        async with _client(config, number) as client:
            info: dict[str, Any] = await client.info()
        where = client.connection_pool.connection_kwargs
        found.append(
            RedisFacts(
                f"{where.get('host') or where.get('path') or 'its master'}:{where.get('port', '')}".rstrip(":"),
                str(info.get("redis_version", "")), int(info.get("maxmemory", 0)), int(info.get("used_memory", 0)),
                str(info.get("maxmemory_policy", "")),
            )
        )  # fmt: skip
    return found


async def listening(alias: str, pattern: str) -> set[str]:
    """Return the channels of that pattern with a listener; only the pubsub layer's can be seen."""
    backend, config = configuration(alias)
    found: set[str] = set()
    for number in range(len(_hosts(config)) if backend.endswith("RedisPubSubChannelLayer") else 0):
        async with _client(config, number) as client:
            found.update(name.decode(errors="replace") for name in await client.pubsub_channels(pattern))
    return found


def _hosts(config: dict[str, Any]) -> list[dict[str, Any]]:
    hosts: list[dict[str, Any]] = decode_hosts(config.get("hosts"))
    return hosts


@asynccontextmanager
async def _client(config: dict[str, Any], number: int) -> AsyncIterator[Any]:
    host = {
        "socket_connect_timeout": CONNECT_SECONDS,
        **_hosts(config)[number],
        "socket_timeout": CONNECT_SECONDS,
    }
    client = aioredis.Redis(connection_pool=create_pool(host))
    try:
        yield client
    except (RedisError, OSError) as error:
        raise TransportError(f"{type(error).__name__}: {error}") from error
    finally:
        await client.aclose(close_connection_pool=True)
