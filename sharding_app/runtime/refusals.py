"""What a caller is told when a command has no answer: a typed error that says why, a counter and a line in the log."""

import asyncio
import logging
from collections import Counter

import msgspec

from sharding_app.core.messages import Failed
from sharding_app.core.parcel import Parcel
from sharding_app.errors import (
    STORED,
    AskTimeout,
    BadCall,
    BufferFull,
    EntityFailed,
    Rejected,
    ShardingError,
    Unavailable,
    from_wire,
)

logger = logging.getLogger("sharding.region")

REASONS = {
    "buffer_full": (
        BufferFull,
        "the buffers of this process have no room for {type!r}: too much waits or is under way for the type (at most {limit}"
        " commands), for one shard of it, or in all: slow down",
    ),
    "no_host": (Unavailable, "no node hosts {type!r}: start `manage.py sharding_node{roles}`"),
    "no_such_shard": (
        BadCall,
        "{type!r} has no shard {shard}: does SHARDING['NUMBER_OF_SHARDS'], or the extractor, equal the cluster's?",
    ),
    "refused": (
        Unavailable,
        "the store refuses to place shard {shard} of {type!r}: the coordinator's log (sharding.coordinator) says why",
    ),
    "fate_unknown": (
        Unavailable,
        "the node of {entity!r} died while {command!r} was under way: its fate is unknown",
    ),
    "poisonous": (
        Unavailable,
        "{command!r} of {entity!r} was under way when two nodes died: it is not sent again, its fate is unknown",
    ),
    "stopped": (Unavailable, "this process is leaving the cluster"),
    "stopped_under_way": (
        Unavailable,
        "this process is leaving the cluster while {command!r} of {entity!r} was under way: its fate is unknown",
    ),
}


class Refusals:
    def __init__(self, limit: int) -> None:
        """`limit`: so many commands may wait or be under way."""
        self.drops: Counter[tuple[str, str]] = Counter()
        "By type and reason."
        self.roles: dict[str, str] = {}
        "Of the nodes that would host a type."
        self._limit = limit

    def refuse(self, parcel: Parcel, reason: str) -> None:
        if reason == "stopped" and (parcel.home is not None or parcel.attempt > 1):
            reason = "stopped_under_way"
        # A reason of a later release is told by its name.
        cls, text = REASONS.get(reason, (Unavailable, f"{{type!r}} has no home: {ascii(reason)[:80]}"))
        self._not_delivered(parcel, reason)
        role = self.roles[parcel.type]
        roles = f" --roles {role}" if role else ""
        names = {
            "type": parcel.type,
            "entity": parcel.entity,
            "command": parcel.command,
            "roles": roles,
            "shard": parcel.shard,
        }
        fail(parcel, cls(text.format(limit=self._limit, **names), code=reason))

    def _not_delivered(self, parcel: Parcel, reason: str) -> None:
        self.drops[parcel.type, reason] += 1
        logger.warning(
            "a command for an entity of %s was not delivered: %s", parcel.type, reason,
            extra={"action": "dropped", "entity_type": parcel.type, "reason": reason},
        )  # fmt: skip

    def failed(self, parcel: Parcel, error: ShardingError) -> None:
        """Its entity's node has failed it. No caller waits for a tell: what was not handled of these is said here."""
        if parcel.reply is None and not isinstance(error, Rejected | EntityFailed):
            self._not_delivered(parcel, error.code if error.code in STORED else error.kind)
        fail(parcel, error)

    def timed_out(self, parcel: Parcel, waited: float) -> None:
        self.drops[parcel.type, "timeout"] += 1
        logger.info(
            "no answer from an entity of %s in time", parcel.type,
            extra={"action": "ask_timeout", "entity_type": parcel.type, "command": parcel.command},
        )  # fmt: skip
        what = f"no answer from {parcel.type!r} {parcel.entity!r} to {parcel.command!r} within {waited:.3g} s"
        fail(parcel, AskTimeout(what))


def fail(parcel: Parcel, error: ShardingError) -> None:
    """Tell whoever waits for it, if somebody does."""
    future = parcel.reply
    if isinstance(future, asyncio.Future) and not future.done():
        future.set_exception(error)
        # A caller that has gone away meanwhile is no "exception was never retrieved".
        future.exception()


def error_of(message: Failed) -> ShardingError:
    """The error that an entity's node has sent."""
    try:
        params = msgspec.msgpack.decode(message.params) if message.params else {}
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        params = {}  # of a later release, or nobody's: the error itself is told all the same
    return from_wire(message.code, message.message, params if isinstance(params, dict) else {})
