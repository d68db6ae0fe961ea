"""Whose silence makes the coordinator look at the members."""

import pytest

from sharding_app.testing.cluster import MemoryCluster

pytestmark = pytest.mark.asyncio


async def test_the_silence_of_a_process_without_a_row_is_no_reason_to_look(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = [each for each in cluster.nodes.values() if each.coordinator is not None]
    assert node.coordinator is not None
    looks: list[None] = []
    monkeypatch.setattr(node.coordinator, "look_now", lambda: looks.append(None))
    node._suspected("p-dead")
    assert looks == []
    node._suspected("n-dead")
    assert looks == [None]
