"""`Staging`: holds what a command has persisted and sent, until the host commits it.

The host attaches one to an entity before it runs a command handler and takes it away afterwards;
without one, `persist` and `send` refuse. The host reads `records`, `messages`, `cancelled` and
`in_transaction`, commits them in one transaction, and calls `clear`. It runs `after_commit` once
the commit is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

from sharding_app.errors import NotSerializable

#: One staged event: its name, version and JSON for the journal, and the event itself.
Record: TypeAlias = tuple[str, int, bytes, object]

STAGED_LIMIT = 1000
"""Most messages, timers, cancellations and functions that one commit may carry."""


class StagedMessage(NamedTuple):
    """One staged durable message, or a durable timer: a message to the entity itself with a key."""

    target_type: str
    target: str
    command: str
    #: MessagePack, as the arguments of a call.
    args: bytes
    #: Commands of the sender: for the target's result, and for a message that has failed.
    reply_to: str | None = None
    on_failure: str | None = None
    #: The name of a timer; None: a message.
    key: str | None = None
    #: When a timer is due: at this time, or, without one, `delay` seconds after the commit. A
    #: repeating one has neither: `recurrence.first` says when, by the server's time of the commit.
    at: datetime | None = None
    delay: float = 0.0
    #: How a timer repeats: the JSON of a `protocol.delivery.recurrence.Recurrence`.
    every: str | None = None


def args_limit(max_message_bytes: int) -> int:
    """Return the most bytes of the arguments of a durable message. It also carries the names of
    its sender and its target.
    """
    return max(max_message_bytes - 4096, max_message_bytes // 2)


def refuse_too_large(type_name: str, command: str, args: bytes, limit: int) -> None:
    """Raise the error for arguments that fit into the journal, but into no message of a link."""
    if len(args) > limit:
        raise NotSerializable(
            f"{type_name}.{command}: the arguments have {len(args)} bytes, more than the {limit} of a durable"
            " message: send less at a time, or store the data elsewhere and send a reference",
            code="arguments_too_large",
        )


class Staging:
    """What one entity has staged since its last commit; awaiting it commits now."""

    __slots__ = (
        "after_commit",
        "broken",
        "cancelled",
        "commit",
        "in_transaction",
        "messages",
        "records",
    )

    def __init__(self, commit: Callable[[Staging], Awaitable[None]]) -> None:
        #: Staged events in order.
        self.records: list[Record] = []
        #: Durable messages and timers in order; of one key at most one, and none that is cancelled.
        self.messages: list[StagedMessage] = []
        #: Keys of the stored timers that the next commit deletes.
        self.cancelled: list[str] = []
        #: Functions to run once the next commit is durable.
        self.after_commit: list[Callable[[], object]] = []
        #: Functions to run in the transaction of the next commit.
        self.in_transaction: list[Callable[[], object]] = []
        #: Set when an applier raised: the state is half changed, so the command must fail.
        self.broken: BaseException | None = None
        #: The host's function that commits all that is staged, then clears it.
        self.commit = commit

    def __await__(self) -> Generator[Any, Any, None]:
        return self.commit(self).__await__()

    def clear(self) -> None:
        """Forget all that is staged: it is committed, or dropped."""
        self.records = []
        self.messages = []
        self.cancelled = []
        self.after_commit = []
        self.in_transaction = []
        self.broken = None
