"""Who is told of what happens to a node: bootstrap makes Django's signals of it.

Contract: called on the node's event loop, in the order in which things happen; an implementation raises nothing and
returns at once.
"""

from typing import Protocol

from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.model.types import EntityType


class Listener(Protocol):
    def node_up(self, incarnation: Incarnation, name: str) -> None: ...

    def node_down(self, incarnation: Incarnation, name: str) -> None: ...

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None: ...

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None: ...

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None: ...

    def entity_failed(
        self, entity_type: EntityType, entity_id: str, command: str, error: BaseException
    ) -> None: ...


class NoListener:
    """Where nobody wants to know."""

    def node_up(self, incarnation: Incarnation, name: str) -> None:
        """Nobody is told."""

    def node_down(self, incarnation: Incarnation, name: str) -> None:
        """Nobody is told."""

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None:
        """Nobody is told."""

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        """Nobody is told."""

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        """Nobody is told."""

    def entity_failed(
        self, entity_type: EntityType, entity_id: str, command: str, error: BaseException
    ) -> None:
        """Nobody is told."""
