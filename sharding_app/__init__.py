"""Cluster sharding for Django: durable entities on Postgres, Redis and Channels.

These are the public names. None of their modules needs Django to be set up, or talks to a server.
Those that few entities use are imported when they are first asked for: each command of a project
imports this package, and would wait for them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sharding_app.entities.base import DurableState as DurableState
from sharding_app.entities.base import Entity as Entity
from sharding_app.entities.base import EventSourced as EventSourced
from sharding_app.entities.base import Singleton as Singleton
from sharding_app.entities.base import Worker as Worker
from sharding_app.entities.context import EntityContext as EntityContext
from sharding_app.entities.durable_calls import Sent as Sent
from sharding_app.entities.events import applies as applies
from sharding_app.entities.events import event as event
from sharding_app.entities.events import upcasts as upcasts
from sharding_app.entities.extractors import EntityEnvelope as EntityEnvelope
from sharding_app.entities.extractors import HashCodeMessageExtractor as HashCodeMessageExtractor
from sharding_app.entities.extractors import MessageExtractor as MessageExtractor
from sharding_app.entities.extractors import Passivate as Passivate
from sharding_app.entities.extractors import StartEntity as StartEntity
from sharding_app.entities.extractors import StartEntityAck as StartEntityAck
from sharding_app.entities.failure import Failure as Failure
from sharding_app.entities.handlers import command as command
from sharding_app.entities.handlers import every as every
from sharding_app.entities.handlers import query as query
from sharding_app.entities.handlers import view as view
from sharding_app.entities.happened import Happened as Happened
from sharding_app.entities.many import Answer as Answer
from sharding_app.entities.many import Answers as Answers
from sharding_app.entities.messages import message as message
from sharding_app.entities.personal import Personal as Personal
from sharding_app.entities.projections import Projection as Projection
from sharding_app.entities.projections import on as on
from sharding_app.entities.projections import on_batch as on_batch
from sharding_app.entities.projections import on_erased as on_erased
from sharding_app.entities.refs import Ref as Ref
from sharding_app.entities.remote import Remote as Remote
from sharding_app.entities.schedules import Daily as Daily
from sharding_app.entities.settings import ShardingSettings as ShardingSettings
from sharding_app.entities.starting import on_start as on_start
from sharding_app.errors import AskTimeout as AskTimeout
from sharding_app.errors import BufferFull as BufferFull
from sharding_app.errors import DeclarationError as DeclarationError
from sharding_app.errors import EntityErased as EntityErased
from sharding_app.errors import EntityFailed as EntityFailed
from sharding_app.errors import EventsGone as EventsGone
from sharding_app.errors import HistoryTooLong as HistoryTooLong
from sharding_app.errors import InvalidCall as InvalidCall
from sharding_app.errors import InvalidEntityId as InvalidEntityId
from sharding_app.errors import NotSerializable as NotSerializable
from sharding_app.errors import PartiallyApplied as PartiallyApplied
from sharding_app.errors import ProjectionError as ProjectionError
from sharding_app.errors import Rejected as Rejected
from sharding_app.errors import ShardingError as ShardingError
from sharding_app.errors import SubjectErased as SubjectErased
from sharding_app.errors import Unavailable as Unavailable
from sharding_app.errors import UnreadableEvent as UnreadableEvent
from sharding_app.errors import UnreadableState as UnreadableState
from sharding_app.errors import WrongContext as WrongContext
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation as LeastShardAllocation
from sharding_app.protocol.allocation.strategy import ShardAllocationStrategy as ShardAllocationStrategy
from sharding_app.protocol.passivation.strategy import AdmissionWindow as AdmissionWindow
from sharding_app.protocol.passivation.strategy import FrequencyFilter as FrequencyFilter
from sharding_app.protocol.passivation.strategy import Passivation as Passivation
from sharding_app.protocol.passivation.strategy import WindowClimbing as WindowClimbing
from sharding_app.protocol.records import NumberOfWorkers as NumberOfWorkers
from sharding_app.protocol.supervision import Supervision as Supervision

if TYPE_CHECKING:
    from sharding_app.entities.sharding.external import ExternalAllocation as ExternalAllocation
    from sharding_app.entities.sharding.queries import ClusterShardingStats as ClusterShardingStats
    from sharding_app.entities.sharding.queries import CurrentShardRegionState as CurrentShardRegionState
    from sharding_app.entities.sharding.queries import GetClusterShardingStats as GetClusterShardingStats
    from sharding_app.entities.sharding.queries import GetCurrentRegions as GetCurrentRegions
    from sharding_app.entities.sharding.queries import GetShardRegionState as GetShardRegionState
    from sharding_app.entities.sharding.queries import GracefulShutdown as GracefulShutdown
    from sharding_app.entities.sharding.queries import SetActiveEntityLimit as SetActiveEntityLimit
    from sharding_app.entities.sharding.regions import ClusterSharding as ClusterSharding
    from sharding_app.entities.sharding.regions import Region as Region
    from sharding_app.entities.sharding.singletons import ClusterSingleton as ClusterSingleton
    from sharding_app.entities.sharding.singletons import SingletonProxy as SingletonProxy
    from sharding_app.entities.sharding.workers import ShardedDaemonProcess as ShardedDaemonProcess
    from sharding_app.entities.sharding.workers import Workers as Workers
    from sharding_app.operations.subjects import SubjectErasure as SubjectErasure
    from sharding_app.operations.subjects import aerase_subject as aerase_subject
    from sharding_app.operations.subjects import erase_subject as erase_subject
    from sharding_app.protocol.allocation.consistent_hashing import (
        ConsistentHashAllocation as ConsistentHashAllocation,
    )
    from sharding_app.protocol.allocation.threshold import ThresholdAllocation as ThresholdAllocation

_LATER = {
    "ClusterSharding": "entities.sharding.regions",
    "ClusterShardingStats": "entities.sharding.queries",
    "ClusterSingleton": "entities.sharding.singletons",
    "ConsistentHashAllocation": "protocol.allocation.consistent_hashing",
    "CurrentShardRegionState": "entities.sharding.queries",
    "ExternalAllocation": "entities.sharding.external",
    "GetClusterShardingStats": "entities.sharding.queries",
    "GetCurrentRegions": "entities.sharding.queries",
    "GetShardRegionState": "entities.sharding.queries",
    "GracefulShutdown": "entities.sharding.queries",
    "Region": "entities.sharding.regions",
    "SetActiveEntityLimit": "entities.sharding.queries",
    "ShardedDaemonProcess": "entities.sharding.workers",
    "SingletonProxy": "entities.sharding.singletons",
    "SubjectErasure": "operations.subjects",
    "ThresholdAllocation": "protocol.allocation.threshold",
    "Workers": "entities.sharding.workers",
    "aerase_subject": "operations.subjects",
    "erase_subject": "operations.subjects",
}
"The module below this package for each name that is imported when it is first asked for."


def __getattr__(name: str) -> Any:
    if (module := _LATER.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__version__ = "0.1.0.dev0"
