"""Does what this process says of an entity type agree with the cluster? (promise 11)"""

import msgspec

from sharding_app.core.ids import HASH_VERSION
from sharding_app.core.records import TypeConfig
from sharding_app.model.types import EntityType
from sharding_app.runtime.config import NodeConfig


def type_config(entity_type: EntityType, config: NodeConfig) -> TypeConfig:
    """What has to be equal wherever the type is used."""
    settings = entity_type.settings
    return TypeConfig(
        name=entity_type.name,
        kind=entity_type.kind,
        number_of_shards=settings.number_of_shards or config.number_of_shards,
        extractor=entity_type.extractor.name if entity_type.extractor else f"hash:{HASH_VERSION}",
        hash_version=HASH_VERSION,
        role=settings.role or "",
        store_mode="postgres",
    )


def agree(entity_type: EntityType, ours: TypeConfig, theirs: TypeConfig) -> bool:
    """A proxy only has to find the same shards."""
    if entity_type.proxy_only:
        ours = msgspec.structs.replace(ours, kind=theirs.kind, role=theirs.role, store_mode=theirs.store_mode)
    return ours == theirs


def differences(ours: TypeConfig, theirs: TypeConfig) -> str:
    """Why a type is refused, and what to do."""
    differ = [
        f"{name} is {getattr(ours, name)!r} here and {getattr(theirs, name)!r} in the cluster"
        for name in TypeConfig.__struct_fields__
        if getattr(ours, name) != getattr(theirs, name)
    ]
    return f"{ours.name!r} is refused: {'; '.join(differ)}. Make them equal, or remove the cluster's internal data"
