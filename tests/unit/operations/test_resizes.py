"""Which resizes are refused, and why."""

import msgspec
import pytest

from sharding_app.operations.resizes import told, why_refused
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import TypeConfig
from sharding_app.runtime.node.type_compatibility import BY_HASH

CART = TypeConfig("shop.Cart", "event_sourced", 6, "hash:crc32-1", BY_HASH, "", "postgres")


@pytest.mark.parametrize(
    ("changes", "wanted", "why"),
    [
        ({}, 12, ""),
        ({}, 2, ""),
        ({}, 9, "neither a multiple nor a divisor of 6"),
        ({}, 0, "must be from 1"),
        ({"name": "singleton:shop.Clock", "number_of_shards": 1}, 2, "is a singleton"),
        ({"name": "workers:imports"}, 12, "sharding_rescale"),
        ({"extractor": "shop.regions.ByRegion"}, 12, "extractor of its own (shop.regions.ByRegion)"),
        ({"hash_version": "crc32-1/00000000"}, 12, "extractor of its own"),
        ({"wanted": 12, "resized": 2}, 18, "2 of 6 groups are done. Wait"),
    ],
)
def test_a_reason_says_what_is_wrong(changes: dict[str, object], wanted: int, why: str) -> None:
    found = why_refused(msgspec.structs.replace(CART, **changes), wanted)
    assert why in found
    assert bool(found) is bool(why)


def test_what_is_told_of_a_type_at_rest() -> None:
    assert told(Numbering(1)) == "has 1 shard"
    assert told(Numbering(6)) == "has 6 shards"
