"""The outcome of one delivery, as the target's home tells it to the owner's: the value of an
answer.
"""

from typing import Literal

import msgspec


class Outcome(msgspec.Struct, array_like=True, frozen=True):
    """`done`: this delivery has taken effect, and its row is gone with it, or goes on.

    `taken`: this delivery, or an earlier one, has taken effect, and its row is still there: it lies
    in another journal than the effect. The owner's home deletes it.
    `gone`: the row was taken, cancelled or replaced before: nothing of this delivery is stored.
    `early`: nothing is stored either, since the row is due only `seconds` from now.
    """

    what: Literal["done", "taken", "gone", "early"]
    seconds: float = 0.0


DONE = Outcome("done")
TAKEN = Outcome("taken")
GONE = Outcome("gone")

NOT_PARKED = "not_parked"
"""A parameter of `PartiallyApplied`: the row of the message lies in another journal, and waits to
be parked.
"""

encode = msgspec.msgpack.Encoder().encode
_DONE = encode(DONE)
_decode = msgspec.msgpack.Decoder(Outcome).decode


def decode(value: bytes) -> Outcome:
    """Read an outcome. A value of a later release counts as gone: the row itself tells the rest."""
    if value == _DONE:
        return DONE
    try:
        return _decode(value)
    except (msgspec.MsgspecError, ValueError):
        return GONE
