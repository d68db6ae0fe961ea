"""Whose requests a node follows."""

import logging

import pytest

from sharding_app.protocol.messages import OperatorRequest
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.runtime.node.operator_keys import OperatorKeys
from sharding_app.testing.cluster import MemoryCluster

NODES, WEB = b"key of nodes and operators", b"key of web workers, who may ask"


def asked(action: str = "erase", request: int = 1) -> OperatorRequest:
    return OperatorRequest(request, action, "shop.Cart", 3, "bob", by="root")


def signed(by: OperatorKeys, target: str = "n-me", request: int = 1) -> OperatorRequest:
    made = asked(request=request)
    by.sign(made, target)
    return made


def test_a_request_that_is_signed_with_a_key_for_steering_is_followed_once() -> None:
    operator = OperatorKeys("p-op", (NODES,), unguarded=False)
    node = OperatorKeys("n-me", (NODES,), unguarded=False)
    assert node.refusal(signed(operator), "p-op") == ""
    assert "sent before" in node.refusal(signed(operator), "p-op"), (
        "recorded, and played again by a holder of KEYS"
    )
    assert node.refusal(signed(operator, request=2), "p-op") == ""


def test_while_keys_are_changed_both_count() -> None:
    node = OperatorKeys("n-me", (NODES, WEB), unguarded=False)
    assert node.refusal(signed(OperatorKeys("p-1", (WEB,), unguarded=False)), "p-1") == ""
    assert node.refusal(signed(OperatorKeys("p-2", (NODES,), unguarded=False)), "p-2") == ""


@pytest.mark.parametrize("change", ["key", "none", "source", "target", "request", "action", "entity", "by"])
def test_a_signature_covers_all_that_is_asked_for(change: str) -> None:
    operator = OperatorKeys("p-op", (WEB if change == "key" else NODES,), unguarded=False)
    made = asked() if change == "none" else signed(operator, "n-other" if change == "target" else "n-me")
    if change == "request":
        made.request = 7
    elif change in ("action", "entity", "by"):
        setattr(made, change, "other")
    node = OperatorKeys("n-me", (NODES,), unguarded=False)
    assert "not signed" in node.refusal(made, "p-else" if change == "source" else "p-op")


@pytest.mark.parametrize("action", ["erase", "shutdown", "drain", "move"])
def test_without_keys_what_cannot_be_taken_back_is_refused_outside_of_development(action: str) -> None:
    assert OperatorKeys("n-me", (), unguarded=False).refusal(asked(action), "p-op") == ""
    refused = OperatorKeys("n-me", (), unguarded=True).refusal(asked(action), "p-op")
    assert bool(refused) == (action in ("erase", "shutdown"))
    assert not refused or "SHARDING['KEYS'] is empty" in refused


@pytest.mark.asyncio
async def test_a_web_worker_without_the_key_asks_and_does_not_steer(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryCluster([], nodes=2, config=NodeConfig(steering_keys=(NODES,))) as cluster:
        node = cluster.nodes["node2"]
        answer = await cluster.client.queries.operate(
            node.incarnation, OperatorRequest(0, "drain", by="root")
        )
        assert answer is not None
        assert answer.ok, "an operator's process has it"
        cluster.client.operator_keys._keys = []
        for action in ("shutdown", "drain", "undrain", "erase"):
            answer = await cluster.client.queries.operate(
                node.incarnation, OperatorRequest(0, action, by="root")
            )
            assert answer is not None
            assert not answer.ok
            assert "not signed" in answer.text
        assert not node.asked_to_leave.is_set()
        coordinator = next(each for each in cluster.nodes.values() if each.coordinator is not None)
        answer = await cluster.client.queries.operate(
            coordinator.incarnation, OperatorRequest(0, "pause", by="root")
        )
        assert answer is not None
        assert not answer.ok, "the coordinator's requests are no exception"
        assert set(await cluster.client.queries.stats([node.incarnation])) == {node.incarnation}, "it asks"
    assert [each for each in caplog.records if getattr(each, "action", "") == "request_refused"]


@pytest.mark.asyncio
async def test_a_node_without_keys_says_so_at_each_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sharding.node")
    async with MemoryCluster([], nodes=2, config=NodeConfig(unguarded=True)) as cluster:
        said = [each for each in caplog.records if getattr(each, "action", "") == "no_keys"]
        assert len(said) == 2
        node = cluster.nodes["node2"]
        answer = await cluster.client.queries.operate(
            node.incarnation, OperatorRequest(0, "shutdown", by="root")
        )
        assert answer is not None
        assert not answer.ok
        assert not node.asked_to_leave.is_set()


@pytest.mark.asyncio
async def test_a_node_that_is_about_to_end_takes_no_shards_again() -> None:
    async with MemoryCluster([], nodes=2) as cluster:
        node = cluster.nodes["node2"]
        for action, ok in (("drain", True), ("shutdown", True), ("undrain", False)):
            answer = await cluster.client.queries.operate(
                node.incarnation, OperatorRequest(0, action, by="root")
            )
            assert answer is not None
            assert answer.ok is ok
            assert ("about to end" in answer.text) is (not ok)
        assert node.state == "leaving"
