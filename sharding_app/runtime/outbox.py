"""What this process says to others: it goes into their links, and what may not be dropped waits while one has no room.

Contract: a message that is too large, or cannot be encoded, never reaches the link; its asker is told why. What waits here for
a peer makes that peer's credit less, and is bounded in count and bytes, for each peer and for all together: beyond it a
reply is replaced by a small error that says that the command may have taken effect.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from sharding_app.core.codec import EncodeError, encode_message
from sharding_app.core.ids import Incarnation
from sharding_app.core.link import MessageTooLarge
from sharding_app.core.messages import Answer, AnyMessage, Deliver, Failed
from sharding_app.errors import AskTimeout, NotStorable, ShardingError, to_wire
from sharding_app.runtime.link_line import weight

if TYPE_CHECKING:
    from sharding_app.runtime.asker import Asker
    from sharding_app.runtime.links import Links

logger = logging.getLogger("sharding.node")

MAX_WAITING_MESSAGES = 100_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""For one peer: its link's queue, which is full then, holds as much again."""
MAX_WAITING_BYTES_IN_ALL = 256 * 1024 * 1024
SMALL_BYTES = 1024
"""A reply that is not larger is not worth replacing."""


class Waiting:
    """What waits for one peer."""

    __slots__ = ("messages", "size")

    def __init__(self) -> None:
        self.messages: deque[tuple[AnyMessage, int]] = deque()
        self.size = 0


class Outbox:
    links: "Links"
    asker: "Asker"
    "Both are set when the process starts."

    def __init__(self, me: Incarnation, drops: Counter[str]) -> None:
        self.waiting: dict[Incarnation, Waiting] = {}
        self.waiting_bytes = 0
        self._me = me
        self._drops = drops

    def send(self, target: Incarnation, message: AnyMessage) -> None:
        """Send what may not be dropped: it waits here while the link has no room."""
        waiting = self.waiting.get(target)
        if waiting is None:
            if self.try_send(target, message) or self.links.is_gone(target):
                return
            waiting = self.waiting[target] = Waiting()
        size = weight(message)
        full = waiting.size + size > MAX_WAITING_BYTES or self.waiting_bytes + size > MAX_WAITING_BYTES_IN_ALL
        if full and size > SMALL_BYTES and isinstance(message, Answer | Failed):
            self._drops["reply_dropped"] += 1
            message = _no_room(message.request, size)
            size = weight(message)
        if len(waiting.messages) >= MAX_WAITING_MESSAGES:
            # It has long stopped to take anything: its callers have given up, or will be told that we are gone.
            self._drops[type(message).__name__] += 1
            return
        waiting.messages.append((message, size))
        waiting.size += size
        self.waiting_bytes += size

    def bytes_for(self, target: Incarnation) -> int:
        """How much waits here for that peer."""
        waiting = self.waiting.get(target)
        return 0 if waiting is None else waiting.size

    def try_send(self, target: Incarnation, message: AnyMessage) -> bool:
        """Send what will be repeated anyway."""
        try:
            return self.links.put(target, message)
        except MessageTooLarge as error:
            if isinstance(message, Answer):
                # Only of what persists nothing: else the reply was measured before the commit.
                text = f"the reply has {error.size} bytes, more than the {error.limit} of a message: return less of it at a time"
                return self.links.put(target, _not_storable(message.request, "reply_too_large", text))
            logger.error(
                "a %s is too large: %s", type(message).__name__, error, extra={"action": "message_too_large"}
            )
            return True
        except EncodeError as error:
            logger.error("a message is not sent: %s", error, extra={"action": "message_not_encodable"})
            return True

    def try_send_all(self, targets: Iterable[Incarnation], message: AnyMessage) -> None:
        """Send the same to many, encoded once."""
        try:
            data = encode_message(message)
            for target in targets:
                self.links.put(target, message, data)
        except (MessageTooLarge, EncodeError) as error:
            logger.error("a %s: %s", type(message).__name__, error, extra={"action": "message_too_large"})

    def put_command(self, target: Incarnation, message: AnyMessage) -> bool:
        """Send a command of ours: if that can never be done, its asker is told."""
        try:
            return self.links.put(target, message)
        except MessageTooLarge as error:
            if isinstance(message, Deliver):
                text = (
                    f"{message.type}.{message.command}: the arguments have {error.size} bytes, more than the {error.limit}"
                    " of a message: send less at a time, or a reference to what is stored elsewhere"
                )
                self._fail_soon(_not_storable(message.request, "arguments_too_large", text))
            return True
        except EncodeError as error:
            if isinstance(message, Deliver):
                text = f"{message.type}.{message.command} cannot be sent: {error}"
                self._fail_soon(_not_storable(message.request, "not_encodable", text))
            return True

    def tick(self) -> None:
        """Send what has waited, as far as there is room by now."""
        for target in list(self.waiting):
            waiting = self.waiting[target]
            while waiting.messages:
                message, size = waiting.messages[0]
                if not self.try_send(target, message):
                    break
                waiting.messages.popleft()
                waiting.size -= size
                self.waiting_bytes -= size
            else:
                del self.waiting[target]

    def gone(self, incarnation: Incarnation) -> None:
        waiting = self.waiting.pop(incarnation, None)
        if waiting is not None:
            self.waiting_bytes -= waiting.size

    def _fail_soon(self, failed: Failed) -> None:
        asyncio.get_running_loop().call_soon(self.asker.receive, self._me, failed)


def _not_storable(request: int, code: str, text: str) -> Failed:
    return _failed(request, NotStorable(text, code=code))


def _no_room(request: int, size: int) -> Failed:
    text = (
        f"the reply of {size} bytes was dropped: too much waits on the way to this process already. The command may have taken"
        " effect. Ask for less at a time"
    )
    return _failed(request, AskTimeout(text, code="reply_dropped"))


def _failed(request: int, error: ShardingError) -> Failed:
    kind, said, params = to_wire(error)
    return Failed(request, kind, said, msgspec.msgpack.encode(params))
