"""What this process says to others: it goes into their links, and what may not be dropped waits while one has no room.

Contract: a message that is too large, or cannot be encoded, never reaches the link; whoever waits for it is told why.
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
from sharding_app.errors import NotStorable, to_wire

if TYPE_CHECKING:
    from sharding_app.runtime.asker import Asker
    from sharding_app.runtime.links import Links

logger = logging.getLogger("sharding.node")

MAX_BACKLOG = 100_000


class Outbox:
    links: "Links"
    asker: "Asker"
    "Both are set when the process starts."

    def __init__(self, me: Incarnation, drops: Counter[str]) -> None:
        self.waiting: dict[Incarnation, deque[AnyMessage]] = {}
        self._me = me
        self._drops = drops

    def send(self, target: Incarnation, message: AnyMessage) -> None:
        """Send what may not be dropped: it waits here while the link has no room."""
        backlog = self.waiting.get(target)
        if backlog is not None:
            if len(backlog) >= MAX_BACKLOG:
                # It has long stopped to take anything: whoever asked there has given up, or will be told that we are gone.
                self._drops[type(message).__name__] += 1
                return
            backlog.append(message)
        elif not self.try_send(target, message):
            self.waiting[target] = deque((message,))

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
            waiting = self.waiting.pop(target)
            while waiting:
                if not self.try_send(target, waiting[0]):
                    self.waiting[target] = waiting
                    break
                waiting.popleft()

    def gone(self, incarnation: Incarnation) -> None:
        self.waiting.pop(incarnation, None)

    def _fail_soon(self, failed: Failed) -> None:
        asyncio.get_running_loop().call_soon(self.asker.receive, self._me, failed)


def _not_storable(request: int, code: str, text: str) -> Failed:
    kind, said, params = to_wire(NotStorable(text, code=code))
    return Failed(request, kind, said, msgspec.msgpack.encode(params))
