"""The region endpoint: a Channels consumer for each entity type of a node.

The node itself feeds its consumers. `runworker` would not do. It sends every message through the
layer on its own and into an unbounded queue, drops pulled messages when a handler raises, stays up
but deaf when one of several channels fails, and knows no orderly end on SIGTERM. Besides, order,
repetition and bounds belong to links, which join processes, not types. So one receiver takes the
node's channel, the links put frames in order, and each type's messages are handed to its consumer a
batch at a time.

It is a consumer like any other: `RegionConsumer.as_asgi(region=…)` behind a ChannelNameRouter,
scope {"type": "channel", "channel": name}, events {"type": "sharding.deliver", "source":
incarnation, "messages": [...]}. It leaves out the parts that make the base class's dispatch slow: a
hop to a thread for each message to close old database connections (a region has none), and a
channel of its own (the node has one).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from channels.consumer import AsyncConsumer

from sharding_app.ports.transport import Endpoint, EnvelopeSink
from sharding_app.protocol.ids import Incarnation
from sharding_app.protocol.messages import Deliver

logger = logging.getLogger("sharding.region")

DELIVER = "sharding.deliver"
_MESSAGE_TYPES = frozenset({Deliver})


class RegionConsumer(AsyncConsumer):
    """Hands the messages of one type to its region: `region`, or the one in its scope."""

    def __init__(self, region: EnvelopeSink | None = None) -> None:
        self.region = region
        self.refused = 0

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        """Serve a scope of the type "channel" until cancelled. Nothing is ever sent back on it."""
        self.scope = scope
        while True:
            await self.dispatch(await receive())

    async def dispatch(self, message: Mapping[str, Any]) -> None:
        """Hand a batch over; count and drop any other event. Never waits."""
        region = self.region or cast("EnvelopeSink | None", self.scope.get("region"))
        source, messages = message.get("source"), message.get("messages")
        if (
            region is not None
            and message.get("type") == DELIVER
            and isinstance(source, str)
            and isinstance(messages, (list, tuple))
            and _MESSAGE_TYPES.issuperset(map(type, messages))
        ):
            region.receive(source, messages)
            return
        self.refused += 1
        if self.refused == 1:
            reason = (
                "it has no region: run nodes with `manage.py sharding_node`" if region is None else "its form"
            )
            logger.error(
                "an event on a region's channel is dropped: %s", reason, extra={"action": "region.refused"}
            )


def region_endpoint(region: EnvelopeSink, channel: str) -> Endpoint:
    """Return a function with which a node feeds the consumer of one type, a batch at a time."""
    consumer = RegionConsumer()
    consumer.scope = cast(Any, {"type": "channel", "channel": channel, "region": region})
    dispatch = consumer.dispatch

    def feed(source: Incarnation, messages: Sequence[Deliver]) -> None:
        # The dispatch never waits, so one step runs it through: no task, no trip through the loop.
        running = dispatch({"type": DELIVER, "source": source, "messages": messages})
        try:
            running.send(None)
        except StopIteration:
            return
        running.close()
        raise RuntimeError("a region consumer's dispatch must not wait")

    return feed
