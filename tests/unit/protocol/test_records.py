"""What the rows of types tell."""

import pytest

from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.records import TypeConfig


@pytest.mark.parametrize(
    ("extractor", "shard"), [("hash:crc32", shard_of("alice", 7)), ("shop.by_city", None)]
)
def test_only_an_extractor_that_hashes_tells_the_shard_of_an_id(extractor: str, shard: int | None) -> None:
    config = TypeConfig("shop.Cart", "event_sourced", 7, extractor, "1", "", "remember")
    assert config.shard_by_hash("alice") == shard
