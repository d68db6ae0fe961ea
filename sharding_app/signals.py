"""What happens to the cluster, as Django signals. Sent with `send_robust`: a receiver that raises disturbs nothing.

They are sent in the node's process, on its event loop: a receiver must return at once (hand longer work to a thread or a
task queue). Each carries plain values by keyword, never an entity's state or a message's content.

==================== ===================================================================================
``node_up``          incarnation, name: a node joined, as this node sees it
``node_down``        incarnation, name: a node left or is dead; its shards move
``coordinator_changed`` term, incarnation: who decides from now on (None: nobody at the moment)
``shard_started``    entity_type, shard, epoch: this node is the home of the shard
``shard_stopped``    entity_type, shard, epoch: it no longer is
``entity_failed``    entity_type, entity_id, command, error: a handler raised, or a recovery failed
==================== ===================================================================================
"""

from django.dispatch import Signal

node_up = Signal()
node_down = Signal()
coordinator_changed = Signal()
shard_started = Signal()
shard_stopped = Signal()
entity_failed = Signal()
