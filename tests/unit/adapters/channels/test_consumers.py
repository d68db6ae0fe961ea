"""The region endpoint as a Channels consumer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from channels.routing import ChannelNameRouter, ProtocolTypeRouter
from channels.testing import ApplicationCommunicator

from sharding_app.adapters.channels import consumers
from sharding_app.adapters.channels.consumers import DELIVER, RegionConsumer, region_endpoint
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Deliver
from tests.unit.protocol.link.harness import answer, command


class Recorder:
    def __init__(self) -> None:
        self.got: list[tuple[Incarnation, Sequence[Deliver]]] = []

    def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None:
        self.got.append((source, messages))


def deliver(*messages: Any, **changes: Any) -> dict[str, Any]:
    return {"type": DELIVER, "source": "peer", "messages": list(messages), **changes}


def test_the_node_feeds_the_consumer_a_batch_at_a_time_and_at_once() -> None:
    region = Recorder()
    feed = region_endpoint(region, "sharding.region.shop.Cart")
    batch = [command(1), command(2)]
    feed("peer", batch)
    assert region.got == [("peer", batch)]
    assert region.got[0][1] is batch


def test_what_a_region_raises_reaches_the_node() -> None:
    class Broken:
        def receive(self, source: Incarnation, messages: Sequence[Deliver]) -> None:
            raise LookupError("broken")

    with pytest.raises(LookupError, match="broken"):
        region_endpoint(Broken(), "c")("peer", [command(1)])


def test_a_dispatch_that_waits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def slow(self: RegionConsumer, message: Any) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(consumers.RegionConsumer, "dispatch", slow)
    with pytest.raises(RuntimeError, match="must not wait"):
        region_endpoint(Recorder(), "c")("peer", [command(1)])


@pytest.mark.asyncio
async def test_it_is_a_consumer_behind_the_usual_routers() -> None:
    region = Recorder()
    routes = ChannelNameRouter({"sharding.cart": RegionConsumer.as_asgi(region=region)})
    application = ProtocolTypeRouter({"channel": routes})
    communicator = ApplicationCommunicator(application, {"type": "channel", "channel": "sharding.cart"})  # type: ignore[no-untyped-call]
    await communicator.send_input(deliver(command(1)))
    await communicator.send_input(deliver(command(2)))
    assert await communicator.receive_nothing()
    communicator.stop()
    assert region.got == [("peer", [command(1)]), ("peer", [command(2)])]


@pytest.mark.asyncio
async def test_only_registered_messages_in_the_known_form_are_handed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    region = Recorder()
    consumer = RegionConsumer(region)
    bad: list[dict[str, Any]] = [
        {"type": "region", "source": "peer", "messages": []},
        {"type": "receive"},
        {},
        deliver({"type": "Deliver"}),
        deliver(command(1), b"raw"),
        deliver(command(1), answer(2)),
        deliver(command(1), source=7),
        deliver(messages=None),
    ]
    for event in bad:
        await consumer.dispatch(event)
    assert consumer.refused == len(bad)
    assert region.got == []
    assert [record.message for record in caplog.records] == [
        "an event on a region's channel is dropped: its form"
    ]


@pytest.mark.asyncio
async def test_without_a_region_it_says_how_to_run_one(caplog: pytest.LogCaptureFixture) -> None:
    consumer = RegionConsumer()
    consumer.scope = {"type": "channel", "channel": "c"}  # type: ignore[typeddict-item]
    await consumer.dispatch(deliver(command(1)))
    assert consumer.refused == 1
    assert "sharding_node" in caplog.text
