"""Operators' requests that a node follows: those that are signed with a key for steering.

A key in `KEYS` lets a process ask and tell. With `STEERING_KEYS` too, a request (erase, shut down,
move) counts only if it is signed with one of these: web workers without them can ask and tell, and
not steer. Without `STEERING_KEYS`, `KEYS` sign the requests. With neither, frames of any origin are
believed, and outside of DEBUG a node then refuses requests that cannot be undone. A signature
covers the sender, the receiver, and a number that only grows: no request is followed twice.
"""

import hashlib
import hmac
from collections import OrderedDict

import msgspec

from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import OperatorRequest

FINAL = frozenset(("archive", "erase", "shutdown"))
MAX_SOURCES = 10_000
_BYTES = 32


class OperatorKeys:
    def __init__(self, me: Incarnation, keys: tuple[bytes, ...], *, unguarded: bool) -> None:
        """`unguarded`: there are no keys, and this is not a development server."""
        self._me = me
        self._keys = [
            hashlib.blake2b(key, digest_size=_BYTES, person=b"sharding-steer").digest() for key in keys
        ]
        self._unguarded = unguarded
        self._last: OrderedDict[Incarnation, int] = OrderedDict()

    def sign(self, message: OperatorRequest, target: Incarnation) -> None:
        """Sign a request of ours for the process that is to follow it."""
        if self._keys:
            message.seal = _seal(self._keys[0], message, self._me, target)

    def refusal(self, message: OperatorRequest, source: Incarnation) -> str:
        """Return why a request is not followed; empty: it is."""
        if self._unguarded and message.action in FINAL:
            return (
                f"A request to {message.action} is refused here: SHARDING['KEYS'] is empty, so any process of"
                " its user, or any client of the channel layer's Redis, could have sent it. Set KEYS for every process."
            )
        if not self._keys:
            return ""
        if not any(
            hmac.compare_digest(message.seal, _seal(key, message, source, self._me)) for key in self._keys
        ):
            return "It is not signed with a key for steering: has this process the nodes' SHARDING['STEERING_KEYS']?"
        if message.request <= self._last.get(source, 0):
            return "It was sent before, and is not followed again."
        self._last[source] = message.request
        self._last.move_to_end(source)
        if len(self._last) > MAX_SOURCES:
            self._last.popitem(last=False)
        return ""


def _seal(key: bytes, message: OperatorRequest, source: Incarnation, target: Incarnation) -> bytes:
    said = [
        source,
        target,
        message.request,
        message.action,
        message.type,
        message.shard,
        message.entity,
        message.target,
        message.by,
    ]
    if message.mark:
        said.append(message.mark)
    return hashlib.blake2b(msgspec.msgpack.encode(said), key=key, digest_size=_BYTES).digest()
