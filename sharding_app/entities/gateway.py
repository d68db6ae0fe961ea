"""The gateway from refs to the carrier of their calls: the running cluster, or one in memory under
test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from sharding_app.entities.staging import StagedMessage
from sharding_app.errors import Unavailable, WrongContext
from sharding_app.protocol.call import Call
from sharding_app.protocol.following import FollowedEvent


class Gateway(Protocol):
    """Carries calls. Arguments and replies are encoded; errors are raised as `ShardingError`."""

    def ask(self, call: Call) -> Awaitable[bytes]:
        """Return the encoded reply, awaited on any event loop."""

    def ask_sync(self, call: Call) -> bytes:
        """Return the encoded reply, from a thread without a running loop."""

    def ask_all(self, calls: Sequence[Call]) -> Sequence[Awaitable[bytes]]:
        """Ask all of them at once; each of them ends with a reply or an error of its own."""

    def ask_all_sync(self, calls: Sequence[Call]) -> Sequence[bytes | BaseException]:
        """Return the replies and errors, from a thread without a running loop."""

    def tell(self, call: Call) -> None:
        """Send and forget, from any thread; raises when the message cannot even be queued."""

    def store(self, message: StagedMessage) -> Awaitable[None]:
        """Store a durable message or timer for its target, from code on an event loop."""

    def store_sync(self, message: StagedMessage) -> None:
        """Store it in the open transaction of this thread, or in one of its own."""


@runtime_checkable
class Inspector(Protocol):
    """A gateway to a real cluster: its regions can be asked about themselves."""

    def inspect(self, type_name: str, question: object, timeout: float | None) -> Awaitable[object]:
        """Return the answer of a type's region about itself or the cluster."""

    def inspect_sync(self, type_name: str, question: object, timeout: float | None) -> object:
        """Do the same from a thread without a running loop."""

    def instruct(self, type_name: str, question: object) -> None:
        """Tell the region of a type to do something, such as to leave."""


class Following(Protocol):
    """One follower of one entity. It is closed in the end."""

    async def events(self, after: int, stamp: int) -> Sequence[FollowedEvent]:
        """Wait for the events after a number. `stamp`: the time of the event of that number, as in
        `FollowedEvent.at`; 0: it is not known.
        """

    def events_sync(self, after: int, stamp: int, timeout: float | None) -> Sequence[FollowedEvent] | None:
        """Do the same from a thread without a running loop. None: nothing came in that time."""

    async def moved(self, seen: int) -> int:
        """Wait until the number of the last commit is another one. -1: until it is known."""

    def moved_sync(self, seen: int, timeout: float | None) -> int | None:
        """Do the same from a thread without a running loop. None: it did not move in that time."""

    def close(self) -> None:
        """Follow no more, from any thread."""


@runtime_checkable
class Followable(Protocol):
    """A gateway to a cluster whose entities can be followed."""

    def follow(self, type_name: str, entity: str) -> Following:
        """Follow an entity."""


def follow(type_name: str, entity: str) -> Following:
    """Follow an entity through the gateway of this process."""
    gateway = current()
    if not isinstance(gateway, Followable):
        raise WrongContext(
            "entities can be followed in a cluster, which this gateway does not have: test it with the"
            " `sharding_cluster` fixture"
        )
    return gateway.follow(type_name, entity)


def inspector() -> Inspector:
    """Return the gateway of this process, if it can inspect regions."""
    gateway = current()
    if not isinstance(gateway, Inspector):
        raise WrongContext(
            "regions answer questions only in a real cluster, which this gateway does not have"
        )
    return gateway


G = TypeVar("G", bound=Gateway)


_factory: Callable[[], Gateway] | None = None
_stand_in: Callable[[], Gateway | None] | None = None
_current: Gateway | None = None


def set_gateway(factory: Callable[[], Gateway] | None) -> None:
    """Let `factory` make the gateway at first use. The runtime sets it, and again after a fork."""
    global _factory, _current
    _factory = factory
    _current = None


def set_stand_in(factory: Callable[[], Gateway | None] | None) -> None:
    """Ask `factory` first whenever the gateway is made: it returns the test kit's, or None for the
    real one.
    """
    global _stand_in, _current
    _stand_in = factory
    _current = None


def forget() -> None:
    """Have the gateway made again at its next use."""
    global _current
    _current = None


def current() -> Gateway:
    """Return the gateway of this process."""
    gateway = _current
    return _made() if gateway is None else gateway


def _made() -> Gateway:
    global _current
    if _factory is None:
        raise Unavailable(
            "sharding is not set up in this process:"
            " add 'sharding_app' to INSTALLED_APPS and call django.setup()"
        )
    _current = made = (None if _stand_in is None else _stand_in()) or _factory()
    return made


@contextlib.contextmanager
def use_gateway(gateway: G) -> Iterator[G]:
    """Route all refs of this process to `gateway` for a while: for tests."""
    global _current
    before, _current = _current, gateway
    try:
        yield gateway
    finally:
        _current = before
