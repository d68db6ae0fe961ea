"""The layers that the transport is held to, by name, as CHANNEL_LAYERS entries."""

from typing import Any

REDIS_LAYERS = {
    "core": "channels_redis.core.RedisChannelLayer",
    "pubsub": "channels_redis.pubsub.RedisPubSubChannelLayer",
}


def redis_layer(kind: str, url: str, **options: Any) -> dict[str, Any]:
    return {"BACKEND": REDIS_LAYERS[kind], "CONFIG": {"hosts": [url], **options}}


def memory_layer(**options: Any) -> dict[str, Any]:
    return {"BACKEND": "channels.layers.InMemoryChannelLayer", "CONFIG": options}
