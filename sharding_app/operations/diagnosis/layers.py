"""The channel layer: settings that lose or delay messages, its Redis, and foreign nodes.

System checks cover in-memory layers, several hosts, redis-py's default timeout and capacity.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.look import LayerLook, Look

CORE = "channels_redis.core.RedisChannelLayer"
PUBSUB = "channels_redis.pubsub.RedisPubSubChannelLayer"
SHORT_TIMEOUT_SECONDS = 10.0
NEARLY_FULL = 0.9


def configured(look: Look) -> Iterator[Finding]:
    layer = look.layer
    if layer is None or layer.backend not in (CORE, PUBSUB):
        return
    where = f"CHANNEL_LAYERS[{layer.alias!r}]"
    shortest = min(_timeouts(layer), default=None)
    if shortest is not None and shortest <= SHORT_TIMEOUT_SECONDS:
        yield warning(
            "D141", f"socket_timeout is {shortest:g} s: a consumer that receives nothing for that time ends with a "
            "TimeoutError, and each send of a node costs more.", where,
            'Write the host as {"address": "redis://...", "socket_timeout": None}. Nodes have their own time limits.',
        )  # fmt: skip
    if layer.backend == CORE:
        yield note(
            "D146", "The core layer keeps messages in Redis. Each frame takes a round trip to Redis at both ends: an ask takes "
            "nearly three times as long as over pub/sub, and longer where processes wait for a processor.", where,
            'Use "channels_redis.pubsub.RedisPubSubChannelLayer", unless frames must outlive a disconnected process.',
        )  # fmt: skip
    expiry = layer.config.get("expiry")
    if (
        layer.backend == CORE
        and isinstance(expiry, int | float)
        and expiry < 2 * look.limits.lease_ttl_seconds
    ):
        yield warning(
            "D142", f"expiry is {expiry:g} s: messages to a node that pauses within its lease "
            f"({look.limits.lease_ttl_seconds:g} s) expire and are sent again later.", where,
            'Remove "expiry" (default 60 s), or set it to 60.',
        )  # fmt: skip


def servers(look: Look) -> Iterator[Finding]:
    for redis in look.layer.redis if look.layer is not None else ():
        where = f"Redis at {redis.host}"
        if (
            redis.policy
            and redis.policy != "noeviction"
            and look.layer is not None
            and look.layer.backend == CORE
        ):
            yield warning(
                "D143", f"maxmemory-policy is {redis.policy}: when its memory is full, Redis evicts messages silently.",
                where, "Run CONFIG SET maxmemory-policy noeviction, and set it in redis.conf. Or use a separate Redis for messages.",
            )  # fmt: skip
        if redis.max_memory and redis.used_memory >= NEARLY_FULL * redis.max_memory:
            percent = 100 * redis.used_memory / redis.max_memory
            yield error(
                "D144", f"Its memory is {percent:.0f} % full: soon it refuses or evicts messages.", where,
                "Raise maxmemory, or find other large keys: redis-cli --bigkeys",
            )  # fmt: skip


def strangers(look: Look) -> Iterator[Finding]:
    """Find nodes of a copy of this database: a copied server has the cluster id of its original."""
    if look.layer is None or not look.layer.strangers or look.cluster is None:
        return
    names = ", ".join(look.layer.strangers[:5])
    yield error(
        "D145",
        f"Nodes that this database does not know listen under its cluster id: {names}. They were declared dead, and are "
        "frozen or cut off from PostgreSQL; or a copy of this database is in use on the same Redis, and the two clusters share "
        "their channels.",
        "channel layer",
        "See in the timeline whether nodes were declared dead: end those processes if they stay. If none was, there is a copy. "
        "On the copy, stop the nodes and run: UPDATE sharding_cluster SET origin = 'copy'; it then gets a new id. "
        "Give each environment its own Redis, or its own Redis database and key in SHARDING['KEYS'].",
    )  # fmt: skip


def _timeouts(layer: LayerLook) -> Iterator[float]:
    for host in layer.config.get("hosts") or ():
        named: Any = host.get("socket_timeout") if isinstance(host, Mapping) else None
        if isinstance(named, int | float):
            yield float(named)
