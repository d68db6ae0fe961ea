"""What the coordinator says to many is written once, and each word of it is taken as if it had come
alone.
"""

import pytest

from sharding_app.protocol import codec
from sharding_app.protocol.codec import decode_frame, encode_frame
from sharding_app.protocol.coordinator.effects import Word
from sharding_app.protocol.messages import (
    Announcement,
    AnyMessage,
    BeginHandOff,
    Frame,
    NodeGone,
    ShardHome,
)
from sharding_app.runtime.asking import outbox
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.counter_cluster import until

pytestmark = pytest.mark.asyncio

WORDS: list[Word] = [
    ShardHome(1, "shop.Cart", "n-a", [1, 2], [3, 4]),
    BeginHandOff(1, "shop.Cart", [1]),
    NodeGone(1, "n-b"),
]


async def test_an_announcement_travels_as_any_message() -> None:
    frame = Frame(1, "n-a", "n-b", 1, 1, 0, 0, 0, [Announcement(list(WORDS))])
    assert decode_frame(encode_frame(frame)) == frame


async def test_each_word_of_it_is_taken(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    node = cluster.nodes["node2"]
    seen: list[AnyMessage] = []

    def receive(source: str, message: AnyMessage) -> bool:
        seen.append(message)
        return False

    monkeypatch.setattr(node.region_client, "receive", receive)
    monkeypatch.setattr(node, "control", receive)
    node._deliver("n-x", [Announcement(list(WORDS))])
    assert seen == [each for word in WORDS for each in (word, word)]


async def test_it_is_encoded_once_for_all(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        await cluster.add_node()
    node = cluster.nodes["node1"]
    encoded: list[AnyMessage] = []

    def encode(message: AnyMessage) -> bytes:
        encoded.append(message)
        return codec.encode_message(message)

    monkeypatch.setattr(outbox, "encode_message", encode)
    heard: list[str] = []
    for each in cluster.nodes.values():
        monkeypatch.setattr(
            each.locator, "gone", lambda incarnation, name=each.config.name: heard.append(name)
        )
    node.try_send_all([each.incarnation for each in cluster.nodes.values()], NodeGone(99, "n-lost"))
    await until(lambda: len(heard) == len(cluster.nodes))
    assert encoded == [NodeGone(99, "n-lost")]
