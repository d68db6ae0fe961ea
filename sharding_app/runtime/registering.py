"""What a node tells the coordinator again until it has been heard: that it is here, and which of its regions leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sharding_app.core.ids import Incarnation
from sharding_app.core.messages import Register

if TYPE_CHECKING:
    from sharding_app.runtime.node import Node

AGAIN_SECONDS = 0.5


class Registering:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._known_to: Incarnation | None = None
        self._said_at = float("-inf")
        self._leave_asked_at = float("-inf")

    @property
    def done(self) -> bool:
        """Whether a coordinator has acknowledged this node."""
        return self._known_to is not None

    def acknowledged(self) -> None:
        """The present coordinator knows us."""
        self._known_to = self._node.homes.coordinator

    def again(self) -> None:
        """What it knows of us is no longer so."""
        self._known_to = None

    def tick(self, now: float) -> None:
        node = self._node
        coordinator = node.homes.coordinator
        registered = self._known_to == coordinator or node.state not in ("up", "leaving")
        if coordinator is not None and not registered and now - self._said_at >= AGAIN_SECONDS:
            self._said_at = now
            node.try_send(coordinator, Register(node.incarnation))
        if now - self._leave_asked_at >= AGAIN_SECONDS and node.hosting.ask_to_leave():
            self._leave_asked_at = now
