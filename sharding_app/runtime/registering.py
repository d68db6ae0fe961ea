"""What a node tells the coordinator again until it has been heard: that it is here, and which of its regions leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.core.ids import Incarnation, Term
from sharding_app.core.messages import Register, RegisterAck

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

AGAIN_SECONDS = 0.5


class Registering:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._known_to: tuple[Incarnation, Term] | None = None
        "The coordinator that has heard us, and the term in which it did: in its next term it knows nothing of that."
        self._told: tuple[Incarnation, Term] | None = None
        "The coordinator that has acknowledged our row, and its term: it hears it from us again, and knows that we hear it."
        self._said_at = float("-inf")
        self._leave_asked_at = float("-inf")

    @property
    def done(self) -> bool:
        """Whether a coordinator has heard this node over the wire, and this node has heard so."""
        return self._known_to is not None

    def acknowledged(self, message: RegisterAck) -> None:
        """A coordinator has our row; it has heard us too, or hears us now."""
        node = self._node
        if message.term < node.homes.term:
            return
        self._told = message.coordinator, message.term
        if message.heard:
            self._known_to = self._told
        else:
            self._say(message.coordinator, node.ports.clock.now())

    def again(self) -> None:
        """What it knows of us is no longer so."""
        self._known_to = None

    def tick(self, now: float) -> None:
        node = self._node
        coordinator = node.homes.coordinator
        registered = self._known_to == (coordinator, node.homes.term) or node.state not in ("up", "leaving")
        if coordinator is not None and not registered and now - self._said_at >= AGAIN_SECONDS:
            self._say(coordinator, now)
        if now - self._leave_asked_at >= AGAIN_SECONDS and node.hosting.ask_to_leave():
            self._leave_asked_at = now

    def _say(self, coordinator: Incarnation, now: float) -> None:
        node = self._node
        self._said_at = now
        term = self._told[1] if self._told is not None and self._told[0] == coordinator else 0
        node.try_send(coordinator, Register(node.incarnation, term))
