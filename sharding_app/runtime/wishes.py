"""Whose wishes a node follows: those that are signed with a key for steering.

A key in `KEYS` lets a process ask and tell. With `STEERING_KEYS` too, an operator's wish (erase, shut down, move) counts only if
it is signed with one of these: web workers that do not have them can ask and tell, and not steer. Without, `KEYS` sign wishes.
With neither, frames are believed whoever wrote them, and outside of DEBUG a node then refuses what cannot be taken back.

A signature names who wishes, who is to follow, and a number that only grows: none is followed twice.
"""

import hashlib
import hmac
from collections import OrderedDict

import msgspec

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Steer

FINAL = frozenset(("erase", "shutdown"))
MAX_SOURCES = 10_000
_BYTES = 32


class Wishes:
    def __init__(self, me: Incarnation, keys: tuple[bytes, ...], *, unguarded: bool) -> None:
        """`unguarded`: there are no keys, and this is not a development server."""
        self._me = me
        self._keys = [
            hashlib.blake2b(key, digest_size=_BYTES, person=b"sharding-steer").digest() for key in keys
        ]
        self._unguarded = unguarded
        self._last: OrderedDict[Incarnation, int] = OrderedDict()

    def sign(self, wish: Steer, target: Incarnation) -> None:
        """Sign a wish of ours for the process that is to follow it."""
        if self._keys:
            wish.seal = _seal(self._keys[0], wish, self._me, target)

    def refusal(self, wish: Steer, source: Incarnation) -> str:
        """Say why a wish is not followed; empty: it is."""
        if self._unguarded and wish.action in FINAL:
            return (
                f"A wish to {wish.action} is refused here: SHARDING['KEYS'] is empty, so anybody who reaches the channel"
                " layer's Redis could have sent it. Set KEYS for every process."
            )
        if not self._keys:
            return ""
        if not any(hmac.compare_digest(wish.seal, _seal(key, wish, source, self._me)) for key in self._keys):
            return "It is not signed with a key for steering: has this process the nodes' SHARDING['STEERING_KEYS']?"
        if wish.request <= self._last.get(source, 0):
            return "It was sent before, and is not followed again."
        self._last[source] = wish.request
        self._last.move_to_end(source)
        if len(self._last) > MAX_SOURCES:
            self._last.popitem(last=False)
        return ""


def _seal(key: bytes, wish: Steer, source: Incarnation, target: Incarnation) -> bytes:
    said = (
        source,
        target,
        wish.request,
        wish.action,
        wish.type,
        wish.shard,
        wish.entity,
        wish.target,
        wish.by,
    )
    return hashlib.blake2b(msgspec.msgpack.encode(said), key=key, digest_size=_BYTES).digest()
