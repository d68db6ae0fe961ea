"""Builds from which one safeguard was removed: what the fault tests are for is that they notice.

Chosen by ACCEPTANCE_SABOTAGE in the environment of the nodes. The fence is in the database: the
harness drops it there.
"""

from __future__ import annotations

from typing import Any


def lease() -> None:
    """A node that never looks at its lease, and does not listen when it is told of its own end."""
    from sharding_app.protocol.messages import NodeGone
    from sharding_app.runtime.liveness.thread import LifelineThread
    from sharding_app.runtime.node.node import Node

    control = Node.control

    def deaf(self: Node, source: Any, message: Any) -> None:
        if not (isinstance(message, NodeGone) and message.incarnation == self.incarnation):
            control(self, source, message)

    _replace(LifelineThread, "valid_until", property(lambda self: float("inf")))
    _replace(Node, "control", deaf)


def outcomes() -> None:
    """A home that does not find what an earlier attempt of a command has left in the journal."""
    from sharding_app.adapters.postgres.journal import PostgresJournal

    async def nothing_found(*_: object) -> None:
        return None

    _replace(PostgresJournal, "outcome", nothing_found)


def repetitions() -> None:
    """A link that takes in what is repeated."""
    from sharding_app.protocol.link.receiver import LinkReceiver

    take = LinkReceiver.take

    def take_all(self: LinkReceiver, frame: Any, size: int, now: float) -> Any:
        again = frame.stream == self.stream and 0 < frame.seq <= self.taken_in
        found = take(self, frame, size, now)
        return frame.body if again else found

    _replace(LinkReceiver, "take", take_all)


def resends() -> None:
    """A link that says everything once."""
    from sharding_app.protocol.link.sender import LinkSender

    def nothing_due(self: Any, now: float) -> list[object]:
        self._resend_at = now + 1.0
        self._recover_due = False
        return []

    _replace(LinkSender, "_resends", nothing_due)


def _replace(owner: type, name: str, instead: object) -> None:
    assert name in vars(owner), f"{owner.__name__} has no {name} any more: sabotage it where it is now"
    setattr(owner, name, instead)


SABOTAGES = {"lease": lease, "outcomes": outcomes, "repetitions": repetitions, "resends": resends}
