"""`EntityContext`: what ``self.context`` offers to a handler. The host implements it."""

from __future__ import annotations

from typing import Any, ParamSpec, Protocol, overload

from sharding_app.model.remote import Remote

P = ParamSpec("P")


class EntityContext(Protocol):
    """The entity's surroundings: its life, its sender and its timers."""

    @property
    def type_name(self) -> str:
        """The name of the entity's type."""

    @property
    def sender(self) -> Any:
        """Who sent the message that is handled now: a ref, or None."""

    def stop(self) -> None:
        """Stop this entity once the present message is handled; the next message starts it anew."""

    def passivate(self, stop_message: object | None = None) -> None:
        """Ask to be stopped with that message; meanwhile messages wait for the next incarnation."""

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
        """Call ``Cart.expire`` (or deliver a message) after so many seconds; a same key replaces."""

    def cancel_timer(self, key: str) -> bool:
        """Cancel a timer; False when there is none of that key."""
