"""Errors for callers whose commands have no answer: typed, with a reason, counted and logged."""

import asyncio
import logging
from collections import Counter

import msgspec

from sharding_app.errors import (
    STORED,
    AskTimeout,
    BufferFull,
    EntityFailed,
    InvalidCall,
    Rejected,
    ShardingError,
    Unavailable,
    from_wire,
)
from sharding_app.protocol.builtin_commands import EVENTS
from sharding_app.protocol.messages import Busy, Failed
from sharding_app.protocol.pending_call import PendingCall

logger = logging.getLogger("sharding.region")

REASONS = {
    "buffer_full": (
        BufferFull,
        "the buffers of this process are full for {type!r}: slow down. Too many commands or bytes are waiting or in"
        " flight for the type (at most {limit} commands), for one of its shards, or for the process",
    ),
    "no_host": (
        Unavailable,
        "no node hosts {type!r}: start `manage.py sharding_node{roles}`, with the type's app in INSTALLED_APPS",
    ),
    "no_such_shard": (
        InvalidCall,
        "{type!r} has no shard {shard}: check that SHARDING['NUMBER_OF_SHARDS'] and the extractor equal the cluster's",
    ),
    "refused": (
        Unavailable,
        "the store refuses to place shard {shard} of {type!r}: see the coordinator's log (sharding.coordinator)",
    ),
    "fate_unknown": (
        Unavailable,
        "the node of {entity!r} died while {command!r} was in flight: its outcome is unknown",
    ),
    "home_died": (
        Unavailable,
        "the node of {entity!r} died while the durable message {command!r} was in flight: its outcome is unknown",
    ),
    "poisonous": (
        Unavailable,
        "{command!r} of {entity!r} was in flight when two nodes died: it is not sent again, its outcome is unknown",
    ),
    "stopped": (Unavailable, "this process is leaving the cluster"),
    "stopped_under_way": (
        Unavailable,
        "this process is leaving the cluster while {command!r} of {entity!r} is in flight: its outcome is unknown",
    ),
}

STOPS = "stopped", "stopped_under_way"


class Refusals:
    def __init__(self, limit: int) -> None:
        """Create it; `limit` is the maximum number of commands that wait or are in flight."""
        self.drops: Counter[tuple[str, str]] = Counter()
        "Commands that were not delivered, by type and reason."
        self.roles: dict[str, str] = {}
        "Role of the nodes that would host a type, by type."
        self._limit = limit

    def refuse(self, pending: PendingCall, reason: str) -> None:
        if reason == "stopped" and (pending.home is not None or pending.attempt > 1):
            reason = "stopped_under_way"
        # A reason of a later release is reported by its name.
        cls, text = REASONS.get(reason, (Unavailable, f"{{type!r}} has no home: {ascii(reason)[:80]}"))
        if not (reason in STOPS and pending.call.command == EVENTS):
            # A follower's question only waits for news: nothing is lost when its process ends.
            self._not_delivered(pending, reason)
        call = pending.call
        role = self.roles[call.type]
        roles = f" --roles {role}" if role else ""
        names = {
            "type": call.type,
            "entity": call.entity,
            "command": call.command,
            "roles": roles,
            "shard": pending.shard,
        }
        fail(pending, cls(text.format(limit=self._limit, **names), code=reason))

    def _not_delivered(self, pending: PendingCall, reason: str) -> None:
        call = pending.call
        self.drops[call.type, reason] += 1
        logger.warning(
            "a command for an entity of %s was not delivered: %s", call.type, reason,
            extra={"action": "dropped", "entity_type": call.type, "reason": reason},
        )  # fmt: skip

    def failed(self, pending: PendingCall, error: ShardingError) -> None:
        """Fail a command with its node's error.

        A tell has no caller that waits: log that it was not handled.
        """
        if pending.call.tell and not isinstance(error, Rejected | EntityFailed):
            self._not_delivered(pending, error.code if error.code in STORED else error.kind)
        fail(pending, error)

    def timed_out(self, pending: PendingCall, waited: float) -> None:
        call = pending.call
        self.drops[call.type, "timeout"] += 1
        logger.info(
            "no answer from an entity of %s in time", call.type,
            extra={"action": "ask_timeout", "entity_type": call.type, "command": call.command},
        )  # fmt: skip
        what = f"no answer from {call.type!r} {call.entity!r} to {call.command!r} within {waited:.3g} s"
        if pending.busy is not None:
            what += f"; shortly before, {_busy_text(pending.busy)}"
        fail(pending, AskTimeout(what))


def _busy_text(busy: Busy) -> str:
    """Say what kept an entity from an answer, by the last word of its home."""
    text = "it was at work on this" if busy.running else f"it was busy with {busy.command!r}"
    text += f" for {busy.seconds:.2g} s"
    if busy.calls:
        text += ", which waits for " + " and ".join(busy.calls)
    if busy.rows:
        why = busy.blocked or (
            "does an open transaction, perhaps the caller's own, hold a lock on one of them?"
        )
        text += f", which writes rows of yours (in_transaction=) and waits for PostgreSQL: {why}"
    return text


def fail(pending: PendingCall, error: ShardingError) -> None:
    """Pass the error to the caller, if one waits."""
    reply = pending.reply
    if reply is not None and not reply.done():
        reply.set_exception(error)
        if isinstance(reply, asyncio.Future):
            # A caller that has gone away is no "exception was never retrieved".
            reply.exception()


def error_of(message: Failed) -> ShardingError:
    """Return the error that an entity's node has sent."""
    try:
        params = msgspec.msgpack.decode(message.params) if message.params else {}
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError):
        params = {}  # of a later release, or malformed: the error itself is passed on all the same
    return from_wire(message.code, message.message, params if isinstance(params, dict) else {})
