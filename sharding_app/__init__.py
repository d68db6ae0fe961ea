"""Cluster sharding for Django: durable entities on Postgres, Redis and Channels.

The public names are imported at first use, so that importing the package costs nothing and needs no Django.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sharding_app.core.allocation import ShardAllocationStrategy as ShardAllocationStrategy
    from sharding_app.core.consistent_hashing import ConsistentHashAllocation as ConsistentHashAllocation
    from sharding_app.core.least_shards import LeastShardAllocation as LeastShardAllocation
    from sharding_app.core.least_shards_old import ThresholdAllocation as ThresholdAllocation
    from sharding_app.core.passivation import AdmissionWindow as AdmissionWindow
    from sharding_app.core.passivation import FrequencyFilter as FrequencyFilter
    from sharding_app.core.passivation import Passivation as Passivation
    from sharding_app.core.passivation import WindowClimbing as WindowClimbing
    from sharding_app.core.supervision import Supervision as Supervision
    from sharding_app.errors import AskTimeout as AskTimeout
    from sharding_app.errors import BadCall as BadCall
    from sharding_app.errors import BadEntityId as BadEntityId
    from sharding_app.errors import BufferFull as BufferFull
    from sharding_app.errors import DeclarationError as DeclarationError
    from sharding_app.errors import EntityFailed as EntityFailed
    from sharding_app.errors import EventUnreadable as EventUnreadable
    from sharding_app.errors import HistoryTooLong as HistoryTooLong
    from sharding_app.errors import NotStorable as NotStorable
    from sharding_app.errors import PartlyApplied as PartlyApplied
    from sharding_app.errors import Rejected as Rejected
    from sharding_app.errors import ShardingError as ShardingError
    from sharding_app.errors import StateUnreadable as StateUnreadable
    from sharding_app.errors import Unavailable as Unavailable
    from sharding_app.errors import WrongContext as WrongContext
    from sharding_app.model.cluster_sharding import ClusterSharding as ClusterSharding
    from sharding_app.model.cluster_sharding import Region as Region
    from sharding_app.model.context import EntityContext as EntityContext
    from sharding_app.model.entity import DurableState as DurableState
    from sharding_app.model.entity import Entity as Entity
    from sharding_app.model.entity import EventSourced as EventSourced
    from sharding_app.model.event import applies as applies
    from sharding_app.model.event import event as event
    from sharding_app.model.event import upcasts as upcasts
    from sharding_app.model.external_allocation import ExternalAllocation as ExternalAllocation
    from sharding_app.model.extractor import EntityEnvelope as EntityEnvelope
    from sharding_app.model.extractor import HashCodeMessageExtractor as HashCodeMessageExtractor
    from sharding_app.model.extractor import MessageExtractor as MessageExtractor
    from sharding_app.model.extractor import Passivate as Passivate
    from sharding_app.model.extractor import StartEntity as StartEntity
    from sharding_app.model.extractor import StartEntityAck as StartEntityAck
    from sharding_app.model.handlers import command as command
    from sharding_app.model.handlers import query as query
    from sharding_app.model.message import message as message
    from sharding_app.model.refs import Ref as Ref
    from sharding_app.model.region_questions import ClusterShardingStats as ClusterShardingStats
    from sharding_app.model.region_questions import CurrentShardRegionState as CurrentShardRegionState
    from sharding_app.model.region_questions import GetClusterShardingStats as GetClusterShardingStats
    from sharding_app.model.region_questions import GetCurrentRegions as GetCurrentRegions
    from sharding_app.model.region_questions import GetShardRegionState as GetShardRegionState
    from sharding_app.model.region_questions import GracefulShutdown as GracefulShutdown
    from sharding_app.model.region_questions import SetActiveEntityLimit as SetActiveEntityLimit
    from sharding_app.model.remote import Remote as Remote
    from sharding_app.model.settings import ShardingSettings as ShardingSettings
    from sharding_app.model.singleton import ClusterSingleton as ClusterSingleton
    from sharding_app.model.singleton import SingletonProxy as SingletonProxy

_ERRORS = (
    "AskTimeout BadCall BadEntityId BufferFull DeclarationError EntityFailed EventUnreadable"
    " HistoryTooLong NotStorable PartlyApplied Rejected ShardingError StateUnreadable Unavailable WrongContext"
)
_HOMES = {
    **dict.fromkeys(_ERRORS.split(), "errors"),
    "ClusterSharding": "model.cluster_sharding",
    "ConsistentHashAllocation": "core.consistent_hashing",
    "ExternalAllocation": "model.external_allocation",
    "LeastShardAllocation": "core.least_shards",
    "ShardAllocationStrategy": "core.allocation",
    "ThresholdAllocation": "core.least_shards_old",
    "Region": "model.cluster_sharding",
    "EntityEnvelope": "model.extractor",
    "StartEntity": "model.extractor",
    "StartEntityAck": "model.extractor",
    "Passivate": "model.extractor",
    "MessageExtractor": "model.extractor",
    "HashCodeMessageExtractor": "model.extractor",
    "GracefulShutdown": "model.region_questions",
    "GetShardRegionState": "model.region_questions",
    "CurrentShardRegionState": "model.region_questions",
    "GetClusterShardingStats": "model.region_questions",
    "ClusterShardingStats": "model.region_questions",
    "GetCurrentRegions": "model.region_questions",
    "ClusterSingleton": "model.singleton",
    "SingletonProxy": "model.singleton",
    "Supervision": "core.supervision",
    "Passivation": "core.passivation",
    "AdmissionWindow": "core.passivation",
    "FrequencyFilter": "core.passivation",
    "WindowClimbing": "core.passivation",
    "SetActiveEntityLimit": "model.region_questions",
    "DurableState": "model.entity",
    "Entity": "model.entity",
    "EntityContext": "model.context",
    "EventSourced": "model.entity",
    "Ref": "model.refs",
    "Remote": "model.remote",
    "ShardingSettings": "model.settings",
    "applies": "model.event",
    "command": "model.handlers",
    "event": "model.event",
    "message": "model.message",
    "query": "model.handlers",
    "upcasts": "model.event",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
