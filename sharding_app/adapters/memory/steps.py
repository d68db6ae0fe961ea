"""The steps of a request in the virtual server, as a generator.

It yields the locks that it needs and the places at which time passes. It writes in one go after its
last step, so others see all of it or nothing. An error rolls it back.
"""

from collections.abc import Callable, Generator
from enum import Enum
from typing import TypeVar

from sharding_app.adapters.memory.locks import Lock
from sharding_app.adapters.memory.sessions import ServerError

T = TypeVar("T")


class Pause(Enum):
    """Where a transaction takes time."""

    WORK = "work"
    "Its rows arrive and are written. Others do not see them."
    COMMIT = "commit"
    "All is done but the commit. Others see the rows after this."
    NEXT = "next"
    "One transaction is committed, and another one of the same request begins."


Steps = Generator[Lock | Pause, None, T]
Told = Callable[[object, bool], None]
"""Called with the outcome of a request, and whether that is an error."""

LOCK_TIMEOUT = "55P03"


def at_once(request: Callable[[], T]) -> Steps[T]:
    """Return the steps of an instantaneous request: a read sees one snapshot, and waits for no
    row.
    """
    yield from ()
    return request()


def lock_timeout() -> ServerError:
    return ServerError(LOCK_TIMEOUT, "canceling statement due to lock timeout")


def statement_timeout() -> ServerError:
    return ServerError("57014", "canceling statement due to statement timeout")
