"""The cluster's tables, for reading. The migrations' SQL is what makes them; docs/tables.md
explains them.
"""

from sharding_app.models.cluster import (
    Cluster,
    Coordinator,
    Decision,
    EntityType,
    JournalDatabase,
    Lease,
    Location,
    Node,
    Shard,
    ShardMove,
)
from sharding_app.models.journal import Event, Message, RememberedEntity, Snapshot, Subject, TakenMessage
from sharding_app.models.projections import (
    HeldEntity,
    ProjectionJournal,
    ProjectionPosition,
    ProjectionVersion,
    SecuredPosition,
)
from sharding_app.models.readonly import ReadOnlyError

__all__ = [
    "Cluster",
    "Coordinator",
    "Decision",
    "EntityType",
    "Event",
    "HeldEntity",
    "JournalDatabase",
    "Lease",
    "Location",
    "Message",
    "Node",
    "ProjectionJournal",
    "ProjectionPosition",
    "ProjectionVersion",
    "ReadOnlyError",
    "RememberedEntity",
    "SecuredPosition",
    "Shard",
    "ShardMove",
    "Snapshot",
    "Subject",
    "TakenMessage",
]
