"""Whose wishes a node follows."""

import logging

import pytest

from sharding_app.core.messages import Steer
from sharding_app.runtime.config import NodeConfig
from sharding_app.runtime.wishes import Wishes
from sharding_app.testing.cluster import MemoryCluster

NODES, WEB = b"key of nodes and operators", b"key of web workers, who may ask"


def wish(action: str = "erase", request: int = 1) -> Steer:
    return Steer(request, action, "shop.Cart", 3, "bob", by="root")


def signed(by: Wishes, target: str = "n-me", request: int = 1) -> Steer:
    made = wish(request=request)
    by.sign(made, target)
    return made


def test_a_wish_that_is_signed_with_a_key_for_steering_is_followed_once() -> None:
    operator = Wishes("p-op", (NODES,), unguarded=False)
    node = Wishes("n-me", (NODES,), unguarded=False)
    assert node.refusal(signed(operator), "p-op") == ""
    assert "sent before" in node.refusal(signed(operator), "p-op"), (
        "recorded, and played again by a holder of KEYS"
    )
    assert node.refusal(signed(operator, request=2), "p-op") == ""


def test_while_keys_are_changed_both_count() -> None:
    node = Wishes("n-me", (NODES, WEB), unguarded=False)
    assert node.refusal(signed(Wishes("p-1", (WEB,), unguarded=False)), "p-1") == ""
    assert node.refusal(signed(Wishes("p-2", (NODES,), unguarded=False)), "p-2") == ""


@pytest.mark.parametrize("change", ["key", "none", "source", "target", "request", "action", "entity", "by"])
def test_a_signature_covers_all_that_is_wished(change: str) -> None:
    operator = Wishes("p-op", (WEB if change == "key" else NODES,), unguarded=False)
    made = wish() if change == "none" else signed(operator, "n-other" if change == "target" else "n-me")
    if change == "request":
        made.request = 7
    elif change in ("action", "entity", "by"):
        setattr(made, change, "other")
    node = Wishes("n-me", (NODES,), unguarded=False)
    assert "not signed" in node.refusal(made, "p-else" if change == "source" else "p-op")


@pytest.mark.parametrize("action", ["erase", "shutdown", "drain", "move"])
def test_without_keys_what_cannot_be_taken_back_is_refused_outside_of_development(action: str) -> None:
    assert Wishes("n-me", (), unguarded=False).refusal(wish(action), "p-op") == ""
    refused = Wishes("n-me", (), unguarded=True).refusal(wish(action), "p-op")
    assert bool(refused) == (action in ("erase", "shutdown"))
    assert not refused or "SHARDING['KEYS'] is empty" in refused


@pytest.mark.asyncio
async def test_a_web_worker_without_the_key_asks_and_does_not_steer(caplog: pytest.LogCaptureFixture) -> None:
    async with MemoryCluster([], nodes=2, config=NodeConfig(steering_keys=(NODES,))) as cluster:
        node = cluster.nodes["node2"]
        answer = await cluster.client.questions.steer(node.incarnation, Steer(0, "drain", by="root"))
        assert answer is not None
        assert answer.ok, "an operator's process has it"
        cluster.client.wishes._keys = []
        for action in ("shutdown", "drain", "undrain", "erase"):
            answer = await cluster.client.questions.steer(node.incarnation, Steer(0, action, by="root"))
            assert answer is not None
            assert not answer.ok
            assert "not signed" in answer.text
        assert not node.asked_to_leave.is_set()
        coordinator = next(each for each in cluster.nodes.values() if each.coordinator is not None)
        answer = await cluster.client.questions.steer(coordinator.incarnation, Steer(0, "pause", by="root"))
        assert answer is not None
        assert not answer.ok, "the coordinator's wishes are no exception"
        assert set(await cluster.client.questions.stats([node.incarnation])) == {node.incarnation}, "it asks"
    assert [each for each in caplog.records if getattr(each, "action", "") == "wish_refused"]


@pytest.mark.asyncio
async def test_a_node_without_keys_says_so_at_each_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "sharding.node")
    async with MemoryCluster([], nodes=2, config=NodeConfig(unguarded=True)) as cluster:
        said = [each for each in caplog.records if getattr(each, "action", "") == "no_keys"]
        assert len(said) == 2
        node = cluster.nodes["node2"]
        answer = await cluster.client.questions.steer(node.incarnation, Steer(0, "shutdown", by="root"))
        assert answer is not None
        assert not answer.ok
        assert not node.asked_to_leave.is_set()
