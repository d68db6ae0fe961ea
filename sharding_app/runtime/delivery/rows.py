"""Rows of messages and timers as the machine holds them, and calls that deliver them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from sharding_app.errors import AskTimeout, PartiallyApplied, Rejected, ShardingError, came_by_wire
from sharding_app.ports.deliveries import MessageRow, Pending
from sharding_app.protocol.call import Call
from sharding_app.protocol.delivery.deliveries import (
    DIED,
    FAILED,
    PARKED,
    PARTLY,
    REJECTED,
    UNJUDGED,
    UNKNOWN,
    UNREACHED,
    Failure,
    Message,
)
from sharding_app.protocol.delivery.outcome import NOT_PARKED
from sharding_app.protocol.messages import Delivery
from sharding_app.redaction import told
from sharding_app.runtime.base.call_chain import TOLD

MAX_ERROR_CHARS = 1000
"""Of the text that is kept beside a message that has failed."""
MICROSECONDS = 1_000_000


def staged(rows: Sequence[MessageRow], at: float) -> list[Message]:
    """Return rows that were committed at that time of the server's."""
    return [
        Message(
            row.id, row.entity, row.seq, row.position, row.target_type, row.target, row.command, row.args,
            at + row.delay if row.due is None else row.due.timestamp(), row.key, row.every, row.reply_to, row.on_failure,
        )
        for row in rows
    ]  # fmt: skip


def read(row: Pending) -> Message:
    """Return a row of a page."""
    return Message(
        row.id, row.entity, row.seq, row.position, row.target_type, row.target, row.command, row.args,
        row.due.timestamp(), row.key, row.every, row.reply_to, row.on_failure, row.failures,
        occasion=None if row.occasion is None else row.occasion.timestamp(), outside=row.outside,
    )  # fmt: skip


def call_of(message: Message, owner_type: str, timeout: float, journal: str) -> Call:
    """Return the call that delivers a message, whose row lies in that journal."""
    again = None if message.again is None else (message.again[0], round(message.again[1] * MICROSECONDS))
    reply_to = None if message.reply_to is None else (owner_type, message.entity, message.reply_to)
    to_itself = message.target == message.entity and message.target_type == owner_type
    return Call(
        message.target_type,
        message.entity if message.key is not None else message.target,
        message.command,
        message.args,
        timeout,
        # The owner does not wait. A timer, and what was stored from outside, has no sender.
        chain=() if to_itself else (f"{TOLD}{owner_type}/{message.entity}",),
        delivery=Delivery(message.id, reply_to, again, message.key, message.attempt, journal),
    )


def time_of(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def kind_of(error: BaseException, *, among_others: bool) -> Failure:
    """Return what an error says about a delivery.

    `among_others`: there are other journals. Then a failure may end a message only if the home of
    its target has told it, after a look for a mark (`ForeignMessages.must_look`).
    """
    kind = _kind_of(error)
    if among_others and kind in (REJECTED, FAILED) and isinstance(error, ShardingError):
        has_looked = came_by_wire(error) and (kind is REJECTED or not error.retryable)
        return kind if has_looked else UNJUDGED
    return kind


def _kind_of(error: BaseException) -> Failure:
    if isinstance(error, Rejected):
        return REJECTED
    if isinstance(error, PartiallyApplied):
        return PARTLY if error.params.get(NOT_PARKED) else PARKED
    if isinstance(error, AskTimeout) or not isinstance(error, ShardingError):
        return UNKNOWN
    if error.code == "home_died":
        return DIED
    if error.code == "poisonous":
        return FAILED  # it must not kill one node after the other for ever
    if error.retryable:
        return UNREACHED if error.stored == "nothing" else UNKNOWN
    return FAILED


def text_of(error: Exception) -> str:
    """Return the text about an error that is kept beside its message."""
    text = f"{error.code}: {error.message}" if isinstance(error, ShardingError) else told(error)
    # The column takes neither lone surrogates nor a NUL.
    text = text[:MAX_ERROR_CHARS].encode(errors="backslashreplace").decode()
    return text[:MAX_ERROR_CHARS].replace("\0", " ")
