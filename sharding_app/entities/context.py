"""`EntityContext`: the methods of ``self.context`` in a handler. The host implements it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, ParamSpec, Protocol, overload

from sharding_app.entities.remote import Remote

P = ParamSpec("P")


class EntityContext(Protocol):
    """The entity's surroundings: its life, its sender and its timers."""

    workers: int
    "Of a numbered worker: how many of them there are."

    @property
    def type_name(self) -> str:
        """The name of the entity's type."""

    @property
    def ref(self) -> Any:
        """The ref of this entity, as ``self.ref``."""

    @property
    def sender(self) -> Any:
        """The sender of the current message: a ref, or None."""

    def now(self) -> datetime:
        """Return the date, in UTC. In tests it is the test's.

        When a durable timer calls a command, its time has come by this clock too. Appliers read no
        clock: give the date to an event.
        """

    def stop(self) -> None:
        """Stop this entity after the current message; the next message starts it again."""

    def passivate(self, stop_message: object | None = None) -> None:
        """Request to be stopped with that message; messages wait until the entity starts again."""

    @overload
    def start_timer(
        self,
        key: str,
        seconds: float,
        call: Remote[P, Any],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None: ...
    @overload
    def start_timer(self, key: str, seconds: float, message: object, /) -> None: ...
    def start_timer(self, key: str, seconds: float, call: object, /, *args: Any, **kwargs: Any) -> None:
        """Call ``Cart.expire`` (or deliver a message) after N seconds; the same key replaces it."""

    def cancel_timer(self, key: str) -> bool:
        """Cancel a timer; return False if there is none with that key."""
