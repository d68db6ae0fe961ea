"""Messages to other processes. They go into links, and wait here for room, in one place for each
peer.

Contract: a message that is too large, or cannot be encoded, never reaches the link, and its caller
gets the reason. An error that is too large for a message is shortened.

*Commands of ours* wait in their order, without an envelope, as long as their callers do. Their
regions count them, so they are bounded there. *All other messages* may not be dropped. Those that
wait for a peer reduce that peer's credit. They are bounded in count and bytes, for each peer and
for all together. Beyond that a reply is replaced by a small error that says that the command may
have taken effect. Neither kind waits for the other, as in the link's two lanes.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from sharding_app.errors import AskTimeout, NotSerializable, ShardingError, Unavailable, to_wire
from sharding_app.protocol.codec import EncodeError, encode_message
from sharding_app.protocol.command_ids import id_of_ours
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.link.link import MessageTooLarge
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver, Failed
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.runtime.base.sizes import arguments_too_large, reply_not_sent
from sharding_app.runtime.links.task import weight

if TYPE_CHECKING:
    from sharding_app.runtime.links.links import Links

logger = logging.getLogger("sharding.node")

MAX_WAITING_MESSAGES = 100_000
MAX_WAITING_BYTES = 32 * 1024 * 1024
"""For one peer. Its link's queue, which is full then, holds as much again."""
MAX_WAITING_BYTES_IN_ALL = 256 * 1024 * 1024
SMALL_BYTES = 1024
"""A reply of this size is not worth replacing."""
ERROR_CHARS = 1000
"""Of the text of an error that is too large for a message, so much is kept."""


class Waiting:
    """Commands and messages that one peer's link had no room for."""

    __slots__ = ("calls", "messages", "size")

    def __init__(self) -> None:
        self.calls: deque[PendingCall] = deque()
        self.messages: deque[tuple[AnyMessage, int]] = deque()
        self.size = 0
        "Bytes of the messages."


class Outbox:
    def __init__(
        self,
        me: Incarnation,
        links: "Links",
        drops: Counter[str],
        not_sent: Callable[[PendingCall, ShardingError | None], None],
    ) -> None:
        """`not_sent` gets a command that never left.

        Its caller gave up before the link had room, or no link can carry it: the error says why.
        """
        self.links = links
        self.waiting: dict[Incarnation, Waiting] = {}
        self.waiting_bytes = 0
        self._me = me
        self._drops = drops
        self._not_sent = not_sent

    # -- Commands of ours --------------------------------------------------------------------------

    def forward(self, pending: PendingCall) -> None:
        """Send a command to its home, behind those that wait for the link."""
        home, waiting = pending.home, None
        if home is None:
            return
        if self.waiting:
            waiting = self.waiting.get(home)
        if waiting is not None and waiting.calls:
            waiting.calls.append(pending)
        elif not self._put(pending, home):
            self.waiting.setdefault(home, Waiting()).calls.append(pending)

    def let_go(self, calls: list[PendingCall]) -> None:
        """Drop commands that no caller waits for any more: no limit counts them here."""
        given_up = set(calls)
        for home in self.waiting.keys() & {each.home for each in calls}:
            waiting = self.waiting[home]
            waiting.calls = deque(each for each in waiting.calls if each not in given_up)

    def _put(self, pending: PendingCall, home: Incarnation) -> bool:
        """Put a command into the link of its home. False: it has no room."""
        call = pending.call
        command_id = call.command_id
        if pending.attempt > 1 and not command_id:
            command_id = id_of_ours(self._me, pending.request)
        deadline = 0 if call.tell else int(pending.deadline * 1000) or 1
        message = Deliver(
            call.type, pending.shard, pending.epoch, call.entity, pending.request, call.command, call.args,
            command_id, pending.attempt, int(pending.born * 1000), deadline, call.chain, call.trace, call.delivery,
            pending.later,
        )  # fmt: skip
        try:
            return self.links.put(home, message)
        except MessageTooLarge as error:
            self._fail_soon(pending, arguments_too_large(call.type, call.command, error.size, error.limit))
        except EncodeError as error:
            text = f"{call.type}.{call.command} cannot be sent: {error}"
            self._fail_soon(pending, NotSerializable(text, code="not_encodable"))
        return True

    def _fail_soon(self, pending: PendingCall, error: ShardingError) -> None:
        if pending.attempt > 1:
            # It is larger than it was: it names the calls behind it. It may have taken effect at a
            # home that died.
            text = f"{error.message}; it was under way when an earlier home died, and its fate is unknown"
            error = Unavailable(text, code="fate_unknown")
        asyncio.get_running_loop().call_soon(self._not_sent, pending, error)

    # -- Other messages ----------------------------------------------------------------------------

    def send(self, target: Incarnation, message: AnyMessage) -> None:
        """Send a message that may not be dropped. It waits here while the link has no room."""
        waiting = self.waiting.get(target)
        if waiting is None or not waiting.messages:
            if self.try_send(target, message) or self.links.is_gone(target):
                return
            waiting = self.waiting.setdefault(target, Waiting())
        size = weight(message)
        full = waiting.size + size > MAX_WAITING_BYTES or self.waiting_bytes + size > MAX_WAITING_BYTES_IN_ALL
        if full and size > SMALL_BYTES and isinstance(message, Answer | Failed):
            self._drops["reply_dropped"] += 1
            message = _no_room(message.request, size)
            size = weight(message)
        if len(waiting.messages) >= MAX_WAITING_MESSAGES:
            # The peer has taken nothing for long: its callers have given up, or will hear that we
            # are gone.
            self._drops[type(message).__name__] += 1
            return
        waiting.messages.append((message, size))
        waiting.size += size
        self.waiting_bytes += size

    def bytes_for(self, target: Incarnation) -> int:
        """Return the bytes that wait here for that peer."""
        waiting = self.waiting.get(target)
        return 0 if waiting is None else waiting.size

    def try_send(self, target: Incarnation, message: AnyMessage) -> bool:
        """Send a message that will be repeated anyway. False: the link does not take it."""
        try:
            return self.links.put(target, message)
        except MessageTooLarge as error:
            if isinstance(message, Answer):
                # Only for commands that persist nothing. Other replies were measured before the
                # commit.
                refusal = reply_not_sent(error.size, error.limit)
                return self.links.put(target, _failed(message.request, refusal))
            if isinstance(message, Failed):
                return self.links.put(target, _shortened(message))
            logger.error(
                "a %s is too large: %s", type(message).__name__, error, extra={"action": "message_too_large"}
            )
            return True
        except EncodeError as error:
            logger.error("a message is not sent: %s", error, extra={"action": "message_not_encodable"})
            return True

    def try_send_all(self, targets: Iterable[Incarnation], message: AnyMessage) -> None:
        """Send one message to many targets, encoded once."""
        try:
            data = encode_message(message)
            for target in targets:
                self.links.put(target, message, data)
        except (MessageTooLarge, EncodeError) as error:
            logger.error("a %s: %s", type(message).__name__, error, extra={"action": "message_too_large"})

    # -- Both --------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send all that waits, as far as links have room by now."""
        for target in list(self.waiting):
            waiting = self.waiting[target]
            late = self._send_calls(target, waiting.calls)
            self._send_messages(target, waiting)
            if not (waiting.calls or waiting.messages):
                del self.waiting[target]
            for pending in late:
                self._not_sent(pending, None)

    def _send_calls(self, target: Incarnation, calls: deque[PendingCall]) -> list[PendingCall]:
        """Send the commands that still have this home; return those whose callers have given up."""
        late = []
        while calls:
            pending = calls[0]
            if pending.home == target:
                if pending.told and not pending.call.tell:
                    late.append(pending)
                elif not self._put(pending, target):
                    break
            calls.popleft()
        return late

    def _send_messages(self, target: Incarnation, waiting: Waiting) -> None:
        while waiting.messages:
            message, size = waiting.messages[0]
            if not self.try_send(target, message):
                break
            waiting.messages.popleft()
            waiting.size -= size
            self.waiting_bytes -= size

    def gone(self, incarnation: Incarnation) -> list[PendingCall]:
        """Drop the messages to a process, and return the commands for it. None of them was sent."""
        waiting = self.waiting.pop(incarnation, None)
        if waiting is None:
            return []
        self.waiting_bytes -= waiting.size
        return [each for each in waiting.calls if each.home == incarnation]


def _shortened(message: Failed) -> Failed:
    """Return an error that no message holds without its params and the rest of its text.

    The text or the params are a user's: the caller has to learn that the command has failed.
    """
    params = msgspec.msgpack.decode(message.params) if message.params else {}
    kept = {name: params[name] for name in ("code", "class") if len(params.get(name, "")) in range(1, 256)}
    text = f"{message.message[:ERROR_CHARS]} [...]"
    return Failed(message.request, message.code, text, msgspec.msgpack.encode(kept))


def _no_room(request: int, size: int) -> Failed:
    text = (
        f"the reply of {size} bytes was dropped: too much waits on the way to this process already. The command may have taken"
        " effect. Ask for less at a time"
    )
    return _failed(request, AskTimeout(text, code="reply_dropped"))


def _failed(request: int, error: ShardingError) -> Failed:
    kind, said, params = to_wire(error)
    return Failed(request, kind, said, msgspec.msgpack.encode(params))
