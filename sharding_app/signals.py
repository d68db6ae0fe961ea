"""What happens to the cluster, as Django signals. Sent with `send_robust`: a receiver that raises disturbs nothing.

They are sent in the node's process, on its event loop: a receiver is a plain function that returns at once (hand longer
work to a thread or a task queue). Each carries plain values by keyword, never an entity's state or a message's content.
The sender is the entity's class where there is one, else None.

==================== ===================================================================================
``node_up``          incarnation, name: this node is up; at the coordinator's node also: another one is
``node_down``        incarnation, name: this node ends; at the coordinator's: another one left, or is dead
``coordinator_changed`` term, incarnation: who decides from now on (None: nobody at the moment)
``shard_started``    entity_type, shard, epoch: this node is the home of the shard
``shard_stopped``    entity_type, shard, epoch: it no longer is
``entity_failed``    entity_type, entity_id, command, error: a handler raised (`error` names its exception's
                     class), or a recovery failed (`command` is empty)
==================== ===================================================================================
"""

from django.dispatch import Signal

from sharding_app.core.ids import Epoch, Incarnation, ShardId, Term
from sharding_app.model.types import EntityType

node_up = Signal()
node_down = Signal()
coordinator_changed = Signal()
shard_started = Signal()
shard_stopped = Signal()
entity_failed = Signal()


class SignalListener:
    """`runtime.listener.Listener`: sends the signals above."""

    def node_up(self, incarnation: Incarnation, name: str) -> None:
        node_up.send_robust(None, incarnation=incarnation, name=name)

    def node_down(self, incarnation: Incarnation, name: str) -> None:
        node_down.send_robust(None, incarnation=incarnation, name=name)

    def coordinator_changed(self, term: Term, incarnation: Incarnation | None) -> None:
        coordinator_changed.send_robust(None, term=term, incarnation=incarnation)

    def shard_started(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        shard_started.send_robust(entity_type.cls, entity_type=entity_type.name, shard=shard, epoch=epoch)

    def shard_stopped(self, entity_type: EntityType, shard: ShardId, epoch: Epoch) -> None:
        shard_stopped.send_robust(entity_type.cls, entity_type=entity_type.name, shard=shard, epoch=epoch)

    def entity_failed(
        self, entity_type: EntityType, entity_id: str, command: str, error: BaseException
    ) -> None:
        entity_failed.send_robust(
            entity_type.cls,
            entity_type=entity_type.name,
            entity_id=entity_id,
            command=command,
            error=type(error).__qualname__,
        )
