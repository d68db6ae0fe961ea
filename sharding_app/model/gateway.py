"""The door from refs to whatever carries their calls: the running cluster, or one in memory under test."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeVar, runtime_checkable

from sharding_app.errors import Unavailable, WrongContext


class Gateway(Protocol):
    """Carries calls. Arguments and replies are encoded; errors are raised as `ShardingError`."""

    def ask(
        self,
        type_name: str,
        entity_id: str,
        command: str,
        args: bytes,
        timeout: float | None,
        command_id: str | None,
    ) -> Awaitable[bytes]:
        """The encoded reply, awaited on any event loop."""

    def ask_sync(
        self,
        type_name: str,
        entity_id: str,
        command: str,
        args: bytes,
        timeout: float | None,
        command_id: str | None,
    ) -> bytes:
        """The encoded reply, from a thread without a running loop."""

    def tell(self, type_name: str, entity_id: str, command: str, args: bytes, command_id: str | None) -> None:
        """Send and forget, from any thread; raises when the message cannot even be queued."""

    def exists(self, type_name: str, entity_id: str, timeout: float | None) -> Awaitable[bool]:
        """Whether the entity has ever stored anything, or is running now."""

    def exists_sync(self, type_name: str, entity_id: str, timeout: float | None) -> bool:
        """The same from a thread without a running loop."""


@runtime_checkable
class Inspector(Protocol):
    """A gateway to a real cluster: its regions can be asked about themselves."""

    def inspect(self, type_name: str, question: object, timeout: float | None) -> Awaitable[object]:
        """What the region of a type says of itself or of the cluster."""

    def inspect_sync(self, type_name: str, question: object, timeout: float | None) -> object:
        """The same from a thread without a running loop."""

    def instruct(self, type_name: str, question: object) -> None:
        """Tell the region of a type to do something, such as to leave."""


def inspector() -> Inspector:
    """The gateway of this process, if it can tell of regions."""
    gateway = current()
    if not isinstance(gateway, Inspector):
        raise WrongContext(
            "regions can be asked about themselves in a real cluster only: this gateway has none"
        )
    return gateway


G = TypeVar("G", bound=Gateway)


_factory: Callable[[], Gateway] | None = None
_current: Gateway | None = None


def set_gateway(factory: Callable[[], Gateway] | None) -> None:
    """Let `factory` make the gateway at first use. The runtime sets it, and again after a fork."""
    global _factory, _current
    _factory = factory
    _current = None


def forget() -> None:
    """Have the gateway made anew at its next use."""
    global _current
    _current = None


def current() -> Gateway:
    """The gateway of this process."""
    gateway = _current
    return _made() if gateway is None else gateway


def _made() -> Gateway:
    global _current
    if _factory is None:
        raise Unavailable(
            "sharding is not set up in this process:"
            " add 'sharding_app' to INSTALLED_APPS and call django.setup()"
        )
    _current = made = _factory()
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
