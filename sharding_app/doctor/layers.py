"""The channel layer: settings that lose or delay messages, the Redis behind it, and nodes that listen under our id.

In-memory layers, several hosts on the core layer, redis-py's default timeout and a small capacity are system checks.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from sharding_app.doctor.finding import Finding, error, note, warning
from sharding_app.doctor.look import LayerLook, Look

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
            "D141", f"socket_timeout is {shortest:g} s: a consumer of yours that hears nothing for that time ends with a "
            "TimeoutError, and each send of a node costs more.", where,
            'Write the host as {"address": "redis://...", "socket_timeout": None}. Nodes bound their waiting themselves.',
        )  # fmt: skip
    if layer.backend == CORE:
        yield note(
            "D146", "The core layer keeps messages in Redis: each frame takes a turn with Redis at both ends, an ask takes nearly "
            "three times as long as over pub/sub, and where processes wait for a processor each turn waits for two of them.", where,
            'Take "channels_redis.pubsub.RedisPubSubChannelLayer" unless frames must outlast a process that is away.',
        )  # fmt: skip
    expiry = layer.config.get("expiry")
    if (
        layer.backend == CORE
        and isinstance(expiry, int | float)
        and expiry < 2 * look.limits.lease_ttl_seconds
    ):
        yield warning(
            "D142", f"expiry is {expiry:g} s: messages to a node that pauses for as long as it may "
            f"({look.limits.lease_ttl_seconds:g} s) are thrown away and sent again, late.", where,
            'Leave "expiry" out (60 s), or make it a minute.',
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
                "D143", f"maxmemory-policy is {redis.policy}: when its memory is full, Redis throws messages away in silence.",
                where, "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf; or a Redis of its own for messages.",
            )  # fmt: skip
        if redis.max_memory and redis.used_memory >= NEARLY_FULL * redis.max_memory:
            percent = 100 * redis.used_memory / redis.max_memory
            yield error(
                "D144", f"Its memory is {percent:.0f} % full: soon it refuses or throws away messages.", where,
                "Give it more maxmemory, or find what else fills it: redis-cli --bigkeys",
            )  # fmt: skip


def strangers(look: Look) -> Iterator[Finding]:
    """A database that was copied with its server (a restored disk, a promoted replica) has the id of its original."""
    if look.layer is None or not look.layer.strangers or look.cluster is None:
        return
    names = ", ".join(look.layer.strangers[:5])
    yield error(
        "D145",
        f"Nodes listen under this cluster's id that its database does not know: {names}. A copy of this database is in use "
        "on the same Redis, and the two clusters share their channels.",
        "channel layer",
        "On the copy, stop the nodes and run: UPDATE sharding_cluster SET origin = 'copy'; it then gets an id of its own. "
        "Give each environment a Redis (or a Redis database and a key in SHARDING['KEYS']) of its own.",
    )  # fmt: skip


def _timeouts(layer: LayerLook) -> Iterator[float]:
    for host in layer.config.get("hosts") or ():
        named: Any = host.get("socket_timeout") if isinstance(host, Mapping) else None
        if isinstance(named, int | float):
            yield float(named)
