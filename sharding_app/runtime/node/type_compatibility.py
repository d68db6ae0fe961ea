"""Comparison of this process's definition of an entity type with the cluster's (promise 11)."""

from zlib import crc32

import msgspec

from sharding_app.entities.entity_type import EntityType
from sharding_app.errors import ShardingError
from sharding_app.protocol.ids import HASH_VERSION, shard_of
from sharding_app.protocol.records import TypeConfig
from sharding_app.runtime.base.config import NodeConfig

SAMPLE_IDS = (
    "0", "1", "2", "3", "7", "10", "42", "99", "100", "1000", "4711", "65536", "1000000", "-1", "alice", "bob", "Alice",
    "a@example.org", "north/1", "north:2", "1-east", "3-west", "tenant_7", "2026-01-31",
    "00000000-0000-0000-0000-000000000001", "8a6e0804-2bd0-4672-b79d-d97027f9071a", "\u00e9t\u00e9", "\u6771\u4eac",
)  # fmt: skip
"""Ids whose shards show whether two processes map ids to shards by the same rule. Never change
them.
"""


def fingerprint(entity_type: EntityType, number_of_shards: int) -> str:
    """Return a checksum of the sample ids' shards.

    An id that the extractor refuses counts as refused. Where the hash says all of them, the
    checksum is that of one number of shards: it stays through a resize.
    """
    extractor = entity_type.extractor
    answers: list[str] = []
    for each in SAMPLE_IDS:
        try:
            shard = extractor.checked_shard_id(each) if extractor else shard_of(each, number_of_shards)
        except ShardingError:
            answers.append("-")
        else:
            answers.append(str(shard))
    if answers == [str(shard_of(each, number_of_shards)) for each in SAMPLE_IDS]:
        answers = [str(shard_of(each, ONE_NUMBER)) for each in SAMPLE_IDS]
    return f"{crc32(','.join(answers).encode()):08x}"


ONE_NUMBER = 1 << 16
"""Number of shards for the checksum of types whose shards the hash says."""
BY_HASH = (
    f"{HASH_VERSION}/{crc32(','.join(str(shard_of(each, ONE_NUMBER)) for each in SAMPLE_IDS).encode()):08x}"
)


def by_hash(config: TypeConfig) -> bool:
    """Tell whether the hash of an id alone says its shard. Such a type can be resized."""
    return config.extractor.startswith("hash:") and config.hash_version == BY_HASH


def type_config(entity_type: EntityType, config: NodeConfig) -> TypeConfig:
    """Return the values that must be equal wherever the type is used."""
    settings = entity_type.settings
    number_of_shards = settings.number_of_shards or config.number_of_shards
    return TypeConfig(
        name=entity_type.name,
        kind=entity_type.kind,
        number_of_shards=number_of_shards,
        extractor=entity_type.extractor.name if entity_type.extractor else f"hash:{HASH_VERSION}",
        hash_version=f"{HASH_VERSION}/{fingerprint(entity_type, number_of_shards)}",
        role=settings.role or "",
        store_mode="postgres",
    )


def agree(entity_type: EntityType, ours: TypeConfig, theirs: TypeConfig) -> bool:
    """Whether two configurations agree. A proxy only has to map ids to the same shards."""
    if entity_type.proxy_only:
        ours = msgspec.structs.replace(ours, kind=theirs.kind, role=theirs.role, store_mode=theirs.store_mode)
    return ours == theirs.as_declared(ours)


def differences(ours: TypeConfig, theirs: TypeConfig) -> str:
    """Return the reasons why a type is refused, and the remedy."""
    theirs = theirs.as_declared(ours)
    differ = {
        name: f"{name} is {getattr(ours, name)!r} here and {getattr(theirs, name)!r} in the cluster"
        for name in TypeConfig.__struct_fields__
        if getattr(ours, name) != getattr(theirs, name)
    }
    if "hash_version" in differ and _hash(ours) == _hash(theirs):
        # Only the fingerprints differ. A difference in number_of_shards or extractor explains that.
        # Without one, the extractor's rule has changed.
        del differ["hash_version"]
        if not differ.keys() & {"number_of_shards", "extractor"}:
            differ["shards"] = (
                f"{ours.extractor!r} maps ids to other shards here than in the cluster: its rule changed, but its name did not"
            )
    return f"{ours.name!r} is refused: {'; '.join(differ.values())}. Make them equal, or remove the cluster's internal data"


def _hash(config: TypeConfig) -> str:
    return config.hash_version.partition("/")[0]
