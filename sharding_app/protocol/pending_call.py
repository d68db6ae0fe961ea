"""A call under way, as the asking process keeps it until it is answered, failed or handed back."""

from typing import Any, Protocol

import msgspec

from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.messages import Busy


class Reply(Protocol):
    """Takes the outcome of a call: a future, or an object that goes on in the same turn."""

    def done(self) -> bool: ...

    def set_result(self, value: bytes, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class PendingCall(msgspec.Struct, eq=False):
    """One unresolved command.

    A struct, since one is made for each call: it takes a fourth of the time of a class's __init__.
    """

    request: int
    call: Call
    shard: ShardId
    born: float
    deadline: float
    reply: Any = None
    "Owned by the shell: the machine only carries it."
    safe: bool = True
    """May be handled again after its home died: it changes nothing, its effect is found in the
    journal, or its caller allowed it."""
    attempt: int = 1
    deaths: int = 0
    later: tuple[int | str, ...] = ()
    """Later calls to its entity that were outstanding with it at a home that died: their callers'
    ids, or their requests. If one has taken effect there, this one must not run any more."""
    told: bool = False
    "The caller has its answer (or its timeout); the call is kept only for the order's sake."
    home: Incarnation | None = None
    "The home at which it is outstanding; None while it waits here."
    epoch: Epoch = 0
    busy: Busy | None = None
    "The last word of its home about the reason why it waits."
    size: int = 0
    "About the bytes that it holds; its region counts them from `RegionRoutes.submit` on."
